//! DNS over TLS and over HTTPS against real servers on loopback.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::scripted::*;
use crate::tls::{authority, start_doh, start_dot};
use egret::resolve::{DnsServers, ResolveError, Resolver, ResolverError, ResolverSettings};

fn resolver(server: &str, ca: Option<&str>) -> Result<Resolver, ResolverError> {
    Resolver::new(ResolverSettings {
        servers: DnsServers::List(vec![server.parse().unwrap()]),
        timeout: Duration::from_secs(5),
        extra_ca_pem: ca.map(|pem| pem.as_bytes().to_vec()),
        ..ResolverSettings::default()
    })
}

fn good() -> std::sync::Arc<Answerer> {
    Answerer::new(|question| match question.kind {
        A => records([address(&question.name, "192.0.2.7", 0)]),
        _ => records([address(&question.name, "2001:db8::7", 0)]),
    })
}

async fn found(resolver: &Resolver) -> Result<Vec<IpAddr>, ResolveError> {
    Ok(resolver.lookup("a.test").await?.addresses.to_vec())
}

fn expected() -> Vec<IpAddr> {
    vec!["2001:db8::7".parse().unwrap(), "192.0.2.7".parse().unwrap()]
}

#[tokio::test]
async fn dns_over_tls() {
    let (ca, config) = authority(&["dns.test"], &[]);
    let answerer = good();
    let addr = start_dot(config, answerer.clone());
    let resolver = resolver(&format!("tls://{addr}#dns.test"), Some(&ca)).unwrap();
    for _ in 0..3 {
        assert_eq!(found(&resolver).await.unwrap(), expected());
    }
    assert!(answerer.questions().iter().all(|question| question.transport == "tls"));
    assert!(resolver.probe().await);
}

#[tokio::test]
async fn dns_over_https_by_address_and_by_name() {
    let (ca, config) = authority(&["127.0.0.1", "dns.test"], &[b"h2"]);
    let answerer = good();
    let addr = start_doh(config, answerer.clone());
    for name in ["", "#dns.test", "#127.0.0.1"] {
        let resolver = resolver(&format!("https://{addr}/dns-query{name}"), Some(&ca)).unwrap();
        for _ in 0..2 {
            assert_eq!(found(&resolver).await.unwrap(), expected(), "{name}");
        }
        assert!(resolver.probe().await);
    }
    assert!(answerer.questions().iter().all(|question| question.transport == "https"));
}

async fn refused(server: String, ca: Option<&str>) {
    let resolver = resolver(&server, ca).unwrap();
    let outcome = found(&resolver).await;
    assert!(
        matches!(&outcome, Err(ResolveError::Failed(cause)) if cause.contains("certificate")),
        "{server}: {outcome:?}"
    );
    assert!(!resolver.probe().await, "{server}");
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_before_any_question() {
    let (ca, config) = authority(&["dns.test"], &[b"h2"]);
    let (other_ca, _) = authority(&["dns.test"], &[]);
    let answerer = good();
    let dot: SocketAddr = start_dot(config.clone(), answerer.clone());
    let doh: SocketAddr = start_doh(config, answerer.clone());
    refused(format!("tls://{dot}#other.test"), Some(&ca)).await;
    refused(format!("tls://{dot}#dns.test"), None).await;
    refused(format!("tls://{dot}#dns.test"), Some(&other_ca)).await;
    refused(format!("https://{doh}/dns-query"), Some(&ca)).await;
    refused(format!("https://{doh}/dns-query#dns.test"), None).await;
    assert!(answerer.questions().is_empty());
}

#[tokio::test]
async fn a_useless_bundle_is_an_error_at_start() {
    for pem in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        let made = resolver("tls://127.0.0.1#dns.test", Some(pem));
        assert!(matches!(made, Err(ResolverError::Upstream(_))), "{pem:?}");
    }
}

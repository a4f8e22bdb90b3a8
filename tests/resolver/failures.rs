//! What the resolver makes of servers that fail.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::scripted::*;
use egret::resolve::{DnsServers, ResolveError, Resolver, ResolverSettings};

/// Nobody listens there: the servers of these tests are on 127.0.0.1.
const CLOSED: &str = "127.0.0.9:9";

fn resolver_of(servers: &[&str], timeout: Duration) -> Resolver {
    let specs = servers.iter().map(|server| server.parse().unwrap()).collect();
    let servers = DnsServers::List(specs);
    Resolver::new(ResolverSettings { servers, timeout, ..ResolverSettings::default() }).unwrap()
}

fn resolver(server: &DnsServer) -> Resolver {
    resolver_of(&[&server.addr.to_string()], Duration::from_secs(5))
}

async fn addresses(resolver: &Resolver, name: &str) -> Result<Vec<String>, ResolveError> {
    let answer = resolver.lookup(name).await?;
    Ok(answer.addresses.iter().map(IpAddr::to_string).collect())
}

fn good(question: &Question) -> Vec<Reply> {
    match question.kind {
        A => records([address(&question.name, "192.0.2.7", 60)]),
        _ => nothing(),
    }
}

#[tokio::test]
async fn a_silent_family_costs_a_second_at_most() {
    let server = DnsServer::start(|question| if question.kind == A { good(question) } else { silence() });
    let start = Instant::now();
    assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"]);
    assert!(start.elapsed() < Duration::from_millis(1900), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_broken_family_does_not_break_the_other() {
    for rcode in [SERVFAIL, NXDOMAIN, 5] {
        let server = DnsServer::start(move |question| match question.kind {
            A => good(question),
            _ => code(rcode),
        });
        assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["192.0.2.7"], "{rcode}");
        let server = DnsServer::start(move |question| match question.kind {
            AAAA => records([address(&question.name, "2001:db8::7", 60)]),
            _ => code(rcode),
        });
        assert_eq!(addresses(&resolver(&server), "a.test").await.unwrap(), ["2001:db8::7"], "{rcode}");
    }
}

#[tokio::test]
async fn absence_tells_names_from_addresses() {
    let server = DnsServer::start(|question| match (&*question.name, question.kind) {
        ("no-name.test.", _) => code(NXDOMAIN),
        ("alias.test.", _) => vec![Reply {
            rcode: NXDOMAIN,
            answers: vec![cname("alias.test", "gone.test", 60)],
            ..Reply::default()
        }],
        ("half.test.", A) => code(NXDOMAIN),
        _ => vec![Reply { authorities: vec![soa("test", 3600, 3600)], ..Reply::default() }],
    });
    let resolver = resolver(&server);
    for (name, nxdomain) in
        [("no-name.test", true), ("alias.test", true), ("half.test", false), ("empty.test", false)]
    {
        assert_eq!(addresses(&resolver, name).await, Err(ResolveError::NotFound { nxdomain }), "{name}");
    }
}

#[tokio::test]
async fn error_codes_are_final_and_named() {
    for (rcode, text) in
        [(1, "FORMERR"), (SERVFAIL, "SERVFAIL"), (4, "NOTIMP"), (5, "REFUSED"), (9, "RCODE 9")]
    {
        let server = DnsServer::start(move |_| code(rcode));
        let other = DnsServer::start(good);
        let both = [server.addr.to_string(), other.addr.to_string()];
        let resolver = resolver_of(&both.each_ref().map(String::as_str), Duration::from_secs(5));
        let error = addresses(&resolver, "a.test").await.unwrap_err();
        assert!(matches!(&error, ResolveError::Failed(cause) if cause.contains(text)), "{rcode}: {error:?}");
        assert_eq!(server.count("a.test.", A), 1, "{rcode}");
        assert!(other.answerer.questions().is_empty(), "{rcode}: another source was asked");
    }
}

#[tokio::test]
async fn absence_with_one_family_failing_is_a_failure() {
    let server = DnsServer::start(|question| if question.kind == A { code(SERVFAIL) } else { nothing() });
    let found = addresses(&resolver(&server), "a.test").await;
    assert!(matches!(found, Err(ResolveError::Failed(_))), "{found:?}");
}

#[tokio::test]
async fn malformed_answers_fail() {
    let server = DnsServer::start(|question| {
        let name = &question.name;
        match &**name {
            "long.test." => records([record(name, question.kind, IN, 60, &[0; 20])]),
            "short.test." => records([record(name, question.kind, IN, 60, &[10, 0, 0])]),
            "swapped.test." if question.kind == A => records([record(name, A, IN, 60, &[0; 16])]),
            "swapped.test." => records([record(name, AAAA, IN, 60, &[0; 4])]),
            "class.test." => records([record(name, question.kind, CH, 60, &[127, 0, 0, 1])]),
            "pointer.test." => {
                records([[&[0xC0, 0xFF][..], &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1]].concat()])
            }
            "rest.test." => {
                let mut cut = address(name, "127.0.0.1", 60);
                cut.truncate(cut.len() - 2);
                records([cut])
            }
            _ => Vec::new(),
        }
    });
    let resolver = resolver(&server);
    for name in ["long.test", "short.test", "swapped.test", "class.test", "pointer.test", "rest.test"] {
        match addresses(&resolver, name).await {
            Err(ResolveError::Failed(cause)) => {
                assert!(!cause.contains(char::is_control) && cause.chars().count() <= 160, "{name}: {cause}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_none() {
    let script = |question: &Question| {
        vec![Reply {
            other_question: Some("other.test"),
            answers: vec![address(&question.name, "127.0.0.1", 60)],
            ..Reply::default()
        }]
    };
    let server = DnsServer::start(script);
    let udp = resolver_of(&[&server.addr.to_string()], Duration::from_millis(500));
    assert_eq!(addresses(&udp, "a.test").await, Err(ResolveError::Timeout));
    let tcp = resolver_of(&[&format!("tcp://{}", server.addr)], Duration::from_secs(5));
    let found = addresses(&tcp, "a.test").await;
    assert!(
        matches!(&found, Err(ResolveError::Failed(cause)) if cause.contains("another question")),
        "{found:?}"
    );
}

#[tokio::test]
async fn service_returns_within_seconds_after_a_failure() {
    for failure in [
        code(SERVFAIL),
        code(NXDOMAIN),
        nothing(),
        vec![Reply { rcode: NXDOMAIN, authorities: vec![soa("test", 3600, 3600)], ..Reply::default() }],
    ] {
        let healthy = Arc::new(AtomicBool::new(false));
        let switch = Arc::clone(&healthy);
        let server =
            DnsServer::start(
                move |question| {
                    if switch.load(Ordering::SeqCst) { good(question) } else { failure.clone() }
                },
            );
        let resolver = resolver(&server);
        for _ in 0..20 {
            assert!(addresses(&resolver, "a.test").await.is_err());
        }
        // A failure is remembered for a moment, too.
        assert_eq!(server.count("a.test.", A), 1);
        healthy.store(true, Ordering::SeqCst);
        let start = Instant::now();
        while addresses(&resolver, "a.test").await.is_err() {
            assert!(start.elapsed() < Duration::from_secs(5), "still failing");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn a_silent_first_server_is_followed_by_the_second_and_then_asked_last() {
    let silent = DnsServer::start(|_| silence());
    let server = DnsServer::start(good);
    let both = [silent.addr.to_string(), server.addr.to_string()];
    let resolver = resolver_of(&both.each_ref().map(String::as_str), Duration::from_secs(2));
    assert_eq!(addresses(&resolver, "a.test").await.unwrap(), ["192.0.2.7"]);
    assert!(silent.count("a.test.", A) >= 1);
    assert_eq!(addresses(&resolver, "b.test").await.unwrap(), ["192.0.2.7"]);
    assert_eq!(silent.count("b.test.", A), 0);
}

#[tokio::test]
async fn a_closed_port_is_passed_over() {
    let server = DnsServer::start(good);
    let resolver = resolver_of(&[CLOSED, &server.addr.to_string()], Duration::from_secs(5));
    assert_eq!(addresses(&resolver, "a.test").await.unwrap(), ["192.0.2.7"]);
    let alone = resolver_of(&[CLOSED], Duration::from_secs(5));
    let found = addresses(&alone, "a.test").await;
    assert!(
        matches!(&found, Err(ResolveError::Failed(cause)) if cause.contains("could be reached")),
        "{found:?}"
    );
}

#[tokio::test]
async fn silence_everywhere_ends_in_time() {
    let (one, two) = (DnsServer::start(|_| silence()), DnsServer::start(|_| silence()));
    let hanging = TcpListener::bind("127.0.0.1:0").unwrap();
    let tls = format!("tls://{}#dns.test", hanging.local_addr().unwrap());
    for servers in [vec![one.addr.to_string()], vec![one.addr.to_string(), two.addr.to_string()], vec![tls]] {
        let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
        let limit = Duration::from_secs(2);
        let resolver = resolver_of(&servers, limit);
        let start = Instant::now();
        assert_eq!(addresses(&resolver, "a.test").await, Err(ResolveError::Timeout), "{servers:?}");
        assert!(start.elapsed() < limit + Duration::from_millis(500), "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn the_probe_takes_any_answer() {
    let silent = DnsServer::start(|_| silence());
    let limit = Duration::from_secs(5);
    for (script, answers) in [(code(SERVFAIL), true), (code(5), true), (nothing(), true), (silence(), false)]
    {
        let server = DnsServer::start(move |_| script.clone());
        let resolver = resolver_of(&[CLOSED, &silent.addr.to_string(), &server.addr.to_string()], limit);
        let start = Instant::now();
        assert_eq!(resolver.probe().await, answers);
        assert!(start.elapsed() < Duration::from_millis(1500));
    }
}

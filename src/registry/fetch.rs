//! One question to a registry: a GET without credentials, over a way that the policy decides, with
//! limits to everything. Every redirect is decided again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use egret_policy::reader::read_document;
use egret_policy::{Destination, Host, Policy, Problems, Reason, Refusal, Route, SourceFile, Surroundings};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONNECTION, HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::place::Place;
use crate::egress::Errand;

/// Redirects that are followed.
const REDIRECTS: usize = 5;
/// Time for one question, with all its redirects.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest head of an answer, in octets.
const HEAD: usize = 64 * 1024;
/// The policy under which questions are asked.
const POLICY: &str = "registry";

/// Asks registries.
pub struct Fetcher {
    errand: Errand,
    private: Vec<IpNet>,
    tls: Option<TlsConnector>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    /// Where it came from in the end.
    pub(super) place: Place,
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// No more of it than was asked for.
    pub(super) body: Bytes,
    /// Where redirects led.
    pub(super) passed: Vec<Place>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Silence {
    #[error("egret may not ask it: {0}")]
    Refused(String),
    #[error("no root certificates here; name a file of them in SSL_CERT_FILE")]
    NoRoots,
    #[error("TLS: {0}")]
    Tls(std::io::Error),
    #[error("HTTP: {0}")]
    Http(String),
    #[error("no answer in time")]
    Time,
    #[error("more than {REDIRECTS} redirects")]
    Redirects,
    #[error("it redirects from TLS to plain HTTP")]
    Downgrade,
    #[error("it redirects to no http:// or https:// URL")]
    Elsewhere,
}

impl From<Refusal> for Silence {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(words(&refusal))
    }
}

/// A refusal as a person reads it.
pub(super) fn words(refusal: &Refusal) -> String {
    let detail = refusal.detail.as_deref().map(|detail| format!(" ({detail})")).unwrap_or_default();
    match refusal.reason {
        Reason::AddressNotAllowed | Reason::MixedAnswer => {
            format!("it is at an address that is not public{detail}; name its network with --private CIDR")
        }
        reason => format!("{}{detail}", reason.code()),
    }
}

impl Fetcher {
    /// `private` are networks that named registries may be in; the certificates are the system's, or
    /// those of `SSL_CERT_FILE`.
    ///
    /// # Errors
    /// A network that no rule may name.
    pub fn new(errand: Errand, private: Vec<IpNet>) -> Result<Self, Problems> {
        let fetcher = Self { errand, private, tls: connector() };
        // What no rule may unlock shows here.
        if let Ok(place) = Place::parse("http://registry.invalid/") {
            fetcher.policy(place.destination(), true)?;
        }
        Ok(fetcher)
    }

    /// Asks for a place. `unlocked`: may it be in a private network that the operator named?
    pub(super) async fn get(
        &self,
        place: &Place,
        accept: &'static str,
        most: usize,
        unlocked: impl Fn(&Place) -> bool,
    ) -> Result<Reply, Silence> {
        timeout(PATIENCE, self.follow(place, accept, most, unlocked)).await.map_err(|_| Silence::Time)?
    }

    async fn follow(
        &self,
        place: &Place,
        accept: &'static str,
        most: usize,
        unlocked: impl Fn(&Place) -> bool,
    ) -> Result<Reply, Silence> {
        let mut place = place.clone();
        let mut passed = Vec::new();
        for _ in 0..=REDIRECTS {
            let reply = self.once(&place, accept, most, unlocked(&place)).await?;
            let location = reply.headers.get(LOCATION).filter(|_| reply.status.is_redirection());
            let Some(location) = location else {
                return Ok(Reply { passed, ..reply });
            };
            let next = location.to_str().ok().and_then(|location| place.join(location).ok());
            let next = next.ok_or(Silence::Elsewhere)?;
            if place.secure() && !next.secure() {
                return Err(Silence::Downgrade);
            }
            passed.push(next.clone());
            place = next;
        }
        Err(Silence::Redirects)
    }

    async fn once(
        &self,
        place: &Place,
        accept: &'static str,
        most: usize,
        unlocked: bool,
    ) -> Result<Reply, Silence> {
        let to = place.destination();
        let route = self.look(to, unlocked).await?;
        let (stream, early) = self.errand.dial(to, &route).await?;
        if !early.is_empty() {
            return Err(Silence::Http("it sent something before it was asked".to_owned()));
        }
        if !place.secure() {
            return exchange(stream, place, accept, most).await;
        }
        let name = match to.host() {
            Host::Name(name) => ServerName::try_from(name.as_str().to_owned()),
            Host::Address(address) => Ok(ServerName::from(*address)),
        };
        let name = name.map_err(|error| Silence::Http(error.to_string()))?;
        let tls = self.tls.as_ref().ok_or(Silence::NoRoots)?;
        let stream = tls.connect(name, stream).await.map_err(Silence::Tls)?;
        exchange(stream, place, accept, most).await
    }

    /// Where a destination leads, if it may be reached.
    pub(super) async fn look(&self, to: &Destination, unlocked: bool) -> Result<Route, Refusal> {
        let policy = self.policy(to, unlocked);
        let policy = policy
            .map_err(|_| Refusal::new(Reason::DomainDenied).with_detail("a rule can't be written for it"))?;
        self.errand.look(&Arc::new(policy), POLICY, to).await
    }

    /// The networks of `--private` that an address is in.
    pub(super) fn networks(&self, address: IpAddr) -> impl Iterator<Item = &IpNet> {
        self.private.iter().filter(move |net| net.contains(&address))
    }

    /// A policy that allows this destination at public addresses, and unlocked at private ones too.
    fn policy(&self, to: &Destination, unlocked: bool) -> Result<Policy, Problems> {
        let networks: Vec<_> = self.private.iter().map(|net| format!("\"{net}\"")).collect();
        let (port, networks) = (to.port(), networks.join(", "));
        let mut text = format!("[policy.{POLICY}]\n");
        let domains = to.host().name().map(|name| format!("domains = [\"{}\"]\n", name.as_str()));
        if let Some(domains) = &domains {
            text.push_str(&format!("[[policy.{POLICY}.allow]]\n{domains}ports = [{port}]\n"));
        }
        if unlocked && !networks.is_empty() {
            let domains = domains.unwrap_or_default();
            let rule = format!("{domains}ports = [{port}]\naddresses = [{networks}]\n");
            text.push_str(&format!("[[policy.{POLICY}.allow]]\n{rule}"));
        }
        let file = SourceFile::new("--private", text);
        let mut problems = Problems::default();
        let around = Surroundings { generation: 1, ..Surroundings::default() };
        let mut fetch = |_: &str| Err("there is none".to_owned());
        let own = read_document(&file, &mut problems, |mut root, problems| {
            Policy::read(&mut root, around, &mut fetch, problems)
        });
        if problems.any_error() { Err(problems) } else { Ok(self.errand.policy.with_policies_of(own)) }
    }
}

/// With the system's certificates; `None` where there are none.
fn connector() -> Option<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Some(TlsConnector::from(Arc::new(config)))
}

/// Sends a request and reads the answer, no more of its body than `most`.
async fn exchange<S>(stream: S, place: &Place, accept: &'static str, most: usize) -> Result<Reply, Silence>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let failed = |error: hyper::Error| Silence::Http(error.to_string());
    let request = Request::get(place.path())
        .header(HOST, place.destination().host_field())
        .header(ACCEPT, accept)
        .header(ACCEPT_ENCODING, "identity")
        .header(USER_AGENT, concat!("egret/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Silence::Http(error.to_string()))?;
    let opened = http1::Builder::new().max_buf_size(HEAD).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(failed)?;
    let driver = tokio::spawn(connection);
    let answered = sender.send_request(request).await;
    let (head, mut body) = match answered {
        Ok(response) => response.into_parts(),
        Err(error) => {
            driver.abort();
            return Err(failed(error));
        }
    };
    let mut whole = BytesMut::new();
    while whole.len() < most
        && let Some(frame) = body.frame().await
    {
        if let Some(data) = frame.map_err(failed)?.data_ref() {
            whole.extend_from_slice(data);
        }
    }
    // What is left of a long answer is nobody's.
    driver.abort();
    whole.truncate(most);
    let (place, status, headers) = (place.clone(), head.status, head.headers);
    Ok(Reply { place, status, headers, body: whole.freeze(), passed: Vec::new() })
}

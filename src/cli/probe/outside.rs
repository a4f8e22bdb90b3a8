//! The run from outside: tries what must be blocked inside, and writes down what answered.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::baseline::Baseline;
use super::check::Kind;
use super::decisions::{Place, is_tls, redirect_key, sni_key};
use super::direct::{answer_key, speak};
use super::names::name_key;
use super::packet::client_hello;
use super::proxy::read_answer;
use super::socket::{self, Reach, nothing};
use super::target::{Target, Way};

/// What is tried from outside.
#[derive(Debug, Default)]
pub(super) struct Outside {
    pub(super) targets: Vec<Target>,
    pub(super) names: Vec<String>,
    /// Allowed and refused ones.
    pub(super) places: Vec<Place>,
    pub(super) redirects: Vec<String>,
    /// The server name that nobody asked for.
    pub(super) other_name: String,
}

type Attempt = Pin<Box<dyn Future<Output = Reach> + Send>>;

/// Tries everything, and tells each target with what came of it.
pub(super) async fn run(
    outside: Outside,
    patience: Duration,
    mut tell: impl FnMut(&str, &Reach),
) -> Baseline {
    let mut baseline = Baseline::new();
    let mut seen = BTreeSet::new();
    let mut started = Vec::new();
    for (key, attempt) in attempts(outside, patience) {
        if seen.insert(key.clone()) {
            started.push((key, tokio::spawn(attempt)));
        }
    }
    for (key, task) in started {
        let broke = |_| Reach::new(Kind::Other, "the attempt itself broke; this is a fault of egret");
        let reach = task.await.unwrap_or_else(broke);
        tell(&key, &reach);
        baseline.note(&key, &reach);
    }
    baseline
}

fn attempts(outside: Outside, patience: Duration) -> Vec<(String, Attempt)> {
    let mut out: Vec<(String, Attempt)> = Vec::new();
    for target in outside.targets {
        out.push((target.to_string(), Box::pin(async move { socket::reach(&target, patience).await })));
        if target.way == Way::Tcp {
            out.push((answer_key(&target), Box::pin(async move { answer(&target, patience).await })));
        }
    }
    for name in outside.names {
        out.push((name_key(&name), Box::pin(async move { resolves(&name, patience).await })));
    }
    for place in outside.places {
        let key = place.key();
        if place.is_tls() {
            let (place, other) = (place.clone(), outside.other_name.clone());
            out.push((sni_key(&place, &other), Box::pin(async move { tls(&place, &other, patience).await })));
        }
        out.push((key, Box::pin(async move { opened(&place, patience).await })));
    }
    for url in outside.redirects {
        out.push((redirect_key(&url), Box::pin(async move { redirects(&url, patience).await })));
    }
    out
}

async fn answer(target: &Target, patience: Duration) -> Reach {
    match socket::connect(target.address, patience).await {
        Ok(stream) => speak(stream, target.address.port(), patience).await.reach(),
        Err(reach) => reach,
    }
}

async fn resolves(name: &str, patience: Duration) -> Reach {
    match socket::look_up(name, 80, patience).await {
        Ok(found) if !found.is_empty() => Reach::new(Kind::Reached, format!("{} addresses", found.len())),
        Ok(_) => Reach::new(Kind::Unreachable, "no address"),
        Err(reach) => reach,
    }
}

/// A connection to the first address of a place that takes one.
async fn open(place: &Place, patience: Duration) -> Result<tokio::net::TcpStream, Reach> {
    let mut last = Reach::new(Kind::Unreachable, "no address");
    for address in socket::look_up(&place.host, place.port, patience).await? {
        match socket::connect(address, patience).await {
            Ok(stream) => return Ok(stream),
            Err(reach) => last = reach,
        }
    }
    Err(last)
}

async fn opened(place: &Place, patience: Duration) -> Reach {
    open(place, patience).await.map_or_else(|reach| reach, |_| Reach::new(Kind::Reached, "connected"))
}

/// Does the server answer to a name that is not its own? If not, its silence inside shows nothing.
async fn tls(place: &Place, name: &str, patience: Duration) -> Reach {
    let talk = async {
        let mut stream = open(place, patience).await?;
        let hello = client_hello(name).map_err(|detail| Reach::new(Kind::Other, detail))?;
        stream.write_all(&hello).await?;
        let mut octets = [0; 512];
        let length = stream.read(&mut octets).await?;
        Ok::<_, Reach>(match octets.get(..length) {
            Some(octets) if is_tls(octets) => Reach::new(Kind::Reached, format!("answered, {length} octets")),
            _ => Reach::new(Kind::Refused, "closed, or answered with something that is not TLS"),
        })
    };
    let limited = timeout(patience * 2, talk).await;
    limited.unwrap_or_else(|_| Err(nothing(patience))).unwrap_or_else(|reach| reach)
}

async fn redirects(url: &str, patience: Duration) -> Reach {
    let talk = async {
        let place: Place = url.parse().map_err(|detail: String| Reach::new(Kind::Other, detail))?;
        let mut stream = open(&place, patience).await?;
        let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
        let path = path.map_or("", |(_, path)| path);
        let request =
            format!("GET /{path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", place.authority);
        stream.write_all(request.as_bytes()).await?;
        let answer = read_answer(&mut stream).await?;
        let redirect = (300..400).contains(&answer.status) && answer.location.is_some();
        let kind = if redirect { Kind::Reached } else { Kind::Other };
        Ok::<_, Reach>(Reach::new(kind, format!("status {}", answer.status)))
    };
    let limited = timeout(patience * 2, talk).await;
    limited.unwrap_or_else(|_| Err(nothing(patience))).unwrap_or_else(|reach| reach)
}

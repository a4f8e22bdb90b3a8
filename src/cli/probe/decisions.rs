//! What the policy says to this sandbox: something is allowed, something is refused, and neither a
//! redirect nor another server name leads around that.

use std::str::FromStr;
use std::sync::Arc;

use super::Context;
use super::baseline::Known;
use super::check::{Outcome, Plan, Verdict};
use super::packet::client_hello;
use super::proxy::{Answer, Proxy, UNKNOWN_NAME, refusal};
use super::socket::Reach;
use super::tls::Stream;

/// What may be asked of the proxy: a URL or `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// As written.
    text: String,
    /// `host:port`, as CONNECT has it.
    pub(super) authority: String,
    pub(super) host: String,
    pub(super) port: u16,
    /// An `http://` URL, which the proxy fetches itself.
    plain: bool,
    /// What is spoken there begins with a ClientHello.
    tls: bool,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{}` is neither a URL nor host:port", text.escape_debug());
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(wrong());
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let default_port = match scheme.to_ascii_lowercase().as_str() {
            "" => None,
            "http" => Some(80),
            "https" => Some(443),
            _ => return Err(wrong()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if default_port.is_none() && authority != rest || authority.contains('@') {
            return Err(wrong());
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, digits)) if !digits.contains(']') => {
                (host, digits.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?)
            }
            _ => (authority, default_port.ok_or_else(wrong)?),
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || !bracketed && host.contains([':', '[', ']']) {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            authority: format!("{host}:{port}"),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port,
            plain: default_port == Some(80),
            tls: default_port == Some(443) || default_port.is_none() && port == 443,
        })
    }
}

impl Place {
    /// Under which name a baseline has it.
    pub(super) fn key(&self) -> String {
        format!("connect {}", self.authority)
    }

    /// Can the names in TLS be compared there?
    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    async fn ask(&self, proxy: &Proxy) -> Result<Answer, Reach> {
        if self.plain {
            return proxy.get(&self.text).await;
        }
        proxy.connect(&self.authority).await.map(|(answer, _)| answer)
    }
}

/// Under which name a baseline has that a server answers whatever name it is asked for.
pub(super) fn sni_key(place: &Place, other: &str) -> String {
    format!("tls {} as {other}", place.authority)
}

/// Under which name a baseline has that a URL redirects.
pub(super) fn redirect_key(url: &str) -> String {
    format!("redirect {url}")
}

/// What a check needs of the proxy, or why it can't be made.
macro_rules! proxy_of {
    ($context:expr) => {
        match &$context.proxy {
            Ok(proxy) => proxy,
            Err(why) => return Outcome::unsupported(why),
        }
    };
}

/// Adds a check of each allowed destination.
pub(super) fn plan_allowed(context: &Arc<Context>, places: &[Place], plan: &mut Plan) {
    if places.is_empty() {
        let detail = "name a URL or host:port that the policy allows, with --allowed";
        plan.known("allowed", "-", Outcome::unsupported(detail));
    }
    for place in places {
        plan_success(context, "allowed", place, plan);
    }
}

/// A check that the proxy leads there, as a site's own list says.
pub(super) fn plan_expected(context: &Arc<Context>, place: &Place, plan: &mut Plan) {
    plan_success(context, "expected", place, plan);
}

fn plan_success(context: &Arc<Context>, group: &'static str, place: &Place, plan: &mut Plan) {
    let (context, place) = (Arc::clone(context), place.clone());
    plan.add(group, place.text.clone(), async move { allowed(proxy_of!(context), &place).await });
}

async fn allowed(proxy: &Proxy, place: &Place) -> Outcome {
    if place.plain {
        return match place.ask(proxy).await {
            Ok(answer) if answer.reason.is_none() && answer.status < 500 && answer.status != 407 => {
                Outcome::pass(format!("status {}", answer.status))
            }
            Ok(answer) => Outcome::fail(answer.describe()),
            Err(reach) => Outcome::fail(reach.detail).of(reach.kind),
        };
    }
    let tunnel = match proxy.connect(&place.authority).await {
        Ok((answer, tunnel)) if answer.status == 200 => tunnel,
        Ok((answer, _)) => return Outcome::fail(answer.describe()),
        Err(reach) => return Outcome::fail(reach.detail).of(reach.kind),
    };
    if !place.tls {
        return Outcome::pass("status 200");
    }
    match greet(proxy, tunnel, &place.host).await {
        Greeted::Answered(octets) => Outcome::pass(format!("status 200, and {octets} octets of TLS")),
        Greeted::Closed => Outcome::fail("the tunnel was closed where the right server name was asked for"),
        Greeted::Failed(detail) => Outcome::fail(detail),
    }
}

/// Adds a check of each destination that must be refused: with CONNECT, and for names as a GET.
pub(super) fn plan_refused(context: &Arc<Context>, places: &[Place], plan: &mut Plan) {
    let unknown = [format!("{UNKNOWN_NAME}:443"), format!("http://{UNKNOWN_NAME}/")];
    let unknown: Vec<Place> = unknown.iter().filter_map(|text| text.parse().ok()).collect();
    for place in if places.is_empty() { &unknown } else { places } {
        plan_refusal(context, "refused", place, &[], plan);
    }
}

/// A check that something is refused through the proxy, with one of these reasons if there are any.
pub(super) fn plan_refusal(
    context: &Arc<Context>,
    group: &'static str,
    place: &Place,
    reasons: &[String],
    plan: &mut Plan,
) {
    let (context, place, reasons) = (Arc::clone(context), place.clone(), reasons.to_vec());
    plan.add(group, place.text.clone(), async move {
        let reasons: Vec<_> = reasons.iter().map(String::as_str).collect();
        let outcome = refusal(place.ask(proxy_of!(context)).await, &reasons);
        // A refusal with a reason needs no proof from outside, but is the better for it.
        if context.knows(&place.key()) == Known::Reached { outcome.countered() } else { outcome }
    });
}

/// Adds a check of each URL that redirects to where this sandbox may not go.
pub(super) fn plan_redirects(context: &Arc<Context>, urls: &[String], plan: &mut Plan) {
    if urls.is_empty() {
        let detail =
            "name an http:// URL of an allowed destination that redirects to a refused one, with --redirect";
        plan.known("redirect", "-", Outcome::unsupported(detail));
    }
    for url in urls {
        let (context, url) = (Arc::clone(context), url.clone());
        plan.add("redirect", url.clone(), async move {
            let answer = proxy_of!(context).get(&url).await;
            if let Ok(answer) = &answer
                && answer.reason.is_none()
            {
                return match &answer.location {
                    Some(to) if (300..400).contains(&answer.status) => {
                        Outcome::fail(format!("{} to {} was let through", answer.status, to.escape_debug()))
                    }
                    _ => Outcome::fail(format!("{}, which is no redirect", answer.describe())),
                };
            }
            let outcome = refusal(answer, &["redirect_denied"]);
            match context.knows(&redirect_key(&url)) {
                Known::Reached => outcome.countered(),
                _ => outcome,
            }
        });
    }
}

/// Adds a check for each allowed TLS destination that no other server name passes.
pub(super) fn plan_sni(context: &Arc<Context>, places: &[Place], other: &str, plan: &mut Plan) {
    let mut any = false;
    for place in places.iter().filter(|place| place.tls) {
        any = true;
        let (context, place, other) = (Arc::clone(context), place.clone(), other.to_owned());
        let subject = format!("{} as {other}", place.authority);
        plan.add("sni", subject, async move { sni(&context, &place, &other).await });
    }
    if !any {
        let detail = "name an https:// URL or host:443 that the policy allows, with --allowed";
        plan.known("sni", "-", Outcome::unsupported(detail));
    }
}

async fn sni(context: &Context, place: &Place, other: &str) -> Outcome {
    let proxy = proxy_of!(context);
    let tunnel = match proxy.connect(&place.authority).await {
        Ok((answer, tunnel)) if answer.status == 200 => tunnel,
        Ok((answer, _)) => return Outcome::unsupported(format!("there is no tunnel: {}", answer.describe())),
        Err(reach) => return Outcome::fail(format!("there is no tunnel: {}", reach.detail)),
    };
    let closed = match greet(proxy, tunnel, other).await {
        Greeted::Closed => "closed without an octet",
        Greeted::Answered(octets) => return Outcome::fail(format!("answered, {octets} octets")),
        Greeted::Failed(detail) => return Outcome::fail(format!("neither closed nor answered: {detail}")),
    };
    // The countercheck of this run: the same tunnel answers to its own name.
    let own = allowed(proxy, place).await;
    if own.verdict != Verdict::Pass {
        return Outcome::unsupported(format!("{closed}, but so with its own name: {}", own.detail));
    }
    match context.knows(&sni_key(place, other)) {
        Known::Reached => Outcome::pass(closed).countered(),
        Known::Not(why) => Outcome::unsupported(format!("{closed}; {why}")),
        Known::Nothing => Outcome::pass(format!("{closed}; its own name is answered")),
    }
}

/// What came of a ClientHello in a tunnel.
enum Greeted {
    Answered(usize),
    Closed,
    Failed(String),
}

async fn greet(proxy: &Proxy, tunnel: Stream, name: &str) -> Greeted {
    let hello = match client_hello(name) {
        Ok(hello) => hello,
        Err(detail) => return Greeted::Failed(detail),
    };
    match proxy.through(tunnel, &hello).await {
        Ok(octets) if octets.is_empty() => Greeted::Closed,
        Ok(octets) if is_tls(&octets) => Greeted::Answered(octets.len()),
        Ok(_) => Greeted::Failed("what came back is not TLS".to_owned()),
        Err(reach) => Greeted::Failed(reach.detail),
    }
}

/// A handshake record, or an alert, which servers send too (RFC 8446 section 5.1).
pub(super) fn is_tls(octets: &[u8]) -> bool {
    matches!(octets, [0x15 | 0x16, 3, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read() {
        let place = |text: &str| text.parse::<Place>().unwrap();
        let http = place("http://a.example/x:y");
        assert_eq!((http.authority.as_str(), http.plain, http.tls), ("a.example:80", true, false));
        let https = place("HTTPS://a.example:8443/");
        assert_eq!((https.authority.as_str(), https.plain, https.tls), ("a.example:8443", false, true));
        let tunnel = place("[2001:db8::1]:443");
        assert_eq!((tunnel.host.as_str(), tunnel.authority.as_str()), ("2001:db8::1", "[2001:db8::1]:443"));
        assert!(tunnel.is_tls() && !place("a.example:22").is_tls());
        for wrong in [
            "",
            "a.example",
            "a.example:",
            "a.example:0",
            "ftp://a.example/",
            "http://",
            "a b:80",
            ":80",
            "2001:db8::1:80",
            "http://u@a.example/",
            "a.example:80/x",
        ] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}

//! Ways past the proxy, which must fail at the network.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Context;
use super::baseline::Known;
use super::check::{Kind, Outcome, Plan};
use super::packet;
use super::proxy::{UNKNOWN_NAME, read_answer};
use super::socket::{self, Reach, nothing};
use super::target::{Target, Way};

/// Adds a check for each target.
pub(super) fn plan(context: &Arc<Context>, group: &'static str, targets: &[Target], plan: &mut Plan) {
    for target in targets {
        let (context, target) = (Arc::clone(context), *target);
        plan.add(group, target.to_string(), async move { check(&context, &target).await });
    }
}

async fn check(context: &Context, target: &Target) -> Outcome {
    let _turn = context.turn().await;
    let key = target.to_string();
    if !context.transparent || target.way != Way::Tcp {
        return judge(target.way, socket::reach(target, context.patience).await, context.knows(&key));
    }
    match socket::connect(target.address, context.patience).await {
        Err(reach) => judge(Way::Tcp, reach, context.knows(&key)),
        Ok(stream) => {
            let known = context.knows(&answer_key(target));
            judge_taken(speak(stream, target.address.port(), context.patience).await, known)
        }
    }
}

/// What a failed or successful attempt says, given what is known from outside.
pub(super) fn judge(way: Way, reach: Reach, known: Known) -> Outcome {
    let Reach { kind, detail } = reach;
    let outcome = match (kind, known) {
        (Kind::Reached, Known::Reached) => Outcome::fail(detail).countered(),
        (Kind::Reached, _) => Outcome::fail(detail),
        // No target is spoken to in TLS, so a handshake says nothing of one.
        (Kind::Other | Kind::Handshake, _) => Outcome::unsupported(detail),
        (_, Known::Not(why)) => Outcome::unsupported(format!("{detail}; {why}")),
        (_, Known::Reached) => Outcome::pass(detail).countered(),
        (Kind::Unreachable | Kind::Permission, Known::Nothing) => Outcome::pass(detail),
        (Kind::TimedOut, Known::Nothing) if way == Way::Tcp => Outcome::pass(detail),
        (Kind::TimedOut, Known::Nothing) => Outcome::unsupported(format!(
            "{detail}; whether it is blocked or does not answer, only a baseline can tell"
        )),
        (Kind::Refused, Known::Nothing) => Outcome::unsupported(format!(
            "{detail}; a firewall that rejects and a host with a closed port look the same without a baseline"
        )),
    };
    outcome.of(kind)
}

/// A record of TLS with the fatal alert `access_denied` (RFC 8446 section 6.2), and no other.
const DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Under which name a baseline has what came of talking to a target.
pub(super) fn answer_key(target: &Target) -> String {
    format!("answer {target}")
}

/// What came of talking on an open connection.
pub(super) enum Spoken {
    /// It was ended, by this sign alone.
    Closed(&'static str),
    /// egret's own refusal came.
    Refused(String),
    /// Octets of somebody else's.
    Octets(String),
    /// Neither.
    Silence(Reach),
}

impl Spoken {
    /// For the baseline: did anybody answer?
    pub(super) fn reach(self) -> Reach {
        match self {
            Self::Octets(detail) => Reach::new(Kind::Reached, detail),
            Self::Closed(how) => Reach::new(Kind::Refused, format!("connected, then {how}")),
            Self::Refused(reason) => Reach::new(Kind::Refused, format!("refused by egret: {reason}")),
            Self::Silence(reach) => reach,
        }
    }
}

/// Says what a client of that port says first, for a name that nothing allows, and listens.
pub(super) async fn speak(mut stream: TcpStream, port: u16, patience: Duration) -> Spoken {
    let tls = matches!(port, 443 | 853 | 8443);
    let first = if tls {
        packet::client_hello(UNKNOWN_NAME).unwrap_or_default()
    } else {
        format!("GET / HTTP/1.1\r\nHost: {UNKNOWN_NAME}\r\n\r\n").into_bytes()
    };
    let talk = async {
        // Where the peer has closed already, reading says so.
        let _ = stream.write_all(&first).await;
        if !tls && let Ok(answer) = read_answer(&mut stream).await {
            return match answer.reason {
                Some(reason) => Spoken::Refused(format!("{} {reason}", answer.status)),
                None => Spoken::Octets(format!("answered with HTTP status {}", answer.status)),
            };
        }
        let mut octets = [0; 512];
        match stream.read(&mut octets).await {
            Ok(0) | Err(_) => Spoken::Closed("closed without an octet"),
            // As egret refuses TLS; few servers do so for a name that they don't know.
            Ok(7) if tls && octets.starts_with(&DENIED) => Spoken::Closed("ended by the alert access_denied"),
            Ok(length) => Spoken::Octets(format!("answered, {length} octets")),
        }
    };
    timeout(patience, talk).await.unwrap_or_else(|_| Spoken::Silence(nothing(patience)))
}

/// A transparent listener takes every connection, and must end this one.
fn judge_taken(spoken: Spoken, known: Known) -> Outcome {
    match (spoken, known) {
        (Spoken::Octets(detail), _) => Outcome::fail(detail).of(Kind::Reached),
        (Spoken::Silence(reach), _) => {
            Outcome::fail(format!("taken, and then neither closed nor refused: {}", reach.detail))
        }
        (Spoken::Refused(reason), Known::Reached) => {
            Outcome::pass(format!("taken and refused by egret: {reason}")).countered()
        }
        (Spoken::Refused(reason), _) => Outcome::pass(format!("taken and refused by egret: {reason}")),
        (Spoken::Closed(how), Known::Reached) => {
            Outcome::pass(format!("taken, and {how}")).of(Kind::Refused).countered()
        }
        (Spoken::Closed(how), Known::Not(why)) => Outcome::unsupported(format!("taken, and {how}; {why}")),
        (Spoken::Closed(how), Known::Nothing) => Outcome::unsupported(format!(
            "taken, and {how}; whether by egret or the target, only a baseline can tell"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    fn verdict(way: Way, kind: Kind, known: Known) -> Verdict {
        judge(way, Reach::new(kind, ""), known).verdict
    }

    #[test]
    fn what_was_reached_fails_whatever_is_known() {
        for known in [Known::Nothing, Known::Reached, Known::Not(String::new())] {
            assert_eq!(verdict(Way::Tcp, Kind::Reached, known), Verdict::Fail);
        }
    }

    #[test]
    fn blocked_needs_proof_that_it_is_not_down() {
        let not = || Known::Not(String::new());
        for kind in [Kind::Refused, Kind::Unreachable, Kind::TimedOut, Kind::Permission] {
            assert_eq!(verdict(Way::Dns, kind, Known::Reached), Verdict::Pass, "{kind:?}");
            assert_eq!(verdict(Way::Tcp, kind, not()), Verdict::Unsupported, "{kind:?}");
        }
        assert_eq!(verdict(Way::Tcp, Kind::TimedOut, Known::Nothing), Verdict::Pass);
        for way in [Way::Udp, Way::Dns, Way::Icmp] {
            assert_eq!(verdict(way, Kind::TimedOut, Known::Nothing), Verdict::Unsupported);
        }
        assert_eq!(verdict(Way::Tcp, Kind::Refused, Known::Nothing), Verdict::Unsupported);
        assert_eq!(verdict(Way::Udp, Kind::Unreachable, Known::Nothing), Verdict::Pass);
        assert_eq!(verdict(Way::Tcp, Kind::Other, Known::Reached), Verdict::Unsupported);
    }

    #[test]
    fn a_listener_that_takes_everything_must_end_it() {
        let closed = |known| judge_taken(Spoken::Closed("closed"), known).verdict;
        assert_eq!(closed(Known::Reached), Verdict::Pass);
        assert_eq!(closed(Known::Nothing), Verdict::Unsupported);
        let silence = Spoken::Silence(Reach::new(Kind::TimedOut, ""));
        assert_eq!(judge_taken(silence, Known::Reached).verdict, Verdict::Fail);
        assert_eq!(judge_taken(Spoken::Octets(String::new()), Known::Reached).verdict, Verdict::Fail);
        assert_eq!(judge_taken(Spoken::Refused(String::new()), Known::Nothing).verdict, Verdict::Pass);
    }
}

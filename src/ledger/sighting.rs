//! An audit line as those read it who want to know what was asked for, not how often. Knows the
//! format, not the file.

use std::net::IpAddr;

use serde::Deserialize;

use super::record::{DNS, Record, Verdict};

/// A destination that somebody asked for, or that a response named, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// When, as written: of equal length, so that texts compare as times do.
    pub ts: String,
    /// Who asked, if that was known.
    pub sandbox: Option<String>,
    /// The policy that decided, where the record tells.
    pub policy: Option<String>,
    /// The canonical host; without a port, what stood in place of a target.
    pub host: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// What the policy said.
    pub verdict: Verdict,
    /// The reason code.
    pub reason: String,
    /// `file:line` of the rule that decided, or that came closest.
    pub rule: Option<String>,
    /// What the name resolved to.
    pub addresses: Vec<IpAddr>,
    /// Nobody asked for it: a response sent its client there.
    pub redirect: bool,
    /// Only its name was asked for, by DNS.
    pub name_alone: bool,
}

/// A line that no proxy wrote, or not as it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not a whole audit record")]
pub struct NotARecord;

#[derive(Deserialize)]
struct Fields<'a> {
    event: &'a str,
    #[serde(default)]
    protocol: Option<&'a str>,
    sandbox: Option<String>,
    policy: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    verdict: Option<&'a str>,
    reason: Option<String>,
    rule: Option<String>,
    #[serde(default)]
    addresses: Vec<IpAddr>,
    to: Option<End>,
}

/// An end of a redirect.
#[derive(Deserialize)]
struct End {
    host: String,
    port: u16,
}

impl Sighting {
    /// Reads a line without its line end; `None` for records that tell of no destination.
    ///
    /// # Errors
    /// [`NotARecord`]: what the ledger would count as damage, and decisions that lack a part.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, NotARecord> {
        let record = Record::parse(line).ok_or(NotARecord)?;
        let fields: Fields<'_> = serde_json::from_slice(line).map_err(|_| NotARecord)?;
        let redirect = match fields.event {
            "decision" => false,
            "redirect" => true,
            _ => return Ok(None),
        };
        let (host, port) = match (redirect, fields.to) {
            (true, to) => to.map(|end| (Some(end.host), Some(end.port))).ok_or(NotARecord)?,
            (false, _) => (fields.host, fields.port),
        };
        Ok(Some(Self {
            ts: record.ts,
            sandbox: fields.sandbox,
            policy: fields.policy,
            host,
            port,
            verdict: fields.verdict.and_then(Verdict::from_word).ok_or(NotARecord)?,
            reason: fields.reason.ok_or(NotARecord)?,
            rule: fields.rule,
            addresses: fields.addresses,
            redirect,
            name_alone: fields.protocol == Some(DNS),
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(rest: &str) -> Result<Option<Sighting>, NotARecord> {
        let line = format!("{{\"seq\":2,\"ts\":\"2026-11-29T18:15:48.085200Z\",{rest}}}");
        Sighting::parse(line.as_bytes())
    }

    #[test]
    fn decisions_and_redirects_tell_of_destinations() {
        let found = parse(
            "\"event\":\"decision\",\"id\":\"a\",\"sandbox\":\"s\",\"host\":\"a.test\",\"port\":80,\"verdict\":\"would_deny\",\"reason\":\"domain_not_allowed\",\"policy\":\"p\",\"addresses\":[\"192.0.2.1\",\"2001:db8::1\"],\"status\":null",
        );
        let found = found.unwrap().unwrap();
        assert_eq!((found.host.as_deref(), found.port), (Some("a.test"), Some(80)));
        assert_eq!((found.verdict, found.addresses.len(), found.redirect), (Verdict::WouldDeny, 2, false));
        let found = parse(
            "\"event\":\"redirect\",\"id\":\"a\",\"sandbox\":\"s\",\"from\":{\"scheme\":\"http\",\"host\":\"a.test\",\"port\":80},\"to\":{\"scheme\":\"http\",\"host\":\"b.test\",\"port\":8080},\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\",\"generation\":1",
        );
        let found = found.unwrap().unwrap();
        assert_eq!((found.host.as_deref(), found.port), (Some("b.test"), Some(8080)));
        assert!(found.redirect);
    }

    #[test]
    fn other_records_tell_of_none_and_damage_is_an_error() {
        assert_eq!(parse("\"event\":\"start\",\"schema\":\"egret.audit/1\""), Ok(None));
        let close = "\"event\":\"close\",\"id\":\"a\",\"bytes_up\":1,\"bytes_down\":2,\"reason\":\"allowed\"";
        assert_eq!(parse(close), Ok(None));
        for bad in [
            "\"event\":\"decision\",\"id\":\"a\"",
            "\"event\":\"decision\",\"id\":\"a\",\"verdict\":\"perhaps\",\"reason\":\"allowed\"",
            "\"event\":\"decision\",\"id\":\"a\",\"verdict\":\"allow\",\"reason\":\"allowed\",\"addresses\":[\"nowhere\"]",
            "\"event\":\"redirect\",\"id\":\"a\",\"verdict\":\"deny\",\"reason\":\"domain_not_allowed\"",
        ] {
            assert_eq!(parse(bad), Err(NotARecord), "{bad}");
        }
        assert_eq!(Sighting::parse(b""), Err(NotARecord));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Sighting::parse(&line);
        }
    }
}

//! An audit line as the ledger reads it. Knows the format, not the file.

use serde::Deserialize;

/// The verdict words of schema `egret.audit/1`.
const VERDICTS: [&str; 3] = ["allow", "deny", "would_deny"];
/// The reason of a decision whose client left before it was permitted: no `close` follows.
const CLIENT_CANCEL: &str = "client_cancel";

/// The protocol of questions for names.
pub(super) const DNS: &str = "dns";
/// The reason of what was not understood.
const BAD_REQUEST: &str = "bad_request";

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number in its process.
    pub seq: u64,
    /// Its time, as written.
    pub ts: String,
    /// What it tells.
    pub what: What,
}

/// What a record tells the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    Decision(Decision),
    Close {
        id: String,
        bytes_up: u64,
        bytes_down: u64,
        reason: String,
    },
    /// A process began: nothing of an earlier one is open any more.
    Start,
    /// Of no interest here.
    Other,
}

/// The part of a `decision` that is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub id: String,
    pub sandbox: Option<String>,
    /// Host and port, where the request named a destination; of a question for a name, port 0.
    pub destination: Option<(String, u16)>,
    pub verdict: Verdict,
    pub reason: String,
    /// Did traffic begin, so that a `close` is owed?
    pub opens: bool,
}

/// `verdict` of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Permitted by the policy.
    Allow,
    /// Refused by the policy.
    Deny,
    /// Refused by the rules of a policy that only observes.
    WouldDeny,
}

impl Verdict {
    /// As the audit file writes it.
    pub(super) const fn word(self) -> &'static str {
        let [allow, deny, would_deny] = VERDICTS;
        match self {
            Self::Allow => allow,
            Self::Deny => deny,
            Self::WouldDeny => would_deny,
        }
    }

    /// The verdict that the audit file writes so.
    pub(super) fn from_word(word: &str) -> Option<Self> {
        [Self::Allow, Self::Deny, Self::WouldDeny].into_iter().find(|verdict| verdict.word() == word)
    }
}

/// The fields of all events; unknown ones are skipped, so that the format can grow. Those whose words
/// are egret's own are never escaped, and so are read where they stand.
#[derive(Deserialize)]
struct Fields<'a> {
    seq: u64,
    ts: &'a str,
    event: &'a str,
    id: Option<&'a str>,
    sandbox: Option<String>,
    host: Option<String>,
    port: Option<u16>,
    protocol: Option<&'a str>,
    verdict: Option<&'a str>,
    reason: Option<&'a str>,
    dialed: Option<&'a str>,
    status: Option<u16>,
    bytes_up: Option<u64>,
    bytes_down: Option<u64>,
}

impl Record {
    /// Reads a line without its line end; `None` if it is no whole record.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let fields: Fields<'_> = serde_json::from_str(std::str::from_utf8(line).ok()?).ok()?;
        if !is_timestamp(fields.ts) {
            return None;
        }
        let (seq, ts) = (fields.seq, fields.ts.to_owned());
        let what = match fields.event {
            "decision" => What::Decision(decision(fields)?),
            "close" => What::Close {
                id: fields.id?.to_owned(),
                bytes_up: fields.bytes_up?,
                bytes_down: fields.bytes_down?,
                reason: fields.reason?.to_owned(),
            },
            "start" => What::Start,
            _ => What::Other,
        };
        Some(Self { seq, ts, what })
    }
}

fn decision(fields: Fields<'_>) -> Option<Decision> {
    let verdict = Verdict::from_word(fields.verdict?)?;
    let reason = fields.reason?.to_owned();
    // Protocols other than HTTP have no status to answer with where nothing came of a permission.
    let answered = fields.status.is_some() || fields.dialed.is_none();
    let opens = verdict != Verdict::Deny && !answered && reason != CLIENT_CANCEL;
    // Without a port, what stands in `host` is a target that nobody understood, unless a name was
    // all that was asked for.
    let name_alone = fields.protocol == Some(DNS) && reason != BAD_REQUEST;
    let destination = fields.host.zip(fields.port.or(name_alone.then_some(0)));
    Some(Decision { id: fields.id?.to_owned(), sandbox: fields.sandbox, destination, verdict, reason, opens })
}

/// `2026-11-29T17:23:19.004512Z`: of equal length, so that texts compare as times do.
pub(super) fn is_timestamp(text: &str) -> bool {
    const SHAPE: &[u8] = b"0000-00-00T00:00:00.000000Z";
    let fits = |(byte, shape): (u8, &u8)| if *shape == b'0' { byte.is_ascii_digit() } else { byte == *shape };
    text.len() == SHAPE.len() && text.bytes().zip(SHAPE).all(fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TS: &str = "\"ts\":\"2026-11-29T18:15:48.085200Z\"";

    fn parse(rest: &str) -> Option<What> {
        Record::parse(format!("{{\"seq\":2,{TS},{rest}}}").as_bytes()).map(|record| record.what)
    }

    fn decision(rest: &str) -> Decision {
        match parse(&format!("\"event\":\"decision\",\"id\":\"a\",{rest}")) {
            Some(What::Decision(decision)) => decision,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_decision() {
        let found = decision(
            "\"sandbox\":\"s\",\"host\":\"a.test\",\"port\":80,\"verdict\":\"allow\",\"reason\":\"allowed\",\"dialed\":\"192.0.2.1\",\"status\":null",
        );
        assert_eq!(found.sandbox.as_deref(), Some("s"));
        assert_eq!(found.destination, Some(("a.test".to_owned(), 80)));
        assert!(found.opens);
    }

    #[test]
    fn only_permitted_traffic_opens() {
        let opens = |rest: &str| decision(rest).opens;
        let observed =
            "\"verdict\":\"would_deny\",\"reason\":\"domain_not_allowed\",\"dialed\":\"::1\",\"status\":null";
        assert!(opens(observed));
        assert!(!opens("\"verdict\":\"allow\",\"reason\":\"dns_not_found\",\"status\":null"));
        assert!(!opens("\"verdict\":\"deny\",\"reason\":\"domain_denied\",\"status\":403"));
        assert!(!opens("\"verdict\":\"allow\",\"reason\":\"dns_not_found\",\"status\":502"));
        assert!(!opens(
            "\"verdict\":\"allow\",\"reason\":\"client_cancel\",\"dialed\":\"::1\",\"status\":null"
        ));
    }

    #[test]
    fn a_target_that_was_not_understood_is_no_destination() {
        let found = decision("\"host\":\"http://x\",\"verdict\":\"deny\",\"reason\":\"bad_request\"");
        assert_eq!((found.destination, found.sandbox), (None, None));
    }

    #[test]
    fn a_question_for_a_name_is_a_destination_without_a_port() {
        let ask = |rest: &str| decision(&format!("\"protocol\":\"dns\",\"host\":\"a.test\",{rest}"));
        let found = ask("\"verdict\":\"allow\",\"reason\":\"allowed\",\"status\":0");
        assert_eq!((found.destination, found.opens), (Some(("a.test".to_owned(), 0)), false));
        let found = ask("\"verdict\":\"deny\",\"reason\":\"bad_request\",\"status\":5");
        assert_eq!(found.destination, None);
    }

    #[test]
    fn other_events_count_as_read() {
        assert_eq!(parse("\"event\":\"start\",\"schema\":\"egret.audit/1\""), Some(What::Start));
        assert_eq!(parse("\"event\":\"something_new\",\"port\":1"), Some(What::Other));
    }

    #[test]
    fn damage_is_no_record() {
        for line in [
            "",
            "{",
            "[]",
            "{\"seq\":1}",
            "{\"seq\":1,\"ts\":\"yesterday\",\"event\":\"start\"}",
            "{\"seq\":-1,\"ts\":\"2026-11-29T18:15:48.085200Z\",\"event\":\"start\"}",
        ] {
            assert_eq!(Record::parse(line.as_bytes()), None, "{line}");
        }
        assert_eq!(
            parse("\"event\":\"decision\",\"id\":\"a\",\"verdict\":\"perhaps\",\"reason\":\"x\""),
            None
        );
        assert_eq!(parse("\"event\":\"close\",\"id\":\"a\",\"bytes_up\":-4,\"bytes_down\":0"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Record::parse(&bytes);
        }
    }
}

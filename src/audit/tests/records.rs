//! What the lines look like.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn full_request() -> Request {
    Request {
        sandbox: Some("build-172-30-0-5".into()),
        identity: Some(IdentitySource::Source),
        workspace: None,
        tool: None,
        client: Some("172.30.0.5:51234".parse().unwrap()),
        protocol: Some(Protocol::Http),
        method: Some("GET".into()),
        qtype: None,
        scheme: Some("http"),
        host: Some("api.github.com".into()),
        port: Some(80),
        path: Some(PathRecord::Hash("0123456789abcdef".to_owned())),
        original: None,
        redirected_from: None,
    }
}

fn full_outcome() -> Outcome {
    Outcome {
        verdict: Verdict::Allow,
        reason: "allowed",
        rule: Some("github-read.toml:12".into()),
        policy: Some("build".into()),
        generation: Some(3),
        addresses: Some(["140.82.121.6".parse().unwrap()].into_iter().collect()),
        original_differs: false,
        dialed: Some("140.82.121.6".parse().unwrap()),
        via_parent: None,
        dns: Some(Duration::from_micros(12_345)),
        status: None,
        detail: None,
    }
}

#[tokio::test]
async fn a_normal_request() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut attempt = audit.begin(full_request());
    *attempt.outcome_mut() = Outcome { via_parent: Some("proxy.corp.example:3128".into()), ..full_outcome() };
    let flow = attempt.permit().await.unwrap();
    flow.close(Closing {
        bytes_up: 123_456,
        bytes_down: 12_345_678,
        status: Some(200),
        reason: "allowed",
        error: None,
    });
    audit.shutdown().await.unwrap();

    let records = records(&file);
    let mut decision = records[1].clone();
    let ts = decision["ts"].take();
    assert_eq!(ts.as_str().unwrap().len(), "2026-11-29T17:23:19.123456Z".len());
    let id = decision["id"].take();
    assert_eq!(
        decision,
        json!({
            "seq": 2, "ts": null, "event": "decision", "id": null, "sandbox": "build-172-30-0-5",
            "identity": "source", "client": "172.30.0.5:51234", "protocol": "http", "method": "GET",
            "scheme": "http", "host": "api.github.com", "port": 80, "path_hash": "0123456789abcdef",
            "verdict": "allow", "reason": "allowed", "rule": "github-read.toml:12", "policy": "build",
            "generation": 3, "addresses": ["140.82.121.6"], "dialed": "140.82.121.6",
            "via_parent": "proxy.corp.example:3128", "dns_ms": 12, "status": null,
        })
    );
    let mut close = records[2].clone();
    assert!(close["duration_ms"].take().is_u64());
    close["ts"].take();
    assert_eq!(
        close,
        json!({
            "seq": 3, "ts": null, "event": "close", "id": id, "duration_ms": null, "bytes_up": 123_456,
            "bytes_down": 12_345_678, "status": 200, "reason": "allowed",
        })
    );
}

/// The budget is 600 bytes a request, decision and close together.
#[tokio::test]
async fn a_request_costs_little_space() {
    let connect = Request {
        protocol: Some(Protocol::Connect),
        method: Some("CONNECT".into()),
        scheme: None,
        path: None,
        ..full_request()
    };
    let http = Request { scheme: None, sandbox: Some("build-7".into()), ..full_request() };
    for request in [connect, http] {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.ndjson");
        let audit = open(&file);
        let mut attempt = audit.begin(request);
        *attempt.outcome_mut() = full_outcome();
        attempt.permit().await.unwrap().close(Closing {
            bytes_up: 12_345,
            bytes_down: 12_345_678,
            status: Some(200),
            reason: "allowed",
            error: None,
        });
        audit.shutdown().await.unwrap();
        let content = fs::read_to_string(&file).unwrap();
        let size: usize = content.lines().skip(1).take(2).map(|line| line.len() + 1).sum();
        assert!(size <= 600, "{size} bytes: {content}");
    }
}

#[tokio::test]
async fn a_refused_request_of_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut attempt = audit.begin(Request { host: Some("0x7f.1".into()), ..Request::default() });
    let outcome = attempt.outcome_mut();
    outcome.reason = "bad_request";
    outcome.status = Some(400);
    outcome.detail = Some("inet_aton reads 127.0.0.1".into());
    attempt.refuse().await.unwrap();
    audit.shutdown().await.unwrap();

    let records = records(&file);
    let keys: BTreeSet<_> = records[1].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        BTreeSet::from(["seq", "ts", "event", "id", "host", "verdict", "reason", "status", "detail"])
    );
    assert_eq!((&records[1]["verdict"], &records[1]["status"]), (&json!("deny"), &json!(400)));
    assert_eq!(records.len(), 3, "no close follows a refusal");
}

#[tokio::test]
async fn other_events() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let digest = Some("d1".into());
    let audit = Audit::open(Settings::new(&file), Start { policy_digest: digest, ..start() }).unwrap();
    let id = attempt(&audit).id();
    let endpoint = |host: &str| Endpoint { scheme: "http".into(), host: host.into(), port: 80 };
    audit.event(&Event::Reload(Reload {
        ok: false,
        generation: 4,
        policy_digest: None,
        error: Some("x".into()),
    }));
    audit.event(&Event::Redirect(Redirect {
        id,
        sandbox: "s".into(),
        from: endpoint("a.example"),
        to: endpoint("169.254.169.254"),
        verdict: Verdict::WouldDeny,
        reason: "address_forbidden",
        rule: None,
        generation: 4,
    }));
    let since = Some(Timestamp::from(std::time::UNIX_EPOCH));
    let limit = Limit { sandbox: "s".into(), limit: "requests", reason: "rate_limited", count: 7, since };
    audit.event(&Event::Limit(limit));
    audit.shutdown().await.unwrap();

    let mut records = records(&file);
    records.iter_mut().for_each(|record| drop(record["ts"].take()));
    let pid = std::process::id();
    let expected = [
        json!({"seq": 1, "ts": null, "event": "start", "schema": "egret.audit/1", "pid": pid, "version": "1.2.3",
            "generation": 1, "policy_digest": "d1"}),
        json!({"seq": 3, "ts": null, "event": "reload", "ok": false, "generation": 4, "error": "x"}),
        json!({"seq": 4, "ts": null, "event": "redirect", "id": id.as_str(), "sandbox": "s",
            "from": {"scheme": "http", "host": "a.example", "port": 80},
            "to": {"scheme": "http", "host": "169.254.169.254", "port": 80},
            "verdict": "would_deny", "reason": "address_forbidden", "generation": 4}),
        json!({"seq": 5, "ts": null, "event": "limit", "sandbox": "s", "limit": "requests", "reason": "rate_limited",
            "count": 7, "since": "1970-01-01T00:00:00.000000Z"}),
        json!({"seq": 6, "ts": null, "event": "stop", "pid": pid}),
    ];
    records.remove(1);
    assert_eq!(records, expected);
}

#[test]
fn long_answers_are_cut() {
    let answer = (0..100).map(|last| IpAddr::from([192, 0, 2, last]));
    let value = serde_json::to_value(answer.collect::<Addresses>()).unwrap();
    assert_eq!(value["addresses"].as_array().unwrap().len(), ADDRESS_LIMIT);
    assert_eq!(value["addresses_omitted"], 100 - ADDRESS_LIMIT);
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let hostile =
        "[\u{1b}\r\n\"\\{},:\u{2028}\u{202e}\u{9b}\u{7f}a\u{0}]{0,300}".prop_map(String::into_bytes);
    prop_oneof![prop::collection::vec(any::<u8>(), 0..600), hostile]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn no_text_breaks_a_line_or_forges_a_field(texts in prop::collection::vec(bytes(), 10)) {
        let texts: Vec<Text> = texts.iter().map(Text::new).collect();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.ndjson");
        let request = Request {
            sandbox: Some(texts[0].clone()),
            workspace: Some(texts[1].clone()),
            tool: Some(texts[2].clone()),
            method: Some(texts[3].clone()),
            host: Some(texts[4].clone()),
            path: Some(PathRecord::Plain(texts[5].clone())),
            ..full_request()
        };
        let outcome = Outcome {
            rule: Some(texts[6].clone()),
            policy: Some(texts[7].clone()),
            detail: Some(texts[8].clone()),
            ..full_outcome()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let audit = open(&file);
            let mut attempt = audit.begin(request);
            *attempt.outcome_mut() = outcome;
            let flow = attempt.permit().await.unwrap();
            flow.close(Closing { error: Some(texts[9].clone()), ..Closing::default() });
            audit.shutdown().await.unwrap();
        });
        let content = fs::read(&file).unwrap();
        prop_assert!(content.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')));
        let records = records(&file);
        prop_assert_eq!(records.len(), 4);
        let decision = &records[1];
        let fields = ["sandbox", "workspace", "tool", "method", "host", "path", "rule", "policy", "detail"];
        for (field, text) in fields.iter().zip(&texts) {
            prop_assert_eq!(&decision[field], &Value::from(text.as_str()));
        }
        prop_assert_eq!(decision.as_object().unwrap().len(), 25);
        prop_assert_eq!(&decision["verdict"], "allow");
        prop_assert_eq!(&records[2]["error"], texts[9].as_str());
        prop_assert_eq!(records[2].as_object().unwrap().len(), 9);
    }
}

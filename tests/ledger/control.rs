//! The ledger's routes of the control interface.

use serde_json::Value;

use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::{egret_domains, get, origin, rows, serving};

fn ask(egret: &Egret, target: &str) -> (u16, Value) {
    let answer = egret.control("GET", target);
    let body = serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{target}: {error}"));
    if answer.status != 200 {
        assert_eq!(answer.get("content-type"), Some("application/problem+json"), "{target}");
    }
    (answer.status, body)
}

#[test]
fn sandboxes_and_their_domains() {
    let origin = origin();
    let egret = serving(&origin).start();
    let authority = format!("a.test:{}", origin.port());
    for _ in 0..3 {
        assert_eq!(get(&egret, &authority), 200);
    }
    assert_eq!(get(&egret, "elsewhere.test:80"), 403);
    let (status, body) = ask(&egret, "/v1/sandboxes");
    assert_eq!(status, 200);
    let [seen, quiet] = body["sandboxes"].as_array().unwrap().as_slice() else { panic!("{body}") };
    assert_eq!((&seen["sandbox"], &seen["configured"]), (&"box-127.0.0.1".into(), &false.into()));
    let counts =
        ["domains", "requests", "allow", "deny", "would_deny"].map(|key| seen[key].as_u64().unwrap());
    assert_eq!(counts, [2, 4, 3, 1, 0]);
    assert_eq!((&quiet["sandbox"], &quiet["configured"]), (&"quiet".into(), &true.into()));
    assert_eq!(body["ledger"]["missing_records"], 0);

    let (status, body) = ask(&egret, "/v1/sandboxes/box-127.0.0.1/domains");
    assert_eq!((status, &body["sandbox"]), (200, &"box-127.0.0.1".into()));
    let domains = body["domains"].as_array().unwrap();
    assert_eq!(domains.len(), 2);
    assert_eq!((&domains[0]["host"], &domains[0]["requests"]), (&"a.test".into(), &3.into()));
    assert_eq!(domains[1]["last_reason"], "domain_not_allowed");
    let (_, body) = ask(&egret, "/v1/sandboxes/quiet/domains");
    assert_eq!(body["domains"], Value::Array(Vec::new()));
    let (_, body) = ask(&egret, "/v1/sandboxes/box-127.0.0.1/domains?since=2100-01-01T00:00:00Z");
    assert_eq!(body["domains"], Value::Array(Vec::new()));

    let metrics = egret.control("GET", "/metrics");
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(text.contains("\negret_ledger_rows 2\n"), "{text}");
    assert!(text.contains("\negret_ledger_lag_records "), "{text}");
}

#[test]
fn decisions_by_what_they_are() {
    let origin = origin();
    let egret = serving(&origin).start();
    let authority = format!("a.test:{}", origin.port());
    for host in [authority.as_str(), "elsewhere.test:80", authority.as_str()] {
        get(&egret, host);
    }
    let hosts = |target: &str| -> Vec<String> {
        let (status, body) = ask(&egret, target);
        assert_eq!(status, 200, "{target}: {body}");
        let found = body["decisions"].as_array().unwrap();
        found.iter().map(|record| record["host"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(hosts("/v1/decisions"), ["a.test", "elsewhere.test", "a.test"]);
    assert_eq!(hosts("/v1/decisions?limit=2"), ["a.test", "elsewhere.test"]);
    assert_eq!(hosts("/v1/decisions?verdict=deny&sandbox=box-127.0.0.1"), ["elsewhere.test"]);
    assert_eq!(hosts("/v1/decisions?reason=domain_not_allowed&since=1h"), ["elsewhere.test"]);
    assert_eq!(hosts("/v1/decisions?host=b.test"), [""; 0]);
    assert_eq!(hosts("/v1/decisions?sandbox=quiet"), [""; 0]);
    let (_, body) = ask(&egret, "/v1/decisions?limit=1");
    assert_eq!(body["decisions"][0], *egret.events("decision").last().unwrap());
}

#[test]
fn wrong_questions_are_refused_clearly() {
    let origin = origin();
    let egret = serving(&origin).start();
    for (target, status, said) in [
        ("/v1/decisions?color=red", 400, "unknown parameter `color`"),
        ("/v1/decisions?verdict=maybe", 400, "`maybe` is no verdict (known: allow, deny, would_deny)"),
        ("/v1/decisions?reason=because", 400, "`because` is no reason"),
        ("/v1/decisions?since=then", 400, "`then` is no time"),
        ("/v1/decisions?limit=0", 400, "limit is a number from 1 to 4096"),
        ("/v1/decisions?limit=4097", 400, "limit is a number"),
        ("/v1/decisions?limit=1&limit=2", 400, "comes twice"),
        ("/v1/decisions?sandbox=nobody", 404, "no sandbox `nobody`"),
        ("/v1/sandboxes?color=red", 400, "unknown parameter `color` (known: limit, cursor)"),
        ("/v1/sandboxes?limit=0", 400, "limit is a number from 1 to 1000"),
        ("/v1/sandboxes/nobody/domains", 404, "no sandbox `nobody`"),
        ("/v1/sandboxes/quiet/domains?since=", 400, "`` is no time"),
        ("/v1/events?from=1", 400, "unknown parameter"),
    ] {
        let (found, body) = ask(&egret, target);
        assert_eq!((found, body["status"].as_u64()), (status, Some(u64::from(status))), "{target}");
        assert!(body["detail"].as_str().unwrap().contains(said), "{target}: {body}");
    }
    for target in ["/v1/sandboxes", "/v1/sandboxes/quiet/domains", "/v1/decisions", "/v1/events"] {
        let answer = egret.control("POST", target);
        assert_eq!((answer.status, answer.get("allow")), (405, Some("GET, HEAD")), "{target}");
        assert_eq!(answer.get("content-type"), Some("application/problem+json"));
    }
    assert_eq!(ask(&egret, "/v1/sandboxes/quiet/domains").0, 200, "nothing has changed");
}

#[test]
fn events_come_as_they_are_written() {
    let origin = origin();
    let egret = serving(&origin).start();
    let mut listener = Client::connect(egret.control);
    listener.send(format!("GET /v1/events HTTP/1.1\r\nHost: {}\r\n\r\n", egret.control));
    let head = listener.head("GET");
    assert_eq!((head.status, head.get("content-type")), (200, Some("text/event-stream")));
    get(&egret, "elsewhere.test:80");
    let mut text = String::new();
    while !text.contains("elsewhere.test") || !text.ends_with("\n\n\r\n") {
        text.push_str(&String::from_utf8(listener.some()).unwrap());
    }
    let line = text.lines().find(|line| line.contains("elsewhere.test")).unwrap();
    let record: Value = serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(record, egret.events("decision")[0]);
    assert!(text.contains("event: record\n"), "{text}");
}

#[test]
fn the_routes_ask_for_the_token() {
    let origin = origin();
    let mut egret = serving(&origin).start();
    get(&egret, "elsewhere.test:80");
    egret.stop();
    let token = egret.dir().join("token");
    std::fs::write(&token, "a token of more than 16 characters\n").unwrap();
    let token = token.display().to_string();
    let config = std::fs::read_to_string(egret.config_file()).unwrap();
    let guarded = config.replace("[listen]\n", &format!("[listen]\ncontrol_token_file = \"{token}\"\n"));
    std::fs::write(egret.config_file(), guarded).unwrap();
    egret.restart();
    for target in ["/v1/sandboxes", "/v1/sandboxes/quiet/domains", "/v1/decisions", "/v1/events"] {
        assert_eq!(egret.control("GET", target).status, 401, "{target}");
    }
    // The command knows the token from the configuration, or from a file of its own.
    assert_eq!(rows(&egret, &[]).len(), 1);
    let control = egret.control.to_string();
    assert_eq!(rows(&egret, &["--control", &control, "--token-file", &token]).len(), 1);
    let output = egret_domains(&egret, &["--control", &control]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("401"));
}

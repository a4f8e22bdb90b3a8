//! Every route with wrong methods, types, sizes, IDs and credentials: a clear 4xx each, and nothing
//! has changed.

use serde_json::Value;

use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::http1::Response;
use crate::support::origin::Origin;
use crate::support::wait_for;
use crate::{TOKEN, put, serving, show};

const JSON: &str = "Content-Type: application/json";
const BODY: &str = r#"{"source": ["127.1.0.7"], "policy": "main"}"#;

/// Every route with the methods that it has.
const ROUTES: &[(&str, &[&str])] = &[
    ("/healthz", &["GET"]),
    ("/readyz", &["GET"]),
    ("/metrics", &["GET"]),
    ("/v1/reload", &["POST"]),
    ("/v1/tokens/revoke", &["POST"]),
    ("/v1/sandboxes", &["GET"]),
    ("/v1/sandboxes/job", &["GET", "PUT", "DELETE"]),
    ("/v1/sandboxes/job/domains", &["GET"]),
    ("/v1/decisions", &["GET"]),
    ("/v1/events", &["GET"]),
];

fn running() -> (Origin, Egret) {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    assert_eq!(put(&egret, "job", BODY).0, 201);
    wait_for("its record", Client::PATIENCE, || egret.events("sandbox").len() == 1);
    (origin, egret)
}

/// What a mistake must leave alone: registrations, the generation, and the record of changes.
fn state(egret: &Egret) -> (Value, Value, usize) {
    let (_, mut body) = show(egret, "/v1/sandboxes");
    for row in body["sandboxes"].as_array_mut().unwrap() {
        // Moves with the clock.
        row["registered"].as_object_mut().map(|registered| registered.remove("expires_unused"));
    }
    let changes = ["sandbox", "revoke", "reload"].map(|event| egret.events(event).len());
    (body["sandboxes"].take(), show(egret, "/readyz").1["policy_generation"].take(), changes.iter().sum())
}

fn assert_problem(answer: &Response, status: u16, what: &str) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    assert_eq!(answer.get("content-type"), Some("application/problem+json"), "{what}");
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(body["status"], status, "{what}");
    assert!(!body["detail"].as_str().unwrap().is_empty(), "{what}: {body}");
}

#[test]
fn methods_that_a_resource_does_not_have() {
    let (_origin, egret) = running();
    let before = state(&egret);
    for (route, methods) in ROUTES {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            if !methods.contains(&method) {
                let answer = egret.control_with(method, route, &[JSON], BODY);
                assert_problem(&answer, 405, &format!("{method} {route}"));
                let allow = answer.get("allow").unwrap();
                assert!(methods.iter().all(|method| allow.contains(method)), "{method} {route}: {allow}");
            }
        }
    }
    for route in
        ["/", "/v1", "/v1/sandboxes/", "/v1/sandboxes/job/", "/v1/sandboxes/job/domains/x", "/v1/tokens"]
    {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            assert_problem(&egret.control_with(method, route, &[JSON], BODY), 404, route);
        }
    }
    assert_eq!(state(&egret), before);
}

#[test]
fn wrong_credentials() {
    let (_origin, egret) = running();
    let before = state(&egret);
    let half = TOKEN.split_at(10).0;
    for (route, methods) in ROUTES.iter().filter(|(route, _)| *route != "/healthz") {
        for method in *methods {
            for credentials in [
                String::new(),
                "Authorization: Bearer\r\n".to_owned(),
                format!("Authorization: Bearer {half}\r\n"),
                format!("Authorization: Bearer {TOKEN}x\r\n"),
                format!("Authorization: Basic {TOKEN}\r\n"),
                format!("Authorization: bearer{TOKEN}\r\n"),
                format!("Proxy-Authorization: Bearer {TOKEN}\r\n"),
                format!("Cookie: token={TOKEN}\r\n"),
            ] {
                let mut client = Client::connect(egret.control);
                let (host, length) = (egret.control, BODY.len());
                client.send(format!(
                    "{method} {route} HTTP/1.1\r\nHost: {host}\r\n{credentials}{JSON}\r\nContent-Length: {length}\r\n\r\n{BODY}"
                ));
                let answer = client.final_response(method);
                assert_problem(&answer, 401, &format!("{method} {route} {credentials}"));
                assert_eq!(answer.get("www-authenticate"), Some("Bearer"));
            }
        }
    }
    assert_eq!(state(&egret), before);
}

#[test]
fn the_scheme_of_credentials_is_written_in_any_case() {
    let (_origin, egret) = running();
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let mut client = Client::connect(egret.control);
        let host = egret.control;
        client.send(format!(
            "GET /v1/sandboxes/job HTTP/1.1\r\nHost: {host}\r\nAuthorization: {scheme} {TOKEN}\r\n\r\n"
        ));
        assert_eq!(client.final_response("GET").status, 200, "{scheme}");
    }
}

#[test]
fn parameters_that_no_resource_has() {
    let (_origin, egret) = running();
    let before = state(&egret);
    for (method, target, body) in [
        ("GET", "/v1/sandboxes?color=red", ""),
        ("GET", "/v1/sandboxes?limit=0", ""),
        ("GET", "/v1/sandboxes?limit=1001", ""),
        ("GET", "/v1/sandboxes?limit=-1", ""),
        ("GET", "/v1/sandboxes?limit=many", ""),
        ("GET", "/v1/sandboxes?limit=1&limit=2", ""),
        ("GET", "/v1/sandboxes?cursor=a&cursor=b", ""),
        ("GET", "/v1/sandboxes?cursor=a%20b", ""),
        ("GET", "/v1/sandboxes?cursor=%ff", ""),
        ("GET", "/v1/sandboxes?cursor=../x", ""),
        ("GET", "/v1/sandboxes/job?since=1h", ""),
        ("GET", "/v1/sandboxes/job/domains?since=then", ""),
        ("GET", "/v1/decisions?limit=4097", ""),
        ("GET", "/v1/events?x", ""),
        ("PUT", "/v1/sandboxes/job?force=true", r#"{"source": ["127.1.0.9"], "policy": "main"}"#),
        ("DELETE", "/v1/sandboxes/job?force=true", ""),
    ] {
        assert_problem(&egret.control_with(method, target, &[JSON], body), 400, target);
    }
    assert_eq!(state(&egret), before);
}

#[test]
fn bodies_that_can_not_be_used() {
    let (_origin, egret) = running();
    let before = state(&egret);
    let long = format!(r#"{{"source": ["127.1.0.9"], "policy": "main", "tool": "{}"}}"#, "x".repeat(70_000));
    let good = r#"{"source": ["127.1.0.9"], "policy": "main"}"#;
    let with = |more: &str| format!(r#"{{"source": ["127.1.0.9"], "policy": "main", {more}}}"#);
    let bodies = [
        ("", 400),
        ("nonsense", 400),
        ("{", 400),
        ("null", 422),
        ("[]", 422),
        (r#"[["127.1.0.9"], "main"]"#, 422),
        ("{}", 422),
        (r#"{"source": ["127.1.0.9"]}"#, 422),
        (r#"{"source": "127.1.0.9", "policy": "main"}"#, 422),
        (r#"{"source": [7], "policy": "main"}"#, 422),
        (r#"{"source": [], "policy": "main"}"#, 400),
        (r#"{"source": ["127.1.0.9/8"], "policy": "main"}"#, 400),
        (r#"{"source": ["::ffff:127.1.0.9"], "policy": "main"}"#, 400),
        (r#"{"source": ["127.1.0.9"], "policy": null}"#, 422),
        (r#"{"source": ["127.1.0.9"], "policy": "main", "policy": "none"}"#, 422),
    ];
    for (body, status) in bodies {
        assert_problem(&egret.control_with("PUT", "/v1/sandboxes/job", &[JSON], body), status, body);
    }
    for (more, status) in [
        (r#""ttl": 5"#, 422),
        (r#""ttl": null"#, 422),
        (r#""ttl": "5""#, 400),
        (r#""ttl": "-5s""#, 400),
        (r#""lifetime": "0s""#, 400),
        (r#""lifetime": "366d""#, 400),
        (r#""limits": []"#, 422),
        (r#""limits": {"bytes": 5}"#, 422),
        (r#""limits": {"bytes": "5"}"#, 400),
        (r#""limits": {"connections": 0}"#, 400),
        (r#""limits": {"connections": 4294967296}"#, 422),
        (r#""limits": {"speed": "1"}"#, 422),
        (r#""workspace": ["w"]"#, 422),
        (r#""tool": "\u0000""#, 400),
        (r#""colour": "red""#, 422),
        (r#""ttl": "1h"} trailing {"x":1"#, 400),
    ] {
        let body = with(more);
        assert_problem(&egret.control_with("PUT", "/v1/sandboxes/job", &[JSON], &body), status, &body);
    }
    assert_problem(&egret.control_with("PUT", "/v1/sandboxes/job", &[JSON], &long), 413, "a long one");
    for kind in [&[][..], &["Content-Type: text/plain"], &["Content-Type: application/x-www-form-urlencoded"]]
    {
        assert_problem(&egret.control_with("PUT", "/v1/sandboxes/job", kind, good), 415, "another type");
    }
    for (body, status) in [
        ("", 400),
        ("{}", 400),
        (r#"{"jti": ""}"#, 400),
        (r#"{"jti": 7}"#, 422),
        (r#"{"jti": "a b"}"#, 400),
        (r#"{"sandbox": "a/b"}"#, 400),
        (r#"{"jti": "a", "sandbox": "b"}"#, 400),
        (r#"["jti"]"#, 400),
    ] {
        assert_problem(&egret.control_with("POST", "/v1/tokens/revoke", &[JSON], body), status, body);
    }
    assert_problem(&egret.control_with("POST", "/v1/tokens/revoke", &[], r#"{"jti": "a"}"#), 415, "no type");
    assert_eq!(state(&egret), before);
}

#[test]
fn ids_that_are_none() {
    let (_origin, egret) = running();
    let before = state(&egret);
    let good = r#"{"source": ["127.1.0.9"], "policy": "main"}"#;
    let long = "x".repeat(65);
    for id in ["a%20b", "a%2Fb", "%C3%A9", "%00", "%0d%0aX:y", "a:b", "%7Bip%7D", "*", "%FF", &long] {
        let target = format!("/v1/sandboxes/{id}");
        assert_problem(&egret.control_with("PUT", &target, &[JSON], good), 400, id);
        assert_problem(&egret.control("DELETE", &target), 400, id);
        let answer = egret.control("GET", &target);
        assert!(matches!(answer.status, 400 | 404), "{id}: {answer:?}");
        assert_problem(&answer, answer.status, id);
    }
    assert_problem(&egret.control("DELETE", "/v1/sandboxes/nobody"), 404, "nobody");
    assert_problem(&egret.control("DELETE", "/v1/sandboxes/rest"), 409, "one of the configuration");
    assert_problem(&egret.control("GET", "/v1/sandboxes/nobody"), 404, "nobody");
    assert_problem(&egret.control("GET", "/v1/sandboxes/nobody/domains"), 404, "nobody");
    assert_eq!(state(&egret), before);
}

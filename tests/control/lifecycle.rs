//! A sandbox is registered, used, changed, deleted; and a restart finds it.

use std::time::{Duration, Instant};

use crate::support::origin::Origin;
use crate::support::wait_for;
use crate::{alive, config, connect, delete, put, serving, show, status, tunnel};

const LIMIT: Duration = Duration::from_secs(10);
const BODY: &str = r#"{"source": ["127.1.0.7"], "policy": "main", "workspace": "w1", "tool": "t1"}"#;

#[test]
fn a_sandbox_comes_and_goes() {
    let origin = Origin::echoing();
    let mut egret = serving(&origin).start();
    assert_eq!(status(&egret, "127.1.0.7", &origin), 403, "it is `rest` before");
    let (code, body) = put(&egret, "job-7", BODY);
    assert_eq!((code, body["sandbox"].as_str()), (201, Some("job-7")));
    assert_eq!(
        (&body["registered"]["state"], &body["registered"]["policy"]),
        (&"active".into(), &"main".into())
    );
    let mut open = tunnel(&egret, "127.1.0.7", &origin);
    assert_eq!(status(&egret, "127.1.0.8", &origin), 403);
    assert_eq!(put(&egret, "job-7", BODY).0, 200);
    alive(&mut open);
    let decision = egret.events("decision").into_iter().find(|r| r["verdict"] == "allow").unwrap();
    let words =
        ["sandbox", "identity", "policy", "workspace", "tool"].map(|key| decision[key].as_str().unwrap());
    assert_eq!(words, ["job-7", "source", "main", "w1", "t1"]);

    egret.kill();
    egret.restart();
    let mut open = tunnel(&egret, "127.1.0.7", &origin);
    let began = Instant::now();
    assert_eq!(delete(&egret, "job-7"), 204);
    assert!(open.until_end().is_empty());
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    wait_for("the end of the tunnel", LIMIT, || {
        egret.events("close").iter().any(|record| record["reason"] == "identity_rejected")
    });
    assert_eq!(status(&egret, "127.1.0.7", &origin), 403);
    assert_eq!(delete(&egret, "job-7"), 404);
    let (code, body) = show(&egret, "/v1/sandboxes/job-7");
    assert_eq!((code, body["allow"].as_u64()), (200, Some(2)), "its ledger is kept: {body}");
    assert!(body["registered"].is_null());
    assert_eq!(show(&egret, "/v1/sandboxes/job-7/domains").1["domains"][0]["host"], "origin.test");
    egret.stop();
    egret.restart();
    assert_eq!(status(&egret, "127.1.0.7", &origin), 403);
    let changes = egret.events("sandbox");
    let changes: Vec<_> =
        changes.iter().map(|r| (r["sandbox"].as_str(), r["change"].as_str(), &r["kept"])).collect();
    let kept = &true.into();
    assert_eq!(changes, [(Some("job-7"), Some("registered"), kept), (Some("job-7"), Some("deleted"), kept)]);
}

/// What lies idle towards an origin goes with the sandbox, by whatever it was identified.
#[test]
fn a_deleted_one_leaves_no_idle_connections() {
    let (origin, ends) = Origin::telling_ends();
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    crate::printed(&["token", "keygen", "--out", &key("token")]);
    let text = config(&origin)
        .replace("[identity]\n", &format!("[identity]\ntoken_keys = [{:?}]\n", key("token.pub")));
    let egret = crate::support::egret::Egret::with(text).control_token(crate::TOKEN).start();
    put(&egret, "job", BODY);
    let mint = ["token", "mint", "--key", &key("token.key"), "--sandbox", "job", "--policy", "main"];
    let by_token = format!("Proxy-Authorization: Bearer {}\r\n", crate::printed(&mint));
    let authority = format!("origin.test:{}", origin.port());
    for (number, fields) in [&*by_token, ""].into_iter().enumerate() {
        put(&egret, "job", BODY);
        let mut client = crate::support::client::Client::connect_from("127.1.0.7", egret.proxy);
        client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{fields}\r\n"));
        assert_eq!(client.response("GET").status, 200);
        wait_for("the end of the request", LIMIT, || egret.events("close").len() > number);
        assert!(ends.try_recv().is_err(), "it lies idle");
        assert_eq!(delete(&egret, "job"), 204);
        ends.recv_timeout(LIMIT).expect("it is closed long before its time");
    }
}

#[test]
fn a_replaced_one_has_what_is_open_decided_again() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    let body = |source: &str, policy: &str| format!(r#"{{"source": ["{source}"], "policy": "{policy}"}}"#);
    put(&egret, "job", &body("127.1.0.0/24", "main"));
    let mut inside = tunnel(&egret, "127.1.0.7", &origin);
    let mut outside = tunnel(&egret, "127.1.0.200", &origin);
    assert_eq!(put(&egret, "job", &body("127.1.0.0/25", "main")).0, 200);
    assert!(outside.until_end().is_empty(), "its address is no longer of the sandbox");
    alive(&mut inside);
    assert_eq!(put(&egret, "job", &body("127.1.0.0/25", "none")).0, 200);
    assert!(inside.until_end().is_empty(), "the new policy does not permit it");
    wait_for("the closing records", LIMIT, || egret.events("close").len() == 2);
    let reasons: Vec<_> =
        egret.events("close").iter().map(|r| r["reason"].as_str().unwrap().to_owned()).collect();
    assert_eq!(reasons, ["identity_rejected", "policy_changed"]);
}

#[test]
fn who_gets_an_address_closes_what_another_has_open_there() {
    let origin = Origin::echoing();
    let everybody = config(&origin).replace(
        "source = [\"127.0.0.0/8\"]\npolicy = \"none\"",
        "source = [\"127.0.0.0/8\"]\npolicy = \"main\"",
    );
    let egret = crate::support::egret::Egret::with(everybody).control_token(crate::TOKEN).start();
    let mut of_rest = tunnel(&egret, "127.1.0.7", &origin);
    let mut neighbour = tunnel(&egret, "127.1.0.8", &origin);
    assert_eq!(put(&egret, "job", BODY).0, 201);
    assert!(of_rest.until_end().is_empty());
    alive(&mut neighbour);
    assert_eq!(tunnel_sandbox(&egret, &origin), "job");
}

fn tunnel_sandbox(egret: &crate::support::egret::Egret, origin: &Origin) -> String {
    drop(tunnel(egret, "127.1.0.7", origin));
    egret.events("decision").last().unwrap()["sandbox"].as_str().unwrap().to_owned()
}

#[test]
fn an_unused_one_expires_and_a_used_one_does_not() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    let body =
        |source: &str, times: &str| format!(r#"{{"source": ["{source}"], "policy": "main", {times}}}"#);
    assert_eq!(put(&egret, "unused", &body("127.1.0.1", r#""ttl": "1s""#)).0, 201);
    assert_eq!(put(&egret, "used", &body("127.1.0.2", r#""ttl": "1s""#)).0, 201);
    assert_eq!(put(&egret, "short", &body("127.1.0.3", r#""ttl": "1h", "lifetime": "2s""#)).0, 201);
    let mut used = tunnel(&egret, "127.1.0.2", &origin);
    let mut short = tunnel(&egret, "127.1.0.3", &origin);
    wait_for("the end of the unused one", LIMIT, || show(&egret, "/v1/sandboxes/unused").0 == 404);
    assert_eq!(status(&egret, "127.1.0.1", &origin), 403);
    assert!(short.until_end().is_empty(), "its lifetime is over");
    alive(&mut used);
    assert_eq!(status(&egret, "127.1.0.2", &origin), 200);
    drop(used);
    wait_for("the end of the used one", LIMIT, || {
        show(&egret, "/v1/sandboxes/used").1["registered"].is_null()
    });
    let expired = || egret.events("sandbox").iter().filter(|record| record["change"] == "expired").count();
    wait_for("the records", LIMIT, || expired() == 3);
}

#[test]
fn a_connection_that_lies_idle_is_no_use() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let egret = serving(&origin).start();
    assert_eq!(put(&egret, "job", r#"{"source": ["127.1.0.7"], "policy": "main", "ttl": "1s"}"#).0, 201);
    let mut client = crate::Client::connect_from("127.1.0.7", egret.proxy);
    let authority = format!("origin.test:{}", origin.port());
    let request = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    for _ in 0..2 {
        client.send(&request);
        assert_eq!(client.response("GET").status, 200);
    }
    assert_eq!(origin.accepted(), 1, "it is kept for the next request");
    // Kept for half a minute, if nothing ends it.
    wait_for("its end", LIMIT, || show(&egret, "/v1/sandboxes/job").1["registered"].is_null());
    client.send(&request);
    assert_eq!(client.response("GET").status, 403, "the same connection, another sandbox");
}

#[test]
fn limits_of_its_own_narrow_those_of_the_policy() {
    let origin = Origin::echoing();
    let limits = "\n[policy.main.limits]\nconnections = 2\n";
    let egret =
        crate::support::egret::Egret::with(config(&origin) + limits).control_token(crate::TOKEN).start();
    let body =
        r#"{"source": ["127.1.0.7"], "policy": "main", "limits": {"connections": 1, "bytes": "1kB/hour"}}"#;
    assert_eq!(put(&egret, "job", body).0, 201);
    let open = tunnel(&egret, "127.1.0.7", &origin);
    let (_, answer) = connect(&egret, "127.1.0.7", &origin);
    assert_eq!((answer.status, answer.get("x-egret-reason")), (429, Some("too_many_connections")));
    // Wider ones than the policy's change nothing.
    assert_eq!(put(&egret, "job", &body.replace("\"connections\": 1", "\"connections\": 9")).0, 200);
    let second = tunnel(&egret, "127.1.0.7", &origin);
    let (_, answer) = connect(&egret, "127.1.0.7", &origin);
    assert_eq!(answer.get("x-egret-reason"), Some("too_many_connections"));
    drop((open, second));
    wait_for("both ends", LIMIT, || egret.events("close").len() == 2);
    let mut last = tunnel(&egret, "127.1.0.7", &origin);
    last.send(vec![b'x'; 2000]);
    last.until_end();
    wait_for("the end by the quota", LIMIT, || {
        egret.events("close").iter().any(|record| record["reason"] == "quota_exceeded")
    });
}

#[test]
fn deleting_revokes_its_tokens() {
    let origin = Origin::echoing();
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key").display().to_string();
    let run = |arguments: &[&str]| {
        let output =
            std::process::Command::new(crate::support::egret::BINARY).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    run(&["token", "keygen", "--out", &key]);
    let tokens =
        config(&origin).replace("[identity]\n", &format!("[identity]\ntoken_keys = [\"{key}.pub\"]\n"));
    let egret = crate::support::egret::Egret::with(tokens).control_token(crate::TOKEN).start();
    assert_eq!(put(&egret, "job", BODY).0, 201);
    let token =
        run(&["token", "mint", "--key", &format!("{key}.key"), "--sandbox", "job", "--policy", "main"]);
    let by_token = || {
        let mut client = crate::Client::connect_from("127.0.0.1", egret.proxy);
        let authority = format!("origin.test:{}", origin.port());
        client.send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
        ));
        (client.response("CONNECT").status, client)
    };
    let (code, mut open) = by_token();
    assert_eq!(code, 200);
    assert_eq!(delete(&egret, "job"), 204);
    assert!(open.until_end().is_empty());
    assert_eq!(by_token().0, 407);
}

//! What is registered and what the configuration says: together, and against each other.

use std::process::Command;

use serde_json::Value;

use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;
use crate::{config, connect, printed, put, serving, show, status, tunnel};

const BODY: &str = r#"{"source": ["127.1.0.7"], "policy": "main"}"#;

#[test]
fn a_reload_that_does_not_permit_it_makes_it_nobody() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    put(&egret, "job", BODY);
    for (from, to, said) in [
        ("register = [\"127.1.0.0/16\"]", "register = [\"127.2.0.0/16\"]", "does not lie in a network"),
        (
            "register_policies = [\"main\", \"none\"]",
            "register_policies = [\"none\"]",
            "does not list the policy",
        ),
        ("policy.main", "policy.renamed", "there is no policy `main`"),
    ] {
        let mut open = tunnel(&egret, "127.1.0.7", &origin);
        let changed = config(&origin).replace(from, to);
        egret.configure(&if from == "policy.main" {
            changed.replace("\"main\", ", "").replace("register_policies = [\"none\"]\n", "")
        } else {
            changed
        });
        assert_eq!(egret.reload().status, 200);
        assert!(open.until_end().is_empty(), "{said}");
        let (_, answer) = connect(&egret, "127.1.0.7", &origin);
        assert_eq!(answer.get("x-egret-reason"), Some("identity_rejected"), "{said}");
        let (_, body) = show(&egret, "/v1/sandboxes/job");
        assert_eq!(body["registered"]["state"], "refused");
        assert!(body["registered"]["problem"].as_str().unwrap().contains(said), "{body}");
        egret.configure(&config(&origin));
        assert_eq!(egret.reload().status, 200);
        assert_eq!(status(&egret, "127.1.0.7", &origin), 200, "it is permitted again");
    }
}

#[test]
fn what_the_configuration_forbids_is_told() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    put(&egret, "job", BODY);
    for (id, body, code, said) in [
        (
            "other",
            r#"{"source": ["127.2.0.7"], "policy": "main"}"#,
            403,
            "127.2.0.7/32 does not lie in a network",
        ),
        ("other", r#"{"source": ["127.0.0.0/8"], "policy": "main"}"#, 403, "127.0.0.0/8 does not lie"),
        (
            "other",
            r#"{"source": ["127.1.0.8"], "policy": "other"}"#,
            403,
            "`identity.register_policies` does not list",
        ),
        (
            "other",
            r#"{"source": ["127.1.0.0/24"], "policy": "main"}"#,
            409,
            "sandbox job is registered for some",
        ),
        ("rest", r#"{"source": ["127.1.0.8"], "policy": "main"}"#, 409, "has a [[sandbox]] of this ID"),
        ("anonymous", r#"{"source": ["127.1.0.8"], "policy": "main"}"#, 409, "has a [[sandbox]] of this ID"),
    ] {
        let (found, answer) = put(&egret, id, body);
        assert_eq!(found, code, "{body}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(said), "{body}: {answer}");
    }
    let missing = config(&origin).replace("register_policies = [\"main\", \"none\"]\n", "");
    egret.configure(&missing);
    egret.reload();
    let (found, answer) = put(&egret, "other", r#"{"source": ["127.1.0.8"], "policy": "gone"}"#);
    assert_eq!((found, answer["detail"].as_str()), (400, Some("there is no policy `gone`")));
    egret.configure(&missing.replace("register = [\"127.1.0.0/16\"]\n", ""));
    egret.reload();
    let (found, answer) = put(&egret, "other", r#"{"source": ["127.1.0.8"], "policy": "main"}"#);
    assert_eq!(found, 403);
    assert!(answer["detail"].as_str().unwrap().contains("`identity.register` names no networks"), "{answer}");
    assert_eq!(egret.events("sandbox").len(), 1);
}

#[test]
fn registering_needs_a_control_token_in_the_configuration() {
    let origin = Origin::echoing();
    let error = Egret::with(config(&origin)).try_start().unwrap_err();
    assert!(error.contains("`register` needs `control_token_file`"), "{error}");
}

/// `auth = "token"`: the address is the sandbox's, and says nothing without a token.
#[test]
fn one_that_must_bring_a_token() {
    let (origin, folder) = (Origin::echoing(), tempfile::tempdir().unwrap());
    let key = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    printed(&["token", "keygen", "--out", &key("token")]);
    let keys = format!("[identity]\ntoken_keys = [{:?}]\n", key("token.pub"));
    let with_keys = config(&origin).replace("[identity]\n", &keys);
    let body = r#"{"source": ["127.1.0.7"], "auth": "token", "policy": "none", "ttl": "2s"}"#;
    let egret = serving(&origin).start();
    let (code, answer) = put(&egret, "job", body);
    assert_eq!(code, 400);
    assert!(answer["detail"].as_str().unwrap().contains("no `identity.token_keys`"), "{answer}");
    egret.configure(&with_keys);
    assert_eq!(egret.reload().status, 200);
    for (wrong, code) in [
        (r#""auth": "cert""#, 400),
        (r#""auth": "Token""#, 400),
        (r#""auth": """#, 400),
        (r#""auth": true"#, 422),
        (r#""auth": null"#, 422),
        (r#""auth": ["token"]"#, 422),
        (r#""auth": "token", "auth": "token""#, 422),
        (r#""auth": "token", "limits": {"requests": "1/s"}"#, 400),
        (r#""auth": "token", "workspace": "w""#, 400),
        (r#""auth": "token", "tool": "t""#, 400),
    ] {
        let text = format!(r#"{{"source": ["127.1.0.7"], "policy": "none", {wrong}}}"#);
        let (found, answer) = put(&egret, "job", &text);
        assert_eq!(found, code, "{wrong}: {answer}");
    }
    assert!(egret.events("sandbox").is_empty());
    let (code, answer) = put(&egret, "job", body);
    assert_eq!((code, &answer["registered"]["auth"]), (201, &"token".into()));

    let mint = ["token", "mint", "--key", &key("token.key"), "--sandbox", "job", "--policy", "main"];
    let token = printed(&mint);
    let authority = format!("origin.test:{}", origin.port());
    let by_token = |source: &str| {
        let mut client = crate::support::client::Client::connect_from(source, egret.proxy);
        client.send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
        ));
        let answer = client.response("CONNECT");
        (client, answer.status)
    };
    let (_, refused) = connect(&egret, "127.1.0.7", &origin);
    assert_eq!((refused.status, refused.get("x-egret-reason")), (407, Some("identity_required")));
    // Each use puts off the end; three of them are longer than its time.
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(1200));
        assert_eq!(by_token("127.1.0.7").1, 200);
    }
    assert!(show(&egret, "/v1/sandboxes/job").1["registered"].is_object());
    // Another body: what the address had opened by itself is decided again.
    put(&egret, "job", &body.replace("token", "source").replace("none", "main"));
    let mut open = tunnel(&egret, "127.1.0.7", &origin);
    put(&egret, "job", body);
    assert!(open.until_end().is_empty());
    let (mut open, status) = by_token("127.1.0.7");
    assert_eq!(status, 200);
    assert_eq!(crate::delete(&egret, "job"), 204);
    assert!(open.until_end().is_empty(), "its tokens are revoked");
}

#[test]
fn lists_come_in_pages() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    for number in 0..7 {
        let body = format!(r#"{{"source": ["127.1.0.{number}"], "policy": "main"}}"#);
        assert_eq!(put(&egret, &format!("job-{number}"), &body).0, 201);
    }
    for source in ["127.1.0.3", "127.0.0.1"] {
        let _ = status(&egret, source, &origin);
    }
    let ids = |body: &Value| -> Vec<String> {
        let rows = body["sandboxes"].as_array().unwrap();
        rows.iter().map(|row| row["sandbox"].as_str().unwrap().to_owned()).collect()
    };
    let all = ids(&show(&egret, "/v1/sandboxes").1);
    assert_eq!(all, ["job-0", "job-1", "job-2", "job-3", "job-4", "job-5", "job-6", "rest"]);
    let mut found = Vec::new();
    let mut target = "/v1/sandboxes?limit=3".to_owned();
    loop {
        let (_, body) = show(&egret, &target);
        let page = ids(&body);
        assert!(page.len() <= 3);
        found.extend(page);
        let Some(next) = body["next"].as_str() else { break };
        target = format!("/v1/sandboxes?limit=3&cursor={next}");
    }
    assert_eq!(found, all);
    let (_, body) = show(&egret, "/v1/sandboxes?limit=1&cursor=job-2");
    let row = &body["sandboxes"][0];
    assert_eq!(
        (&row["sandbox"], &row["allow"], &row["configured"]),
        (&"job-3".into(), &1.into(), &false.into())
    );
    assert_eq!(row["registered"]["source"][0], "127.1.0.3");
    let (_, body) = show(&egret, "/v1/sandboxes/rest");
    assert_eq!((&body["configured"], &body["deny"]), (&true.into(), &1.into()));
}

#[test]
fn explain_knows_what_is_registered() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    put(&egret, "job", BODY);
    let target = format!("origin.test:{}", origin.port());
    let explain = |id: &str| {
        let mut command = Command::new(BINARY);
        command.current_dir(egret.dir()).args(["explain", "--config"]).arg(egret.config_file());
        let output =
            command.args(["--sandbox", id, "--address", "127.0.0.1", "--json", &target]).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, text) = explain("job");
    assert!(code == Some(0) && text.contains("\"policy\":\"main\""), "{text}");
    let (code, text) = explain("nobody");
    assert!(code == Some(2) && text.contains("known: rest, job"), "{text}");
}

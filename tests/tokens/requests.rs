//! Credentials are judged for every request, and nothing of them goes anywhere.

use std::time::{Duration, Instant};

use crate::setup::{
    Keys, answering, ask, base64, basic, bearer, config, connect, get, reason, serving, tunnel,
};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::http1::latin1;
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn a_token_makes_its_bearer_the_sandbox() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (token, _) = keys.mint(&["--workspace", "w-1", "--tool", "curl"]);
    for (source, fields) in [
        ("127.0.0.1", basic("box", &token)),
        ("127.0.0.2", bearer(&token)),
        ("127.0.0.2", bearer(&token).replace("Bearer", "bEARER")),
        ("127.0.0.3", basic("box", &token).replace("Basic", "basic")),
    ] {
        assert_eq!(ask(&egret, source, &get(&origin, &fields)).status, 200, "{source}");
    }
    for request in origin.requests() {
        let head = latin1(&request.head).to_lowercase();
        assert!(!head.contains("proxy-auth") && !head.contains(&token.to_lowercase()), "{head}");
    }
    let records = egret.events("decision");
    assert_eq!(records.len(), 4);
    for record in records {
        let named = ["sandbox", "identity", "policy", "workspace", "tool", "verdict"].map(|key| &record[key]);
        assert_eq!(named, ["box", "token", "main", "w-1", "curl", "allow"]);
    }
}

#[test]
fn a_challenge_is_answered_on_the_same_connection() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (token, _) = keys.mint(&[]);
    let mut client = Client::connect_from("127.0.0.2", egret.proxy);
    client.send(get(&origin, ""));
    let answer = client.response("GET");
    assert_eq!(reason(&answer), (407, "identity_required"));
    assert_eq!(answer.all("proxy-authenticate"), ["Basic realm=\"egret\"", "Bearer realm=\"egret\""]);
    assert!(answer.get("proxy-status").is_some_and(|status| status.contains("http_request_denied")));
    client.send(get(&origin, &basic("box", &token)));
    assert_eq!(client.response("GET").status, 200);
    // Nothing is remembered for the connection.
    client.send(get(&origin, ""));
    assert_eq!(client.response("GET").status, 407);
    client.send(get(&origin, "Authorization: Basic c2FuZGJveC1hOnRvay1h\r\n"));
    assert_eq!(client.response("GET").status, 407);
    client.send(get(&origin, &bearer(&token)));
    assert_eq!(client.response("GET").status, 200);
}

#[test]
fn a_refused_connect_says_that_it_closes() {
    let (keys, origin) = (Keys::new(), Origin::echoing());
    let egret = serving(&origin, &[&keys]);
    let mut client = Client::connect_from("127.0.0.2", egret.proxy);
    client.send(connect(&origin, ""));
    let answer = client.response("CONNECT");
    assert_eq!(reason(&answer), (407, "identity_required"));
    assert_eq!((answer.get("connection"), answer.all("proxy-authenticate").len()), (Some("close"), 2));
    assert!(client.until_end().is_empty());
    let (token, _) = keys.mint(&[]);
    let mut client = tunnel(&egret, &origin, &basic("box", &token));
    client.send("through");
    assert_eq!(client.exactly(7), b"through");
}

#[test]
fn bad_credentials_are_nobody_and_leave_no_trace() {
    let (keys, others, origin) = (Keys::new(), Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (good, id) = keys.mint(&[]);
    let (foreign, _) = others.mint(&[]);
    let (elsewhere, _) = keys.mint(&["--audience", "other"]);
    let (short, _) = keys.mint(&["--ttl", "1s"]);
    let (gone, _) = keys.mint(&["--policy", "gone"]);
    let (before, after) = good.split_at(good.len() / 2);
    let other = if after.starts_with('x') { 'y' } else { 'x' };
    let edited = format!("{before}{other}{}", &after[1..]);
    std::thread::sleep(Duration::from_millis(2100));
    let secret = base64(b"hunter:hunter2hunter2hunter2");
    let cases = [
        (basic("other", &good), "the user is not the token's sandbox"),
        (bearer(&foreign), "no key in force"),
        (bearer(&edited), "no key in force"),
        (bearer(&elsewhere), "another audience"),
        (bearer(&short), "has expired"),
        (bearer(&gone), "a policy that does not exist"),
        (format!("Proxy-Authorization: Basic {secret}\r\n"), "not three parts"),
        (format!("Proxy-Authorization: Basic {secret} x\r\n"), "not base64"),
        (format!("Proxy-Authorization: Negotiate {secret}\r\n"), "neither Basic nor Bearer"),
        ("Proxy-Authorization:\r\n".to_owned(), "neither Basic nor Bearer"),
        (basic("box", &good) + &bearer(&good), "more than one"),
    ];
    let mut answers = String::new();
    for (fields, why) in &cases {
        // The address alone would be a sandbox, whose policy refuses with another reason.
        for request in [get(&origin, fields), connect(&origin, fields)] {
            if request.starts_with("CONNECT") && *why != "no key in force" {
                continue;
            }
            let answer = ask(&egret, "127.0.0.1", &request);
            assert_eq!(reason(&answer), (407, "identity_rejected"), "{why}");
            answers.push_str(&format!("{answer:?} {}", latin1(&answer.body)));
        }
        let details = egret.events("decision");
        let last = details.last().unwrap();
        assert!(last["detail"].as_str().unwrap().contains(why), "{last}");
        assert_eq!(
            (last["reason"].as_str(), last["status"].as_u64()),
            (Some("identity_rejected"), Some(407))
        );
        assert!(last.get("sandbox").is_none(), "{last}");
    }
    assert_eq!(origin.accepted(), 0);
    let audit = std::fs::read_to_string(egret.audit_file()).unwrap();
    assert!(!answers.contains(&id), "the client does not learn what the record says");
    let tokens = [&good, &foreign, &elsewhere, &short, &gone, &edited, &secret];
    let pieces = tokens.map(|token| token.rsplit('.').next().unwrap().to_owned());
    for text in [&audit, &egret.log(), &answers] {
        assert!(pieces.iter().all(|piece| !text.contains(piece.as_str())), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_password_in_a_target_is_not_recorded() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    for request in [
        "CONNECT box:hunter2@origin.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://box:hunter2@origin.test/?q=hunter2 HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://origin.test/path-1?q=hunter2 HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic !\r\n\r\n",
    ] {
        assert!(ask(&egret, "127.0.0.1", request).status >= 400);
    }
    wait_for("the records", Duration::from_secs(10), || egret.events("decision").len() == 3);
    let audit = std::fs::read_to_string(egret.audit_file()).unwrap();
    assert!(!audit.contains("hunter2") && !audit.contains("path-1"), "{audit}");
    let last = egret.events("decision").pop().unwrap();
    assert_eq!((last["host"].as_str(), last["port"].as_u64()), (Some("origin.test"), Some(80)));
    assert!(last["path_hash"].is_string(), "{last}");
}

#[test]
fn a_token_does_not_travel() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (token, _) = keys.mint(&["--source", "127.0.0.2/32", "--source", "10.0.0.0/8"]);
    let request = get(&origin, &basic("box", &token));
    assert_eq!(ask(&egret, "127.0.0.2", &request).status, 200);
    let answer = ask(&egret, "127.0.0.3", &request);
    assert_eq!(reason(&answer), (407, "identity_rejected"));
    assert!(!latin1(&answer.body).contains("address"), "the client learns that it was refused, not why");
    let records = egret.events("decision");
    assert!(records[1]["detail"].as_str().unwrap().contains("from this address"), "{}", records[1]);
}

#[test]
fn a_token_reaches_no_origin() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (token, _) = keys.mint(&[]);
    let upgrade = "Connection: Upgrade, Proxy-Authorization\r\nUpgrade: websocket\r\n";
    for fields in [String::new(), upgrade.to_owned(), "Proxy-Connection: keep-alive\r\n".to_owned()] {
        for credentials in [basic("box", &token), bearer(&token)] {
            let request = get(&origin, &(fields.clone() + &credentials));
            assert_eq!(ask(&egret, "127.0.0.1", &request).status, 200, "{fields}");
        }
    }
    let requests = origin.requests();
    assert_eq!(requests.len(), 6);
    for request in requests {
        let head = latin1(&request.head);
        assert!(!head.to_lowercase().contains("proxy-") && !head.contains(&token), "{head}");
    }
    let written = latin1(&std::fs::read(egret.audit_file()).unwrap()) + &egret.log();
    assert!(!written.contains(&token), "{written}");
}

#[test]
fn a_token_narrows_the_policy_for_itself() {
    let (keys, origin) = (Keys::new(), Origin::echoing());
    let egret = serving(&origin, &[&keys]);
    let (narrow, _) = keys.mint(&["--limit", "connections=1", "--limit", "bytes=6/hour"]);
    let (wide, _) = keys.mint(&[]);
    let mut first = tunnel(&egret, &origin, &bearer(&narrow));
    let answer = ask(&egret, "127.0.0.1", &connect(&origin, &bearer(&narrow)));
    assert_eq!(reason(&answer), (429, "too_many_connections"));
    let _second = tunnel(&egret, &origin, &bearer(&wide));
    first.send("12345678");
    assert!(first.until_end().len() <= 6);
    wait_for("the closing record", Duration::from_secs(10), || {
        egret.events("close").iter().any(|record| record["reason"] == "quota_exceeded")
    });
    let _third = tunnel(&egret, &origin, &bearer(&wide));
}

#[test]
fn guessing_gets_nowhere() {
    const GUESSES: usize = 10_000;
    const AT_ONCE: usize = 100;
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (good, _) = keys.mint(&[]);
    let began = Instant::now();
    let (head, signature) = good.rsplit_once('.').unwrap();
    let mut counts = std::collections::BTreeMap::new();
    let mut client = Client::connect_from("127.0.0.2", egret.proxy);
    for batch in 0..GUESSES / AT_ONCE {
        for guess in 0..AT_ONCE {
            let guess = format!("{head}.{:06}{}", batch * AT_ONCE + guess, &signature[6..]);
            client.send(get(&origin, &bearer(&guess)));
        }
        for _ in 0..AT_ONCE {
            let answer = client.response("GET");
            let (status, why) = reason(&answer);
            assert_eq!(answer.get("retry-after").is_some(), status == 429);
            *counts.entry((status, why.to_owned())).or_insert(0) += 1;
        }
    }
    let windows = 1 + usize::try_from(began.elapsed().as_secs() / 60).unwrap();
    let rejected = counts.remove(&(407, "identity_rejected".to_owned())).unwrap();
    let limited = counts.remove(&(429, "rate_limited".to_owned())).unwrap();
    assert!(counts.is_empty(), "{counts:?}");
    assert_eq!(rejected + limited, GUESSES);
    assert!(rejected <= 20 * windows, "{rejected} were verified");
    assert_eq!(origin.accepted(), 0);
    assert_eq!(
        ask(&egret, "127.0.0.1", &get(&origin, &bearer(&good))).status,
        200,
        "others are not concerned"
    );
}

#[test]
fn without_keys_credentials_are_refused() {
    let (keys, origin) = (Keys::new(), answering());
    let with = config(&origin, &[]).replace("auth = \"token\"\n", "");
    let egret = Egret::with(with).start();
    let answer = ask(&egret, "127.0.0.1", &get(&origin, &bearer(&keys.mint(&[]).0)));
    assert_eq!(reason(&answer), (403, "identity_rejected"));
    assert!(answer.get("proxy-authenticate").is_none());
}

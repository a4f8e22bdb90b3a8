//! Revocations and key changes reach what is open already.

use std::time::Duration;

use crate::setup::{
    Keys, answering, ask, bearer, config, connect, egret as run, get, printed, reason, serving, tunnel,
};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(10);

fn revoke(egret: &Egret, what: &[&str]) -> String {
    let control = egret.control.to_string();
    printed(&[&["token", "revoke", "--control", &control], what].concat())
}

fn alive(tunnel: &mut Client) {
    tunnel.send("still");
    assert_eq!(tunnel.exactly(5), b"still");
}

#[test]
fn a_revocation_closes_tunnels_and_outlives_the_process() {
    let (keys, origin) = (Keys::new(), Origin::echoing());
    let mut egret = serving(&origin, &[&keys]);
    let (one, id) = keys.mint(&[]);
    let (two, _) = keys.mint(&[]);
    let (neighbour, _) = keys.mint_for("neighbour", &[]);
    let mut tunnels = [&one, &two, &neighbour].map(|token| tunnel(&egret, &origin, &bearer(token)));
    tunnels.iter_mut().for_each(alive);
    assert!(revoke(&egret, &[&id]).contains(&id));
    assert!(tunnels[0].until_end().is_empty());
    wait_for("the closing record", LIMIT, || {
        egret.events("close").iter().any(|record| record["reason"] == "identity_rejected")
    });
    alive(&mut tunnels[1]);
    assert_eq!(revoke(&egret, &["--sandbox", "box"]), "all tokens of sandbox box are revoked");
    assert!(tunnels[1].until_end().is_empty());
    alive(&mut tunnels[2]);
    let refused = |egret: &Egret| {
        for token in [&one, &two] {
            let answer = ask(egret, "127.0.0.1", &connect(&origin, &bearer(token)));
            assert_eq!(reason(&answer), (407, "identity_rejected"));
        }
    };
    refused(&egret);
    // It would wait for open tunnels.
    drop(tunnels);
    egret.stop();
    egret.restart();
    refused(&egret);
    drop(tunnel(&egret, &origin, &bearer(&neighbour)));
    // What is issued later is another matter, once the second of the revocation is over.
    wait_for("a new token to be good", LIMIT, || {
        let (new, _) = keys.mint(&[]);
        ask(&egret, "127.0.0.2", &connect(&origin, &bearer(&new))).status == 200
    });
    let revocations = egret.events("revoke");
    assert_eq!((revocations[0]["token"].as_str(), &revocations[0]["kept"]), (Some(&*id), &true.into()));
    assert_eq!(revocations[1]["sandbox"], "box");
}

/// What lies idle towards an origin belongs to a sandbox too; others keep theirs.
#[test]
fn a_revocation_drops_idle_connections_at_once() {
    let keys = Keys::new();
    let (origin, ends) = Origin::telling_ends();
    let egret = serving(&origin, &[&keys]);
    let (neighbour, _) = keys.mint_for("neighbour", &[]);
    let served = |token: &str| {
        let records = egret.events("close").len();
        assert_eq!(ask(&egret, "127.0.0.1", &get(&origin, &bearer(token))).status, 200);
        wait_for("the end of the request", LIMIT, || egret.events("close").len() > records);
    };
    served(&neighbour);
    for by in ["token", "sandbox"] {
        let sandbox = format!("box-{by}");
        let (token, id) = keys.mint_for(&sandbox, &[]);
        served(&token);
        assert!(ends.try_recv().is_err(), "it lies idle");
        let what = if by == "token" { vec![&*id] } else { vec!["--sandbox", &sandbox] };
        revoke(&egret, &what);
        ends.recv_timeout(LIMIT).expect("it is closed long before its time");
    }
    served(&neighbour);
    assert_eq!(origin.accepted(), 3, "the neighbour has kept its own");
}

#[test]
fn an_expired_token_keeps_its_tunnel_and_opens_no_other() {
    let (keys, origin) = (Keys::new(), Origin::echoing());
    let egret = serving(&origin, &[&keys]);
    let (token, _) = keys.mint(&["--ttl", "2s"]);
    let mut open = tunnel(&egret, &origin, &bearer(&token));
    std::thread::sleep(Duration::from_millis(2100));
    let answer = ask(&egret, "127.0.0.1", &connect(&origin, &bearer(&token)));
    assert_eq!(reason(&answer), (407, "identity_rejected"));
    alive(&mut open);
}

#[test]
fn keys_are_changed_without_a_restart() {
    let (old, new, origin) = (Keys::new(), Keys::new(), Origin::echoing());
    let egret = serving(&origin, &[&old]);
    let (of_old, of_new) = (old.mint(&[]).0, new.mint(&[]).0);
    let mut first = tunnel(&egret, &origin, &bearer(&of_old));
    assert_eq!(ask(&egret, "127.0.0.1", &connect(&origin, &bearer(&of_new))).status, 407);
    egret.configure(&config(&origin, &[&old, &new]));
    assert_eq!(egret.reload().status, 200);
    alive(&mut first);
    let mut second = tunnel(&egret, &origin, &bearer(&of_new));
    egret.configure(&config(&origin, &[&new]));
    assert_eq!(egret.reload().status, 200);
    assert!(first.until_end().is_empty(), "its key is gone");
    alive(&mut second);
    assert_eq!(ask(&egret, "127.0.0.1", &connect(&origin, &bearer(&of_old))).status, 407);
    // The policy that the token names is gone: the tunnel goes with it.
    let renamed = config(&origin, &[&new]).replace("policy.main", "policy.other");
    egret.configure(&renamed);
    assert_eq!(egret.reload().status, 200);
    assert!(second.until_end().is_empty());
}

#[test]
fn a_key_file_that_is_replaced_is_read_again() {
    let (old, new, origin) = (Keys::new(), Keys::new(), answering());
    let egret = serving(&origin, &[&old]);
    let request = get(&origin, &bearer(&new.mint(&[]).0));
    assert_eq!(ask(&egret, "127.0.0.1", &request).status, 407);
    std::fs::copy(new.public(), old.public()).unwrap();
    wait_for("the new key to be in force", LIMIT, || {
        std::thread::sleep(Duration::from_millis(500));
        ask(&egret, "127.0.0.1", &request).status == 200
    });
}

#[test]
fn a_revocation_that_can_not_be_kept_says_so_and_counts() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    let (token, id) = keys.mint(&[]);
    let state = egret.dir().join("state");
    std::fs::create_dir_all(state.join("revocations.ndjson")).unwrap();
    let control = egret.control.to_string();
    let output = run(&["token", "revoke", "--control", &control, &id]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("until the next restart"), "{error}");
    assert_eq!(ask(&egret, "127.0.0.1", &get(&origin, &bearer(&token))).status, 407);
}

#[test]
fn the_control_interface_takes_ids_and_nothing_else() {
    let (keys, origin) = (Keys::new(), answering());
    let egret = serving(&origin, &[&keys]);
    for body in [
        "",
        "{}",
        "{\"jti\":\"\"}",
        "{\"jti\":\"a b\"}",
        "{\"sandbox\":\"a/b\"}",
        "{\"jti\":\"a\",\"sandbox\":\"b\"}",
    ] {
        let mut client = Client::connect(egret.control);
        client.send(format!(
            "POST /v1/tokens/revoke HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let answer = client.final_response("POST");
        assert!((400..500).contains(&answer.status), "{body}: {answer:?}");
    }
    assert!(egret.events("revoke").is_empty());
}

//! What `no_proxy` names goes straight, and nothing else does.

use std::process::Command;

use crate::parent::{Act, Parent};
use crate::setup::{NAME, config, config_at, connect, decision, get};
use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;

fn small() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

#[test]
fn names_and_networks_of_no_proxy_go_straight() {
    let (origin, parent) = (small(), Parent::open());
    for (no_proxy, through) in [
        ("[\"origin.test\"]", false),
        ("[\"**.test\"]", false),
        ("[\"*.origin.test\"]", true),
        ("[\"origin.test:1\"]", true),
        ("[\"127.0.0.0/8\"]", false),
        ("\"127.0.0.1\"", false),
        ("[\"10.0.0.0/8\", \"::/0\", \"other.test\"]", true),
        ("[]", true),
    ] {
        let text = config(parent.address(), origin.port(), &format!("no_proxy = {no_proxy}"));
        let egret = Egret::with(text).start();
        let before = parent.heads().len();
        assert_eq!(get(&egret, origin.port()).status, 200);
        let _tunnel = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
        let asked = parent.heads().len() - before;
        assert_eq!(asked, if through { 2 } else { 0 }, "{no_proxy}");
        for record in egret.events("decision") {
            let expected =
                if through { parent.address().to_string().into() } else { serde_json::Value::Null };
            assert_eq!(record["via_parent"], expected, "{no_proxy}");
        }
    }
}

#[test]
fn addresses_of_one_name_go_their_own_ways_and_none_twice() {
    // Nobody listens at 127.0.0.9, which goes straight; 127.0.0.1 goes through the parent.
    let (origin, parent) = (small(), Parent::open());
    let addresses = ["127.0.0.1", "127.0.0.9"];
    let more = "no_proxy = [\"127.0.0.9/32\"]";
    let text = config_at(&parent.address().to_string(), &addresses, origin.port(), more);
    let egret = Egret::with(text).start();
    assert_eq!(get(&egret, origin.port()).status, 200);
    let record = decision(&egret, 1);
    assert_eq!(record["dialed"], "127.0.0.1");
    assert_eq!(record["via_parent"], parent.address().to_string());
    assert!(record["detail"].as_str().unwrap().contains("127.0.0.9"), "{record}");
    assert_eq!(parent.targets(), [format!("127.0.0.1:{}", origin.port())]);
}

#[test]
fn what_goes_through_the_parent_does_not_go_straight_when_it_fails() {
    // The origin listens on the address that goes through the parent.
    let (origin, parent) = (small(), Parent::start(|_| Act::status("503 No")));
    let addresses = ["127.0.0.1", "127.0.0.9"];
    let more = "no_proxy = [\"127.0.0.9/32\"]";
    let text = config_at(&parent.address().to_string(), &addresses, origin.port(), more);
    let egret = Egret::with(text).start();
    for _ in 0..3 {
        assert_eq!(connect(&egret, origin.port()).status, 502);
        assert_eq!(get(&egret, origin.port()).status, 502);
    }
    assert_eq!(origin.accepted(), 0);
    assert_eq!(parent.heads().len(), 6);
}

#[test]
fn explain_says_the_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("egret.toml");
    let more = "no_proxy = [\"straight.test\", \"127.0.0.9/32\"]";
    std::fs::write(&file, config_at("proxy.corp:3128", &["127.0.0.1"], 80, more)).unwrap();
    let explain = |arguments: &[&str]| {
        let output = Command::new(BINARY)
            .args(["explain", "--config"])
            .arg(&file)
            .args(["--sandbox", "box"])
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let said = explain(&["http://origin.test/"]);
    assert!(said.contains("  way       through proxy.corp:3128\n"), "{said}");
    let said = explain(&["http://straight.test/", "--address", "127.0.0.1"]);
    assert!(said.contains("  way       direct (no_proxy)\n"), "{said}");
    let said = explain(&["http://a.test/", "--address", "127.0.0.1", "--address", "127.0.0.9", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["way"], "direct to 127.0.0.9 (no_proxy), through proxy.corp:3128 to 127.0.0.1");
    let said = explain(&["http://no.example/", "--json"]);
    assert!(!said.contains("\"way\""), "{said}");
    // The parent itself, which a rule unlocks.
    std::fs::write(&file, config_at("127.0.0.1:8080", &["127.0.0.1"], 8080, "")).unwrap();
    let said = explain(&["origin.test:8080"]);
    assert!(said.contains("deny: address_forbidden") && said.contains("is the parent proxy"), "{said}");
}

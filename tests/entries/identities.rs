//! Who a client of SOCKS5 is: by user and password alone where it sends them, else by its address.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::messages;
use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret, SocksAt};
use crate::support::origin::Origin;
use crate::support::socks::{self, HELLO, LOGIN_HELLO};

fn run(folder: &Path, arguments: &[&str]) -> Result<String, String> {
    let made = Command::new(BINARY).current_dir(folder).arg("token").args(arguments).output().unwrap();
    match made.status.success() {
        true => Ok(String::from_utf8(made.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8(made.stderr).unwrap()),
    }
}

/// An egret whose clients at 127.0.0.1 are `by-source`, may reach nothing and need no token; the rest of
/// the loopback needs one.
struct Setup {
    egret: Egret,
    origin: Origin,
    keys: tempfile::TempDir,
}

impl Setup {
    fn new() -> Self {
        let keys = tempfile::tempdir().unwrap();
        run(keys.path(), &["keygen", "--out", "token"]).unwrap();
        let origin = Origin::echoing();
        let text = messages::config(&origin)
            .replace("source = [\"127.0.0.0/8\"]\n", "source = [\"127.0.0.2\"]\nauth = \"token\"\n");
        let text = format!(
            "[identity]\ntoken_keys = [{:?}]\n\n[[sandbox]]\nid = \"by-source\"\nsource = [\"127.0.0.1\"]\npolicy = \"none\"\n\n\
             [policy.none]\n\n{text}",
            keys.path().join("token.pub")
        );
        let egret = Egret::with(text).socks(SocksAt::OwnPort).start();
        Self { egret, origin, keys }
    }

    fn mint(&self, more: &[&str]) -> Result<String, String> {
        let fixed = ["mint", "--key", "token.key", "--sandbox", "agent-7", "--policy", "main"];
        run(self.keys.path(), &[&fixed[..], more].concat())
    }

    /// User and password of a URL with a token.
    fn login(&self, more: &[&str]) -> (String, String) {
        let url = self.mint(&[&["--url", "socks5h://egret:1080"], more].concat()).unwrap();
        let userinfo = url.strip_prefix("socks5h://").and_then(|rest| rest.strip_suffix("@egret:1080"));
        let (user, password) = userinfo.expect("a URL of SOCKS").split_once(':').unwrap();
        (user.to_owned(), password.to_owned())
    }

    /// What the methods are answered with.
    fn method(&self, source: &str, hello: &[u8]) -> (Client, u8) {
        let mut client = Client::connect_from(source, self.egret.socks);
        client.send(hello);
        let answer = client.exactly(2);
        assert_eq!(answer[0], 5);
        (client, answer[1])
    }

    /// Logs in; whether that was good.
    fn logged_in(&self, source: &str, user: &str, password: &str) -> Option<Client> {
        let (mut client, method) = self.method(source, &LOGIN_HELLO);
        assert_eq!(method, 2);
        client.send(socks::login(user, password));
        let answer = client.exactly(2);
        assert_eq!(answer[0], 1);
        if answer[1] == 0 {
            return Some(client);
        }
        assert!(client.until_end().is_empty(), "a bad login ends the connection");
        None
    }

    fn decision(&self) -> Value {
        self.egret.events("decision").pop().expect("a decision")
    }

    fn request(&self) -> Vec<u8> {
        socks::named(b"origin.test", self.origin.port())
    }
}

#[test]
fn a_token_decides_alone_whatever_the_address() {
    let setup = Setup::new();
    let (user, password) = setup.login(&["--workspace", "w", "--tool", "t"]);
    assert!(user.starts_with("agent-7~"), "{user}: a token is longer than a password");
    for source in ["127.0.0.1", "127.0.0.2", "127.0.0.9"] {
        let mut client = setup.logged_in(source, &user, &password).expect("a good token");
        client.send(setup.request());
        assert_eq!(socks::reply(&mut client), 0, "{source}");
        client.send("hello");
        assert_eq!(client.exactly(5), b"hello");
        let record = setup.decision();
        let who =
            ["sandbox", "identity", "policy", "protocol", "workspace", "tool"].map(|key| record[key].clone());
        assert_eq!(who, ["agent-7", "token", "main", "socks5", "w", "t"].map(Value::from), "{record}");
    }
    // What the token's policy does not allow.
    let mut client = setup.logged_in("127.0.0.1", &user, &password).unwrap();
    client.send(socks::named(b"elsewhere.test", 80));
    assert_eq!(socks::reply(&mut client), 2);
    let all = std::fs::read_to_string(setup.egret.audit_file()).unwrap() + &setup.egret.log();
    assert!(!all.contains(&password[..40]) && !all.contains(&user[10..]), "a token was written down");
}

#[test]
fn bad_credentials_never_fall_back_to_the_address() {
    let setup = Setup::new();
    let (user, password) = setup.login(&[]);
    let other = setup.login(&["--audience", "elsewhere"]);
    let mut turned = password.clone();
    let last = turned.pop().unwrap();
    turned.push(if last == 'A' { 'Q' } else { 'A' });
    for (user, password) in [
        (user.as_str(), turned.as_str()),
        (&user.replace("agent-7", "agent-8"), &password),
        (&other.0, &other.1),
        ("agent-7", &password),
        ("agent-7", "x"),
        ("", "x"),
        ("agent-7", ""),
        ("root", ""),
        ("a b", "x"),
    ] {
        assert!(setup.logged_in("127.0.0.1", user, password).is_none(), "{user}");
        let record = setup.decision();
        assert_eq!(
            (&record["reason"], &record["sandbox"]),
            (&"identity_rejected".into(), &Value::Null),
            "{record}"
        );
        assert_eq!(record["protocol"], "socks5");
    }
    assert_eq!(setup.origin.accepted(), 0);
}

#[test]
fn a_login_that_does_not_arrive_is_nobodys() {
    let setup = Setup::new();
    for part in [&b"\x01"[..], b"\x01\x07agent-7\x40abc"] {
        let (mut client, method) = setup.method("127.0.0.1", &LOGIN_HELLO);
        assert_eq!(method, 2);
        client.send(part);
        assert_eq!(client.until_end(), [1, 1]);
        let record = setup.decision();
        assert!(record["detail"].as_str().unwrap().contains("in time"), "{record}");
        assert_eq!(
            (&record["reason"], &record["sandbox"]),
            (&"bad_request".into(), &Value::Null),
            "{record}"
        );
    }
}

#[test]
fn guessing_is_slowed_down() {
    let setup = Setup::new();
    let (user, password) = setup.login(&[]);
    assert!(setup.logged_in("127.0.0.1", &user, &password).is_some());
    for _ in 0..=20 {
        assert!(setup.logged_in("127.0.0.9", "agent-7", "a.b.c").is_none());
    }
    assert_eq!(setup.decision()["reason"], "rate_limited");
    assert!(setup.logged_in("127.0.0.1", &user, &password).is_some(), "another address");
}

#[test]
fn the_method_is_what_the_policy_asks_for() {
    let setup = Setup::new();
    // By its address alone: may reach nothing, but is somebody.
    let (mut client, method) = setup.method("127.0.0.1", &HELLO);
    assert_eq!(method, 0);
    client.send(setup.request());
    assert_eq!(socks::reply(&mut client), 2);
    let record = setup.decision();
    assert_eq!((&record["sandbox"], &record["reason"]), (&"by-source".into(), &"domain_not_allowed".into()));
    // It stays so where it offers nothing that is understood.
    assert_eq!(setup.method("127.0.0.1", &[5, 1, 1]).1, 255);
    let record = setup.decision();
    assert_eq!(
        (&record["sandbox"], &record["reason"]),
        (&"by-source".into(), &"bad_request".into()),
        "{record}"
    );
    // Whoever offers credentials is asked for them.
    assert_eq!(setup.method("127.0.0.1", &[5, 3, 0, 1, 2]).1, 2);
    // An address that has to send a token, and one that nothing identifies.
    for source in ["127.0.0.2", "127.0.0.9"] {
        for hello in [&HELLO[..], &[5, 2, 0, 1], &[5, 1, 1], &[5, 0]] {
            let (mut client, method) = setup.method(source, hello);
            assert_eq!(method, 255, "{source} {hello:?}");
            assert!(client.until_end().is_empty());
            let record = setup.decision();
            assert_eq!(
                (&record["reason"], &record["protocol"]),
                (&"identity_required".into(), &"socks5".into())
            );
        }
        assert_eq!(setup.method(source, &LOGIN_HELLO).1, 2);
    }
}

#[test]
fn a_revoked_token_closes_its_tunnel() {
    let setup = Setup::new();
    let (user, password) = setup.login(&[]);
    let mut client = setup.logged_in("127.0.0.1", &user, &password).unwrap();
    client.send(setup.request());
    assert_eq!(socks::reply(&mut client), 0);
    let control = setup.egret.control.to_string();
    run(setup.keys.path(), &["revoke", "--control", &control, "--sandbox", "agent-7"]).unwrap();
    assert!(client.until_end().is_empty());
    assert!(setup.logged_in("127.0.0.1", &user, &password).is_none());
}

#[test]
fn a_token_that_has_no_room_is_not_put_into_a_url() {
    let setup = Setup::new();
    let sources: Vec<String> = (0..30).map(|n| format!("10.1.{n}.0/24")).collect();
    let sources: Vec<&str> = sources.iter().flat_map(|source| ["--source", source]).collect();
    let error = setup.mint(&[&["--url", "socks5h://egret:1080"], &sources[..]].concat()).unwrap_err();
    assert!(error.contains("too long for SOCKS"), "{error}");
    assert!(setup.mint(&[&["--url", "http://egret:3128"], &sources[..]].concat()).is_ok());
    assert!(setup.mint(&["--url", "ftp://egret:21"]).unwrap_err().contains("socks5h://"));
    assert!(setup.mint(&["--url", "egret:3128"]).unwrap().starts_with("http://agent-7:"));
}

//! A sandbox that has to show a token, by every way in: with one, with one of another place, and
//! without, where some ways have no room for one.

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::asker::{Connection, Question, ask_from};
use crate::support::client::Client;
use crate::support::dns_message::A;
use crate::support::egret::{BINARY, Egret, SocksAt};
use crate::support::sink::{Script, Sink};
use crate::support::socks;
use crate::support::wait_for;
use crate::support::world::{self, CLIENT, World};
use crate::ways::{self, DIVERTED, Place, Told, UNAWARE, WAYS};

const LIMIT: Duration = Duration::from_secs(30);
const ADDRESS: &str = "93.184.215.14";
const ELSEWHERE: &str = "127.0.0.9";

/// Everybody has to show a token, whose policy allows one name and its address.
struct Held {
    egret: Egret,
    sink: Sink,
    keys: TempDir,
    diverts: bool,
    _world: World,
}

impl Held {
    fn open() -> Self {
        let keys = TempDir::with_prefix("egret-entries-").unwrap();
        let world = World::enter(keys.path()).unwrap();
        run(keys.path(), &["keygen", "--out", "token"]);
        let config = format!(
            "[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"example.com\" = [\"{ADDRESS}\"] }}\n\n\
             [identity]\ntoken_keys = [{:?}]\n\n\
             [[sandbox]]\nid = \"held\"\nsource = [\"0.0.0.0/0\", \"::/0\"]\npolicy = \"main\"\nauth = \"token\"\n\n\
             [policy.main]\n[[policy.main.allow]]\ndomains = [\"example.com\"]\n\
             [[policy.main.allow]]\naddresses = [\"{ADDRESS}\"]\n",
            keys.path().join("token.pub")
        );
        let egret = Egret::with(config)
            .socks(SocksAt::OwnPort)
            .names("127.0.0.1:0".parse().unwrap())
            .listen_lines(ways::LISTEN)
            .start();
        let sink = Sink::start([80, 443]).unwrap();
        let diverted = ways::divert();
        assert!(diverted.is_ok() || std::env::var("CI").is_err(), "{diverted:?}");
        egret.audit_news();
        Self { egret, sink, keys, diverts: diverted.is_ok(), _world: world }
    }

    fn mint(&self, more: &[&str]) -> String {
        let fixed = ["mint", "--key", "token.key", "--sandbox", "agent-7", "--policy", "main"];
        run(self.keys.path(), &[&fixed[..], more].concat())
    }

    /// The one decision since the last call.
    fn decision(&self) -> Value {
        let news = String::from_utf8(self.egret.audit_news()).unwrap();
        let records = news.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut decisions: Vec<_> = records.filter(|record| record["event"] == "decision").collect();
        assert_eq!(decisions.len(), 1, "{decisions:?}");
        decisions.remove(0)
    }

    /// The last decision refuses a nobody of this way in.
    fn assert_nobody(&self, reason: &str, way: &str) -> Value {
        let record = self.decision();
        assert_eq!(
            (&record["verdict"], &record["reason"]),
            (&"deny".into(), &reason.into()),
            "{way}: {record}"
        );
        assert!(record["sandbox"].is_null() && record["identity"].is_null(), "{way}: {record}");
        assert!(record["client"].is_string() && record["protocol"].is_string(), "{way}: {record}");
        assert_eq!(self.sink.received(), 0, "{way}");
        record
    }

    /// Sends a token with a method of HTTP; what the client is told.
    fn http(&self, source: &str, method: &str, token: &str) -> (Client, String) {
        let mut client = Client::connect_from(source, self.egret.proxy);
        let target = if method == "CONNECT" { "example.com:80" } else { "http://example.com/" };
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
        ));
        let answer = client.response(method);
        let told = format!("{} {}", answer.status, answer.get("x-egret-reason").unwrap_or_default());
        (client, told)
    }

    /// Sends a token over SOCKS; whether it was good.
    fn log_in(&self, source: &str, token: &str) -> Option<Client> {
        let mut client = Client::connect_from(source, self.egret.socks);
        client.send(socks::LOGIN_HELLO);
        assert_eq!(client.exactly(2), [5, 2]);
        // The beginning of a token stands in the user, since a password is too short for it.
        let (begin, rest) = token.split_at(token.len().saturating_sub(255).max(1));
        client.send(socks::login(&format!("agent-7~{begin}"), rest));
        match client.exactly(2)[..] {
            [1, 0] => Some(client),
            [1, 1] => None,
            ref other => panic!("{other:?}"),
        }
    }
}

fn run(folder: &Path, arguments: &[&str]) -> String {
    let made = Command::new(BINARY).current_dir(folder).arg("token").args(arguments).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

#[test]
fn without_a_token_nobody_gets_in() {
    world::in_a_world("held::without_a_token_nobody_gets_in", try_without);
}

fn try_without() {
    let held = Held::open();
    for way in WAYS.iter().filter(|way| held.diverts || way.protocol != DIVERTED) {
        let host = if way.name.ends_with("address") { ADDRESS } else { "example.com" };
        if way.protocol == "socks5" {
            for hello in [&socks::HELLO[..], &[5, 2, 0, 1], &[5, 1, 1]] {
                let mut client = Client::connect_from(CLIENT, held.egret.socks);
                client.send(hello);
                assert_eq!(client.until_end(), [5, 255], "{hello:?}");
                held.assert_nobody("identity_required", way.name);
            }
            continue;
        }
        let Some(Told::Refused(word)) = (way.ask)(&held.egret, &Place { host: host.as_bytes(), port: 80 })
        else {
            panic!("{}: it was let in", way.name);
        };
        let wanted = match (way.protocol, (way.word)("identity_required")) {
            (DIVERTED, word) => word,
            _ => "407 identity_required".to_owned(),
        };
        assert_eq!(word, wanted, "{}", way.name);
        let record = held.assert_nobody("identity_required", way.name);
        let place = ["protocol", "host", "port"].map(|key| record[key].clone());
        assert_eq!(place, [way.protocol.into(), host.into(), Value::from(80)], "{record}");
    }
    let question = Question::new("example.com", A);
    for tcp in [false, true] {
        let answer = match tcp {
            false => ask_from(CLIENT.parse::<IpAddr>().unwrap(), held.egret.names, &question).unwrap(),
            true => Connection::open(held.egret.names).ask(&question),
        };
        assert_eq!((answer.rcode, answer.error, answer.records.len()), (5, None, 0));
        held.assert_nobody("identity_required", "DNS");
    }
}

#[test]
fn a_token_opens_what_has_room_for_one() {
    world::in_a_world("held::a_token_opens_what_has_room_for_one", try_with);
}

fn try_with() {
    let held = Held::open();
    let token = held.mint(&[]);
    let by_token = |protocol: &str| {
        let record = held.decision();
        let said = ["sandbox", "identity", "policy", "reason", "protocol"].map(|key| record[key].clone());
        assert_eq!(said, ["agent-7", "token", "main", "allowed", protocol].map(Value::from), "{record}");
    };
    for (method, protocol) in [("CONNECT", "connect"), ("GET", "http")] {
        assert_eq!(held.http(ELSEWHERE, method, &token).1, "200 ");
        by_token(protocol);
    }
    let mut client = held.log_in(ELSEWHERE, &token).expect("a good token");
    client.send(socks::named(b"example.com", 80));
    assert_eq!(socks::reply(&mut client), 0);
    by_token("socks5");
    // A client that was diverted knows of no proxy: what it sends to one is not looked at.
    if held.diverts {
        held.sink.end();
        let mut client = Client::connect_from(UNAWARE[0], format!("{ADDRESS}:80").parse().unwrap());
        client.send(format!(
            "GET / HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Bearer {token}\r\n\r\n"
        ));
        let answer = client.response("GET");
        assert_eq!((answer.status, answer.get("x-egret-reason")), (403, Some("identity_required")));
        assert!(answer.get("proxy-authenticate").is_none());
        held.assert_nobody("identity_required", DIVERTED);
    }
}

#[test]
fn a_token_of_another_place_is_bad() {
    world::in_a_world("held::a_token_of_another_place_is_bad", try_elsewhere);
}

fn try_elsewhere() {
    let held = Held::open();
    let token = held.mint(&["--source", &format!("{CLIENT}/32")]);
    for method in ["CONNECT", "GET"] {
        assert_eq!(held.http(ELSEWHERE, method, &token).1, "407 identity_rejected");
        held.assert_nobody("identity_rejected", method);
    }
    assert!(held.log_in(ELSEWHERE, &token).is_none());
    held.assert_nobody("identity_rejected", "SOCKS");
    for method in ["CONNECT", "GET"] {
        assert_eq!(held.http(CLIENT, method, &token).1, "200 ");
    }
    assert!(held.log_in(CLIENT, &token).is_some());
}

#[test]
fn a_revocation_ends_what_is_open() {
    world::in_a_world("held::a_revocation_ends_what_is_open", try_revoked);
}

fn try_revoked() {
    let held = Held::open();
    held.sink.begin(Script { patient: true, ..Script::default() });
    let (token, other) = (held.mint(&[]), held.mint(&["--ttl", "20m"]));
    let id = |token: &str| {
        let said = run(held.keys.path(), &["inspect", "--json", token]);
        serde_json::from_str::<Value>(&said).unwrap()["claims"]["jti"].as_str().unwrap().to_owned()
    };
    let socks_tunnel = |token: &str| {
        let mut client = held.log_in(CLIENT, token).expect("a good token");
        client.send(socks::named(b"example.com", 80));
        assert_eq!(socks::reply(&mut client), 0);
        client
    };
    // One that has logged in, and asks only then.
    let mut waiting = held.log_in(CLIENT, &token).unwrap();
    let (mut first, mut second) = (held.http(CLIENT, "CONNECT", &token).0, socks_tunnel(&token));
    let mut spared = socks_tunnel(&other);
    // A request whose body is not there yet.
    let mut posting = Client::connect_from(CLIENT, held.egret.proxy);
    posting.send(format!(
        "POST http://example.com/ HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: Bearer {token}\r\nContent-Length: 9\r\n\r\nhalf"
    ));
    wait_for("four ways out", LIMIT, || held.egret.events("decision").len() == 4);
    run(held.keys.path(), &["revoke", "--control", &held.egret.control.to_string(), &id(&token)]);
    assert!(first.until_end().is_empty() && second.until_end().is_empty());
    posting.until_end();
    let ends = || held.egret.events("close");
    wait_for("the closing records", LIMIT, || ends().len() == 3);
    for end in ends() {
        assert_eq!(end["reason"], "identity_rejected", "{end}");
    }
    waiting.send(socks::named(b"example.com", 80));
    assert_eq!(socks::reply(&mut waiting), 2);
    let last = held.egret.events("decision").pop().unwrap();
    assert_eq!((&last["reason"], &last["dialed"]), (&"identity_rejected".into(), &Value::Null), "{last}");
    assert!(held.log_in(CLIENT, &token).is_none());
    spared.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    assert!(!spared.some().is_empty());
}

//! The messages of SOCKS5: malformed ones, what is not served, how it is told from HTTP, and for how
//! long it is waited for.

use std::io::Read;
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret, SocksAt};
use crate::support::origin::Origin;
use crate::support::socks;
use crate::support::wait_for;

/// Allows `origin.test` on the port of this origin; a handshake may take a second.
pub fn config(origin: &Origin) -> String {
    format!(
        "[timeouts]\nheader = \"1s\"\n\n\
         [dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"origin.test\" = [\"127.0.0.1\"] }}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [policy.main]\n[[policy.main.allow]]\ndomains = [\"origin.test\"]\naddresses = [\"127.0.0.1/32\"]\n\
         ports = [{}]\n",
        origin.port()
    )
}

/// Sends these octets and reads all that comes back.
fn answer(egret: &Egret, octets: &[u8]) -> Vec<u8> {
    let mut client = Client::connect(egret.socks);
    client.send(octets);
    client.until_end()
}

fn last_decision(egret: &Egret) -> Value {
    egret.events("decision").pop().expect("a decision")
}

#[test]
fn what_is_malformed_or_not_served_gets_its_code_and_a_record() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let port = origin.port().to_be_bytes();
    let general: &[u8] = &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0];
    let with_code = |code: u8| [&[5, 0, 5, code][..], &general[4..]].concat();
    for (octets, answered, detail) in [
        // BIND, UDP ASSOCIATE as clients ask for it, and a command that does not exist.
        ([&b"\x05\x01\0\x05\x02\0\x01\x7f\0\0\x01"[..], &port].concat(), with_code(7), "BIND is not served"),
        (b"\x05\x01\0\x05\x03\0\x01\0\0\0\0\0\0".to_vec(), with_code(7), "UDP ASSOCIATE is not served"),
        (b"\x05\x01\0\x05\x09\0\x03\x01a\0\x50".to_vec(), with_code(7), "there is no SOCKS command 9"),
        (b"\x05\x01\0\x05\x01\0\x02\0\0\0\0\0\0".to_vec(), with_code(8), "the address type 2"),
        (b"\x05\x01\0\x05\x01\x01\x01\x7f\0\0\x01\0\x50".to_vec(), with_code(1), "the reserved octet"),
        (b"\x05\x01\0\x04\x01\0\x01\x7f\0\0\x01\0\x50".to_vec(), with_code(1), "the SOCKS version is 4"),
        (b"\x05\x01\0\x05\x01\0\x01\x7f\0\0\x01\0\0".to_vec(), with_code(1), "the port is not"),
        (b"\x05\x01\0\x05\x01\0\x03\0\0\x50".to_vec(), with_code(1), "the host is empty"),
        (b"\x05\x01\0\x05\x01\0\x03\x052.3.4\0\x50".to_vec(), with_code(1), "inet_aton reads 2.3.0.4"),
        // GSSAPI alone, a private method, and no method at all.
        (b"\x05\x01\x01".to_vec(), vec![5, 255], "the client offers neither"),
        (b"\x05\x01\x80".to_vec(), vec![5, 255], "the client offers neither"),
        (b"\x05\0".to_vec(), vec![5, 255], "the client offers neither"),
        // Credentials where there are no good ones need not be sent.
        (b"\x05\x01\x02".to_vec(), vec![5, 255], "credentials are not accepted here"),
        // Version 4 with its own refusal.
        (b"\x04\x01\0\x50\x7f\0\0\x01user\0".to_vec(), vec![0, 0x5b, 0, 0, 0, 0, 0, 0], "SOCKS version 4"),
    ] {
        let before = egret.events("decision").len();
        assert_eq!(answer(&egret, &octets), answered, "{octets:?}");
        let record = last_decision(&egret);
        assert_eq!(egret.events("decision").len(), before + 1, "{octets:?}");
        assert!(record["detail"].as_str().unwrap_or_default().contains(detail), "{record}");
        let reason = if detail.starts_with("credentials") { "identity_rejected" } else { "bad_request" };
        assert_eq!((&record["reason"], &record["verdict"]), (&reason.into(), &"deny".into()), "{record}");
        assert_eq!((&record["protocol"], &record["status"]), (&"socks5".into(), &Value::Null), "{record}");
    }
    assert_eq!(origin.accepted(), 0);
    answer(&egret, &[&socks::HELLO[..], &socks::named(b"user:secret@origin.test", 80)].concat());
    let records = std::fs::read_to_string(egret.audit_file()).unwrap();
    assert!(!records.contains("secret"), "user information is not written down");
}

#[test]
fn octets_may_come_one_by_one_or_all_at_once() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let whole = [&socks::HELLO[..], &socks::named(b"origin.test", origin.port()), b"early"].concat();
    for size in [1, 2, 7, whole.len()] {
        let mut client = Client::connect(egret.socks);
        whole.chunks(size).for_each(|piece| client.send(piece));
        assert_eq!(client.exactly(2), [5, 0]);
        assert_eq!(socks::reply(&mut client), 0);
        assert_eq!(client.exactly(5), b"early", "what comes with the request goes through");
    }
}

#[test]
fn who_is_slow_or_leaves_holds_nothing() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    for (octets, answered) in [
        (&b"\x05"[..], &[5, 255][..]),
        (b"\x05\x02\0", &[5, 255]),
        (b"\x05\x01\0\x05\x01\0\x03\x40half", &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(answer(&egret, octets), answered, "{octets:?}");
        let record = last_decision(&egret);
        let detail = record["detail"].as_str().unwrap_or_default();
        assert!(record["reason"] == "bad_request" && detail.contains("in time"), "{record}");
    }
    let before = egret.events("decision").len();
    for octets in [&b""[..], b"\x05", b"\x05\x01\0\x05\x01"] {
        let mut client = Client::connect(egret.socks);
        client.send(octets);
        client.finish();
        client.until_end();
    }
    assert_eq!(egret.events("decision").len(), before, "who leaves has asked nothing");
}

#[test]
fn one_port_takes_both_and_tells_them_apart() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::ProxyPort).start();
    assert_eq!(egret.socks, egret.proxy);
    let authority = format!("origin.test:{}", origin.port());
    let mut tunnels =
        [socks::tunnel(egret.proxy, "origin.test", origin.port()), Client::tunnel(egret.proxy, &authority)];
    for tunnel in &mut tunnels {
        tunnel.send("both");
        assert_eq!(tunnel.exactly(4), b"both");
    }
    assert_eq!(answer(&egret, b"\x04\x01\0\x50\x7f\0\0\x01\0"), [0, 0x5b, 0, 0, 0, 0, 0, 0]);
    assert!(answer(&egret, b"\x16\x03\x01\x02\0").starts_with(b"HTTP/1.1 400 "), "TLS is HTTP's to refuse");
    let protocols: Vec<Value> = egret.events("decision").iter().map(|r| r["protocol"].clone()).collect();
    assert_eq!(protocols, ["socks5".into(), "connect".into(), "socks5".into(), Value::Null]);
}

#[test]
fn http_on_the_port_for_socks_is_told_where_to_go() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let mut client = Client::connect(egret.socks);
    client.send("GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n");
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (400, Some("bad_request")));
    assert!(String::from_utf8_lossy(&answer.body).contains("socks5h://"), "{answer:?}");
}

#[test]
fn beyond_the_ceiling_the_connection_is_closed() {
    let origin = Origin::echoing();
    for at in [SocksAt::OwnPort, SocksAt::ProxyPort] {
        // Descriptors for one client beside the reserve.
        let egret = Egret::with(config(&origin)).socks(at).shell("ulimit -n 68").start();
        let mut held = None;
        // The place of whoever asked whether it was up may not be free yet.
        wait_for("a place", Duration::from_secs(10), || {
            let mut client = Client::connect(egret.socks);
            client.send([&socks::HELLO[..], &socks::named(b"origin.test", origin.port())].concat());
            let mut octets = [0; 12];
            let open = (&client.stream).read_exact(&mut octets).is_ok();
            held = open.then_some(client);
            open
        });
        let mut turned_away = Client::connect(egret.socks);
        turned_away.send(socks::HELLO);
        assert!(turned_away.until_end().is_empty(), "{at:?}");
        if at == SocksAt::ProxyPort {
            let mut http = Client::connect(egret.proxy);
            http.send("GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n");
            assert_eq!(http.response("GET").status, 503);
        }
        drop(held);
    }
}

/// What `egret check` says of a `[listen]` table.
fn checked(listen: &str) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("egret.toml");
    std::fs::write(&file, format!("[listen]\n{listen}\n")).unwrap();
    let output = std::process::Command::new(BINARY).args(["check", "--config"]).arg(&file).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn addresses_that_can_not_be_listened_on_together_are_refused() {
    for (listen, says) in [
        ("socks = \"127.0.0.1:1080\"", ""),
        ("socks = [\"127.0.0.1:1080\", \"[::1]:1080\"]\nproxy = []", ""),
        ("socks = \"127.0.0.1:3128\"", ""),
        ("socks = \"127.0.0.1:3129\"", "`socks` and `control` are both 127.0.0.1:3129"),
        ("socks = [\"127.0.0.1:1080\", \"127.0.0.1:1080\"]", "is listed twice in `socks`"),
        ("socks = \"1080\"", "`1080` is not an address and port"),
        ("socks = \"127.0.0.1:1080\"\ntls = \"127.0.0.1:1080\"", "`socks` and `tls` are both 127.0.0.1:1080"),
        ("proxy = []", "`proxy` names no address"),
    ] {
        let (good, error) = checked(listen);
        assert_eq!(good, says.is_empty(), "{listen}: {error}");
        assert!(error.contains(says), "{listen}: {error}");
    }
}

#[test]
fn another_address_needs_a_restart() {
    let origin = Origin::echoing();
    let egret = Egret::with(config(&origin)).socks(SocksAt::OwnPort).start();
    let text = std::fs::read_to_string(egret.config_file()).unwrap();
    let other = text.replace(&format!("socks = \"{}\"", egret.socks), "socks = \"127.0.0.9:1\"");
    assert_ne!(text, other);
    std::fs::write(egret.config_file(), other).unwrap();
    let answer = egret.reload();
    let report: Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((answer.status, &report["needs_restart"]), (200, &serde_json::json!(["listen"])), "{report}");
    drop(socks::tunnel(egret.socks, "origin.test", origin.port()));
}

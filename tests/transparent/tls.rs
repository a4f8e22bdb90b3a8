//! TLS on diverted connections: the name in the ClientHello decides, and only checked bytes go on.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::http::connect;
use crate::in_site;
use crate::site::{ALLOWED, ALLOWED_6, LITERAL, LITERAL_TLS, REFUSED};

/// `fatal`, `access_denied` (RFC 8446 section 6).
const DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];
/// `fatal`, `decode_error`.
const UNREADABLE: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// The first bytes of a client for this name.
fn hello(name: &str) -> Vec<u8> {
    let config = ClientConfig::builder().with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut out = Vec::new();
    ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut out).unwrap();
    out
}

fn starts_like_a_server(stream: &mut TcpStream) -> bool {
    let mut record = [0; 6];
    stream.read_exact(&mut record).is_ok() && record[0] == 22 && record[5] == 2
}

in_site! {
fn by_name(site) {
    site.divert();
    let to = format!("ok.test:443:{ALLOWED}");
    let (out, ok) = site.curl(&["--resolve", &to, "https://ok.test/over"]);
    assert!(ok && out == "GET /over ok.test\n", "{out}");
    let record = site.decision("ok.test");
    let expected = serde_json::json!({
        "sandbox": "box", "identity": "source", "protocol": "transparent", "scheme": "tunnel",
        "host": "ok.test", "port": 443, "original": ALLOWED, "verdict": "allow", "reason": "allowed",
        "addresses": [ALLOWED], "dialed": ALLOWED,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&record[key], value, "{key}: {record}");
    }
    let to = format!("six.test:443:[{ALLOWED_6}]");
    let (out, ok) = site.curl(&["-6", "--resolve", &to, "https://six.test/"]);
    assert!(ok && out == "GET / six.test\n", "{out}");
}
}

in_site! {
/// The address is that of something else: what is dialled is the answer for the name.
fn the_name_decides(site) {
    site.divert();
    let to = format!("ok.test:443:{REFUSED}");
    let (out, ok) = site.curl(&["--resolve", &to, "https://ok.test/"]);
    assert!(ok && out == "GET / ok.test\n", "{out}");
    let record = site.decision("ok.test");
    assert_eq!((&record["original"], &record["original_differs"]), (&REFUSED.into(), &true.into()));
    // And a name that is refused is so at the address of one that is allowed.
    let (out, ok) = site.client("openssl", &[
        "s_client", "-connect", &format!("{ALLOWED}:443"), "-servername", "refused.test", "-brief",
    ]);
    assert!(!ok && out.contains("access denied"), "{out}");
    let record = site.decision("refused.test");
    assert_eq!(record["reason"], "domain_not_allowed");
    assert_eq!((&record["original"], &record["status"]), (&ALLOWED.into(), &serde_json::Value::Null));
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
fn a_name_in_many_segments(site) {
    site.divert();
    let mut client = connect(ALLOWED, 443);
    for byte in hello("ok.test").chunks(7) {
        client.send(byte);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(starts_like_a_server(&mut client.stream));
    assert_eq!(site.decision("ok.test")["verdict"], "allow");
}
}

in_site! {
/// Without a name it is the address that is decided, by the same rules as in a CONNECT.
fn no_name(site) {
    site.divert();
    for (address, expected) in [(LITERAL, "allow"), (LITERAL_TLS, "allow"), (REFUSED, "deny")] {
        let mut client = connect(address, 443);
        // A name of an address is not sent (RFC 6066 section 3).
        client.send(hello(address));
        if expected == "allow" {
            assert!(starts_like_a_server(&mut client.stream), "{address}");
        } else {
            assert_eq!(client.until_end(), DENIED, "{address}");
        }
        let record = site.decision(address);
        assert_eq!((&record["verdict"], &record["original"]), (&expected.into(), &address.into()), "{record}");
    }
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
fn what_cannot_be_read(site) {
    site.divert();
    let mut broken = hello("ok.test");
    broken[9] = 9; // the version within the ClientHello
    let mut client = connect(ALLOWED, 443);
    client.send(&broken);
    assert_eq!(client.until_end(), UNREADABLE);
    let mut slow = connect(ALLOWED, 443);
    slow.send(&hello("ok.test")[..40]);
    assert_eq!(slow.until_end(), b"");
    // Not TLS where the rule for the address asks for it; elsewhere the rule may permit anything.
    let mut other = connect(LITERAL_TLS, 443);
    other.send("\0\x01\x02");
    assert_eq!(other.until_end(), b"");
    let decisions = site.egret.events("decision");
    let reasons: Vec<_> = decisions.iter().map(|record| record["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["tls_malformed", "tls_timeout", "allowed"], "{decisions:?}");
    for record in &decisions {
        assert_eq!(record["protocol"], "transparent");
        assert_eq!((&record["sandbox"], &record["port"]), (&"box".into(), &443.into()), "{record}");
    }
    crate::support::wait_for("the end of the tunnel", crate::site::PATIENCE, || {
        site.egret.events("close").iter().any(|record| record["reason"] == "not_tls")
    });
    assert_eq!(site.watch.count(ALLOWED, 6), 0);
}
}

in_site! {
/// A tunnel that a new policy no longer permits is closed, as any other one.
fn a_new_policy_ends_what_is_open(site) {
    site.divert();
    let mut client = connect(ALLOWED, 443);
    client.send(hello("ok.test"));
    assert!(starts_like_a_server(&mut client.stream));
    site.reload(|config| config.replace("\"ok.test\", \"six.test\"]", "\"six.test\"]"));
    client.until_end();
    crate::support::wait_for("the end of the tunnel", crate::site::PATIENCE, || {
        site.egret.events("close").iter().any(|record| record["reason"] == "policy_changed")
    });
}
}

//! Certificates that are replaced or revoked while connections are open.

use std::time::Duration;

use crate::pki::{Pki, printed};
use crate::secure::{Secure, config};
use crate::setup::{
    answering, close, connect, connect_to, decision, front, get, lines, reason, rules, tunnel,
};
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;
use rustls::version::TLS13;

#[test]
fn a_new_certificate_of_the_listener_is_shown_after_a_reload() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut before = connect(&egret, &pki, "127.0.0.1", None);
    let shown = |client: &Secure| client.stream.conn.peer_certificates().unwrap()[0].clone();
    let first = shown(&before);
    for file in ["server.crt", "server.key"] {
        std::fs::remove_file(pki.path(file)).unwrap();
    }
    // While they are missing or don't fit, the old ones stay in force.
    assert_eq!(egret.reload().status, 422);
    pki.make_server();
    std::fs::rename(pki.path("server.key"), pki.path("kept.key")).unwrap();
    std::fs::copy(pki.path("ca.key"), pki.path("server.key")).unwrap();
    let answer = egret.reload();
    assert_eq!(answer.status, 422);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("the key is not that of the certificate"), "{text}");
    assert!(shown(&connect(&egret, &pki, "127.0.0.1", None)) == first);
    std::fs::rename(pki.path("kept.key"), pki.path("server.key")).unwrap();
    // A change of the file is enough; nobody has to ask.
    wait_for("the new certificate is shown", Duration::from_secs(10), || {
        shown(&connect(&egret, &pki, "127.0.0.1", None)) != first
    });
    before.send(get(&origin, ""));
    assert_eq!(before.response("GET").status, 200, "the old connection goes on");
}

#[test]
fn a_revoked_certificate_loses_its_connections() {
    let (origin, pki) = (Origin::echoing(), Pki::new());
    let (one, two) = (pki.client("build-1"), pki.client("build-2"));
    printed(&["cert", "revoke", "--ca", &pki.text("ca")]);
    let list = format!("tls_client_crl = {:?}\n", pki.path("ca.crl"));
    let egret = front(&origin, &pki).tls(&(lines(&pki) + &list)).start();
    let mut first = tunnel(&egret, &pki, &origin, Some(&one));
    let mut second = tunnel(&egret, &pki, &origin, Some(&two));
    let mut idle = connect(&egret, &pki, "127.0.0.1", Some(&one));
    pki.revoke("build-1");
    assert_eq!(egret.reload().status, 200);
    let (_, end) = first.until_end();
    assert!(end.is_err(), "cut, not ended");
    let record = close(&egret, 1);
    assert_eq!(record["reason"], "identity_rejected", "{record}");
    second.send("still here");
    assert_eq!(second.exactly(10), b"still here");
    idle.send(get(&origin, ""));
    assert_eq!(reason(&idle.response("GET")), (403, "identity_rejected"));
    let record = decision(&egret, 3);
    assert_eq!(record["detail"], "the certificate is no longer believed, or has been revoked", "{record}");
    let again = Secure::connect(config(&pki, Some(one), &[&TLS13]), "127.0.0.1", egret.tls);
    let answer = again.and_then(|mut client| client.try_response("GET").map(|answer| answer.status));
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(decision(&egret, 4)["reason"], "identity_rejected");
}

/// A token that came over the connection of a certificate: both have to hold.
#[test]
fn a_revoked_certificate_takes_what_tokens_opened_over_it() {
    let (origin, ends) = Origin::telling_ends();
    let pki = Pki::new();
    printed(&["token", "keygen", "--out", &pki.text("token")]);
    let key = pki.text("token.key");
    let token = printed(&["token", "mint", "--key", &key, "--sandbox", "build-1", "--policy", "main"]);
    let fields = format!("Proxy-Authorization: Bearer {}\r\n", token.trim());
    let pair = pki.client("build-1");
    printed(&["cert", "revoke", "--ca", &pki.text("ca")]);
    let list = format!("tls_client_crl = {:?}\n", pki.path("ca.crl"));
    let text = format!("[identity]\ntoken_keys = [{:?}]\n\n{}", pki.path("token.pub"), rules(&origin));
    let egret = Egret::with(text).tls(&(lines(&pki) + &list)).start();
    let open = |pair| {
        let mut client = connect(&egret, &pki, "127.0.0.1", pair);
        client.send(connect_to(&origin).replace("\r\n\r\n", &format!("\r\n{fields}\r\n")));
        assert_eq!(client.response("CONNECT").status, 200);
        client
    };
    // The last request leaves a connection to the origin in the pool.
    let (mut over, mut without) = (open(Some(&pair)), open(None));
    let mut asking = connect(&egret, &pki, "127.0.0.1", Some(&pair));
    asking.send(get(&origin, &fields));
    assert_eq!(asking.response("GET").status, 200);
    assert_eq!(close(&egret, 1)["reason"], "allowed");
    assert!(ends.try_recv().is_err());
    pki.revoke("build-1");
    assert_eq!(egret.reload().status, 200);
    assert!(over.until_end().1.is_err(), "cut, not ended");
    assert_eq!(close(&egret, 2)["reason"], "identity_rejected");
    for _ in 0..2 {
        ends.recv_timeout(Duration::from_secs(10)).expect("the tunnel and the idle connection");
    }
    asking.send(get(&origin, &fields));
    assert_eq!(reason(&asking.response("GET")), (407, "identity_rejected"));
    // The token itself still holds where no certificate came with it.
    without.send(format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", crate::setup::NAME));
    assert_eq!(without.response("GET").status, 200);
}

#[test]
fn a_replaced_authority_takes_its_certificates_with_it() {
    let (origin, pki, next) = (Origin::echoing(), Pki::new(), Pki::new());
    let pair = pki.client("build-1");
    std::fs::copy(pki.path("ca.crt"), pki.path("trusted.crt")).unwrap();
    let lines = lines(&pki).replace("ca.crt", "trusted.crt");
    let egret = front(&origin, &pki).tls(&lines).start();
    let mut open = tunnel(&egret, &pki, &origin, Some(&pair));
    // Both for a while, so that clients can change over.
    let text = |pki: &Pki| std::fs::read_to_string(pki.path("ca.crt")).unwrap();
    std::fs::write(pki.path("trusted.crt"), text(&pki) + &text(&next)).unwrap();
    assert_eq!(egret.reload().status, 200);
    open.send("here");
    assert_eq!(open.exactly(4), b"here");
    let mut newer = tunnel(&egret, &pki, &origin, Some(&next.client("build-1")));
    std::fs::write(pki.path("trusted.crt"), text(&next)).unwrap();
    assert_eq!(egret.reload().status, 200);
    assert!(open.until_end().1.is_err());
    assert_eq!(close(&egret, 1)["reason"], "identity_rejected");
    newer.send("here");
    assert_eq!(newer.exactly(4), b"here");
}

#[test]
fn a_sandbox_that_is_taken_out_loses_its_tunnel() {
    let (origin, pki) = (Origin::echoing(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut open = tunnel(&egret, &pki, &origin, Some(&pki.client("build-1")));
    let rules = crate::setup::rules(&origin).replace("build-{cert}", "lab-{cert}");
    egret.configure(&rules);
    assert_eq!(egret.reload().status, 200);
    assert!(open.until_end().1.is_err());
    assert_eq!(close(&egret, 1)["reason"], "policy_changed");
}

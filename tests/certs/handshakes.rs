//! Handshakes that must fail, and what is told and recorded of them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use rcgen::ExtendedKeyUsagePurpose;
use rustls::version::{TLS12, TLS13};
use serde_json::Value;

use crate::pki::{Pair, Pki, uri};
use crate::secure::{Secure, config};
use crate::setup::{answering, close, connect, decision, front, get, lines, reason, rules};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::wait_for;

/// A client with a bad certificate gets no answer, and the record says why; its address, by which
/// it would have been a sandbox, does not count.
#[test]
fn bad_certificates_fail_the_handshake() {
    let (origin, pki, other) = (answering(), Pki::new(), Pki::new());
    pki.client("build-9");
    pki.revoke("build-9");
    let list = format!("tls_client_crl = {:?}\n", pki.path("ca.crl"));
    let egret = front(&origin, &pki).tls(&(lines(&pki) + &list)).start();
    let revoked = crate::pki::read(&pki.path("build-9.crt"), &pki.path("build-9.key"));
    let for_servers = pki.sign(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![uri("build-7")];
    });
    let mut count = 0;
    for (pair, cause) in [
        (other.client("build-7"), "BadSignature"),
        (pki.valid("build-7", -100, -10), "Expired"),
        (pki.valid("build-7", 100, 200), "NotValidYet"),
        (revoked, "Revoked"),
        (for_servers, "extended key usage"),
    ] {
        for version in [&TLS12, &TLS13] {
            let connected =
                Secure::connect(config(&pki, Some(pair.clone()), &[version]), "127.0.0.1", egret.tls);
            let answer = connected.and_then(|mut client| {
                // The proxy may have ended the connection already.
                let _ = client.stream.write_all(get(&origin, "").as_bytes());
                client.try_response("GET").map(|answer| answer.status)
            });
            assert!(answer.is_err(), "{cause}: {answer:?}");
            count += 1;
            let record = decision(&egret, count);
            assert_eq!(record["reason"], "identity_rejected", "{record}");
            assert_eq!((&record["verdict"], &record["status"]), (&"deny".into(), &Value::Null), "{record}");
            assert!(record.get("sandbox").is_none(), "{record}");
            let detail = record["detail"].as_str().unwrap();
            assert!(squeezed(detail).contains(&squeezed(cause)), "{cause}: {detail}");
        }
    }
    assert_eq!(origin.accepted(), 0);
    // A good one of the same authority still passes.
    let mut client = connect(&egret, &pki, "127.0.0.1", Some(&pki.client("build-7")));
    client.send(get(&origin, ""));
    assert_eq!(client.response("GET").status, 200);
}

/// `NotValidYet` and "not valid yet" alike.
fn squeezed(text: &str) -> String {
    text.to_lowercase().replace([' ', '_'], "")
}

#[test]
fn where_a_certificate_is_required_none_is_not_enough() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).tls(&(lines(&pki) + "tls_client = \"required\"\n")).start();
    for (count, version) in [&TLS12, &TLS13].into_iter().enumerate() {
        let connected = Secure::connect(config(&pki, None, &[version]), "127.0.0.1", egret.tls);
        let answer = connected.and_then(|mut client| {
            let _ = client.stream.write_all(get(&origin, "").as_bytes());
            client.try_response("GET").map(|answer| answer.status)
        });
        assert!(answer.is_err(), "{answer:?}");
        assert_eq!(decision(&egret, count + 1)["reason"], "identity_required");
    }
    let mut client = connect(&egret, &pki, "127.0.0.1", Some(&pki.client("build-7")));
    client.send(get(&origin, ""));
    assert_eq!(client.response("GET").status, 200);
}

#[test]
fn plain_http_on_the_tls_port_is_told_so() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let mut client = Client::connect(egret.tls);
    client.send(get(&origin, ""));
    let answer = client.response("GET");
    assert_eq!(reason(&answer), (400, "bad_request"));
    assert!(String::from_utf8_lossy(&answer.body).contains("use https:// in the proxy URL"), "{answer:?}");
    client.until_end();
    let record = decision(&egret, 1);
    assert_eq!((&record["reason"], &record["status"]), (&"bad_request".into(), &400.into()));
    assert_eq!(origin.accepted(), 0);
}

#[test]
fn tls_on_the_plain_port_is_told_so() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let error = Secure::connect(config(&pki, None, &[&TLS13]), "127.0.0.1", egret.proxy).err();
    assert!(error.is_some());
    let record = decision(&egret, 1);
    assert_eq!((&record["reason"], &record["status"]), (&"bad_request".into(), &400.into()));
    assert!(record["detail"].as_str().unwrap().contains("TLS was sent to the plain proxy port"), "{record}");
}

#[test]
fn garbage_in_a_handshake_is_recorded() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    for (count, garbage) in [
        // A record of a handshake that holds no ClientHello.
        &b"\x16\x03\x01\x00\x04\x02\x00\x00\x00"[..],
        // Too long to be a record.
        b"\x16\x03\x01\xff\xff\x01\x00\x00\x00",
        // A ClientHello that ends within itself.
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03",
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = Client::connect(egret.tls);
        client.send(garbage);
        client.until_end();
        let record = decision(&egret, count + 1);
        assert_eq!(
            (&record["reason"], &record["status"]),
            (&"tls_malformed".into(), &Value::Null),
            "{record}"
        );
        assert_eq!(record["sandbox"], "by-source", "{record}");
    }
}

#[test]
fn a_handshake_ends_in_time() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front_with_header(&origin, &pki, "1s");
    let mut silent = Client::connect(egret.tls);
    let mut slow = Client::connect(egret.tls);
    slow.send(b"\x16\x03\x01\x02\x00\x01");
    assert!(slow.until_end().is_empty());
    assert!(silent.until_end().is_empty());
    let record = decision(&egret, 1);
    assert_eq!((&record["reason"], &record["status"]), (&"tls_timeout".into(), &Value::Null), "{record}");
}

/// Handshakes take places under the ceiling, and give them back.
#[test]
fn handshakes_count_as_connections() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).tls(&(lines(&pki) + "max_connections = 4\n")).start();
    // One client address gets three quarters.
    let held: Vec<_> = (0..3).map(|_| Client::connect(egret.tls)).collect();
    let mut over = TcpStream::connect(egret.tls).unwrap();
    over.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut buffer = [0; 16];
    assert!(matches!(over.read(&mut buffer), Ok(0) | Err(_)), "closed without a word");
    drop(held);
    wait_for("the places are free again", Duration::from_secs(10), || {
        let mut client = match Secure::connect(config(&pki, None, &[&TLS13]), "127.0.0.1", egret.tls) {
            Ok(client) => client,
            Err(_) => return false,
        };
        client.send(get(&origin, ""));
        client.try_response("GET").is_ok_and(|answer| answer.status == 200)
    });
}

/// New keys again and again, whose answers nobody reads: they cost the proxy no memory, and others
/// nothing.
#[test]
fn key_updates_without_end_are_borne() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let served = || {
        let mut other = connect(&egret, &pki, "127.0.0.1", None);
        other.send(get(&origin, ""));
        other.response("GET").status
    };
    assert_eq!(served(), 200);
    let before = egret.memory();
    let mut flooding: Vec<_> = (0..4)
        .map(|_| Secure::connect(config(&pki, None, &[&TLS13]), "127.0.0.1", egret.tls).unwrap())
        .collect();
    let mut sent = 0;
    'all: for _ in 0..5000 {
        for client in &mut flooding {
            let renewed = client.stream.conn.refresh_traffic_keys();
            // The proxy may end the connection, or no longer take what it is sent.
            if renewed.is_err() || client.stream.flush().is_err() {
                break 'all;
            }
            sent += 1;
        }
    }
    assert!(sent > 100, "{sent}");
    assert_eq!(served(), 200);
    let grown = egret.memory().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} octets more after {sent} updates");
}

/// Handshakes that begin and never go on, from many at once: each ends in its time, and those who do
/// go on are served meanwhile.
#[test]
fn unfinished_handshakes_hold_up_nobody() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front_with_header(&origin, &pki, "3s");
    let mut session = rustls::ClientConnection::new(
        std::sync::Arc::new(config(&pki, None, &[&TLS13])),
        "localhost".try_into().unwrap(),
    )
    .unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    // Half a ClientHello, and a whole one whose answer nobody goes on from.
    let mut begun: Vec<_> = (0..200)
        .map(|number| {
            let mut client = Client::connect_from("127.0.0.9", egret.tls);
            client.send(if number % 2 == 0 { &hello[..hello.len() / 2] } else { &hello });
            client
        })
        .collect();
    for _ in 0..5 {
        let mut other = connect(&egret, &pki, "127.0.0.1", None);
        other.send(get(&origin, ""));
        assert_eq!(other.response("GET").status, 200);
    }
    for client in &mut begun {
        client.until_end();
    }
    wait_for("their records", Duration::from_secs(20), || {
        let decisions = egret.events("decision");
        decisions.iter().filter(|record| record["reason"] == "tls_timeout").count() == begun.len()
    });
}

/// TLS 1.2 lets a client ask for another handshake within a connection: it gets none, and no other
/// identity by it.
#[test]
fn a_renegotiation_is_declined() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    // The client waits for what it has asked for, as long as the connection may be idle.
    let client = std::process::Command::new("timeout")
        .args(["3", "openssl", "s_client", "-tls1_2", "-connect", &egret.tls.to_string()])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let Ok(mut client) = client else {
        println!("skipped: no `timeout` on this machine");
        return;
    };
    let mut input = client.stdin.take().unwrap();
    for _ in 0..20 {
        // A line with an R alone asks for another handshake. The connection may be over by now.
        let _ = input.write_all(b"R\n");
        std::thread::sleep(Duration::from_millis(50));
    }
    let output = client.wait_with_output().unwrap();
    if output.status.code() == Some(127) {
        println!("skipped: no `openssl` on this machine");
        return;
    }
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(said.matches("RENEGOTIATING").count(), 1, "it waits for an answer to the first: {said}");
    let mut other = connect(&egret, &pki, "127.0.0.1", None);
    other.send(get(&origin, ""));
    assert_eq!(other.response("GET").status, 200);
}

/// A client that leaves, or does not believe the proxy's certificate, is no refusal.
#[test]
fn a_client_that_leaves_the_handshake_is_not_recorded() {
    let (origin, pki, other) = (answering(), Pki::new(), Pki::new());
    let egret = front(&origin, &pki).start();
    drop(Client::connect(egret.tls));
    Client::connect(egret.tls).send(b"\x16\x03");
    assert!(Secure::connect(config(&other, None, &[&TLS13]), "127.0.0.1", egret.tls).is_err());
    let mut client = connect(&egret, &pki, "127.0.0.1", None);
    client.send(get(&origin, ""));
    assert_eq!(client.response("GET").status, 200);
    assert_eq!(decision(&egret, 1)["verdict"], "allow");
    assert_eq!(close(&egret, 1)["reason"], "allowed");
}

/// No session outlives its connection: what a client was known by once is shown anew.
#[test]
fn nothing_is_resumed() {
    let (origin, pki) = (answering(), Pki::new());
    let egret = front(&origin, &pki).start();
    let pair: Pair = pki.client("build-7");
    for version in [&TLS12, &TLS13] {
        let config = config(&pki, Some(pair.clone()), &[version]);
        for _ in 0..3 {
            let mut client = Secure::connect(config.clone(), "127.0.0.1", egret.tls).unwrap();
            client.send(get(&origin, ""));
            assert_eq!(client.response("GET").status, 200);
            assert_eq!(client.stream.conn.handshake_kind(), Some(rustls::HandshakeKind::Full));
        }
    }
}

fn front_with_header(origin: &crate::support::origin::Origin, pki: &Pki, header: &str) -> Egret {
    Egret::with(format!("[timeouts]\nheader = \"{header}\"\n\n{}", rules(origin))).tls(&lines(pki)).start()
}

//! Servers that ask for a second ClientHello, and those that answer something else: what the client sends
//! behind its first one waits for that.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use serde_json::Value;

use crate::setup::{NAME, config};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::hello::{CHANGE_CIPHER_SPEC, naming, retry, with};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(10);
/// A ServerHello that is no retry.
const ANSWER: &[u8] =
    b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03this is the random of the server\x00\x13\x01\x00";

/// A tunnel that has to carry TLS to [`NAME`], its client, and the server at its other end.
struct Rig {
    egret: Egret,
    port: u16,
    client: Client,
    server: Client,
}

impl Rig {
    fn new() -> Self {
        Self::limited("")
    }

    /// With these limits of the policy.
    fn limited(limits: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let egret = Egret::with(rules(NAME, port) + "\n[policy.main.limits]\n" + limits).start();
        let client = Client::tunnel(egret.proxy, &format!("{NAME}:{port}"));
        Self { egret, port, client, server: Client::over(listener.accept().unwrap().0) }
    }

    /// The first hello has arrived, and was asked for again.
    fn asked_again() -> Self {
        let mut rig = Self::new();
        rig.client.send(naming(NAME));
        rig.arrives(&naming(NAME));
        rig.server.send(retry());
        assert_eq!(rig.client.exactly(retry().len()), retry());
        rig
    }

    #[track_caller]
    fn arrives(&mut self, expected: &[u8]) {
        assert!(self.server.exactly(expected.len()) == expected, "something else arrived");
    }

    /// Nothing arrives at the server for a while.
    #[track_caller]
    fn nothing_arrives(&self) {
        let stream = &self.server.stream;
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let kind = stream.peek(&mut [0]).map_err(|error| error.kind());
        assert!(matches!(kind, Err(ErrorKind::WouldBlock)), "{kind:?}");
        stream.set_read_timeout(Some(Client::PATIENCE)).unwrap();
    }

    /// Bytes pass both ways.
    #[track_caller]
    fn is_open(&mut self) {
        self.client.send("ping");
        self.arrives(b"ping");
        self.server.send("pong");
        assert_eq!(self.client.exactly(4), b"pong");
    }

    /// The record of its end.
    fn end(&self) -> Value {
        wait_for("the closing record", LIMIT, || !self.egret.events("close").is_empty());
        self.egret.events("close").remove(0)
    }

    /// Ends it in order, and says how many bytes had passed each way.
    #[track_caller]
    fn finish(mut self) -> (u64, u64) {
        self.client.finish();
        assert_eq!(self.server.until_end(), b"");
        drop(self.server);
        assert_eq!(self.client.until_end(), b"");
        wait_for("the closing record", LIMIT, || !self.egret.events("close").is_empty());
        let end = self.egret.events("close").remove(0);
        assert_eq!(end["reason"], "allowed", "{end}");
        (end["bytes_up"].as_u64().unwrap(), end["bytes_down"].as_u64().unwrap())
    }
}

fn rules(name: &str, port: u16) -> String {
    format!("[timeouts]\ntls = \"2s\"\n\n{}tls = \"required\"\n", config(&[name], port))
}

fn second() -> Vec<u8> {
    let name = naming(NAME);
    // The extensions of that one, and a cookie.
    with(&[&name[52..], &[0, 44, 0, 4, 0, 2, 7, 7]].concat())
}

fn length(bytes: &[u8]) -> u64 {
    bytes.len().try_into().unwrap()
}

#[test]
fn a_second_hello_for_the_same_name_passes_however_it_is_cut() {
    for (step_up, step_down) in [(1 << 14, 1 << 14), (1, 1 << 14), (1 << 14, 1), (1, 1)] {
        let mut rig = Rig::new();
        rig.client.send(naming(NAME));
        rig.arrives(&naming(NAME));
        let asked = [&retry()[..], &CHANGE_CIPHER_SPEC].concat();
        for piece in asked.chunks(step_down) {
            rig.server.send(piece);
            assert_eq!(rig.client.exactly(piece.len()), piece, "passed on at once");
        }
        let again = [&CHANGE_CIPHER_SPEC[..], &second()].concat();
        for piece in again.chunks(step_up) {
            rig.client.send(piece);
        }
        rig.arrives(&again);
        rig.server.send(ANSWER);
        assert_eq!(rig.client.exactly(ANSWER.len()), ANSWER);
        rig.is_open();
        let up = length(&naming(NAME)) + length(&again) + 4;
        assert_eq!(rig.finish(), (up, length(&asked) + length(ANSWER) + 4));
    }
}

#[test]
fn a_second_hello_that_would_not_pass_as_a_first_ends_the_tunnel() {
    let mut broken = second();
    broken[48] = 0xff;
    let cut = second()[..40].to_vec();
    for (bytes, reason, error) in [
        (naming("other.test"), "sni_mismatch", "server name other.test"),
        (naming("origin.test."), "sni_mismatch", "server name origin.test."),
        (with(&[]), "sni_missing", ""),
        (broken, "tls_malformed", "malformed ClientHello"),
        (b"\x16\x03\x01\x00\x05\x02\x00\x00\x28\x03".to_vec(), "tls_malformed", "not a ClientHello"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "not_tls", ""),
        (b"\x80\x2e\x01\x03\x01".to_vec(), "not_tls", ""),
        (cut, "tls_timeout", ""),
        (Vec::new(), "tls_timeout", ""),
    ] {
        for before in [&b""[..], &CHANGE_CIPHER_SPEC] {
            let mut rig = Rig::asked_again();
            rig.client.send([before, &bytes].concat());
            assert_eq!(rig.client.until_end(), b"");
            assert_eq!(rig.server.until_end(), before, "{reason}");
            let end = rig.end();
            assert_eq!(end["reason"], reason, "{end}");
            assert!(end["error"].as_str().unwrap_or_default().contains(error), "{end}");
            assert_eq!(end["bytes_up"], length(&naming(NAME)) + length(before), "{end}");
        }
    }
}

#[test]
fn a_second_hello_behind_the_first_does_not_get_ahead_of_the_answer() {
    let mut rig = Rig::new();
    rig.client.send([naming(NAME), naming("other.test")].concat());
    rig.arrives(&naming(NAME));
    rig.nothing_arrives();
    rig.server.send(retry());
    assert_eq!(rig.client.until_end(), retry());
    assert_eq!(rig.server.until_end(), b"");
    assert_eq!(rig.end()["reason"], "sni_mismatch");
}

#[test]
fn a_client_that_leaves_instead_of_saying_hello_again_is_let_go() {
    let alert = [21, 3, 3, 0, 2, 2, 40];
    let mut rig = Rig::asked_again();
    rig.client.send(alert);
    rig.arrives(&alert);
    rig.finish();
    // In the midst of it: nothing of that arrives.
    let mut rig = Rig::asked_again();
    rig.client.send(&second()[..50]);
    rig.client.finish();
    assert_eq!((rig.client.until_end(), rig.server.until_end()), (vec![], vec![]));
    assert_eq!(rig.end()["reason"], "client_cancel");
}

#[test]
fn each_retry_asks_for_a_hello_that_names_the_host() {
    for (third, reason) in [(second(), "allowed"), (naming("other.test"), "sni_mismatch")] {
        let mut rig = Rig::asked_again();
        rig.server.send(CHANGE_CIPHER_SPEC);
        rig.client.send(second());
        rig.arrives(&second());
        rig.server.send(retry());
        rig.client.exactly(CHANGE_CIPHER_SPEC.len() + retry().len());
        rig.client.send(&third);
        if reason == "allowed" {
            rig.arrives(&third);
            rig.server.send(ANSWER);
            rig.client.exactly(ANSWER.len());
            rig.is_open();
            rig.finish();
        } else {
            assert_eq!(rig.server.until_end(), b"");
            assert_eq!(rig.end()["reason"], reason);
        }
    }
}

#[test]
fn early_data_passes_at_once_and_no_hello_behind_it() {
    let early: Vec<u8> = (0..300).flat_map(|n| [&[23, 3, 3, 4, 0][..], &[n as u8; 1024]].concat()).collect();
    let early = [&CHANGE_CIPHER_SPEC[..], &early].concat();
    let other = naming("other.test");
    for (answer, hello, reason) in [
        (ANSWER, &second(), "allowed"),
        (ANSWER, &other, "allowed"), // Nobody reads it: it is inside a handshake that goes on.
        (&retry()[..], &second(), "allowed"),
        (&retry()[..], &other, "sni_mismatch"),
    ] {
        let mut rig = Rig::new();
        let mut sender = rig.client.stream.try_clone().unwrap();
        let sent = [&naming(NAME)[..], &early, hello].concat();
        let sending = std::thread::spawn(move || std::io::Write::write_all(&mut sender, &sent).unwrap());
        rig.arrives(&naming(NAME));
        rig.arrives(&early);
        sending.join().unwrap();
        rig.nothing_arrives();
        rig.server.send(answer);
        assert_eq!(rig.client.exactly(answer.len()), answer);
        if reason == "allowed" {
            rig.arrives(hello);
            rig.server.send(ANSWER);
            assert_eq!(rig.client.exactly(ANSWER.len()), ANSWER);
            rig.is_open();
            rig.finish();
        } else {
            assert_eq!((rig.client.until_end(), rig.server.until_end()), (vec![], vec![]));
            assert_eq!(rig.end()["reason"], reason);
        }
    }
    // Its end is passed on as well.
    let mut rig = Rig::new();
    rig.client.send([naming(NAME), CHANGE_CIPHER_SPEC.to_vec()].concat());
    rig.client.finish();
    rig.arrives(&[&naming(NAME)[..], &CHANGE_CIPHER_SPEC].concat());
    rig.finish();
}

#[test]
fn other_answers_pass_at_once_and_open_the_tunnel() {
    for answer in [
        ANSWER,
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x17",
        b"\x16\x03\x03\x00\x26\x02\x00\x00\x22\x03\x03\xcf\x21\xad\x74\xe6",
    ] {
        for step in [1, answer.len()] {
            let mut rig = Rig::new();
            rig.client.send([naming(NAME), b"behind".to_vec()].concat());
            rig.arrives(&naming(NAME));
            rig.nothing_arrives();
            for piece in answer.chunks(step) {
                rig.server.send(piece);
                assert_eq!(rig.client.exactly(piece.len()), piece);
            }
            rig.arrives(b"behind");
            rig.is_open();
            rig.finish();
        }
    }
}

#[test]
fn a_server_that_says_nothing_or_half_of_it_is_left_alone() {
    for half in [&b""[..], &retry()[..1], &retry()[..9], &retry()[..42]] {
        let mut rig = Rig::new();
        rig.client.send([naming(NAME), b"behind".to_vec()].concat());
        rig.arrives(&naming(NAME));
        rig.server.send(half);
        assert_eq!(rig.client.exactly(half.len()), half, "passed on at once");
        rig.nothing_arrives();
        // That was all: its end decides.
        rig.server.finish();
        assert_eq!(rig.client.until_end(), b"");
        rig.arrives(b"behind");
        rig.client.send("more");
        rig.arrives(b"more");
        rig.finish();
    }
    for half in [0, 9, 42] {
        let mut rig = Rig::limited("tunnel_idle = \"1s\"");
        rig.client.send([naming(NAME), b"behind".to_vec()].concat());
        rig.arrives(&naming(NAME));
        rig.server.send(&retry()[..half]);
        assert_eq!(rig.client.until_end(), &retry()[..half]);
        assert_eq!(rig.server.until_end(), b"");
        assert_eq!(rig.end()["reason"], "idle_timeout");
    }
    let mut rig = Rig::limited("tunnel_lifetime = \"1s\"");
    rig.client.send(naming(NAME));
    rig.arrives(&naming(NAME));
    assert_eq!(rig.client.until_end(), b"");
    assert_eq!(rig.end()["reason"], "lifetime_exceeded");
}

#[test]
fn a_client_that_ends_its_side_behind_the_hello_still_gets_the_answer() {
    let mut rig = Rig::new();
    rig.client.send(naming(NAME));
    rig.client.finish();
    rig.arrives(&naming(NAME));
    assert_eq!(rig.server.until_end(), b"");
    rig.server.send(ANSWER);
    assert_eq!(rig.client.exactly(ANSWER.len()), ANSWER);
    // Far more than the gate would look at, and a retry that nobody can follow any more.
    rig.server.send([retry(), vec![7; 1 << 20]].concat());
    assert_eq!(rig.client.exactly(retry().len() + (1 << 20)).len(), retry().len() + (1 << 20));
    drop(rig.server);
    assert_eq!(rig.client.until_end(), b"");
    wait_for("the closing record", LIMIT, || !rig.egret.events("close").is_empty());
    assert_eq!(rig.egret.events("close")[0]["reason"], "allowed");
}

#[test]
fn quotas_hold_for_every_hello() {
    let first = length(&naming(NAME));
    for (limit, passes) in [(first - 20, first - 20), (first + 20, first + 20)] {
        let mut rig = Rig::limited(&format!("bytes_up = \"{limit}B/h\""));
        rig.client.send(naming(NAME));
        if limit > first {
            rig.server.send(retry());
            rig.client.exactly(retry().len());
            rig.client.send(second());
        }
        assert_eq!(rig.client.until_end(), b"");
        assert_eq!(length(&rig.server.until_end()), passes);
        let end = rig.end();
        assert_eq!((&end["reason"], &end["bytes_up"]), (&"quota_exceeded".into(), &passes.into()), "{end}");
    }
    let mut rig = Rig::limited("bytes_down = \"30B/h\"");
    rig.client.send(naming(NAME));
    rig.server.send(retry());
    assert_eq!(rig.client.until_end(), &retry()[..30]);
    assert_eq!(rig.end()["reason"], "quota_exceeded");
}

#[test]
fn a_new_policy_ends_a_tunnel_at_every_point() {
    for (behind, answer) in [(&b""[..], 0), (b"behind", 0), (b"", 20), (b"", retry().len())] {
        let mut rig = Rig::new();
        rig.client.send([naming(NAME), behind.to_vec()].concat());
        rig.arrives(&naming(NAME));
        rig.server.send(&retry()[..answer]);
        rig.client.exactly(answer);
        rig.egret.configure(&rules("other.test", rig.port));
        assert_eq!(rig.egret.reload().status, 200);
        assert_eq!((rig.client.until_end(), rig.server.until_end()), (vec![], vec![]));
        assert_eq!(rig.end()["reason"], "policy_changed");
    }
}

#[test]
fn a_client_that_breaks_off_ends_the_tunnel_at_every_point() {
    for (behind, answer) in [(&b""[..], 0), (b"behind", 0), (b"", 20), (b"behind", 20), (b"", retry().len())]
    {
        let Rig { egret, mut client, mut server, .. } = Rig::new();
        client.send([naming(NAME), behind.to_vec()].concat());
        assert_eq!(server.exactly(naming(NAME).len()), naming(NAME));
        server.send(&retry()[..answer]);
        client.exactly(answer);
        client.reset();
        assert_eq!(server.until_end(), b"");
        wait_for("the closing record", LIMIT, || !egret.events("close").is_empty());
        assert_eq!(egret.events("close")[0]["reason"], "client_cancel");
    }
}

#[test]
fn a_server_that_breaks_off_ends_the_tunnel_at_every_point() {
    for answer in [0, 20, retry().len()] {
        let Rig { egret, mut client, mut server, .. } = Rig::new();
        client.send([naming(NAME), b"behind".to_vec()].concat());
        assert_eq!(server.exactly(naming(NAME).len()), naming(NAME));
        server.send(&retry()[..answer]);
        client.exactly(answer);
        server.reset();
        client.until_end();
        wait_for("the closing record", LIMIT, || !egret.events("close").is_empty());
        let reason = egret.events("close")[0]["reason"].as_str().unwrap().to_owned();
        // Behind a retry it is a race with what the client has sent in place of a hello.
        let expected: &[&str] =
            if answer == retry().len() { &["not_tls", "upstream_closed"] } else { &["upstream_closed"] };
        assert!(expected.contains(&&*reason), "{reason}");
    }
}

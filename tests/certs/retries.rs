//! Real servers that ask for a second ClientHello, through tunnels that have to carry TLS.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::version::TLS13;
use rustls::{ClientConnection, HandshakeKind, ServerConfig, ServerConnection, Stream};

use crate::pki::{self, Pki};
use crate::secure::config;
use crate::setup::{NAME, close, connect, connect_to, lines, rules_for};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(20);
/// The name in the certificates of the tests.
const SERVER: &str = "localhost";

/// Egret where [`SERVER`] has to be spoken to over TLS.
fn front(port: u16, pki: &Pki) -> Egret {
    let rules = rules_for(port).replace("tls = \"any\"", "tls = \"required\"").replace(NAME, SERVER);
    Egret::with(rules).tls(&lines(pki)).start()
}

/// A server of rustls that has another group in mind than its clients, and echoes.
fn asking_again(pki: &Pki) -> Origin {
    let mut provider = default_provider();
    provider.kx_groups = vec![kx_group::SECP384R1];
    let pair = pki::read(&pki.path("server.crt"), &pki.path("server.key"));
    let config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(pair.chain, pair.key)
        .unwrap();
    let config = Arc::new(config);
    Origin::start(move |visit| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = Stream::new(&mut session, &mut visit.stream);
        let mut buffer = [0; 1 << 14];
        loop {
            let length = stream.read(&mut buffer)?;
            if length == 0 {
                stream.conn.send_close_notify();
                return stream.flush();
            }
            stream.write_all(&buffer[..length])?;
        }
    })
}

/// Shakes hands twice and passes something both ways.
fn talk(pki: &Pki, mut through: impl Read + Write) -> io::Result<()> {
    let name = SERVER.try_into().unwrap();
    let mut session = ClientConnection::new(Arc::new(config(pki, None, &[&TLS13])), name).unwrap();
    let mut stream = Stream::new(&mut session, &mut through);
    let data: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    for chunk in data.chunks(50_000) {
        stream.write_all(chunk)?;
        let mut echo = vec![0; chunk.len()];
        stream.read_exact(&mut echo)?;
        assert!(echo == chunk);
    }
    assert_eq!(stream.conn.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    stream.conn.send_close_notify();
    stream.flush()?;
    assert_eq!(stream.read(&mut [0])?, 0);
    Ok(())
}

#[test]
fn by_rustls_for_clients_on_either_listener() {
    let pki = Pki::new();
    let origin = asking_again(&pki);
    let egret = front(origin.port(), &pki);
    talk(&pki, Client::tunnel(egret.proxy, &format!("{SERVER}:{}", origin.port())).stream).unwrap();
    let mut client = connect(&egret, &pki, "127.0.0.1", None);
    client.send(connect_to(&origin).replace(NAME, SERVER));
    assert_eq!(client.response("CONNECT").status, 200);
    talk(&pki, &mut client.stream).unwrap();
    assert_eq!(origin.accepted(), 2);
    drop(client);
    close(&egret, 2);
}

/// A running `openssl` that ends with the test.
struct Openssl {
    child: Child,
    said: std::path::PathBuf,
}

impl Openssl {
    /// `None` where there is no such program.
    fn start(pki: &Pki, log: &str, arguments: &[&str]) -> Option<Self> {
        let said = pki.path(log);
        let out = File::create(&said).unwrap();
        let child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .spawn();
        Some(Self { child: child.ok()?, said })
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.said).unwrap()).into_owned()
    }
}

impl Drop for Openssl {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server has another group in mind than its client, and rejects the early data of the second one.
#[test]
fn by_openssl_with_early_data() {
    let pki = Pki::new();
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let at = format!("127.0.0.1:{port}");
    let (pair, key) = (pki.text("server.crt"), pki.text("server.key"));
    let server =
        ["s_server", "-accept", &at, "-cert", &pair, "-key", &key, "-groups", "P-521", "-early_data"];
    let Some(server) = Openssl::start(&pki, "server.log", &server) else {
        println!("skipped: no `openssl` on this machine");
        return;
    };
    wait_for("the server", LIMIT, || server.said().contains("ACCEPT"));
    let egret = front(port, &pki);
    let (proxy, target) = (egret.proxy.to_string(), format!("{SERVER}:{port}"));
    let (session, early) = (pki.text("session"), pki.text("early"));
    fs::write(&early, "early data\n").unwrap();
    let first = ["-sess_out", &session];
    let again = ["-sess_in", &session, "-early_data", &early];
    for (number, more) in [&first[..], &again].into_iter().enumerate() {
        let arguments = ["s_client", "-proxy", &proxy, "-connect", &target, "-servername", SERVER];
        let arguments = [&arguments[..], &["-msg", "-groups", "X25519:P-521"], more].concat();
        let mut client = Openssl::start(&pki, "client.log", &arguments).unwrap();
        let word = format!("word {number}\n");
        client.child.stdin.as_mut().unwrap().write_all(word.as_bytes()).unwrap();
        wait_for("what was said behind the handshakes", LIMIT, || server.said().contains(&word));
        wait_for("the session", LIMIT, || fs::metadata(&session).is_ok_and(|file| file.len() > 0));
        let said = client.said();
        assert_eq!(said.matches(", ClientHello").count(), 2, "{said}");
        // The end of its input ends it, in order.
        drop(client.child.stdin.take());
        client.child.wait().unwrap();
        assert_eq!(close(&egret, number + 1)["reason"], "allowed");
    }
    assert!(server.said().contains("Early data was rejected"), "{}", server.said());
    assert!(!server.said().contains("early data\n"), "{}", server.said());
}

//! DNS over TLS and over HTTPS on loopback, with a certificate authority made for the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::scripted::{Answerer, serve_stream};

/// The authority's certificate in PEM, and a server configuration for `names`.
pub fn authority(names: &[&str], alpn: &[&[u8]]) -> (String, Arc<ServerConfig>) {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    (ca_pem, Arc::new(config))
}

type Tls = StreamOwned<ServerConnection, TcpStream>;

fn start(config: Arc<ServerConfig>, serve: impl Fn(Tls) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (config, serve) = (Arc::clone(&config), Arc::clone(&serve));
            let connection = ServerConnection::new(config).unwrap();
            thread::spawn(move || serve(StreamOwned::new(connection, stream.unwrap())));
        }
    });
    addr
}

pub fn start_dot(config: Arc<ServerConfig>, answerer: Arc<Answerer>) -> SocketAddr {
    start(config, move |stream| serve_stream(stream, &answerer, "tls"))
}

pub fn start_doh(config: Arc<ServerConfig>, answerer: Arc<Answerer>) -> SocketAddr {
    start(config, move |stream| {
        // An error is the client closing the connection, or refusing the certificate.
        let _ = serve_http2(stream, &answerer);
    })
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The least of HTTP/2 (RFC 9113) that a DoH client needs: the body of each request is a DNS
/// message, and its answer is the body of a response with status 200.
fn serve_http2(mut stream: impl Read + Write, answerer: &Answerer) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface)?;
    assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    stream.write_all(&frame(SETTINGS, 0, 0, &[]))?;
    stream.flush()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload)?;
        match kind {
            SETTINGS if flags & ACK == 0 => stream.write_all(&frame(SETTINGS, ACK, 0, &[]))?,
            DATA if flags & END_STREAM != 0 && !payload.is_empty() => {
                for (_, body) in answerer.answer(&payload, "https") {
                    // HPACK: 0x88 is the static entry ":status: 200".
                    stream.write_all(&frame(HEADERS, END_HEADERS, id, &[0x88]))?;
                    stream.write_all(&frame(DATA, END_STREAM, id, &body))?;
                }
            }
            _ => {}
        }
        stream.flush()?;
    }
}

fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend(id.to_be_bytes());
    out.extend(payload);
    out
}

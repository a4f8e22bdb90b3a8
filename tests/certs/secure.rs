//! A client that reaches the proxy over TLS, and says exactly what the test tells it to.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

use crate::pki::{Pair, Pki};
use crate::support::client;
use crate::support::http1::{self, Response};

const PATIENCE: Duration = Duration::from_secs(20);

/// How a client shakes hands.
pub fn config(pki: &Pki, pair: Option<Pair>, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(pki.root()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    match pair {
        Some(Pair { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    }
}

/// A connection whose handshake has succeeded, as far as the client can tell.
pub struct Secure {
    pub stream: StreamOwned<ClientConnection, TcpStream>,
    unread: Vec<u8>,
}

impl Secure {
    /// # Errors
    /// The handshake fails. With TLS 1.3 a refused certificate shows in the first read instead.
    pub fn connect(config: ClientConfig, source: &str, proxy: SocketAddr) -> io::Result<Self> {
        let mut socket = client::connect_from(source.parse().unwrap(), proxy)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let name = "localhost".try_into().unwrap();
        let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        Ok(Self { stream: StreamOwned::new(session, socket), unread: Vec::new() })
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the proxy takes what the test sends");
        self.stream.flush().unwrap();
    }

    /// The next response, whole with its body.
    pub fn response(&mut self, method: &str) -> Response {
        self.try_response(method).expect("a response")
    }

    /// # Errors
    /// The connection ends, in whatever way, before the response is whole.
    pub fn try_response(&mut self, method: &str) -> io::Result<Response> {
        loop {
            if let Some((answer, rest)) = http1::next_response(&self.unread, method, false)
                && answer.complete
            {
                self.unread = rest.to_vec();
                return Ok(answer);
            }
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The head of the next response, and then its body as it comes.
    pub fn head(&mut self) -> Response {
        loop {
            if let Some((answer, rest)) = http1::parse_head(&self.unread) {
                self.unread = rest.to_vec();
                return answer;
            }
            assert!(self.fill().unwrap() > 0, "the connection ended before an answer");
        }
    }

    /// What was read ahead, and then the connection.
    pub fn reader(&mut self) -> impl Read + '_ {
        io::Cursor::new(std::mem::take(&mut self.unread)).chain(&mut self.stream)
    }

    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            assert!(self.fill().unwrap() > 0, "the connection ended after {} octets", self.unread.len());
        }
        self.unread.drain(..length).collect()
    }

    /// Everything up to the end, and whether that was an orderly one.
    pub fn until_end(&mut self) -> (Vec<u8>, io::Result<()>) {
        loop {
            match self.fill() {
                Ok(0) => return (std::mem::take(&mut self.unread), Ok(())),
                Ok(_) => {}
                Err(error) => return (std::mem::take(&mut self.unread), Err(error)),
            }
        }
    }

    /// Ends our side within TLS, and leaves the other open.
    pub fn finish(&mut self) {
        self.stream.conn.send_close_notify();
        self.stream.conn.complete_io(&mut self.stream.sock).unwrap();
        self.stream.sock.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends our side of the connection, but not of TLS.
    pub fn truncate(&mut self) {
        self.stream.sock.shutdown(Shutdown::Write).unwrap();
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; 1 << 16];
        let length = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

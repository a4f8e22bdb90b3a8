//! A web server for real clients, over plain TCP or TLS, that knows what it has moved.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::support::http1;
use crate::support::origin::Request;

/// What a site answers.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Sends the body in chunks, without saying how long it is.
    pub chunked: bool,
}

impl Reply {
    pub fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into(), chunked: false }
    }

    pub fn not_found() -> Self {
        Self { status: 404, ..Self::ok("there is nothing here\n") }
    }

    fn encode(&self, request: &Request) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} As Asked\r\n", self.status);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if self.chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        } else {
            write!(head, "Content-Length: {}\r\n\r\n", self.body.len()).unwrap();
        }
        let mut out = head.into_bytes();
        if request.method() == "HEAD" {
            return out;
        }
        if !self.chunked {
            out.extend_from_slice(&self.body);
            return out;
        }
        for piece in self.body.chunks(4000) {
            out.extend(format!("{:x}\r\n", piece.len()).bytes());
            out.extend_from_slice(piece);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
        out
    }
}

/// One request and its answer, as the site saw them.
#[derive(Debug, Clone)]
pub struct Served {
    pub request: Request,
    pub status: u16,
    /// Octets of the answer's body that went out.
    pub sent: u64,
}

/// Octets on one connection, TLS included.
#[derive(Debug, Default)]
struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A running site. It lives as long as the process.
#[derive(Clone)]
pub struct Site {
    pub address: SocketAddr,
    handler: Arc<Handler>,
    served: Arc<Mutex<Vec<Served>>>,
    connections: Arc<Mutex<Vec<Arc<Traffic>>>>,
}

impl Site {
    pub fn start(handler: Arc<Handler>, tls: Option<Arc<ServerConfig>>) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), handler, tls)
    }

    pub fn start_at(place: SocketAddr, handler: Arc<Handler>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind(place).expect("a free port");
        let address = listener.local_addr().unwrap();
        let site = Self { address, handler, served: Arc::default(), connections: Arc::default() };
        let server = site.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (server, tls) = (server.clone(), tls.clone());
                // An error is the end of the connection, which the client sees by itself.
                thread::spawn(move || server.welcome(stream, tls));
            }
        });
        site
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn served(&self) -> Vec<Served> {
        self.served.lock().unwrap().clone()
    }

    /// What each connection received and sent so far.
    pub fn traffic(&self) -> Vec<(u64, u64)> {
        let of = |t: &Arc<Traffic>| (t.received.load(Ordering::SeqCst), t.sent.load(Ordering::SeqCst));
        self.connections.lock().unwrap().iter().map(of).collect()
    }

    fn welcome(&self, stream: TcpStream, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
        let _ = stream.set_nodelay(true);
        let traffic = Arc::<Traffic>::default();
        self.connections.lock().unwrap().push(Arc::clone(&traffic));
        let counted = Counted { stream, traffic };
        match tls {
            Some(config) => {
                let connection = ServerConnection::new(config).map_err(io::Error::other)?;
                self.serve(StreamOwned::new(connection, counted))
            }
            None => self.serve(counted),
        }
    }

    fn serve(&self, mut stream: impl Read + Write) -> io::Result<()> {
        let mut unread = Vec::new();
        let mut continued = false;
        let mut buffer = vec![0; 1 << 16];
        loop {
            if let Some(length) = http1::request_length(&unread) {
                let request = parse(&unread[..length]);
                unread.drain(..length);
                continued = false;
                self.answer(&mut stream, request)?;
                continue;
            }
            if !continued && awaits_continue(&unread) {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                stream.flush()?;
                continued = true;
            }
            match stream.read(&mut buffer)? {
                0 => return Ok(()),
                length => unread.extend_from_slice(&buffer[..length]),
            }
        }
    }

    fn answer(&self, stream: &mut impl Write, request: Request) -> io::Result<()> {
        let reply = (self.handler)(&request);
        let sent = if request.method() == "HEAD" { 0 } else { reply.body.len() as u64 };
        let wire = reply.encode(&request);
        // Before the answer: whoever has it can look the request up.
        self.served.lock().unwrap().push(Served { request, status: reply.status, sent });
        stream.write_all(&wire)?;
        stream.flush()
    }
}

fn awaits_continue(unread: &[u8]) -> bool {
    http1::split_head(unread).is_some_and(|(head, _)| {
        http1::fields(head).iter().any(|(n, v)| n == "expect" && v.eq_ignore_ascii_case("100-continue"))
    })
}

fn parse(data: &[u8]) -> Request {
    let (head, rest) = http1::split_head(data).expect("a whole request has a head");
    let headers = http1::fields(head);
    let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v.contains("chunked"));
    let body = if chunked { http1::read_chunked(rest).body } else { rest.to_vec() };
    let first = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = http1::latin1(first).trim_end_matches('\r').to_owned();
    Request { line, headers, head: head.to_vec(), body, trailers: Vec::new() }
}

struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.stream.read(buffer)?;
        self.traffic.received.fetch_add(length as u64, Ordering::SeqCst);
        Ok(length)
    }
}

impl Write for Counted {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = self.stream.write(data)?;
        self.traffic.sent.fetch_add(length as u64, Ordering::SeqCst);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// Serves the files below a folder; a path that ends in `/` is its `index.html`.
pub fn files(folder: &Path) -> impl Fn(&Request) -> Reply + Send + Sync + use<> {
    let folder = folder.to_owned();
    move |request| {
        let path = request.path().split('?').next().unwrap_or_default().trim_start_matches('/');
        let mut place: PathBuf = folder.join(path);
        if path.is_empty() || path.ends_with('/') {
            place.push("index.html");
        }
        let Ok(body) = std::fs::read(&place) else { return Reply::not_found() };
        let mut reply = Reply::ok(body);
        if place.extension().is_some_and(|e| e == "html") {
            reply.headers.push(("Content-Type".to_owned(), "text/html".to_owned()));
        }
        reply
    }
}

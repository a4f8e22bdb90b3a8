//! An origin on the loopback whose behaviour a test writes as a function.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use super::http1;

/// A server that hands each connection to the test's function, in a thread of its own.
#[derive(Debug, Clone)]
pub struct Origin {
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A whole request as it arrived.
#[derive(Debug, Clone)]
pub struct Request {
    /// The request line without its line end.
    pub line: String,
    pub headers: Vec<(String, String)>,
    /// The octets of the head, up to the empty line.
    pub head: Vec<u8>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
}

impl Request {
    /// The first value of a header, by its lower-case name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn method(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    pub fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }
}

impl Origin {
    /// `serve` gets every connection. An error it returns ends the connection, no more.
    pub fn start(serve: impl Fn(&mut Visit) -> io::Result<()> + Send + Sync + 'static) -> Self {
        Self::start_on(Ipv4Addr::LOCALHOST.into(), serve)
    }

    /// Answers every request alike, and tells when a connection is ended on which it has.
    pub fn telling_ends() -> (Self, Receiver<()>) {
        let (ended, ends) = mpsc::channel();
        let origin = Self::start(move |visit| {
            while visit.request()?.is_some() {
                visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            }
            ended.send(()).unwrap();
            Ok(())
        });
        (origin, ends)
    }

    /// The same at another address of this machine.
    pub fn start_on(
        address: IpAddr,
        serve: impl Fn(&mut Visit) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("a free port");
        let origin = Self {
            address: listener.local_addr().unwrap(),
            accepted: Arc::default(),
            requests: Arc::default(),
        };
        let (server, serve) = (origin.clone(), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                server.accepted.fetch_add(1, Ordering::SeqCst);
                let (serve, requests) = (Arc::clone(&serve), Arc::clone(&server.requests));
                thread::spawn(move || serve(&mut Visit::new(stream, requests)));
            }
        });
        origin
    }

    /// Answers every request with the same octets, on connections that stay open.
    pub fn replying(reply: impl Into<Vec<u8>>) -> Self {
        let reply = reply.into();
        Self::start(move |visit| {
            while visit.request()?.is_some() {
                visit.send(&reply)?;
            }
            Ok(())
        })
    }

    /// Says again what it hears, until the client has finished.
    pub fn echoing() -> Self {
        Self::start(|visit| {
            loop {
                let some = visit.some()?;
                if some.is_empty() {
                    return visit.finish();
                }
                visit.send(some)?;
            }
        })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Every request read so far, over all connections.
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

/// One connection as the origin sees it.
#[derive(Debug)]
pub struct Visit {
    pub stream: TcpStream,
    unread: VecDeque<u8>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Visit {
    fn new(stream: TcpStream, requests: Arc<Mutex<Vec<Request>>>) -> Self {
        let _ = stream.set_nodelay(true);
        Self { stream, unread: VecDeque::new(), requests }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref())
    }

    /// The head of the next request, its body left unread; nothing at the end of the connection.
    pub fn head(&mut self) -> io::Result<Option<Request>> {
        loop {
            if let Some((head, rest)) = http1::split_head(self.unread.make_contiguous()) {
                let request = request(head, &[]);
                let left = rest.len();
                self.unread.drain(..self.unread.len() - left);
                return Ok(Some(request));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next whole request; nothing at the end of the connection.
    pub fn request(&mut self) -> io::Result<Option<Request>> {
        loop {
            let data = self.unread.make_contiguous();
            if let Some(length) = http1::request_length(data) {
                let (head, rest) = http1::split_head(data).expect("a whole request has a head");
                let body = &rest[..length - (data.len() - rest.len())];
                let request = request(head, body);
                self.unread.drain(..length);
                self.requests.lock().unwrap().push(request.clone());
                return Ok(Some(request));
            }
            if self.fill()? == 0 {
                return Ok(None);
            }
        }
    }

    /// Octets as they come, what was read ahead first; none at the end.
    pub fn some(&mut self) -> io::Result<Vec<u8>> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        Ok(self.unread.drain(..).collect())
    }

    /// Exactly so many octets.
    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            if self.fill()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// What was read ahead, and then the connection.
    pub fn reader(&mut self) -> impl Read + '_ {
        std::mem::take(&mut self.unread).chain(&self.stream)
    }

    /// Ends our side, and waits until the peer ends its own.
    pub fn finish(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        while self.fill()? > 0 {
            self.unread.clear();
        }
        Ok(())
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 1 << 14];
        let length = self.stream.read(&mut buffer)?;
        self.unread.extend(&buffer[..length]);
        Ok(length)
    }
}

fn request(head: &[u8], body: &[u8]) -> Request {
    let first = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let headers = http1::fields(head);
    let chunked = headers.iter().any(|(n, v)| n == "transfer-encoding" && v.contains("chunked"));
    let (body, trailers) = if chunked {
        let decoded = http1::read_chunked(body);
        (decoded.body, decoded.trailers)
    } else {
        (body.to_vec(), Vec::new())
    };
    let line = http1::latin1(first).trim_end_matches('\r').to_owned();
    Request { line, headers, head: head.to_vec(), body, trailers }
}

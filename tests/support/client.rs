//! A client that sends exact bytes through a proxy and reads whatever comes back.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use super::http1::{self, Response};

const TICK: Duration = Duration::from_millis(1);
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Connects from a given local address.
pub fn connect_from(source: IpAddr, target: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(target), Type::STREAM, None)?;
    if source.is_ipv6() {
        // In a closed world every address is local, but none is set up that others could choose.
        socket.set_freebind_v6(true)?;
    }
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&target.into(), CONNECT_LIMIT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// What the client of one `Talk` saw.
#[derive(Debug, Default)]
pub struct Exchange {
    pub methods: Vec<String>,
    /// Everything read, up to `Talk::keep` octets.
    pub data: Vec<u8>,
    /// The peer finished or reset the connection.
    pub eof: bool,
    pub sent: usize,
    pub received: usize,
    pub elapsed: Duration,
    pub responses: Vec<Response>,
    /// What follows the last response: the inside of a tunnel.
    pub tail: Vec<u8>,
    /// When bytes last moved.
    pub last_read: Option<Instant>,
    pub last_sent: Option<Instant>,
}

impl Exchange {
    pub fn statuses(&self) -> Vec<u16> {
        self.responses.iter().map(|r| r.status).collect()
    }

    /// The first response that is not interim.
    pub fn last_word(&self) -> Option<&Response> {
        self.responses.iter().find(|r| !r.interim())
    }

    pub fn status(&self) -> Option<u16> {
        self.last_word().map(|r| r.status)
    }

    pub fn success(&self) -> bool {
        self.status().is_some_and(|s| (200..300).contains(&s))
    }

    /// A whole final answer, and silence since.
    pub fn settled(&self, quiet: Duration) -> bool {
        self.last_word().is_some_and(|r| r.complete) && self.quiet_for(quiet)
    }

    /// Nothing was read for this long.
    pub fn quiet_for(&self, time: Duration) -> bool {
        self.last_read.is_none_or(|at| at.elapsed() > time)
    }

    fn parse(&mut self) {
        let (responses, tail) = http1::parse(&self.data, &self.methods, self.eof);
        self.tail = tail.to_vec();
        self.responses = responses;
    }
}

/// One conversation: what to send, when, and how long to listen.
#[derive(Debug)]
pub struct Talk {
    pub proxy: SocketAddr,
    pub source: IpAddr,
    pub payload: Vec<u8>,
    /// The methods of the requests in the payload, in order.
    pub methods: Vec<String>,
    pub limit: Duration,
    /// Cuts the payload into segments of this size with a pause between them.
    pub segments: Option<(usize, Duration)>,
    /// Goes on sending this text at this interval once the payload is out.
    pub drip: Option<(Vec<u8>, Duration)>,
    /// What follows this many octets waits for a 2xx, as clients of a tunnel do.
    pub hold: Option<usize>,
    /// Stops reading for this long after the first octets, then ends.
    pub read_pause: Option<Duration>,
    /// At most so many octets are kept; the rest is counted.
    pub keep: usize,
}

impl Talk {
    /// Three seconds, everything at once, from the loopback.
    pub fn new(proxy: SocketAddr, payload: impl Into<Vec<u8>>, methods: &[&str]) -> Self {
        Self {
            proxy,
            source: Ipv4Addr::LOCALHOST.into(),
            payload: payload.into(),
            methods: methods.iter().map(|&m| m.to_owned()).collect(),
            limit: Duration::from_secs(3),
            segments: None,
            drip: None,
            hold: None,
            read_pause: None,
            keep: 1 << 20,
        }
    }

    /// Talks until `done`, the end of the connection, or the time limit.
    pub fn run(self, mut done: impl FnMut(&Exchange) -> bool) -> Exchange {
        let began = Instant::now();
        let mut seen = Exchange { methods: self.methods.clone(), ..Exchange::default() };
        let connected = connect_from(self.source, self.proxy);
        let Ok(mut stream) = connected.and_then(|s| s.set_nonblocking(true).map(|()| s)) else {
            seen.eof = true;
            return seen;
        };
        let mut sender = Sender { next: began, broken: false };
        loop {
            seen.elapsed = began.elapsed();
            if done(&seen) || seen.eof || seen.elapsed > self.limit {
                return seen;
            }
            let wrote = sender.step(&self, &mut stream, &mut seen);
            if let Some(pause) = self.read_pause.filter(|_| seen.received > 0) {
                std::thread::sleep(pause);
                return seen;
            }
            let read = self.read(&mut stream, &mut seen);
            if !wrote && !read {
                std::thread::sleep(TICK);
            }
        }
    }

    fn read(&self, stream: &mut TcpStream, seen: &mut Exchange) -> bool {
        let mut buffer = vec![0; if self.read_pause.is_some() { 4096 } else { 1 << 18 }];
        let length = match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            result => result.unwrap_or(0), // a reset is an end too
        };
        seen.last_read = Some(Instant::now());
        seen.eof = length == 0;
        seen.received += length;
        if seen.data.len() < self.keep {
            seen.data.extend_from_slice(&buffer[..length]);
            seen.parse();
        } else if seen.eof {
            seen.parse();
        }
        true
    }
}

/// The writing half of a talk.
struct Sender {
    next: Instant,
    broken: bool,
}

impl Sender {
    /// Sends what is due; says whether anything moved.
    fn step(&mut self, talk: &Talk, stream: &mut TcpStream, seen: &mut Exchange) -> bool {
        let now = Instant::now();
        let whole = talk.payload.len();
        let ready = talk.hold.filter(|_| !seen.success()).unwrap_or(whole);
        let (size, gap) = talk.segments.unwrap_or((whole, Duration::ZERO));
        if self.broken || now < self.next {
            return false;
        }
        let result = if seen.sent < ready {
            let end = ready.min(seen.sent.saturating_add(size));
            self.next = now + gap;
            stream.write(&talk.payload[seen.sent..end]).map(|sent| {
                seen.sent += sent;
                seen.last_sent = Some(now);
            })
        } else if seen.sent < whole {
            return false;
        } else if let Some((text, every)) = &talk.drip {
            self.next = now + *every;
            stream.write(text).map(drop)
        } else {
            return false;
        };
        match result {
            Ok(()) => true,
            Err(error) => {
                self.broken = error.kind() != io::ErrorKind::WouldBlock; // gone: read what it left
                false
            }
        }
    }
}

/// A connection on which a test speaks step by step. Every read has a deadline.
#[derive(Debug)]
pub struct Client {
    /// To send, and to see whether it is open. Reading from it would miss what was read ahead.
    pub stream: TcpStream,
    unread: Vec<u8>,
}

impl Client {
    /// Reads that take longer than this are a failure of the test.
    pub const PATIENCE: Duration = Duration::from_secs(30);

    pub fn connect(proxy: SocketAddr) -> Self {
        let stream =
            TcpStream::connect_timeout(&proxy, CONNECT_LIMIT).expect("the proxy accepts connections");
        Self::over(stream)
    }

    /// Connects from a given local address.
    pub fn connect_from(source: &str, proxy: SocketAddr) -> Self {
        let stream = connect_from(source.parse().unwrap(), proxy);
        Self::over(stream.expect("the proxy accepts connections"))
    }

    /// Speaks over this connection.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Self::PATIENCE)).unwrap();
        stream.set_write_timeout(Some(Self::PATIENCE)).unwrap();
        Self { stream, unread: Vec::new() }
    }

    /// Opens a tunnel; panics where it is refused.
    pub fn tunnel(proxy: SocketAddr, authority: &str) -> Self {
        let mut client = Self::connect(proxy);
        client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
        let answer = client.response("CONNECT");
        assert_eq!(answer.status, 200, "CONNECT {authority}: {answer:?}");
        client
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the proxy takes what the test sends");
    }

    /// The next response, interim ones included, whole with its body.
    pub fn response(&mut self, method: &str) -> Response {
        let mut eof = false;
        loop {
            if let Some((answer, rest)) = http1::next_response(&self.unread, method, eof)
                && answer.complete
            {
                self.unread = rest.to_vec();
                return answer;
            }
            assert!(!eof, "the connection ended within a response: {:?}", http1::latin1(&self.unread));
            eof = self.fill().expect("a response in time") == 0;
        }
    }

    /// The head of the next response; its body is left to `some` and `reader`.
    pub fn head(&mut self, method: &str) -> Response {
        loop {
            if let Some((answer, rest)) = http1::parse_head(&self.unread) {
                self.unread = rest.to_vec();
                return answer;
            }
            assert!(
                self.fill().expect("a head in time") > 0,
                "the connection ended before an answer to {method}"
            );
        }
    }

    /// Octets as they come; fails the test at the end of the connection.
    pub fn some(&mut self) -> Vec<u8> {
        if self.unread.is_empty() {
            assert!(self.fill().expect("octets in time") > 0, "the connection ended");
        }
        std::mem::take(&mut self.unread)
    }

    /// What was read ahead, and then the connection.
    pub fn reader(&mut self) -> impl Read + '_ {
        io::Cursor::new(std::mem::take(&mut self.unread)).chain(&self.stream)
    }

    /// The next final response, without the interim ones before it.
    pub fn final_response(&mut self, method: &str) -> Response {
        loop {
            let answer = self.response(method);
            if !answer.interim() {
                return answer;
            }
        }
    }

    /// Exactly so many octets.
    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            let got = self.fill().expect("more octets in time");
            assert!(got > 0, "the connection ended after {} of {length} octets", self.unread.len());
        }
        self.unread.drain(..length).collect()
    }

    /// Everything up to the end of the connection; a reset ends it as well.
    pub fn until_end(&mut self) -> Vec<u8> {
        loop {
            match self.fill() {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => panic!("the connection did not end: {error}"),
            }
        }
        std::mem::take(&mut self.unread)
    }

    /// Breaks the connection off: no end but a reset.
    pub fn reset(self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an open connection");
    }

    /// Ends our side of the connection.
    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).expect("a connection that is still open");
    }

    /// Reads what is there; 0 at the end.
    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = vec![0; 1 << 16];
        let length = self.stream.read(&mut buffer)?;
        self.unread.extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

//! An origin for every address: accepts whatever is dialled on some ports, keeps every octet.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, SockRef, Socket, Type};

use super::http1;

/// Octets kept of a connection; the rest is only counted.
const KEEP: usize = 4 << 20;
/// How long the accept loop may not notice that a port was opened or closed.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// A request that stays incomplete for this long is answered early, unless the script is patient.
const EARLY: Duration = Duration::from_millis(250);

/// A text and how often it comes, so that a gigabyte of one letter stays small.
pub type Segment = (Vec<u8>, usize);

/// What the sink does on each connection.
#[derive(Debug, Clone)]
pub struct Script {
    pub reply: Vec<Segment>,
    /// Raw octets instead of HTTP: reply once, to the first data.
    pub tunnel: bool,
    /// Wait for the whole request however long it takes.
    pub patient: bool,
}

impl Default for Script {
    /// A small 200 to every request.
    fn default() -> Self {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
        Self { reply: vec![(ok, 1)], tunnel: false, patient: false }
    }
}

/// One accepted connection.
#[derive(Debug)]
pub struct Conn {
    /// The address that was dialled.
    pub local: SocketAddr,
    data: Mutex<Vec<u8>>,
    received: AtomicUsize,
    sent: AtomicUsize,
    stream: TcpStream,
}

impl Conn {
    /// What arrived, up to `KEEP` octets.
    pub fn data(&self) -> Vec<u8> {
        self.data.lock().unwrap().clone()
    }

    pub fn received(&self) -> usize {
        self.received.load(Ordering::SeqCst)
    }

    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }

    fn take(&self, chunk: &[u8]) {
        let mut data = self.data.lock().unwrap();
        if data.len() < KEEP {
            data.extend_from_slice(chunk);
        }
        self.received.fetch_add(chunk.len(), Ordering::SeqCst);
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        (&self.stream).write_all(bytes)?;
        self.sent.fetch_add(bytes.len(), Ordering::SeqCst);
        Ok(())
    }

    /// The next octets; none at the end, `WouldBlock` after the read time-out.
    fn receive(&self) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; 1 << 16];
        let length = (&self.stream).read(&mut buffer)?;
        buffer.truncate(length);
        self.take(&buffer);
        Ok(buffer)
    }
}

/// Listens on every address of both families until the process ends.
#[derive(Debug, Clone)]
pub struct Sink {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    listeners: Vec<Arc<TcpListener>>,
    script: Script,
    conns: Vec<Arc<Conn>>,
}

impl Sink {
    pub fn start(ports: impl IntoIterator<Item = u16>) -> io::Result<Self> {
        let sink = Self { state: Arc::new(Mutex::new(State::default())) };
        for port in ports {
            sink.open(port)?;
        }
        let acceptor = sink.clone();
        thread::spawn(move || acceptor.accept());
        Ok(sink)
    }

    pub fn open(&self, port: u16) -> io::Result<()> {
        for any in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let socket = Socket::new(Domain::for_address((any, port).into()), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.set_reuse_port(true)?; // a black hole may sit on one address of the port
            if any.is_ipv6() {
                socket.set_only_v6(true)?;
            }
            socket.bind(&SocketAddr::new(any, port).into())?;
            socket.listen(256)?;
            socket.set_nonblocking(true)?;
            self.lock().listeners.push(Arc::new(socket.into()));
        }
        Ok(())
    }

    /// Frees a port for somebody else.
    pub fn close(&self, port: u16) {
        self.lock().listeners.retain(|l| l.local_addr().is_ok_and(|a| a.port() != port));
        // The accept loop may hold the listeners until its next turn.
        thread::sleep(Duration::from_nanos(2 * TICK.tv_nsec.unsigned_abs()));
    }

    /// What connections from now on are told.
    pub fn begin(&self, script: Script) {
        self.lock().script = script;
    }

    pub fn conns(&self) -> Vec<Arc<Conn>> {
        self.lock().conns.clone()
    }

    /// Octets that arrived on all connections since `end`.
    pub fn received(&self) -> usize {
        self.lock().conns.iter().map(|c| c.received()).sum()
    }

    /// Resets every connection, so that no pool keeps one, and returns what they saw.
    pub fn end(&self) -> Vec<Arc<Conn>> {
        let conns = std::mem::take(&mut self.lock().conns);
        for conn in &conns {
            let _ = SockRef::from(&conn.stream).set_linger(Some(Duration::ZERO));
            let _ = conn.stream.shutdown(Shutdown::Both);
        }
        conns
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn accept(&self) {
        loop {
            let listeners = self.lock().listeners.clone();
            let mut waiting: Vec<_> = listeners.iter().map(|l| PollFd::new(&**l, PollFlags::IN)).collect();
            if poll(&mut waiting, Some(&TICK)).is_err() {
                continue;
            }
            let ready: Vec<bool> = waiting.iter().map(|w| w.revents().contains(PollFlags::IN)).collect();
            for (listener, _) in listeners.iter().zip(ready).filter(|(_, ready)| *ready) {
                if let Ok((stream, _)) = listener.accept() {
                    self.serve(stream);
                }
            }
        }
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(local) = stream.local_addr() else { return };
        let _ = stream.set_nonblocking(false);
        let conn = Arc::new(Conn {
            local,
            data: Mutex::default(),
            received: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            stream,
        });
        let mut state = self.lock();
        state.conns.push(Arc::clone(&conn));
        let script = state.script.clone();
        // An error is the end of the connection, which the test sees by itself.
        thread::spawn(move || if script.tunnel { tunnel(&conn, &script) } else { http(&conn, &script) });
    }
}

fn tunnel(conn: &Conn, script: &Script) -> io::Result<()> {
    let mut replied = false;
    while !conn.receive()?.is_empty() {
        if !replied {
            reply(conn, script)?;
            replied = true;
        }
    }
    conn.stream.shutdown(Shutdown::Write)
}

fn http(conn: &Conn, script: &Script) -> io::Result<()> {
    let mut pending = Vec::new();
    loop {
        conn.stream.set_read_timeout((!pending.is_empty()).then_some(EARLY))?;
        let waited = match conn.receive() {
            Ok(chunk) if chunk.is_empty() => return conn.stream.shutdown(Shutdown::Both),
            Ok(chunk) => {
                pending.extend(chunk);
                false
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => !script.patient,
            Err(error) => return Err(error),
        };
        while let Some(length) = answerable(&pending, waited) {
            let head_request = pending.starts_with(b"HEAD ");
            pending.drain(..length.min(pending.len()));
            reply(conn, script)?;
            if ends_by_closing(&script.reply, head_request) {
                return conn.stream.shutdown(Shutdown::Write);
            }
        }
        if waited {
            pending.clear(); // half a request that nobody will finish
        }
    }
}

/// The length of the request to answer now: a whole one, or after a wait a head without its body.
fn answerable(pending: &[u8], waited: bool) -> Option<usize> {
    let early = waited && http1::split_head(pending).is_some();
    http1::request_length(pending).or(early.then_some(pending.len()))
}

fn reply(conn: &Conn, script: &Script) -> io::Result<()> {
    for (text, times) in &script.reply {
        let per_block = (*times).min((65536 / text.len().max(1)).max(1));
        let block = text.repeat(per_block);
        let mut left = text.len() * times;
        while left > 0 {
            let part = &block[..left.min(block.len())];
            conn.send(part)?;
            left -= part.len();
        }
    }
    Ok(())
}

/// Whether only the end of the connection can end this reply.
fn ends_by_closing(reply: &[Segment], head_request: bool) -> bool {
    let Some((text, times)) = reply.first() else { return false };
    let text = text.repeat((*times).min(70000));
    if !text.starts_with(b"HTTP/") {
        return !text.is_empty();
    }
    let Some((head, rest)) = http1::split_head(&text) else { return false };
    if head_request || text.get(9) == Some(&b'1') {
        return false;
    }
    let fields = http1::fields(head);
    let values =
        |name: &str| fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect::<Vec<_>>();
    if !values("transfer-encoding").is_empty() {
        return !http1::read_chunked(rest).complete;
    }
    let total = reply.iter().map(|(t, n)| t.len() * n).sum::<usize>() - (text.len() - rest.len());
    match values("content-length").first() {
        Some(length) => length.parse::<usize>().is_ok_and(|length| length > total),
        None => true,
    }
}

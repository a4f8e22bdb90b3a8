//! A parent proxy that does as the test says, and keeps every CONNECT that it got.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::origin::{Origin, Request, Visit};

/// What a parent makes of a CONNECT.
pub enum Act {
    /// Connects to where it was asked to; says this, and then carries bytes.
    Tunnel(String),
    /// Says this and ends the connection.
    Say(Vec<u8>),
    /// Says this again and again until the client has gone.
    Flood(&'static str),
    /// Says this octet by octet, with so long between them, and then nothing more.
    Drip(&'static str, Duration),
    /// Ends the connection with a reset.
    Reset,
    /// Says nothing until the client has gone.
    Wait,
}

impl Act {
    pub fn tunnel() -> Self {
        Self::Tunnel("HTTP/1.1 200 Connection established\r\n\r\n".to_owned())
    }

    /// An answer with this status line and no body.
    pub fn status(line: &str) -> Self {
        Self::Say(format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n").into())
    }
}

/// A running parent.
pub struct Parent {
    pub origin: Origin,
    heads: Arc<Mutex<Vec<Request>>>,
}

impl Parent {
    pub fn start(answer: impl Fn(&Request) -> Act + Send + Sync + 'static) -> Self {
        let heads: Arc<Mutex<Vec<Request>>> = Arc::default();
        let kept = Arc::clone(&heads);
        let origin = Origin::start(move |visit| {
            let Some(head) = visit.head()? else { return Ok(()) };
            kept.lock().unwrap().push(head.clone());
            act(visit, &head, answer(&head))
        });
        Self { origin, heads }
    }

    /// Opens every tunnel that it is asked for.
    pub fn open() -> Self {
        Self::start(|_| Act::tunnel())
    }

    pub fn address(&self) -> SocketAddr {
        self.origin.address
    }

    /// The heads of all requests so far.
    pub fn heads(&self) -> Vec<Request> {
        self.heads.lock().unwrap().clone()
    }

    /// The targets of all requests so far, and nothing but CONNECTs.
    pub fn targets(&self) -> Vec<String> {
        let target = |request: Request| {
            assert_eq!(request.method(), "CONNECT", "{request:?}");
            request.path().to_owned()
        };
        self.heads().into_iter().map(target).collect()
    }
}

fn act(visit: &mut Visit, head: &Request, act: Act) -> io::Result<()> {
    match act {
        Act::Say(text) => {
            visit.send(text)?;
            visit.finish()
        }
        Act::Flood(text) => {
            let many = text.repeat(1000);
            loop {
                visit.send(&many)?;
            }
        }
        Act::Drip(text, pause) => {
            for octet in text.as_bytes() {
                visit.send([*octet])?;
                thread::sleep(pause);
            }
            while !visit.some()?.is_empty() {}
            Ok(())
        }
        Act::Reset => {
            let socket = rustix::net::sockopt::set_socket_linger(&visit.stream, Some(Duration::ZERO));
            socket.map_err(io::Error::from)
        }
        Act::Wait => {
            while !visit.some()?.is_empty() {}
            Ok(())
        }
        Act::Tunnel(text) => {
            // Only loopback addresses: a name could not be one.
            let target: SocketAddr = head.path().parse().expect("an address and a port");
            let onward = TcpStream::connect(target)?;
            onward.set_nodelay(true)?;
            visit.send(text)?;
            carry(visit, onward)
        }
    }
}

/// Carries bytes both ways until both sides have ended.
fn carry(visit: &mut Visit, onward: TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (onward.try_clone()?, visit.stream.try_clone()?);
    let down = thread::spawn(move || {
        let copied = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
        copied
    });
    let mut onward = onward;
    let up = io::copy(&mut visit.reader(), &mut onward);
    let _ = onward.flush();
    let _ = onward.shutdown(Shutdown::Write);
    let _ = down.join();
    up.map(drop)
}

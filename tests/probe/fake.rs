//! A proxy that does not what egret does: it answers some requests itself and hands the rest on.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use crate::lab::{MIDDLE, PROXY};
use crate::support::http1;

/// Where it listens.
pub const FAKE: &str = "http://10.77.0.1:3140";

/// A transparent listener that reads what it takes and ends it; or gives it to a place, if there is one.
pub fn take(port: u16, to: Option<&'static str>) {
    let listener = TcpListener::bind((MIDDLE, port)).unwrap();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            match to {
                Some(to) => drop(thread::spawn(move || join(client, TcpStream::connect(to)?))),
                None => drop(client.read(&mut [0; 4096])),
            }
        }
    });
}

/// What it does with a request.
pub enum Does {
    /// Answers with these octets and closes.
    Answers(&'static str),
    /// Opens a tunnel there without looking into it.
    Tunnels(&'static str),
    /// Asks an origin, and gives the answer back as it is.
    Fetches(&'static str),
    /// Leaves it to egret.
    HandsOn,
}

/// Starts one; what it does is chosen by the request line.
pub fn start(choose: impl Fn(&str) -> Does + Send + Sync + 'static) {
    let listener = TcpListener::bind((MIDDLE, 3140)).unwrap();
    let choose = std::sync::Arc::new(choose);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let choose = std::sync::Arc::clone(&choose);
            thread::spawn(move || serve(stream, choose.as_ref()));
        }
    });
}

fn serve(mut client: TcpStream, choose: &dyn Fn(&str) -> Does) -> io::Result<()> {
    let mut head = Vec::new();
    while http1::split_head(&head).is_none() {
        let mut octet = [0];
        client.read_exact(&mut octet)?;
        head.push(octet[0]);
    }
    let text = http1::latin1(&head);
    let line = text.lines().next().unwrap_or_default();
    match choose(line) {
        Does::Answers(answer) => client.write_all(answer.as_bytes()),
        Does::Tunnels(to) => {
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
            join(client, TcpStream::connect(to)?)
        }
        Does::Fetches(from) => {
            let mut origin = TcpStream::connect(from)?;
            let path = line.split(' ').nth(1).unwrap_or_default().splitn(4, '/').nth(3).unwrap_or_default();
            write!(origin, "GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
            join(client, origin)
        }
        Does::HandsOn => {
            let mut egret = TcpStream::connect(PROXY)?;
            egret.write_all(&head)?;
            join(client, egret)
        }
    }
}

fn join(client: TcpStream, server: TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (server, client);
    let _ = io::copy(&mut from, &mut to);
    to.shutdown(Shutdown::Both)
}

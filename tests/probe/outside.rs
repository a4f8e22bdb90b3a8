//! What is outside: servers that answer on every address there.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;

use crate::support::dns_server::DnsServer;
use crate::support::http1;

/// Set in the process that serves.
pub const ROLE: &str = "EGRET_PROBE_OUTSIDE";
/// Addresses outside, on which everything is served.
pub const ADDRESSES: [&str; 10] = [
    "1.1.1.1",
    "8.8.8.8",
    "8.8.4.4",
    "9.9.9.9",
    "93.184.216.34",
    "10.88.0.5",
    "169.254.169.254",
    "2606:4700:4700::1111",
    "2001:4860:4860::8888",
    "2620:fe::fe",
];
const PORTS: [u16; 4] = [80, 443, 853, 5432];
/// A TLS alert, as of a server that has no such name.
const ALERT: [u8; 7] = [0x15, 3, 3, 0, 2, 2, 40];

/// No test of its own: the process that serves the others, until it is killed.
#[test]
fn serve() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    for address in ADDRESSES {
        let ip: IpAddr = address.parse().unwrap();
        DnsServer::start(SocketAddr::new(ip, 53), |_name| Ipv4Addr::new(93, 184, 216, 34)).unwrap();
        let socket = UdpSocket::bind((ip, 443)).unwrap();
        thread::spawn(move || echo(&socket));
        for port in PORTS {
            let listener = TcpListener::bind((ip, port)).unwrap();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    thread::spawn(move || answer(stream, port));
                }
            });
        }
    }
    println!("serving");
    loop {
        thread::park();
    }
}

fn echo(socket: &UdpSocket) {
    let mut packet = [0; 2048];
    while let Ok((length, peer)) = socket.recv_from(&mut packet) {
        let _ = socket.send_to(&packet[..length], peer);
    }
}

/// TLS where it is asked for, else HTTP.
fn answer(mut stream: TcpStream, port: u16) {
    let mut octets = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(length) => octets.extend(&buffer[..length]),
        }
        if port == 443 || port == 853 {
            let _ = stream.write_all(&ALERT);
            return;
        }
        if http1::split_head(&octets).is_some() {
            let elsewhere = octets.starts_with(b"GET /redirect ");
            let head = if elsewhere { "302 Found\r\nLocation: http://denied.test/" } else { "200 OK" };
            let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: 2\r\n\r\nok");
            octets.clear();
        }
    }
}

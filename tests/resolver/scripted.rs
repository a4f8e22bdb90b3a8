//! UDP and TCP on one port; answers as a script says and remembers every question.
//!
//! Messages are made by hand, so that wrong ones can be made too.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub const A: u16 = 1;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const AAAA: u16 = 28;
pub const IN: u16 = 1;
pub const CH: u16 = 3;

pub const SERVFAIL: u8 = 2;
pub const NXDOMAIN: u8 = 3;

/// One question as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Lower case, with the root dot: `name.`.
    pub name: String,
    pub kind: u16,
    pub transport: &'static str,
    pub recursion_desired: bool,
    pub edns: bool,
    /// How many questions for this name and type came before.
    pub earlier: usize,
}

/// One message to send back. The question is echoed as it came.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    pub rcode: u8,
    pub truncated: bool,
    pub wrong_id: bool,
    /// Echo the question in lower case.
    pub lower_case: bool,
    /// Echo another question than the one asked.
    pub other_question: Option<&'static str>,
    pub answers: Vec<Vec<u8>>,
    pub authorities: Vec<Vec<u8>>,
    pub additionals: Vec<Vec<u8>>,
    pub delay: Duration,
}

pub fn records(answers: impl IntoIterator<Item = Vec<u8>>) -> Vec<Reply> {
    vec![Reply { answers: answers.into_iter().collect(), ..Reply::default() }]
}

pub fn nothing() -> Vec<Reply> {
    records([])
}

pub fn code(rcode: u8) -> Vec<Reply> {
    vec![Reply { rcode, ..Reply::default() }]
}

pub fn silence() -> Vec<Reply> {
    Vec::new()
}

pub fn wire_name(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(u8::try_from(label.len()).unwrap());
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

pub fn record(owner: &str, kind: u16, class: u16, ttl: u32, rdata: &[u8]) -> Vec<u8> {
    let mut out = wire_name(owner);
    out.extend(kind.to_be_bytes());
    out.extend(class.to_be_bytes());
    out.extend(ttl.to_be_bytes());
    out.extend(u16::try_from(rdata.len()).unwrap().to_be_bytes());
    out.extend(rdata);
    out
}

pub fn address(owner: &str, ip: &str, ttl: u32) -> Vec<u8> {
    match ip.parse().unwrap() {
        IpAddr::V4(ip) => record(owner, A, IN, ttl, &ip.octets()),
        IpAddr::V6(ip) => record(owner, AAAA, IN, ttl, &ip.octets()),
    }
}

pub fn cname(owner: &str, target: &str, ttl: u32) -> Vec<u8> {
    record(owner, CNAME, IN, ttl, &wire_name(target))
}

pub fn soa(owner: &str, ttl: u32, minimum: u32) -> Vec<u8> {
    let mut rdata = [wire_name("ns.test"), wire_name("root.test")].concat();
    for number in [1, 2, 3, 4, minimum] {
        rdata.extend(u32::to_be_bytes(number));
    }
    record(owner, SOA, IN, ttl, &rdata)
}

pub type Script = dyn Fn(&Question) -> Vec<Reply> + Send + Sync;

/// The script and what was asked; serves any transport.
pub struct Answerer {
    script: Box<Script>,
    log: Mutex<Vec<Question>>,
}

impl Answerer {
    pub fn new(script: impl Fn(&Question) -> Vec<Reply> + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { script: Box::new(script), log: Mutex::new(Vec::new()) })
    }

    /// The messages to send back for `packet`, each after its delay.
    pub fn answer(&self, packet: &[u8], transport: &'static str) -> Vec<(Duration, Vec<u8>)> {
        let (mut at, mut labels) = (12, Vec::new());
        while packet[at] != 0 {
            let end = at + 1 + usize::from(packet[at]);
            labels.push(String::from_utf8_lossy(&packet[at + 1..end]).to_ascii_lowercase());
            at = end;
        }
        let name = labels.join(".") + ".";
        let kind = u16::from_be_bytes([packet[at + 1], packet[at + 2]]);
        let question = {
            let mut log = self.log.lock().unwrap();
            let earlier = log.iter().filter(|q| q.name == name && q.kind == kind).count();
            let recursion_desired = packet[2] & 1 == 1;
            let edns = packet[11] == 1;
            log.push(Question { name, kind, transport, recursion_desired, edns, earlier });
            log.last().unwrap().clone()
        };
        let replies = (self.script)(&question);
        replies.into_iter().map(|reply| (reply.delay, message(packet, at + 5, &reply))).collect()
    }

    pub fn questions(&self) -> Vec<Question> {
        self.log.lock().unwrap().clone()
    }

    pub fn count(&self, name: &str, kind: u16) -> usize {
        self.questions().iter().filter(|q| q.name == name && q.kind == kind).count()
    }
}

fn message(packet: &[u8], question_end: usize, reply: &Reply) -> Vec<u8> {
    let flip = if reply.wrong_id { 0x55 } else { 0 };
    let truncated = if reply.truncated { 2 } else { 0 };
    let mut out =
        vec![packet[0] ^ flip, packet[1], 0x80 | truncated | (packet[2] & 1), 0x80 | reply.rcode, 0, 1];
    for section in [&reply.answers, &reply.authorities, &reply.additionals] {
        out.extend(u16::try_from(section.len()).unwrap().to_be_bytes());
    }
    let question = &packet[12..question_end];
    match reply.other_question {
        Some(name) => {
            out.extend(wire_name(name));
            out.extend(&question[question.len() - 4..]);
        }
        None if reply.lower_case => out.extend(question.to_ascii_lowercase()),
        None => out.extend(question),
    }
    out.extend([&reply.answers[..], &reply.authorities, &reply.additionals].concat().concat());
    out
}

/// A server on a free port of 127.0.0.1.
pub struct DnsServer {
    pub addr: SocketAddr,
    pub answerer: Arc<Answerer>,
}

impl DnsServer {
    pub fn start(script: impl Fn(&Question) -> Vec<Reply> + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets();
        let addr = udp.local_addr().unwrap();
        let answerer = Answerer::new(script);
        let (for_udp, for_tcp) = (Arc::clone(&answerer), Arc::clone(&answerer));
        thread::spawn(move || serve_udp(&udp, &for_udp));
        thread::spawn(move || {
            for stream in tcp.incoming() {
                let answerer = Arc::clone(&for_tcp);
                thread::spawn(move || serve_stream(stream.unwrap(), &answerer, "tcp"));
            }
        });
        Self { addr, answerer }
    }

    pub fn count(&self, name: &str, kind: u16) -> usize {
        self.answerer.count(name, kind)
    }
}

/// The same port for both protocols.
fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        if let Ok(tcp) = TcpListener::bind(udp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
}

fn serve_udp(socket: &UdpSocket, answerer: &Answerer) {
    let mut buffer = [0; 4096];
    while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
        for (delay, message) in answerer.answer(&buffer[..length], "udp") {
            let socket = socket.try_clone().unwrap();
            let send = move || {
                thread::sleep(delay);
                let _ = socket.send_to(&message, peer);
            };
            if delay.is_zero() { send() } else { drop(thread::spawn(send)) }
        }
    }
}

/// Length-prefixed messages (RFC 1035 section 4.2.2), over TCP or TLS.
pub fn serve_stream(mut stream: impl Read + Write, answerer: &Answerer, transport: &'static str) {
    let mut size = [0; 2];
    while stream.read_exact(&mut size).is_ok() {
        let mut packet = vec![0; usize::from(u16::from_be_bytes(size))];
        if stream.read_exact(&mut packet).is_err() {
            return;
        }
        for (delay, message) in answerer.answer(&packet, transport) {
            thread::sleep(delay);
            let mut framed = u16::try_from(message.len()).unwrap().to_be_bytes().to_vec();
            framed.extend(message);
            if stream.write_all(&framed).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    }
}

/// A TCP connection that never says anything, for servers that hang.
pub fn hang(stream: TcpStream) {
    thread::sleep(Duration::from_secs(60));
    drop(stream);
}

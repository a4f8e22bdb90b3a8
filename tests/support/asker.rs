//! A client that asks for names with exact octets, and reads answers as RFC 1035 has them.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use super::dns_message::{OPT, wire_name};

/// Longer than any look-up takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough for an answer that must not come.
const SILENCE: Duration = Duration::from_millis(700);

/// A question in octets.
pub struct Question {
    pub octets: Vec<u8>,
}

impl Question {
    /// Of class IN, with recursion desired, from a client that speaks EDNS.
    pub fn new(name: &str, kind: u16) -> Self {
        Self::with(name, kind, Some(1232))
    }

    /// `payload` is the size of UDP answers that the client's OPT record offers, if it has one.
    pub fn with(name: &str, kind: u16, payload: Option<u16>) -> Self {
        Self::for_octets(&wire_name(name), kind, payload)
    }

    /// `name` as it stands on the wire.
    pub fn for_octets(name: &[u8], kind: u16, payload: Option<u16>) -> Self {
        let mut octets = vec![0xbe, 0xef, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(payload.is_some())];
        octets.extend(name);
        octets.extend(kind.to_be_bytes());
        octets.extend([0, 1]);
        if let Some(payload) = payload {
            octets.push(0);
            octets.extend(OPT.to_be_bytes());
            octets.extend(payload.to_be_bytes());
            octets.extend([0; 6]);
        }
        Self { octets }
    }

    /// With other octets from here on.
    pub fn patched(mut self, at: usize, octets: &[u8]) -> Self {
        self.octets[at..at + octets.len()].copy_from_slice(octets);
        self
    }
}

/// A message that came back.
#[derive(Debug, Clone)]
pub struct Message {
    pub octets: Vec<u8>,
    pub rcode: u16,
    pub truncated: bool,
    /// The name of the question as it stands there.
    pub name: String,
    pub records: Vec<Record>,
    /// The extended error and its text.
    pub error: Option<(u16, String)>,
}

/// A record of the answer section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub name: String,
    pub kind: u16,
    pub ttl: u32,
    pub data: Vec<u8>,
}

impl Message {
    pub fn addresses(&self) -> Vec<IpAddr> {
        let address = |record: &Record| match record.data.len() {
            4 => IpAddr::from(<[u8; 4]>::try_from(&record.data[..]).unwrap()),
            _ => IpAddr::from(<[u8; 16]>::try_from(&record.data[..]).unwrap()),
        };
        self.records.iter().map(address).collect()
    }

    /// The code and the text of the extended error.
    pub fn refusal(&self) -> (u16, &str) {
        (self.rcode, self.error.as_ref().map_or("", |(_, text)| text))
    }

    fn parse(octets: &[u8]) -> Self {
        let mut reader = Reader { octets, at: 12 };
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        assert!(octets[2] & 0x80 != 0, "no response: {octets:?}");
        let (questions, answers, authorities, additionals) = (word(4), word(6), word(8), word(10));
        let mut name = String::new();
        for _ in 0..questions {
            name = reader.name();
            reader.at += 4;
        }
        assert_eq!(authorities, 0);
        let records = (0..answers).map(|_| reader.record().0).collect();
        let (mut rcode, mut error) = (u16::from(octets[3] & 0x0f), None);
        for _ in 0..additionals {
            let (record, _) = reader.record();
            assert_eq!(record.kind, OPT);
            rcode |= u16::try_from(record.ttl >> 24).unwrap() << 4;
            let option = |at: usize| u16::from_be_bytes([record.data[at], record.data[at + 1]]);
            if !record.data.is_empty() {
                assert_eq!(option(0), 15);
                error = Some((option(4), String::from_utf8(record.data[6..].to_vec()).unwrap()));
            }
        }
        assert_eq!(reader.at, octets.len());
        Self { octets: octets.to_vec(), rcode, truncated: octets[2] & 0x02 != 0, name, records, error }
    }
}

struct Reader<'a> {
    octets: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn word(&mut self) -> u16 {
        self.at += 2;
        u16::from_be_bytes([self.octets[self.at - 2], self.octets[self.at - 1]])
    }

    fn name(&mut self) -> String {
        let mut out = Vec::new();
        let (mut at, mut behind) = (self.at, None);
        loop {
            let length = usize::from(self.octets[at]);
            if length >= 0xc0 {
                behind.get_or_insert(at + 2);
                at = (length & 0x3f) << 8 | usize::from(self.octets[at + 1]);
                continue;
            }
            at += 1;
            if length == 0 {
                break;
            }
            out.push(String::from_utf8_lossy(&self.octets[at..at + length]).into_owned());
            at += length;
        }
        self.at = behind.unwrap_or(at);
        out.join(".")
    }

    fn record(&mut self) -> (Record, u16) {
        let name = self.name();
        let (kind, class) = (self.word(), self.word());
        let ttl = u32::from(self.word()) << 16 | u32::from(self.word());
        let length = usize::from(self.word());
        let data = self.octets[self.at..self.at + length].to_vec();
        self.at += length;
        (Record { name, kind, ttl, data }, class)
    }
}

/// Asks over UDP from the loopback; panics without an answer.
pub fn ask(server: SocketAddr, question: &Question) -> Message {
    ask_from(Ipv4Addr::LOCALHOST.into(), server, question).expect("an answer")
}

/// Asks over UDP from this address; nothing if nothing comes within 30 s.
pub fn ask_from(source: IpAddr, server: SocketAddr, question: &Question) -> Option<Message> {
    exchange(source, server, &question.octets, PATIENCE).map(|octets| Message::parse(&octets))
}

/// Asks as resolvers do, three times at most, 3 s each.
pub fn ask_again(source: IpAddr, server: SocketAddr, question: &Question) -> Option<Message> {
    let once = |_| exchange(source, server, &question.octets, Duration::from_secs(3));
    (0..3).find_map(once).map(|octets| Message::parse(&octets))
}

/// Is there no answer?
pub fn is_silent(server: SocketAddr, octets: &[u8]) -> bool {
    exchange(Ipv4Addr::LOCALHOST.into(), server, octets, SILENCE).is_none()
}

fn exchange(source: IpAddr, server: SocketAddr, octets: &[u8], limit: Duration) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((source, 0)).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(limit)).unwrap();
    socket.send(octets).unwrap();
    let mut answer = vec![0; 65535];
    let length = socket.recv(&mut answer).ok()?;
    answer.truncate(length);
    Some(answer)
}

/// A connection for questions.
pub struct Connection(TcpStream);

impl Connection {
    pub fn open(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, octets: &[u8]) {
        let length = u16::try_from(octets.len()).unwrap();
        self.0.write_all(&[&length.to_be_bytes()[..], octets].concat()).unwrap();
    }

    /// The next answer; nothing at the end.
    pub fn receive(&mut self) -> Option<Message> {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).ok()?;
        let mut octets = vec![0; u16::from_be_bytes(length).into()];
        self.0.read_exact(&mut octets).ok()?;
        Some(Message::parse(&octets))
    }

    pub fn ask(&mut self, question: &Question) -> Message {
        self.send(&question.octets);
        self.receive().expect("an answer")
    }
}

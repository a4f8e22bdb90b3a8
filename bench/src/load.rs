//! Clients. One that gets anything but what it asked for ends the whole run: a figure with failures
//! in it says nothing.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::Failure;
use crate::origin::{CHUNK, Origin};
use crate::proxy::Running;

/// How long one exchange may take; tinyproxy with a long list needs seconds.
const PATIENCE: Duration = Duration::from_secs(120);
/// What goes through a tunnel to see that it is one.
const PING: &[u8] = b"ping";

/// Which way bulk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Down,
    Up,
}

/// The status that a plain request gets; what is refused has no response of the origin's.
pub async fn status(proxy: &Running, host: &str, origin: &Origin) -> Result<u16, Failure> {
    let mut client = Client::new(proxy, origin);
    client.request = request(proxy, host, origin);
    client.exchange().await
}

/// How long each request took, of clients that send one after the other on connections that stay
/// open where the proxy lets them.
pub async fn plain(
    proxy: &Running,
    origin: &Origin,
    clients: usize,
    time: Duration,
) -> Result<Vec<Duration>, Failure> {
    let end = Instant::now() + time;
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let mut client = Client::new(proxy, origin);
        all.spawn(async move {
            let mut taken = Vec::new();
            while Instant::now() < end {
                let began = Instant::now();
                let status = client.exchange().await?;
                if status != 200 {
                    return Err(format!("a request was answered with {status}").into());
                }
                taken.push(began.elapsed());
            }
            Ok::<_, Failure>(taken)
        });
    }
    let mut taken = Vec::new();
    while let Some(result) = all.join_next().await {
        taken.extend(result??);
    }
    Ok(taken)
}

/// How many tunnels were opened, used once and closed.
pub async fn connects(
    proxy: &Running,
    origin: &Origin,
    clients: usize,
    time: Duration,
) -> Result<usize, Failure> {
    let end = Instant::now() + time;
    let mut all = JoinSet::new();
    for _ in 0..clients {
        let way = Tunnel::to(proxy, origin.echo);
        all.spawn(async move {
            let mut count = 0;
            while Instant::now() < end {
                let mut stream = way.open().await?;
                echo(&mut stream, PING).await?;
                count += 1;
            }
            Ok::<usize, Failure>(count)
        });
    }
    let mut count = 0;
    while let Some(result) = all.join_next().await {
        count += result??;
    }
    Ok(count)
}

/// How many octets went through tunnels that are always full.
pub async fn bulk(
    proxy: &Running,
    origin: &Origin,
    way: Way,
    tunnels: usize,
    time: Duration,
) -> Result<u64, Failure> {
    let tunnel = Tunnel::to(proxy, if way == Way::Down { origin.source } else { origin.sink });
    let mut streams = Vec::new();
    for _ in 0..tunnels {
        streams.push(tunnel.open().await?);
    }
    let end = Instant::now() + time;
    let mut all = JoinSet::new();
    for mut stream in streams {
        all.spawn(async move {
            let mut chunk = vec![b'x'; CHUNK];
            let mut octets = 0;
            while Instant::now() < end {
                let moved = match way {
                    Way::Down => tokio::time::timeout(PATIENCE, stream.read(&mut chunk)).await??,
                    Way::Up => tokio::time::timeout(PATIENCE, stream.write(&chunk)).await??,
                };
                if moved == 0 {
                    return Err("a bulk tunnel was closed".into());
                }
                octets += moved as u64;
            }
            Ok::<u64, Failure>(octets)
        });
    }
    let mut octets = 0;
    while let Some(result) = all.join_next().await {
        octets += result??;
    }
    Ok(octets)
}

/// Tunnels that are open and that nothing has gone through.
pub async fn idle(proxy: &Running, origin: &Origin, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let tunnel = Tunnel::to(proxy, origin.echo);
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        streams.push(tunnel.open().await?);
    }
    Ok(streams)
}

/// Sends so many octets through each and reads them again.
pub async fn use_once(streams: &mut [TcpStream], octets: usize) -> Result<(), Failure> {
    let data = vec![b'x'; octets];
    for stream in streams {
        echo(stream, &data).await?;
    }
    Ok(())
}

async fn echo(stream: &mut TcpStream, data: &[u8]) -> Result<(), Failure> {
    let mut got = vec![0; data.len()];
    let (mut read, mut write) = stream.split();
    let both = async { tokio::try_join!(write.write_all(data), read.read_exact(&mut got)) };
    tokio::time::timeout(PATIENCE, both).await??;
    if got == data { Ok(()) } else { Err("a tunnel changed what went through it".into()) }
}

/// A plain request: in absolute form to a proxy, in origin form without one (RFC 9112 section 3.2).
fn request(proxy: &Running, host: &str, origin: &Origin) -> String {
    let port = origin.http.port();
    let start = if proxy.address.is_some() { format!("http://{host}:{port}") } else { String::new() };
    format!("GET {start}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
}

/// One client of plain HTTP.
struct Client {
    address: SocketAddr,
    request: String,
    keeps: bool,
    stream: Option<TcpStream>,
    unread: Vec<u8>,
}

impl Client {
    fn new(proxy: &Running, origin: &Origin) -> Self {
        let request = request(proxy, proxy.kind.origin_name(), origin);
        let address = proxy.address.unwrap_or(origin.http);
        let keeps = proxy.kind.keeps_connections();
        Self { address, request, keeps, stream: None, unread: Vec::with_capacity(8192) }
    }

    /// Sends the request, reads the whole response and says its status.
    async fn exchange(&mut self) -> Result<u16, Failure> {
        tokio::time::timeout(PATIENCE, self.exchange_unhurried()).await?
    }

    async fn exchange_unhurried(&mut self) -> Result<u16, Failure> {
        self.unread.clear();
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(self.address).await?,
        };
        stream.write_all(self.request.as_bytes()).await?;
        let head = loop {
            if stream.read_buf(&mut self.unread).await? == 0 {
                return Err("the connection was closed instead of a response".into());
            }
            if let Some(head) = Head::read(&self.unread)? {
                break head;
            }
        };
        while head.body.is_none_or(|body| self.unread.len() < head.length + body) {
            if stream.read_buf(&mut self.unread).await? == 0 {
                if head.body.is_some() {
                    return Err("a response was cut".into());
                }
                return Ok(head.status);
            }
        }
        if self.keeps && !head.closes {
            self.stream = Some(stream);
        }
        Ok(head.status)
    }
}

/// What a client has to know of a response's head.
struct Head {
    length: usize,
    status: u16,
    /// Without one, the body ends with the connection.
    body: Option<usize>,
    closes: bool,
}

impl Head {
    fn read(bytes: &[u8]) -> Result<Option<Self>, Failure> {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(length) = response.parse(bytes)? else { return Ok(None) };
        let mut head = Self {
            length,
            status: response.code.unwrap_or_default(),
            body: None,
            closes: response.version == Some(0),
        };
        for field in response.headers.iter() {
            if field.name.eq_ignore_ascii_case("content-length") {
                head.body = Some(std::str::from_utf8(field.value)?.parse()?);
            } else if field.name.eq_ignore_ascii_case("connection") {
                head.closes = field.value.eq_ignore_ascii_case(b"close");
            }
        }
        Ok(Some(head))
    }
}

/// How to get to a place behind the proxy.
#[derive(Debug, Clone)]
struct Tunnel {
    address: SocketAddr,
    /// Nothing without a proxy.
    request: Option<String>,
}

impl Tunnel {
    fn to(proxy: &Running, place: SocketAddr) -> Self {
        let authority = format!("{}:{}", proxy.kind.origin_name(), place.port());
        let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        Self { address: proxy.address.unwrap_or(place), request: proxy.address.map(|_| request) }
    }

    async fn open(&self) -> Result<TcpStream, Failure> {
        tokio::time::timeout(PATIENCE, self.open_unhurried()).await?
    }

    async fn open_unhurried(&self) -> Result<TcpStream, Failure> {
        let mut stream = connect(self.address).await?;
        let Some(request) = &self.request else { return Ok(stream) };
        stream.write_all(request.as_bytes()).await?;
        // The origins that tunnels lead to may speak first, so no octet behind the head is to be read.
        let mut unread = Vec::with_capacity(256);
        loop {
            unread.push(stream.read_u8().await?);
            if unread.ends_with(b"\r\n\r\n") {
                break;
            }
        }
        match Head::read(&unread)? {
            Some(head) if head.status == 200 => Ok(stream),
            _ => Err(format!("no tunnel: {}", String::from_utf8_lossy(&unread)).into()),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

//! What the proxies connect to: servers that cost as little as possible, and a DNS server that knows
//! one address.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};

use crate::Failure;

/// A response with a kilobyte of body.
const BODY: usize = 1024;
/// For bulk: less than this costs system calls, more costs cache.
pub const CHUNK: usize = 256 << 10;

/// The addresses of all that is served.
#[derive(Debug, Clone, Copy)]
pub struct Origin {
    /// HTTP/1.1, a small page for every request.
    pub http: SocketAddr,
    /// Says again what it hears.
    pub echo: SocketAddr,
    /// Sends for as long as somebody reads.
    pub source: SocketAddr,
    /// Reads for as long as somebody sends.
    pub sink: SocketAddr,
    /// Knows every name by the loopback address.
    pub dns: SocketAddr,
}

impl Origin {
    /// Serves until the process ends.
    pub async fn start() -> Result<Self, Failure> {
        let page = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n{}", "x".repeat(BODY));
        let page: &'static str = page.leak();
        Ok(Self {
            http: serve(move |stream| http(stream, page)).await?,
            echo: serve(echo).await?,
            source: serve(source).await?,
            sink: serve(sink).await?,
            dns: dns().await?,
        })
    }

    /// Every port that a proxy has to let through.
    pub fn ports(&self) -> [u16; 4] {
        [self.http, self.echo, self.source, self.sink].map(|address| address.port())
    }
}

/// Hands every connection to `handle`, which ends with the connection.
async fn serve<F, T>(handle: F) -> Result<SocketAddr, Failure>
where
    F: Fn(TcpStream) -> T + Send + 'static,
    T: Future<Output = std::io::Result<()>> + Send + 'static,
{
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            if let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                tokio::spawn(handle(stream));
            }
        }
    });
    Ok(address)
}

/// Answers each head; requests have no bodies here.
async fn http(mut stream: TcpStream, page: &'static str) -> std::io::Result<()> {
    let mut unread = Vec::with_capacity(4096);
    while stream.read_buf(&mut unread).await? > 0 {
        while let Some(end) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            unread.drain(..end + 4);
            stream.write_all(page.as_bytes()).await?;
        }
    }
    Ok(())
}

async fn echo(mut stream: TcpStream) -> std::io::Result<()> {
    // Many of these are open at once.
    let mut buffer = Vec::with_capacity(4096);
    while stream.read_buf(&mut buffer).await? > 0 {
        stream.write_all(&buffer).await?;
        buffer.clear();
    }
    Ok(())
}

async fn source(mut stream: TcpStream) -> std::io::Result<()> {
    let chunk = vec![b'x'; CHUNK];
    loop {
        stream.write_all(&chunk).await?;
    }
}

async fn sink(mut stream: TcpStream) -> std::io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    while stream.read(&mut chunk).await? > 0 {}
    Ok(())
}

/// Answers questions for A with the loopback address, and others with nothing (RFC 1035).
async fn dns() -> Result<SocketAddr, Failure> {
    const QUESTION: usize = 12;
    const LOOPBACK: [u8; 16] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 44, 0, 4, 127, 0, 0, 1];
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = socket.local_addr()?;
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        loop {
            let Ok((length, peer)) = socket.recv_from(&mut packet).await else { continue };
            let Some(query) = packet.get(..length) else { continue };
            // The name ends with an empty label; type and class follow it.
            let Some(name) = query.iter().skip(QUESTION).position(|&octet| octet == 0) else { continue };
            let Some(question) = query.get(QUESTION..QUESTION + name + 5) else { continue };
            let Some(id) = query.get(..2) else { continue };
            let asks_a = question.get(name + 1..name + 3) == Some(&[0, 1]);
            let mut reply = id.to_vec();
            reply.extend([0x81, 0x80, 0, 1, 0, asks_a.into(), 0, 0, 0, 0]);
            reply.extend(question);
            reply.extend(LOOPBACK.iter().filter(|_| asks_a));
            let _ = socket.send_to(&reply, peer).await;
        }
    });
    Ok(address)
}

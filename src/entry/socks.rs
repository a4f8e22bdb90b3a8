//! SOCKS5 from clients (RFC 1928, RFC 1929): three short messages, and then the tunnel that a CONNECT
//! opens.
//!
//! Never looks a name up, and takes no client for the one at its address that has sent credentials.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Buf;
use egret_policy::{Action, Client, Destination, Entry, Host, Intent, Reason, Refusal, Scheme, TargetError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use super::connect::Connected;
use super::request::{shown_target, target_detail};
use super::wire::Wire;
use super::{Gate, connect, http};
use crate::egress::{Malformed, Refused};
use crate::socks5::{self, Address, Command, Fault, Method, Methods, Reply, Request};
use crate::stream::Stream;

const NOT_SOCKS: &str = "this port of the proxy speaks SOCKS5; use socks5h:// in the proxy URL";
const SOCKS_4: &str = "SOCKS version 4 has neither names nor passwords; use version 5 (socks5h://)";
const TOO_SLOW: &str = "the SOCKS handshake did not arrive in time";
const NO_METHOD: &str = "the client offers neither a connection without credentials nor user and password";
const NO_CREDENTIALS: &str = "credentials are not accepted here";

/// Does the client begin as one of SOCKS does, of any version? Waits for its first octet.
///
/// # Errors
/// The connection has failed, or ended without an octet.
pub async fn speaks(socket: &TcpStream) -> io::Result<bool> {
    let mut first = [0];
    match socket.peek(&mut first).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(matches!(first, [socks5::VERSION | socks5::VERSION_4])),
    }
}

/// Serves a client that may speak SOCKS or HTTP.
pub async fn serve_either(gate: Arc<Gate>, socket: TcpStream, peer: SocketAddr) -> Option<Connected> {
    let spoken = tokio::select! {
        spoken = timeout(gate.egress.timeouts().idle, speaks(&socket)) => spoken,
        () = gate.egress.draining() => return None,
    };
    match spoken {
        Ok(Ok(true)) => serve(gate, socket.into(), peer).await,
        Ok(Ok(false)) => http::serve(gate, socket.into(), peer.into()).await,
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Serves a client's connection until it ends or becomes a tunnel, which is given back.
pub async fn serve(gate: Arc<Gate>, stream: Stream, peer: SocketAddr) -> Option<Connected> {
    let deadline = Instant::now() + gate.egress.timeouts().idle;
    let wire = Wire::new(stream, gate.egress.timeouts().body);
    let mut visit = Visit { gate: &gate, wire, peer, deadline, begun: false, asked: false };
    let asked = tokio::select! {
        asked = visit.negotiate() => asked,
        // Only what has been asked is still answered.
        () = gate.egress.draining() => return None,
    };
    let Visit { wire, .. } = visit;
    let (client, destination) = match asked {
        Ok(asked) => asked,
        Err(End::Gone) => return None,
        Err(End::Told) => {
            wire.close().await;
            return None;
        }
        Err(End::Http) => {
            http::refuse_unread(&gate, wire, peer.into(), 400, NOT_SOCKS.to_owned()).await;
            return None;
        }
    };
    let host = destination.host().clone();
    let intent = Intent { client, entry: Entry::Socks, destination, action: Action::Tunnel };
    match connect::open(&gate, &wire, peer, intent).await? {
        Ok(tunnel) => {
            let answer = Reply::Succeeded.message();
            connect::announce(tunnel, wire, host, answer.as_slice()).await
        }
        Err(refused) => {
            if wire.write(reply_to(refused.refusal.reason).message().as_slice()).await.is_ok() {
                wire.close().await;
            }
            None
        }
    }
}

/// Why a connection opens no tunnel.
enum End {
    /// The client left, or has sent nothing.
    Gone,
    /// It was refused, and told so as far as the protocol has words for it.
    Told,
    /// It speaks something else, probably HTTP.
    Http,
}

/// A connection before its request is known.
struct Visit<'a> {
    gate: &'a Gate,
    wire: Wire,
    peer: SocketAddr,
    /// Until something has arrived that of an idle connection, then that of a request head.
    deadline: Instant,
    begun: bool,
    /// Was it asked for credentials? Then its address no longer says who it is.
    asked: bool,
}

/// What a message was read as: what became of it, or the fault.
type Read<T> = Result<Option<(T, usize)>, Fault>;

impl Visit<'_> {
    /// The three messages: methods, credentials where they are asked for, and the request.
    async fn negotiate(&mut self) -> Result<(Client, Destination), End> {
        let methods = self.greeting().await?;
        let client = match self.choose(methods) {
            Ok(Choice::Known(client)) => {
                self.send(&Method::None.message()).await?;
                client
            }
            Ok(Choice::Login) => {
                self.asked = true;
                self.send(&Method::Login.message()).await?;
                self.log_in().await?
            }
            Err(refusal) => {
                // Known or not: a request that is none uses up the rate of whoever is known.
                let client = match refusal.reason {
                    Reason::BadRequest => self.by_source().ok(),
                    _ => None,
                };
                return Err(self.refuse(client.as_ref(), refusal, &Method::NotAcceptable.message()).await);
            }
        };
        let destination = self.request(&client).await?;
        Ok((client, destination))
    }

    async fn greeting(&mut self) -> Result<Methods, End> {
        match self.message(socks5::methods, None, &Method::NotAcceptable.message()).await? {
            Ok(methods) => Ok(methods),
            Err(Fault::Version(socks5::VERSION_4)) => {
                let client = self.by_source().ok();
                let refusal = Refusal::new(Reason::BadRequest).with_detail(SOCKS_4);
                Err(self.refuse(client.as_ref(), refusal, &socks5::REJECTED_4).await)
            }
            Err(_) => Err(End::Http),
        }
    }

    /// What the client shall do to identify itself. Whoever offers credentials is asked for them
    /// where there are any good ones, also where its address would do.
    fn choose(&self, methods: Methods) -> Result<Choice, Refusal> {
        if methods.login && self.gate.egress.takes_credentials() {
            return Ok(Choice::Login);
        }
        let known = self.by_source();
        match (methods, known) {
            (Methods { none: true, .. }, known) => known.map(Choice::Known),
            // Its credentials need not be sent to be refused.
            (Methods { login: true, .. }, _) => {
                Err(Refusal::new(Reason::IdentityRejected).with_detail(NO_CREDENTIALS))
            }
            (_, Err(refusal)) => Err(refusal),
            (_, Ok(_)) => Err(Refusal::new(Reason::BadRequest).with_detail(NO_METHOD)),
        }
    }

    async fn log_in(&mut self) -> Result<Client, End> {
        let bad = socks5::login_message(false);
        let (gate, source) = (self.gate, self.peer.ip());
        let read = |octets: &[u8]| {
            let read = socks5::login(octets)?;
            let judge =
                |login: socks5::Login<'_>| gate.egress.identify_login(source, login.user, login.password);
            Ok(read.map(|(login, taken)| (judge(login), taken)))
        };
        match self.message(read, None, &bad).await? {
            Ok(Ok(client)) => {
                self.send(&socks5::login_message(true)).await?;
                Ok(client)
            }
            Ok(Err(unidentified)) => {
                self.gate.egress.refuse_unidentified(self.what(None, None), self.peer, unidentified).await;
                Err(self.tell(&bad).await)
            }
            Err(fault) => Err(self.refuse(None, bad_request(fault), &bad).await),
        }
    }

    async fn request(&mut self, client: &Client) -> Result<Destination, End> {
        let read =
            |octets: &[u8]| Ok(socks5::request(octets)?.map(|(request, taken)| (asked(&request), taken)));
        let general = Reply::GeneralFailure.message();
        let Wrong { reply, refusal, target } = match self.message(read, Some(client), &general).await? {
            Ok(Ok(destination)) => return Ok(destination),
            Ok(Err(wrong)) => wrong,
            Err(fault) => Wrong { reply: reply_to_fault(fault), refusal: bad_request(fault), target: None },
        };
        let refused = self.record(Some(client), refusal, target.as_deref()).await;
        let reply = match refused.refusal.reason {
            Reason::BadRequest => reply,
            // It has used up its request rate with this one.
            other => reply_to(other),
        };
        Err(self.tell(&reply.message()).await)
    }

    /// Reads one message and takes it off the buffer; what comes behind it stays there.
    ///
    /// # Errors
    /// It did not come in time, which is told with `late`, or the client left.
    async fn message<T>(
        &mut self,
        read: impl Fn(&[u8]) -> Read<T>,
        client: Option<&Client>,
        late: &[u8],
    ) -> Result<Result<T, Fault>, End> {
        loop {
            match read(&self.wire.buffer) {
                Ok(Some((message, taken))) => {
                    self.wire.buffer.advance(taken);
                    return Ok(Ok(message));
                }
                Ok(None) => {}
                Err(fault) => return Ok(Err(fault)),
            }
            match timeout_at(self.deadline, self.wire.read()).await {
                Ok(Ok(0) | Err(_)) => return Err(End::Gone),
                Ok(Ok(_)) if self.begun => {}
                Ok(Ok(_)) => {
                    self.begun = true;
                    self.deadline = Instant::now() + self.gate.egress.timeouts().header;
                }
                Err(_) if self.begun => {
                    let by_source = if self.asked { None } else { self.by_source().ok() };
                    let refusal = Refusal::new(Reason::BadRequest).with_detail(TOO_SLOW);
                    return Err(self.refuse(client.or(by_source.as_ref()), refusal, late).await);
                }
                Err(_) => return Err(End::Gone),
            }
        }
    }

    fn by_source(&self) -> Result<Client, Refusal> {
        self.gate.egress.identify_connection(self.peer.ip(), None)
    }

    fn what<'a>(&self, client: Option<&'a Client>, target: Option<&'a [u8]>) -> Malformed<'a> {
        Malformed { client, entry: Some(Entry::Socks), target, ..Malformed::default() }
    }

    async fn record(&self, client: Option<&Client>, refusal: Refusal, target: Option<&[u8]>) -> Refused {
        self.gate.egress.refuse(self.what(client, target), self.peer, refusal, 400).await
    }

    /// Records a refusal and tells it.
    async fn refuse(&self, client: Option<&Client>, refusal: Refusal, answer: &[u8]) -> End {
        self.record(client, refusal, None).await;
        self.tell(answer).await
    }

    async fn tell(&self, answer: &[u8]) -> End {
        match self.send(answer).await {
            Ok(()) => End::Told,
            Err(end) => end,
        }
    }

    async fn send(&self, octets: &[u8]) -> Result<(), End> {
        self.wire.write(octets).await.map_err(|_| End::Gone)
    }
}

/// How a client that may go on does so.
enum Choice {
    /// Its address says who it is.
    Known(Client),
    /// It has to send user and password.
    Login,
}

/// A request that can't become an intent.
struct Wrong {
    reply: Reply,
    refusal: Refusal,
    /// What stood in place of the host.
    target: Option<Vec<u8>>,
}

/// Where a request wants to go, by the one parser of hosts.
fn asked(request: &Request<'_>) -> Result<Destination, Wrong> {
    let command = match request.command {
        Command::Connect => None,
        Command::Bind => Some("BIND is not served".to_owned()),
        Command::UdpAssociate => Some("UDP ASSOCIATE is not served".to_owned()),
        Command::Other(code) => Some(format!("there is no SOCKS command {code}")),
    };
    let host = match request.address {
        Address::Ip(address) => Ok(Host::Address(address)),
        Address::Name(name) => Host::parse(name),
    };
    let shown = || match request.address {
        Address::Ip(address) => Some(address.to_string().into_bytes()),
        // Somebody may have put user and password there.
        Address::Name(name) => Some(shown_target(name).to_vec()),
    };
    let wrong = |reply, detail: String| {
        let refusal = Refusal::new(Reason::BadRequest).with_detail(detail);
        Err(Wrong { reply, refusal, target: shown() })
    };
    match (command, host, request.port) {
        (Some(command), ..) => wrong(Reply::CommandNotSupported, command),
        (None, Err(error), _) => wrong(Reply::GeneralFailure, target_detail(&error.into())),
        (None, Ok(_), 0) => wrong(Reply::GeneralFailure, target_detail(&TargetError::Port)),
        (None, Ok(host), port) => Ok(Destination::new(Scheme::Tunnel, host, port)),
    }
}

fn bad_request(fault: Fault) -> Refusal {
    Refusal::new(Reason::BadRequest).with_detail(fault.to_string())
}

const fn reply_to_fault(fault: Fault) -> Reply {
    match fault {
        Fault::AddressType(_) => Reply::AddressTypeNotSupported,
        Fault::Version(_) | Fault::LoginVersion(_) | Fault::Reserved => Reply::GeneralFailure,
    }
}

/// How a client is told the reason of a refusal.
const fn reply_to(reason: Reason) -> Reply {
    match reason {
        Reason::Allowed => Reply::Succeeded,
        Reason::IdentityRequired
        | Reason::IdentityRejected
        | Reason::DomainDenied
        | Reason::DomainNotAllowed
        | Reason::PortNotAllowed
        | Reason::MethodNotAllowed
        | Reason::PathNotAllowed
        | Reason::RedirectDenied
        | Reason::AddressForbidden
        | Reason::AddressNotAllowed
        | Reason::MixedAnswer
        | Reason::RateLimited
        | Reason::QuotaExceeded
        | Reason::TooManyConnections => Reply::NotAllowed,
        Reason::ConnectUnroutable => Reply::NetworkUnreachable,
        Reason::DnsNotFound | Reason::DnsFailed => Reply::HostUnreachable,
        Reason::ConnectRefused => Reply::ConnectionRefused,
        Reason::DnsTimeout | Reason::ConnectTimeout | Reason::UpstreamTimeout => Reply::TtlExpired,
        Reason::BadRequest
        | Reason::ProxyLoop
        | Reason::UpstreamTls
        | Reason::UpstreamClosed
        | Reason::UpstreamProtocol
        | Reason::AuditUnavailable
        | Reason::Overloaded
        | Reason::ShuttingDown
        // No tunnel is refused for these; they end one.
        | Reason::SniMismatch
        | Reason::SniMissing
        | Reason::NotTls
        | Reason::TlsMalformed
        | Reason::TlsTimeout
        | Reason::PolicyChanged
        | Reason::IdleTimeout
        | Reason::LifetimeExceeded
        | Reason::ClientCancel => Reply::GeneralFailure,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The table of the document, row by row: the code and the reasons.
    #[test]
    fn the_document_has_every_reply_as_it_is() {
        let document = include_str!("../../docs/socks.md");
        let table = document.split("| reply | reasons |").nth(1).unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        let mut documented = Vec::new();
        for row in rows {
            let mut cells = row.trim_matches('|').split('|').map(str::trim);
            let code = cells.next().unwrap().trim_matches('`').trim_start_matches("0x");
            let code = u8::from_str_radix(code.split('`').next().unwrap(), 16).unwrap();
            documented.extend(cells.next().unwrap().split('`').skip(1).step_by(2).map(|word| (word, code)));
        }
        documented.sort_unstable();
        // What ends a tunnel is not told: it has its reply already.
        let told =
            Reason::ALL.iter().filter(|reason| **reason == Reason::Allowed || reason.status().is_some());
        let mut real: Vec<_> = told.map(|&reason| (reason.code(), reply_to(reason).code())).collect();
        real.sort_unstable();
        assert_eq!(documented, real);
    }
}

//! Reads the first TLS message of a tunnel, so that the name inside can be
//! compared with the host the client asked for; and sees whether the server asks
//! for it once more.
//!
//! Pure: bytes in, verdict out. It never answers, never decrypts, never changes
//! the bytes (the caller forwards exactly what it received), and never decides
//! policy. It is stricter than a TLS server needs to be: what two servers could
//! read differently is refused rather than guessed at.

mod retry;

pub use retry::{AnswerReader, LeadingRecords};

/// Most handshake bytes that are collected before the hello is refused. Real
/// hellos with post-quantum key shares are around 2 KiB.
pub const MAX_HANDSHAKE: usize = 64 * 1024;

/// Largest plaintext fragment of one record (RFC 8446, section 5.1).
const MAX_FRAGMENT: usize = 1 << 14;
const RECORD_HEADER: usize = 5;
const HANDSHAKE_HEADER: usize = 4;
const CONTENT_HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_SERVER_NAME: u16 = 0;
/// RFC 9849, encrypted_client_hello.
const EXTENSION_ECH: u16 = 0xfe0d;
const NAME_TYPE_HOST: u8 = 0;

/// Why the first bytes of a tunnel are not an acceptable ClientHello.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    /// The first bytes are not a TLS handshake record: another protocol, an
    /// SSLv2 hello, or a record of another content type such as an alert.
    #[error("the tunnel does not start with a TLS handshake record")]
    NotTls,
    /// TLS, but no valid ClientHello; the text names the rule that was broken.
    #[error("malformed ClientHello: {0}")]
    Malformed(&'static str),
    /// The handshake message announces more than [`MAX_HANDSHAKE`] bytes.
    #[error("ClientHello larger than {MAX_HANDSHAKE} bytes")]
    TooLarge,
}

use ClientHelloError::{Malformed, NotTls, TooLarge};

/// What a tunnel needs to know of a complete ClientHello.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientHello {
    server_name: Option<Box<[u8]>>,
    has_ech: bool,
    wire_len: usize,
}

impl ClientHello {
    /// The host name of the server_name extension exactly as sent; any byte may
    /// occur in it. `None` when the client sent no such extension.
    pub fn server_name(&self) -> Option<&[u8]> {
        self.server_name.as_deref()
    }

    /// Whether an encrypted_client_hello extension is present. Clients also send
    /// it as GREASE, so it proves nothing: the outer name still decides.
    pub fn has_ech(&self) -> bool {
        self.has_ech
    }

    /// How many of the received bytes belong to the records of the hello. What
    /// follows (TLS 1.3 early data, say) was not looked at.
    pub fn wire_len(&self) -> usize {
        self.wire_len
    }

    /// Whether the server name is `host` (a canonical host), ASCII case aside.
    /// Nothing is trimmed: RFC 6066, section 3 forbids a trailing dot.
    pub fn names_host(&self, host: &str) -> bool {
        self.server_name().is_some_and(|name| name.eq_ignore_ascii_case(host.as_bytes()))
    }
}

/// Reads a ClientHello from a growing buffer. Each byte is looked at once,
/// however small the pieces in which they arrive.
#[derive(Debug, Default)]
pub struct ClientHelloReader {
    /// How many received bytes are used up.
    position: usize,
    /// Bytes of the current record that have not been collected yet.
    record_left: usize,
    /// The handshake message without record headers.
    handshake: Vec<u8>,
}

impl ClientHelloReader {
    /// A reader that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Continues with `received`: *all* bytes since the start of the tunnel, those
    /// of earlier calls included. `None` means that more bytes are needed.
    ///
    /// # Errors
    /// See [`ClientHelloError`]. An error is final, as is a complete hello.
    pub fn read(&mut self, received: &[u8]) -> Result<Option<ClientHello>, ClientHelloError> {
        loop {
            let rest = received.get(self.position..).unwrap_or_default();
            if self.record_left == 0 {
                let Some(length) = record_header(rest, self.position == 0)? else {
                    return Ok(None);
                };
                self.record_left = length;
                self.position += RECORD_HEADER;
                continue;
            }
            if rest.is_empty() {
                return Ok(None);
            }
            self.collect(rest)?;
            if self.missing()? == 0 {
                return self.finish().map(Some);
            }
        }
    }

    /// Moves bytes of the current record into the handshake message, never
    /// beyond the end of either.
    fn collect(&mut self, rest: &[u8]) -> Result<(), ClientHelloError> {
        let wanted = self.missing()?.min(self.record_left);
        let piece = rest.get(..wanted).unwrap_or(rest);
        self.handshake.extend_from_slice(piece);
        self.position += piece.len();
        self.record_left -= piece.len();
        Ok(())
    }

    /// How many bytes the handshake message lacks: first its header, then what
    /// the header announces. Refuses a wrong type or size as soon as it shows.
    fn missing(&self) -> Result<usize, ClientHelloError> {
        if self.handshake.first().is_some_and(|&t| t != CLIENT_HELLO) {
            return Err(Malformed("the first handshake message is not a ClientHello"));
        }
        let mut header = Cursor(&self.handshake);
        let (Some(_), Some(length)) = (header.u8(), header.u24()) else {
            return Ok(HANDSHAKE_HEADER - self.handshake.len());
        };
        if length > MAX_HANDSHAKE {
            return Err(TooLarge);
        }
        Ok(length - header.0.len())
    }

    fn finish(&self) -> Result<ClientHello, ClientHelloError> {
        // A client waits for the server after its hello. Another message in the
        // same record would be read by some servers and dropped by others.
        if self.record_left != 0 {
            return Err(Malformed("data after the ClientHello in its record"));
        }
        let body = self.handshake.get(HANDSHAKE_HEADER..).unwrap_or_default();
        let extensions = extensions_of(body)?;
        scan_extensions(extensions, self.position)
    }
}

/// The fragment length from a record header (RFC 8446, section 5.1), `None` if
/// it is not complete. Wrong bytes are refused before the header is complete. The
/// minor version means nothing in a hello.
fn record_header(bytes: &[u8], first: bool) -> Result<Option<usize>, ClientHelloError> {
    let wrong = |what| if first { NotTls } else { Malformed(what) };
    if bytes.first().is_some_and(|&t| t != CONTENT_HANDSHAKE) {
        return Err(wrong("another record inside the ClientHello"));
    }
    if bytes.get(1).is_some_and(|&major| major != 3) {
        return Err(wrong("a record of another protocol version"));
    }
    let Some(length) = Cursor(bytes.get(3..).unwrap_or_default()).u16() else {
        return Ok(None);
    };
    match usize::from(length) {
        0 => Err(Malformed("an empty handshake record")),
        length if length > MAX_FRAGMENT => Err(Malformed("a record longer than 2^14 bytes")),
        length => Ok(Some(length)),
    }
}

/// The extension list of a ClientHello body (RFC 8446, section 4.1.2); empty when
/// the body ends before it, as TLS 1.2 permits.
fn extensions_of(body: &[u8]) -> Result<&[u8], ClientHelloError> {
    let mut body = Cursor(body);
    let version = body.take(2).ok_or(Malformed("no version"))?;
    if version.first() != Some(&3) {
        return Err(Malformed("a ClientHello of another protocol version"));
    }
    body.take(32).ok_or(Malformed("no random"))?;
    match body.vec8() {
        Some(session) if session.len() <= 32 => {}
        _ => return Err(Malformed("a bad session ID")),
    }
    match body.vec16() {
        Some(suites) if !suites.is_empty() && suites.len() % 2 == 0 => {}
        _ => return Err(Malformed("a bad cipher suite list")),
    }
    match body.vec8() {
        Some(methods) if !methods.is_empty() => {}
        _ => return Err(Malformed("a bad compression method list")),
    }
    if body.0.is_empty() {
        return Ok(&[]);
    }
    match body.vec16() {
        Some(extensions) if body.0.is_empty() => Ok(extensions),
        _ => Err(Malformed("the extension list does not fill the message")),
    }
}

/// Finds the server name, and whether ECH is offered; skips what it doesn't know.
fn scan_extensions(list: &[u8], wire_len: usize) -> Result<ClientHello, ClientHelloError> {
    let mut list = Cursor(list);
    let mut hello = ClientHello { server_name: None, has_ech: false, wire_len };
    while !list.0.is_empty() {
        let (Some(kind), Some(data)) = (list.u16(), list.vec16()) else {
            return Err(Malformed("a truncated extension"));
        };
        match kind {
            EXTENSION_SERVER_NAME if hello.server_name.is_some() => {
                return Err(Malformed("two server_name extensions"));
            }
            EXTENSION_SERVER_NAME => hello.server_name = Some(host_name(data)?.into()),
            EXTENSION_ECH => hello.has_ech = true,
            _ => {}
        }
    }
    Ok(hello)
}

/// The one host name of a server_name extension (RFC 6066, section 3). Other name
/// types were never defined, and servers differ in what they make of them.
fn host_name(extension: &[u8]) -> Result<&[u8], ClientHelloError> {
    let mut extension = Cursor(extension);
    let Some(names) = extension.vec16().filter(|_| extension.0.is_empty()) else {
        return Err(Malformed("a bad server_name extension"));
    };
    let mut names = Cursor(names);
    let (Some(kind), Some(name)) = (names.u8(), names.vec16()) else {
        return Err(Malformed("a bad server name list"));
    };
    if kind != NAME_TYPE_HOST {
        return Err(Malformed("a server name of unknown type"));
    }
    if name.is_empty() {
        return Err(Malformed("an empty server name"));
    }
    if !names.0.is_empty() {
        return Err(Malformed("more than one server name"));
    }
    Ok(name)
}

/// A byte slice that is read from the front; `None` past its end.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(count)?;
        self.0 = tail;
        Some(head)
    }

    /// A big-endian number of `width` bytes.
    fn number(&mut self, width: usize) -> Option<usize> {
        let bytes = self.take(width)?;
        Some(bytes.iter().fold(0, |n, &b| (n << 8) | usize::from(b)))
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn u16(&mut self) -> Option<u16> {
        u16::try_from(self.number(2)?).ok()
    }

    fn u24(&mut self) -> Option<usize> {
        self.number(3)
    }

    /// Bytes behind a one-byte length.
    fn vec8(&mut self) -> Option<&'a [u8]> {
        let length = self.number(1)?;
        self.take(length)
    }

    /// Bytes behind a two-byte length.
    fn vec16(&mut self) -> Option<&'a [u8]> {
        let length = self.number(2)?;
        self.take(length)
    }
}

#[cfg(test)]
mod tests;

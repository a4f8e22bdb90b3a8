//! Other protocols that reach the proxy port by mistake, told from their first octets.
//!
//! Only gives a refusal a better text; it never decides that one is due.

/// Another protocol, recognised by the first octets of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    /// A TLS record that holds a handshake.
    #[error("TLS was sent to the plain proxy port; use http:// in the proxy URL, or the port for TLS")]
    Tls,
    /// SOCKS version 4 or 5.
    #[error("SOCKS was sent to the HTTP proxy port; configure this address as an HTTP proxy")]
    Socks,
    /// HTTP/2 with prior knowledge.
    #[error("HTTP/2 was sent to the proxy port; this proxy speaks HTTP/1.1")]
    Http2,
    /// The PROXY protocol, version 1; version 2 shows as several empty lines.
    #[error("a PROXY protocol header was sent; this listener does not accept one")]
    ProxyProtocol,
    /// SSH.
    #[error("SSH was sent to the proxy port; tunnel it with CONNECT")]
    Ssh,
    /// SMTP.
    #[error("SMTP was sent to the proxy port; tunnel it with CONNECT")]
    Smtp,
    /// An octet that no text protocol starts with.
    #[error("binary data was sent to the proxy port; this proxy speaks HTTP/1.1")]
    Binary,
}

impl Foreign {
    /// Which protocol it was whose octet at `at` could not be part of a request.
    ///
    /// Looks no further than that octet, so the answer does not depend on how much had arrived.
    pub(super) fn recognise(buffer: &[u8], at: usize) -> Option<Self> {
        const TEXT: [(&[u8], Foreign); 5] = [
            (b"PRI ", Foreign::Http2),
            (b"PROXY ", Foreign::ProxyProtocol),
            (b"SSH-", Foreign::Ssh),
            (b"EHLO ", Foreign::Smtp),
            (b"HELO ", Foreign::Smtp),
        ];
        let seen = buffer.get(..=at)?;
        match seen {
            [0x16] => Some(Self::Tls),
            [0x04 | 0x05] => Some(Self::Socks),
            [b'\t' | b'\n' | b' '..=b'~'] => None,
            [_] => Some(Self::Binary),
            _ => TEXT.iter().find(|(start, _)| seen.starts_with(start)).map(|(_, foreign)| *foreign),
        }
    }
}

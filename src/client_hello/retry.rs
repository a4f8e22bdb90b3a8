//! A server that asks for a second ClientHello (a HelloRetryRequest, RFC 8446 section 4.1.4), and what a
//! client may send before that one.
//!
//! Pure, and byte for byte: how the bytes arrive does not matter, and none is kept. It finds retries and
//! no more: whether an answer is well-formed is the client's business.

use super::{ClientHelloError, Malformed, NotTls, RECORD_HEADER};

const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const APPLICATION_DATA: u8 = 23;
const HANDSHAKE: u8 = super::CONTENT_HANDSHAKE;
/// Largest fragment of a record, encrypted ones included (RFC 8446, section 5.2).
const MAX_FRAGMENT: usize = super::MAX_FRAGMENT + 256;

const SERVER_HELLO: u8 = 2;
/// The `random` by which a ServerHello is a retry: SHA-256 of "HelloRetryRequest".
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Where `random` begins in a ServerHello: behind the type, the length and the version.
const RANDOM_AT: usize = 6;

/// Looks for retries in what a server sends, from its first byte on.
#[derive(Debug, Default)]
pub struct AnswerReader {
    records: Records,
    /// How much of a handshake message has been seen, and its length where that is known.
    message: (usize, usize),
    retries: usize,
    over: bool,
}

impl AnswerReader {
    /// Continues with the bytes that follow.
    pub fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if self.over {
                return;
            }
            self.over = !match self.records.next(byte) {
                Some((HANDSHAKE, true)) => self.fits(byte),
                // Compatibility mode (appendix D.4) has one behind each first message.
                Some((HANDSHAKE | CHANGE_CIPHER_SPEC, _)) => true,
                _ => false,
            };
        }
    }

    /// The server sends nothing more.
    pub fn end(&mut self) {
        self.over = true;
    }

    /// How many retries there were. Each asks for one more ClientHello.
    pub fn retries(&self) -> usize {
        self.retries
    }

    /// Whether something has come that is no retry. No other can follow.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Can a message still be a retry with this as its next byte?
    fn fits(&mut self, byte: u8) -> bool {
        let (at, length) = &mut self.message;
        let fits = match *at {
            0 => byte == SERVER_HELLO,
            1..=3 => {
                *length = *length << 8 | usize::from(byte);
                // Room for version and random at least.
                *at < 3 || *length >= RANDOM_AT - super::HANDSHAKE_HEADER + RETRY_RANDOM.len()
            }
            4 | 5 => byte == 3,
            at => RETRY_RANDOM.get(at - RANDOM_AT).is_none_or(|&expected| byte == expected),
        };
        *at += 1;
        if *at == RANDOM_AT + RETRY_RANDOM.len() && fits {
            self.retries += 1;
        }
        if *at >= super::HANDSHAKE_HEADER && *at == super::HANDSHAKE_HEADER + *length {
            self.message = (0, 0);
        }
        fits
    }
}

/// Passes over what a client may send behind a hello before it has an answer, and before a second one: early
/// data, which a retry rejects (RFC 8446, section 4.2.10), change_cipher_spec, and an alert in the hello's
/// place. No server reads a hello in records of these kinds.
#[derive(Debug, Default)]
pub struct LeadingRecords(Records);

impl LeadingRecords {
    /// How many of these bytes, which follow those that it has counted before, come before a handshake
    /// record, or before what is wrong.
    ///
    /// # Errors
    /// The first of them belongs to no TLS record, or to one of another kind. An error is final.
    pub fn read(&mut self, bytes: &[u8]) -> Result<usize, ClientHelloError> {
        for (count, &byte) in bytes.iter().enumerate() {
            let fault = match byte {
                HANDSHAKE if self.0.is_between() => return Ok(count),
                CHANGE_CIPHER_SPEC | ALERT | APPLICATION_DATA => None,
                _ => self.0.is_between().then_some(NotTls),
            };
            let fault = fault.or_else(|| {
                self.0
                    .next(byte)
                    .is_none()
                    .then_some(Malformed("no TLS record where a second ClientHello is due"))
            });
            match fault {
                Some(fault) if count == 0 => return Err(fault),
                Some(_) => return Ok(count),
                None => {}
            }
        }
        Ok(bytes.len())
    }
}

/// Tells the bytes of records apart (RFC 8446, section 5.1).
#[derive(Debug, Default)]
struct Records {
    kind: u8,
    /// How much of the header has been seen.
    header: usize,
    /// What of the fragment has not been seen.
    left: usize,
}

impl Records {
    /// Whether the next byte begins a record.
    fn is_between(&self) -> bool {
        self.header == 0
    }

    /// The kind of the record that the next byte belongs to, and whether it is of the fragment. `None`, and
    /// nothing changes, if that can't be.
    fn next(&mut self, byte: u8) -> Option<(u8, bool)> {
        let in_fragment = self.header == RECORD_HEADER;
        let left = match self.header {
            0 | 2 => 0,
            1 if byte == 3 => 0,
            1 => return None,
            3 | 4 => self.left << 8 | usize::from(byte),
            _ => self.left.saturating_sub(1),
        };
        if left > MAX_FRAGMENT {
            return None;
        }
        if self.header == 0 {
            self.kind = byte;
        }
        self.left = left;
        if !in_fragment {
            self.header += 1;
        }
        if self.header == RECORD_HEADER && left == 0 {
            self.header = 0;
        }
        Some((self.kind, in_fragment))
    }
}

#[cfg(test)]
mod tests;

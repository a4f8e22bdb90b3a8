//! `limits.ndjson` as it is written: a head, then lines that each say how much of one limit an
//! account has used. Of several about the same, the last one counts.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use super::Account;
use super::hosts::{HostHash, HostKey};
use super::rate::KeptPace;
use super::window::KeptWindow;

const SCHEMA: &str = "egret.limits/1";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    schema: String,
    host_key: String,
}

/// Any other line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub account: Account,
    #[serde(flatten)]
    pub what: What,
}

/// What was used of which limit.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum What {
    Bytes(KeptWindow),
    BytesUp(KeptWindow),
    BytesDown(KeptWindow),
    Domains(KeptHosts),
    Requests(KeptPace),
    DnsQueries(KeptPace),
    DnsNames(KeptNames),
}

/// Hosts that were added to a window. Those that are all that it counts begin it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptHosts {
    #[serde(flatten)]
    pub window: KeptWindow,
    pub hosts: Vec<HostHash>,
}

/// Names below one domain that were added to its window.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptNames {
    pub domain: HostHash,
    #[serde(flatten)]
    pub window: KeptWindow,
    /// The window begins with these.
    #[serde(default, skip_serializing_if = "is_false")]
    pub first: bool,
    pub names: Vec<HostHash>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Why a file can't be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Io(io::Error),
    /// The line with this number, from 1.
    Line(usize),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) fn write_head(key: &HostKey, mut to: impl Write) -> io::Result<()> {
    let head = Head { schema: SCHEMA.to_owned(), host_key: key.to_text() };
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.push(b'\n');
    to.write_all(&bytes)
}

/// Appends lines about one account.
pub(super) fn encode(account: &Account, lines: Vec<What>, out: &mut Vec<u8>) {
    for what in lines {
        // Structs of numbers and texts always have a JSON form.
        let line = serde_json::to_vec(&Line { account: account.clone(), what }).unwrap_or_default();
        out.extend_from_slice(&line);
        out.push(b'\n');
    }
}

/// Reads a file to its end. Without a head it is none of ours: it gets one before it has its name.
///
/// What follows the last line end was being written when the process ended: what it would have
/// permitted has not passed.
pub(super) fn read(mut from: impl BufRead, mut take: impl FnMut(Line)) -> Result<HostKey, ReadError> {
    let mut key = None;
    let mut buffer = Vec::new();
    for number in 1.. {
        buffer.clear();
        from.read_until(b'\n', &mut buffer)?;
        let Some(line) = buffer.strip_suffix(b"\n") else { break };
        let bad = |_| ReadError::Line(number);
        if number == 1 {
            let head: Head = serde_json::from_slice(line).map_err(bad)?;
            let known = HostKey::from_text(&head.host_key).filter(|_| head.schema == SCHEMA);
            key = Some(known.ok_or(ReadError::Line(number))?);
        } else {
            take(serde_json::from_slice(line).map_err(bad)?);
        }
    }
    key.ok_or(ReadError::Line(1))
}

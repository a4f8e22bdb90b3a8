//! Long octet streams that a test can make and check without holding them.

use std::io::{self, Read, Write};
use std::sync::mpsc::{self, Receiver};

use super::origin::Origin;

/// FNV-1a, 64 bits, over octets in order: one that is lost, doubled or moved changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digest {
    pub hash: u64,
    pub length: u64,
}

impl Default for Digest {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, length: 0 }
    }
}

impl Digest {
    /// Eight octets at a time, so that gigabytes don't take minutes in a debug build.
    /// The cut between two calls does not matter as long as it is a multiple of eight.
    fn words(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.hash =
                (self.hash ^ u64::from_le_bytes(whole)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
        }
        self.length += bytes.len() as u64;
    }
}

const BLOCK: usize = 1 << 16;

/// Writes `length` octets that never repeat within a block; returns their digest.
pub fn send(mut to: impl Write, length: u64, seed: u64) -> io::Result<Digest> {
    let mut digest = Digest::default();
    let mut state = seed | 1;
    let mut block = vec![0_u8; BLOCK];
    let mut left = length;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let part = &block[..usize::try_from(left.min(BLOCK as u64)).unwrap()];
        to.write_all(part)?;
        digest.words(part);
        left -= part.len() as u64;
    }
    Ok(digest)
}

/// Reads `length` octets, or up to the end if it comes earlier; returns their digest.
pub fn receive(mut from: impl Read, length: u64) -> io::Result<Digest> {
    let mut digest = Digest::default();
    let mut block = vec![0_u8; BLOCK];
    let mut left = length;
    while left > 0 {
        let want = usize::try_from(left.min(BLOCK as u64)).unwrap();
        let got = fill(&mut from, &mut block[..want])?;
        digest.words(&block[..got]);
        left -= got as u64;
        if got < want {
            break;
        }
    }
    Ok(digest)
}

/// Reads until the block is full or the stream ends.
fn fill(from: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    while at < block.len() {
        match from.read(&mut block[at..])? {
            0 => break,
            got => at += got,
        }
    }
    Ok(at)
}

/// An origin that takes a request of this length and answers with one as long; then it tells what it
/// got and what it sent.
pub fn exchanging(length: u64) -> (Origin, Receiver<(Digest, Digest)>) {
    let (report, reports) = mpsc::channel();
    let origin = Origin::start(move |visit| {
        visit.head()?;
        let got = receive(visit.reader(), length)?;
        visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n"))?;
        report.send((got, send(&mut visit.stream, length, 3)?)).unwrap();
        visit.finish()
    });
    (origin, reports)
}

/// How many octets the tests about whole transfers move: `EGRET_TEST_BYTES`, else 256 MiB.
pub fn transfer_size() -> u64 {
    std::env::var("EGRET_TEST_BYTES").map_or(256 << 20, |text| {
        text.parse().unwrap_or_else(|_| panic!("EGRET_TEST_BYTES={text:?} is not a number of octets"))
    })
}

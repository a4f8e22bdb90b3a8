//! What the two processes tell each other over a pair of sockets, with descriptors. Nobody else can
//! reach it, and it is closed when the command begins.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Octets of a message.
const LONGEST: usize = 4096;
/// Descriptors with a message.
const MOST_DESCRIPTORS: usize = 8;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The namespaces are there, a user namespace too.
    Unshared,
    /// The network namespace is there, by the privileges of root.
    UnsharedAsRoot,
    /// Who is who in the user namespace is settled; the text has rules for nftables, if any.
    Mapped,
    /// The listening sockets; the text names sockets of others that stay open to the command.
    Listening,
    /// Become the command; with its standard input. The text is the path of a `resolv.conf`, if any.
    Go,
    /// It can't be done; the text says why.
    Failed,
    /// The command can't be executed; the text is the number of the error.
    NotExecuted,
}

const KINDS: [(u8, Kind); 7] = [
    (b'u', Kind::Unshared),
    (b'r', Kind::UnsharedAsRoot),
    (b'm', Kind::Mapped),
    (b'l', Kind::Listening),
    (b'g', Kind::Go),
    (b'f', Kind::Failed),
    (b'x', Kind::NotExecuted),
];

/// A message as received.
#[derive(Debug)]
pub(super) struct Message {
    pub kind: Kind,
    pub text: String,
    pub descriptors: Vec<OwnedFd>,
}

/// A pair of connected ends; messages keep their boundaries.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends a message. A peer that is gone is an error, not a signal.
pub(super) fn send(end: impl AsFd, kind: Kind, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let word = KINDS.iter().find(|(_, known)| *known == kind).map_or(0, |(word, _)| *word);
    let text = text.as_bytes();
    let text = text.get(..LONGEST - 1).unwrap_or(text);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for a message"));
    }
    sendmsg(end, &[IoSlice::new(&[word]), IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message; `None` when the peer has closed its end.
pub(super) fn receive(end: impl AsFd) -> io::Result<Option<Message>> {
    let mut octets = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut octets)];
        match recvmsg(&end, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            // The peer ended with messages of ours unread.
            Err(rustix::io::Errno::CONNRESET) => return Ok(None),
            other => break other?.bytes,
        }
    };
    let Some((word, text)) = octets.get(..received).and_then(|octets| octets.split_first()) else {
        return Ok(None);
    };
    let kind = KINDS.iter().find(|(known, _)| known == word).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| io::Error::other("a message that nobody sends"))?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => Some(rights),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    Ok(Some(Message { kind, text: String::from_utf8_lossy(text).into_owned(), descriptors }))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;

    #[test]
    fn messages_and_descriptors_arrive_as_sent_and_the_end_shows() {
        let (here, there) = pair().unwrap();
        let (mut reader, writer) = pipe().unwrap();
        send(&here, Kind::Failed, "why", &[]).unwrap();
        send(&here, Kind::Go, "", &[writer.as_fd()]).unwrap();
        drop((here, writer));
        let first = receive(&there).unwrap().unwrap();
        assert_eq!((first.kind, first.text.as_str(), first.descriptors.len()), (Kind::Failed, "why", 0));
        let second = receive(&there).unwrap().unwrap();
        assert_eq!((second.kind, second.descriptors.len()), (Kind::Go, 1));
        let mut through = std::fs::File::from(second.descriptors.into_iter().next().unwrap());
        through.write_all(b"x").unwrap();
        drop(through);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
        assert!(receive(&there).unwrap().is_none());
        assert!(send(&there, Kind::Mapped, "", &[]).is_err());
    }

    #[test]
    fn what_nobody_sends_is_an_error() {
        let (here, there) = pair().unwrap();
        rustix::io::write(&here, b"?").unwrap();
        assert!(receive(&there).is_err());
        let long = "x".repeat(2 * LONGEST);
        send(&here, Kind::Failed, &long, &[]).unwrap();
        assert_eq!(receive(&there).unwrap().unwrap().text.len(), LONGEST - 1);
    }
}

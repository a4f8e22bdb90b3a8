//! The client's body on its way to the origin, as fast as the origin takes it.

use std::sync::{Mutex, PoisonError};

use bytes::{Buf, BytesMut};
use egret_policy::Reason;
use tokio::time::{Duration, Instant};

use crate::egress::ByteCounters;
use crate::entry::wire::read_into;
use crate::forward::BodySender;
use crate::http1::{BodyDecoder, Decoded};
use crate::stream::Stream;

/// How an upload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Upload {
    Running,
    Complete,
    /// The origin takes no more; the rest stays unread.
    Unwanted,
    /// The client's framing is wrong, or its body stalled: the status for it.
    Faulty(u16),
    /// The client went away.
    Broken,
    /// The sandbox has no bytes left to send.
    OverQuota,
}

impl Upload {
    /// Why the exchange fails, if it is the upload that broke off.
    pub(super) const fn fault(self) -> Option<Reason> {
        match self {
            Self::Running | Self::Complete | Self::Unwanted => None,
            Self::Faulty(_) => Some(Reason::BadRequest),
            Self::Broken => Some(Reason::ClientCancel),
            Self::OverQuota => Some(Reason::QuotaExceeded),
        }
    }
}

/// What the two directions of an exchange know of the upload. They run in one task, so the lock
/// is never waited for.
pub(super) struct UploadWatch(Mutex<(Upload, Instant)>);

impl UploadWatch {
    pub(super) fn new(state: Upload) -> Self {
        Self(Mutex::new((state, Instant::now())))
    }

    pub(super) fn state(&self) -> Upload {
        self.get().0
    }

    /// When it last made progress.
    pub(super) fn touched(&self) -> Instant {
        self.get().1
    }

    fn touch(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = Instant::now();
    }

    pub(super) fn set(&self, state: Upload) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = state;
    }

    fn get(&self) -> (Upload, Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's body on its way to the origin.
pub(super) struct UploadRun<'a> {
    pub(super) decoder: BodyDecoder,
    pub(super) sender: BodySender,
    pub(super) counters: ByteCounters,
    pub(super) stall: Duration,
    pub(super) watch: &'a UploadWatch,
}

impl UploadRun<'_> {
    pub(super) async fn run(mut self, stream: &Stream, buffer: &mut BytesMut) -> Upload {
        loop {
            self.watch.touch();
            match self.decoder.decode(buffer) {
                Ok(Decoded::NeedMore) => {
                    let read = tokio::time::timeout(self.stall, read_into(stream, buffer)).await;
                    match read {
                        Ok(Ok(count)) if count > 0 => {}
                        Ok(_) => return Upload::Broken,
                        Err(_) => return Upload::Faulty(408),
                    }
                }
                Ok(Decoded::Data(data)) => {
                    let length = data.remaining();
                    if !self.counters.take_up(length) {
                        return Upload::OverQuota;
                    }
                    if !self.sender.data(data).await {
                        return Upload::Unwanted;
                    }
                    self.counters.up(length);
                }
                Ok(Decoded::Trailers(trailers)) => {
                    if !self.sender.trailers(trailers).await {
                        return Upload::Unwanted;
                    }
                }
                Ok(Decoded::End) => {
                    // Whether the origin still listens shows in its answer.
                    self.sender.end().await;
                    return Upload::Complete;
                }
                Err(error) => return Upload::Faulty(error.status()),
            }
        }
    }
}

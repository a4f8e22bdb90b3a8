//! The fate of one decision record, shared by the task that waits for it and the writer.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const RECORDED: u8 = 2;
const LOST: u8 = 3;
const ABANDONED: u8 = 4;

/// Queued, then taken by the writer and settled, or abandoned by its owner: never both, so that
/// a request which was told "not recorded" can't turn up in the file as permitted.
#[derive(Debug, Default)]
pub(super) struct Ticket {
    state: AtomicU8,
    settled: Notify,
}

/// What the writer made of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The sink accepted it (or it is kept, where failures are allowed).
    Recorded,
    /// It is not in the file and never will be.
    Lost,
}

impl Ticket {
    /// The writer claims the record; false if its owner has given it up.
    pub(super) fn take(&self) -> bool {
        self.advance(TAKEN)
    }

    /// The owner gives the record up; false if the writer was faster.
    pub(super) fn abandon(&self) -> bool {
        self.advance(ABANDONED)
    }

    fn advance(&self, to: u8) -> bool {
        self.state.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The writer tells the owner what became of the record.
    pub(super) fn settle(&self, outcome: Settled) {
        let state = match outcome {
            Settled::Recorded => RECORDED,
            Settled::Lost => LOST,
        };
        self.state.store(state, Ordering::Release);
        self.settled.notify_one();
    }

    /// Whether the record is known to be missing from the file.
    pub(super) fn is_lost(&self) -> bool {
        self.state.load(Ordering::Acquire) == LOST
    }

    /// Waits for [`settle`](Self::settle). One task at a time may wait.
    pub(super) async fn settled(&self) -> Settled {
        loop {
            match self.state.load(Ordering::Acquire) {
                RECORDED => return Settled::Recorded,
                LOST => return Settled::Lost,
                _ => self.settled.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_side_wins_never_both() {
        let ticket = Ticket::default();
        assert!(ticket.take());
        assert!(!ticket.abandon());

        let ticket = Ticket::default();
        assert!(ticket.abandon());
        assert!(!ticket.take());
    }

    #[tokio::test]
    async fn settling_before_or_after_waiting() {
        let early = Ticket::default();
        early.settle(Settled::Lost);
        assert_eq!(early.settled().await, Settled::Lost);
        assert!(early.is_lost());

        let late = Ticket::default();
        let (outcome, ()) = tokio::join!(late.settled(), async {
            tokio::task::yield_now().await;
            late.settle(Settled::Recorded);
        });
        assert_eq!(outcome, Settled::Recorded);
        assert!(!late.is_lost());
    }
}

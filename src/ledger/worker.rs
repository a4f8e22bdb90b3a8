//! The thread that folds. It alone writes the store.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::follow::{Follower, Position, Read, take_line};
use super::inbox::Work;
use super::{LedgerError, Notes, Shared, is_live};

/// How long the thread sleeps without news; listeners then hear that they still listen.
const IDLE: Duration = Duration::from_secs(15);
/// Time between two attempts when the store or the audit file can't be used.
const RETRY: Duration = Duration::from_secs(1);

/// Where records come from.
enum Source {
    File { follower: Box<Follower>, stored: Option<Position> },
    Live { seq: u64 },
}

/// Folds until the inbox is closed.
pub(super) fn run(shared: &Shared) {
    let mut source = None;
    let mut failing = false;
    loop {
        let work = shared.inbox.take(IDLE, shared.recent.has_listeners());
        if work.idle {
            shared.recent.keep_alive();
        }
        let folded = if work.news { fold_news(shared, &mut source, &work) } else { Ok(()) };
        if let Err(error) = folded {
            if !std::mem::replace(&mut failing, true) {
                tracing::error!(%error, "the ledger stands still; it is tried again every second");
            }
            shared.inbox.again();
            // Where it left off is what the store says.
            source = source.filter(|source| matches!(source, Source::Live { .. }));
            if !work.closed {
                thread::sleep(RETRY);
                reopen(shared, &error);
            }
        } else if work.news && std::mem::take(&mut failing) {
            tracing::info!("the ledger goes on");
        }
        if work.closed {
            shared.recent.close();
            return;
        }
    }
}

fn reopen(shared: &Shared, error: &LedgerError) {
    if matches!(error, LedgerError::Store { .. })
        && let Err(error) = shared.store.reopen()
    {
        tracing::debug!(%error, "the ledger's store stays closed");
    }
}

/// Folds what the audit file holds now.
pub(super) fn catch_up(shared: &Shared) -> Result<(), LedgerError> {
    let work = shared.inbox.take(Duration::ZERO, false);
    fold_news(shared, &mut None, &work)
}

fn fold_news(shared: &Shared, source: &mut Option<Source>, work: &Work) -> Result<(), LedgerError> {
    let source = match source {
        Some(source) => source,
        none => none.insert(open(shared)?),
    };
    match source {
        Source::File { follower, stored } => fold_file(shared, follower, stored, work)?,
        Source::Live { seq } => fold_lines(shared, seq, &work.lines)?,
    }
    shared.rows.store(shared.store.len()?, Ordering::Relaxed);
    shared.folded.send_replace(Some(work.told));
    Ok(())
}

fn open(shared: &Shared) -> Result<Source, LedgerError> {
    if is_live(&shared.audit_file) {
        return Ok(Source::Live { seq: 0 });
    }
    let stored = shared.store.position()?;
    let follower = Box::new(Follower::new(shared.audit_file.clone(), stored.clone()));
    Ok(Source::File { follower, stored })
}

fn fold_file(
    shared: &Shared,
    follower: &mut Follower,
    stored: &mut Option<Position>,
    work: &Work,
) -> Result<(), LedgerError> {
    loop {
        let read = follower.read(work.reach);
        let read = read.map_err(|source| LedgerError::Audit { file: shared.audit_file.clone(), source })?;
        let more = read.more;
        if !read.records.is_empty()
            || read.notes != Notes::default()
            || follower.position() != stored.as_ref()
        {
            commit(shared, read, follower.position())?;
            *stored = follower.position().cloned();
        }
        if !more {
            return Ok(());
        }
    }
}

fn fold_lines(shared: &Shared, seq: &mut u64, lines: &[u8]) -> Result<(), LedgerError> {
    let mut read = Read::default();
    let mut last = *seq;
    for line in lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        take_line(line, &mut last, &mut read);
    }
    commit(shared, read, None)?;
    *seq = last;
    Ok(())
}

fn commit(shared: &Shared, read: Read, position: Option<&Position>) -> Result<(), LedgerError> {
    shared.store.fold(read.records.iter().map(|(record, _)| record), &read.notes, position)?;
    shared.recent.publish(read.records);
    Ok(())
}

//! A writer that hangs in a system call. Played by nobody at all: these tests have the queue for
//! themselves and decide when the writer does what.

use std::sync::Arc;

use super::queue::{Entry, Role};
use super::ticket::{Settled, Ticket};
use super::*;

fn without_writer(on_failure: OnFailure) -> Audit {
    let (queue, health) = (Arc::new(Queue::new()), watch::Sender::new(true));
    let patience = Duration::from_millis(50);
    let sink = Sink::new(Path::new("/dev/null/none"), false);
    let writer =
        Writer::new(Arc::clone(&queue), sink, health.clone(), on_failure, patience, PathBuf::default());
    let writer = Arc::new(Mutex::new(writer));
    let (ids, thread) = (IdSource::new(), Mutex::default());
    Audit { shared: Arc::new(Shared { queue, ids, health, on_failure, patience, writer, thread }) }
}

fn take(audit: &Audit) -> Vec<Entry> {
    audit.shared.queue.take(Vec::new()).entries
}

fn record(entry: &Entry) -> Value {
    let mut line = Vec::new();
    entry.line.write_to(&mut line, 1);
    serde_json::from_slice(&line).unwrap()
}

fn ticket(entry: &Entry) -> &Ticket {
    match &entry.role {
        Role::Awaited(ticket) | Role::Kept(Some(ticket)) => ticket,
        Role::Kept(None) | Role::Gap => panic!("no ticket: {entry:?}"),
    }
}

#[tokio::test]
async fn a_record_that_was_not_taken_in_time_is_withdrawn() {
    let audit = without_writer(OnFailure::Deny);
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::TimedOut)));
    assert!(!audit.healthy());
    assert_eq!(audit.counters().refused.get(), 1);
    let entries = take(&audit);
    assert_eq!(entries.len(), 1);
    assert!(!ticket(&entries[0]).take());
}

#[tokio::test]
async fn a_record_that_may_still_be_written_gets_its_end() {
    for permits in [true, false] {
        let audit = without_writer(OnFailure::Deny);
        let attempt = attempt(&audit);
        let mut taken = Vec::new();
        let (result, ()) = tokio::join!(
            async { if permits { attempt.permit().await.map(drop) } else { attempt.refuse().await } },
            async {
                tokio::task::yield_now().await;
                taken = take(&audit);
                assert!(ticket(&taken[0]).take());
            }
        );
        assert!(matches!(result, Err(AuditUnavailable::TimedOut)));
        let ends = take(&audit);
        assert_eq!(ends.len(), usize::from(permits));
        for end in &ends {
            assert_eq!(record(end)["event"], "close");
            assert_eq!(record(end)["reason"], "audit_unavailable");
            assert!(!ticket(end).is_lost());
            ticket(&taken[0]).settle(Settled::Lost);
            assert!(ticket(end).is_lost(), "the end of what is not in the file must not be written");
        }
    }
}

#[tokio::test]
async fn a_queue_without_room_is_waited_for_in_vain() {
    let audit = without_writer(OnFailure::Deny);
    let event = Event::Reload(Reload { ok: true, generation: 1, policy_digest: None, error: None });
    let line = || Line::encode(&EventRecord { ts: Timestamp::now(), event: &event }).unwrap();
    let mut queued = 0;
    while tokio::time::timeout(Duration::ZERO, audit.shared.queue.push_awaited(line(), Arc::default()))
        .await
        .is_ok()
    {
        queued += 1;
        assert!(queued < 100_000, "the queue is not bounded");
    }
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::TimedOut)));
    assert_eq!(take(&audit).len(), queued);
    audit.shared.queue.release(1);
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::TimedOut)));
    assert_eq!(take(&audit).len(), 1);
}

#[tokio::test]
async fn allowed_failures_wait_once() {
    let audit = without_writer(OnFailure::Allow);
    for _ in 0..1000 {
        attempt(&audit).permit().await.unwrap().close(Closing::default());
    }
    assert!(!audit.healthy());
    let entries = take(&audit);
    assert_eq!(entries.len(), 2000);
    assert!(entries.iter().step_by(2).all(|entry| ticket(entry).take()), "they are still to be written");
}

#[tokio::test]
async fn the_end_of_a_lost_record_is_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    for outcome in [Settled::Lost, Settled::Recorded] {
        let ticket = Arc::new(Ticket::default());
        ticket.settle(outcome);
        let event = Event::Reload(Reload { ok: true, generation: 1, policy_digest: None, error: None });
        let line = Line::encode(&EventRecord { ts: Timestamp::now(), event: &event }).unwrap();
        audit.shared.queue.push_kept(line, Some(ticket));
    }
    audit.shutdown().await.unwrap();
    assert_eq!(of_event(&records(&file), "reload").len(), 1);
}

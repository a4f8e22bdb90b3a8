//! One decision, then one close if traffic began.

use std::collections::HashMap;

use super::*;

/// With 64 tasks more decisions than the queue has room for at once.
const ROUNDS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_attempts_are_numbered_in_the_order_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let audit = audit.clone();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    let flow = attempt(&audit).permit().await.unwrap();
                    flow.close(Closing { reason: "allowed", ..Closing::default() });
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    audit.shutdown().await.unwrap();

    let records = records(&file);
    assert_numbered(&records);
    assert_eq!(records.len(), 64 * ROUNDS * 2 + 2);
    let mut events: HashMap<_, Vec<_>> = HashMap::new();
    for record in records.iter().filter(|record| record["id"].is_string()) {
        events.entry(record["id"].clone()).or_default().push(record["event"].as_str().unwrap());
    }
    assert_eq!(events.len(), 64 * ROUNDS);
    assert!(events.values().all(|events| events[..] == ["decision", "close"]));
    assert_eq!(audit.counters().records.get(), records.len() as u64);
    assert_eq!(audit.counters().bytes.get(), fs::metadata(&file).unwrap().len());
    assert!(audit.counters().batches.get() < records.len() as u64, "records were never grouped");
}

#[tokio::test]
async fn a_decision_is_in_the_file_when_it_returns() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    for _ in 0..20 {
        let id;
        let _flow = {
            let attempt = attempt(&audit);
            id = attempt.id();
            attempt.permit().await.unwrap()
        };
        assert_eq!(events_of(&records(&file), id), [("decision", "allowed")]);
    }
}

#[tokio::test]
async fn what_is_dropped_is_recorded_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);

    let mut undecided = attempt(&audit);
    undecided.outcome_mut().rule = Some("a.toml:1".into());
    let undecided_id = undecided.id();
    drop(undecided);

    let mut flow = attempt(&audit).permit().await.unwrap();
    flow.closing_mut().bytes_up = 5;
    flow.closing_mut().reason = "idle_timeout";
    let flow_id = flow.id();
    drop(flow);

    let silent = attempt(&audit).permit().await.unwrap();
    let silent_id = silent.id();
    drop(silent);

    let refused = attempt(&audit);
    let refused_id = refused.id();
    refused.refuse().await.unwrap();
    audit.shutdown().await.unwrap();

    let records = records(&file);
    assert_eq!(events_of(&records, undecided_id), [("decision", "client_cancel")]);
    assert_eq!(of_event(&records, "decision")[0]["rule"], "a.toml:1");
    assert_eq!(of_event(&records, "decision")[0]["verdict"], "allow");
    assert_eq!(events_of(&records, flow_id), [("decision", "allowed"), ("close", "idle_timeout")]);
    assert_eq!(of_event(&records, "close")[0]["bytes_up"], 5);
    assert_eq!(events_of(&records, silent_id), [("decision", "allowed"), ("close", "client_cancel")]);
    assert_eq!(events_of(&records, refused_id), [("decision", "allowed")]);
}

/// A client that leaves while its record is being written: whoever is faster, the file has a
/// whole story, either a cancelled decision or a decision with its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_wait_leaves_a_whole_story() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut ids = Vec::new();
    for round in 0..500 {
        let attempt = attempt(&audit);
        ids.push(attempt.id());
        let mut wait = Box::pin(attempt.permit());
        tokio::select! {
            biased;
            flow = &mut wait => drop(flow.unwrap()),
            () = tokio::task::yield_now() => if round % 2 == 0 { std::thread::yield_now() },
        }
    }
    audit.shutdown().await.unwrap();

    let records = records(&file);
    assert_numbered(&records);
    for id in ids {
        let events = events_of(&records, id);
        let cancelled = events == [("decision", "client_cancel")];
        assert!(
            cancelled || events == [("decision", "allowed"), ("close", "client_cancel")],
            "{id}: {events:?}"
        );
    }
}

#[tokio::test]
async fn a_dropped_refusal_keeps_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut ids = Vec::new();
    for _ in 0..50 {
        let mut attempt = attempt(&audit);
        attempt.outcome_mut().reason = "domain_denied";
        ids.push(attempt.id());
        let _ = tokio::time::timeout(Duration::ZERO, attempt.refuse()).await;
    }
    audit.shutdown().await.unwrap();
    let records = records(&file);
    for id in ids {
        assert_eq!(events_of(&records, id), [("decision", "domain_denied")]);
    }
}

#[tokio::test]
async fn a_denied_attempt_is_never_permitted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let denied = audit.begin(Request::default());
    let id = denied.id();
    assert!(matches!(denied.permit().await, Err(AuditUnavailable::Denied)));
    audit.shutdown().await.unwrap();
    assert_eq!(events_of(&records(&file), id), [("decision", "client_cancel")]);
}

#[tokio::test]
async fn shutdown_ends_with_stop() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let flow = attempt(&audit).permit().await.unwrap();
    flow.close(Closing { reason: "shutting_down", ..Closing::default() });
    audit.shutdown().await.unwrap();
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::Stopped)));
    audit.shutdown().await.unwrap();

    let records = records(&file);
    let events: Vec<_> = records.iter().map(|record| record["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["start", "decision", "close", "stop"]);
}

#[tokio::test]
async fn the_last_handle_ends_the_writer() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut health = audit.health();
    audit.event(&Event::Reload(Reload { ok: true, generation: 2, policy_digest: None, error: None }));
    drop(audit);
    until("the writer thread is gone", || health.has_changed().is_err()).await;
    assert!(*health.borrow_and_update());
    assert_eq!(records(&file).len(), 2);
}

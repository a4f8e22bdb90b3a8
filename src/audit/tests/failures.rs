//! Sinks that fail, hang and recover.

use std::fs::{self, File};
use std::io::Read;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

fn fifo(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
}

#[test]
fn a_missing_directory_is_an_error_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let error = Audit::open(Settings::new(dir.path().join("no/audit.ndjson")), start()).unwrap_err();
    assert!(error.to_string().contains("no/audit.ndjson"), "{error}");
    assert!(Audit::open(Settings::new(dir.path()), start()).is_err());
}

#[tokio::test]
async fn a_full_disk_refuses_decisions() {
    let audit = open("/dev/full");
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::NotWritten)));
    assert!(matches!(attempt(&audit).refuse().await, Err(AuditUnavailable::NotWritten)));
    assert!(!audit.healthy());
    assert_eq!(audit.counters().records.get(), 0);
    assert_eq!(audit.counters().refused.get(), 2);
    assert!(audit.counters().failures.get() >= 2);
    assert!(matches!(audit.shutdown().await, Err(AuditUnavailable::Incomplete)));
}

#[tokio::test]
async fn a_full_disk_stops_nothing_if_failures_are_allowed() {
    let audit = open_hasty("/dev/full", OnFailure::Allow);
    for _ in 0..100 {
        attempt(&audit).permit().await.unwrap().close(Closing::default());
    }
    until("the failure is noticed", || !audit.healthy()).await;
    assert_eq!(audit.counters().records.get(), 0);
    assert_eq!(audit.counters().refused.get(), 0);
}

#[tokio::test]
async fn a_deleted_directory_and_its_return() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    let file = dir.join("audit.ndjson");
    fs::create_dir(&dir).unwrap();
    let audit = open(&file);
    let mut health = audit.health();
    let tunnel = attempt(&audit).permit().await.unwrap();
    let tunnel_id = tunnel.id();

    fs::remove_dir_all(&dir).unwrap();
    let refused = attempt(&audit);
    let refused_id = refused.id();
    assert!(matches!(refused.permit().await, Err(AuditUnavailable::NotWritten)));
    assert!(!*health.wait_for(|healthy| !healthy).await.unwrap());
    tunnel.close(Closing { bytes_down: 9, reason: "audit_unavailable", ..Closing::default() });

    fs::create_dir(&dir).unwrap();
    // No traffic: the writer looks again by itself.
    assert!(*health.wait_for(|healthy| *healthy).await.unwrap());
    attempt(&audit).permit().await.unwrap().close(Closing::default());
    audit.shutdown().await.unwrap();

    let records = records(&file);
    assert_eq!(events_of(&records, tunnel_id), [("close", "audit_unavailable")]);
    assert_eq!(events_of(&records, refused_id), []);
    let gaps = of_event(&records, "dropped");
    assert_eq!(gaps.len(), 1);
    assert_eq!((&gaps[0]["count"], &gaps[0]["refused"]), (&Value::from(0), &Value::from(1)));
    assert_eq!(records[0]["seq"], 3, "start and the first decision went with the directory");
}

#[tokio::test]
async fn allowed_failures_are_recorded_later() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    let file = dir.join("audit.ndjson");
    fs::create_dir(&dir).unwrap();
    let audit = open_hasty(&file, OnFailure::Allow);
    fs::remove_dir_all(&dir).unwrap();
    let mut ids = Vec::new();
    for _ in 0..50 {
        let attempt = attempt(&audit);
        ids.push(attempt.id());
        attempt.permit().await.unwrap().close(Closing { reason: "allowed", ..Closing::default() });
    }
    fs::create_dir(&dir).unwrap();
    audit.health().wait_for(|healthy| *healthy).await.unwrap();
    audit.shutdown().await.unwrap();
    let records = records(&file);
    for id in ids {
        assert_eq!(events_of(&records, id), [("decision", "allowed"), ("close", "allowed")]);
    }
    assert!(of_event(&records, "dropped").is_empty());
}

#[tokio::test]
async fn kept_records_are_bounded_and_the_rest_is_accounted_for() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("log");
    let file = dir.join("audit.ndjson");
    fs::create_dir(&dir).unwrap();
    let audit = open(&file);
    attempt(&audit).refuse().await.unwrap();
    fs::remove_dir_all(&dir).unwrap();
    let reload = Event::Reload(Reload { ok: true, generation: 2, policy_digest: None, error: None });
    let total = 50_000;
    for _ in 0..total {
        audit.event(&reload);
    }
    until("some are dropped", || !audit.healthy() && audit.counters().dropped.get() > 0).await;
    fs::create_dir(&dir).unwrap();
    audit.health().wait_for(|healthy| *healthy).await.unwrap();
    audit.shutdown().await.unwrap();

    let records = records(&file);
    let kept = of_event(&records, "reload").len();
    // Two places keep some: the queue and, if the writer took those, its backlog.
    assert!((10_000..=20_000).contains(&kept), "{kept}");
    let dropped: u64 = of_event(&records, "dropped").iter().map(|gap| gap["count"].as_u64().unwrap()).sum();
    assert_eq!(dropped, total - kept as u64);
    assert_eq!(audit.counters().dropped.get(), dropped);
}

#[tokio::test]
async fn a_pipe_without_reader_and_its_recovery() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipe");
    fifo(&file);
    let audit = open(&file);
    assert!(!audit.healthy());
    assert!(matches!(attempt(&audit).permit().await, Err(AuditUnavailable::NotWritten)));

    let reader = std::thread::spawn({
        let file = file.clone();
        move || {
            let mut content = String::new();
            File::open(file).unwrap().read_to_string(&mut content).unwrap();
            content
        }
    });
    audit.health().wait_for(|healthy| *healthy).await.unwrap();
    let permitted = attempt(&audit).permit().await.unwrap();
    let id = permitted.id();
    drop(permitted);
    audit.shutdown().await.unwrap();
    let content = reader.join().unwrap();
    let records: Vec<Value> = content.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_numbered(&records);
    assert_eq!(events_of(&records, id), [("decision", "allowed"), ("close", "client_cancel")]);
    assert_eq!(of_event(&records, "dropped")[0]["refused"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_that_nobody_empties() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipe");
    fifo(&file);
    // Opened for both, so that this end counts as a reader at once.
    let mut reader = File::options().read(true).write(true).open(&file).unwrap();
    let audit = open_hasty(&file, OnFailure::Deny);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let audit = audit.clone();
            tokio::spawn(async move {
                let mut recorded = Vec::new();
                loop {
                    let attempt = attempt(&audit);
                    let id = attempt.id();
                    match attempt.permit().await {
                        Ok(flow) => recorded.push(flow.id()),
                        Err(error) => break (recorded, id, error),
                    }
                }
            })
        })
        .collect();
    let mut recorded = Vec::new();
    let mut refused = Vec::new();
    for task in tasks {
        let (ids, id, error) = task.await.unwrap();
        assert!(matches!(error, AuditUnavailable::NotWritten | AuditUnavailable::TimedOut), "{error}");
        recorded.extend(ids);
        refused.push(id);
    }
    assert!(!audit.healthy());

    let content = std::thread::spawn(move || {
        let mut content = Vec::new();
        let mut chunk = [0; 4096];
        while !content.windows(14).any(|window| window == b"\"event\":\"stop\"") {
            let size = reader.read(&mut chunk).unwrap();
            content.extend_from_slice(&chunk[..size]);
        }
        String::from_utf8(content).unwrap()
    });
    audit.health().wait_for(|healthy| *healthy).await.unwrap();
    audit.shutdown().await.unwrap();
    let content = content.join().unwrap();
    let (whole, torn): (Vec<_>, Vec<_>) =
        content.lines().map(serde_json::from_str::<Value>).partition(Result::is_ok);
    let records: Vec<Value> = whole.into_iter().map(Result::unwrap).collect();
    assert!(torn.len() <= 1, "one batch was cut by the full pipe, at most");
    for id in recorded {
        assert_eq!(events_of(&records, id), [("decision", "allowed"), ("close", "client_cancel")]);
    }
    for id in refused {
        let events = events_of(&records, id);
        let ended = [("decision", "allowed"), ("close", "audit_unavailable")];
        assert!(events.is_empty() || events == ended, "{events:?}");
    }
}

#[tokio::test]
async fn a_full_pipe_delays_nothing_for_ever_if_failures_are_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pipe");
    fifo(&file);
    let _reader = File::options().read(true).write(true).open(&file).unwrap();
    let audit = open_hasty(&file, OnFailure::Allow);
    let mut permitted = 0;
    while audit.healthy() || permitted < 1000 {
        attempt(&audit).permit().await.unwrap().close(Closing::default());
        permitted += 1;
    }
    assert_eq!(audit.counters().refused.get() + audit.counters().dropped.get(), 0);
    assert!(matches!(audit.shutdown().await, Err(AuditUnavailable::Incomplete)));
}

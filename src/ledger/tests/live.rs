//! The ledger's thread behind a real audit writer.

use std::io::Read;

use super::*;
use crate::audit::{Audit, Closing, Request, Settings as AuditSettings, Start, Verdict};

fn audit(file: &Path, ledger: &Ledger, sync: bool) -> Audit {
    let settings = AuditSettings { tap: Some(ledger.tap()), sync, ..AuditSettings::new(file) };
    Audit::open(settings, Start { version: "1", generation: 1, policy_digest: None }).unwrap()
}

async fn request(audit: &Audit, host: &str) {
    let request = Request {
        sandbox: Some("box".into()),
        host: Some(host.into()),
        port: Some(443),
        ..Request::default()
    };
    let mut attempt = audit.begin(request);
    attempt.outcome_mut().verdict = Verdict::Allow;
    attempt.outcome_mut().reason = "allowed";
    attempt.outcome_mut().dialed = Some([192, 0, 2, 1].into());
    let closing = Closing { bytes_up: 1, bytes_down: 10, reason: "allowed", ..Closing::default() };
    attempt.permit().await.unwrap().close(closing);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_recorded_is_folded_when_asked() {
    for sync in [false, true] {
        let place = Place::new();
        let ledger = place.ledger();
        ledger.start().unwrap();
        let audit = audit(&place.file(), &ledger, sync);
        let mut listener = ledger.listen().unwrap();
        for round in 1..=20 {
            request(&audit, "one.test").await;
            ledger.settle().await;
            assert_eq!(Folded::of(&ledger).rows[0].counts.requests, round);
        }
        assert!(matches!(listener.recv().await, Some(Message::Record(line)) if line.contains("\"start\"")));
        assert_eq!(ledger.decisions(&Filter { limit: 7, ..Filter::default() }).len(), 7);
        audit.shutdown().await.unwrap();
        ledger.shutdown().await;
        assert_eq!(ledger.numbers().lag, 0);
        assert_eq!(ledger.numbers().rows, 1);
        assert_eq!(Folded::of(&ledger).short(), [("box", "one.test", 20, 20, 200)]);
        assert!(ledger.listen().is_none(), "the process stops");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotation_under_load_loses_nothing() {
    let place = Place::new();
    let ledger = place.ledger();
    ledger.start().unwrap();
    let audit = audit(&place.file(), &ledger, false);
    for turn in 0..5 {
        for number in 0..100 {
            request(&audit, &format!("h{}.test", number % 7)).await;
        }
        fs::rename(place.file(), place.dir.path().join(format!("audit.ndjson.{turn}"))).unwrap();
        if turn % 2 == 0 {
            // Sometimes it has read the old file by then, sometimes it has not.
            ledger.settle().await;
        }
    }
    request(&audit, "last.test").await;
    audit.shutdown().await.unwrap();
    ledger.shutdown().await;
    let folded = Folded::of(&ledger);
    let total = &folded.sandboxes[0].1;
    assert_eq!((total.domains, total.counts.requests, total.counts.bytes_down), (8, 501, 5010));
    assert_eq!(folded.notes, Notes::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_is_folded_as_it_comes() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let place = Place::new();
    mknodat(CWD, place.file(), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut reader = OpenOptions::new().read(true).write(true).open(place.file()).unwrap();
    let ledger = place.ledger();
    ledger.start().unwrap();
    let audit = audit(&place.file(), &ledger, false);
    for _ in 0..10 {
        request(&audit, "one.test").await;
    }
    audit.shutdown().await.unwrap();
    ledger.shutdown().await;
    assert_eq!(Folded::of(&ledger).short(), [("box", "one.test", 10, 10, 100)]);
    assert!(reader.read(&mut [0; 100]).unwrap() > 0);
}

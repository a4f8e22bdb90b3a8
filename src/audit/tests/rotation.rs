//! Files that are renamed, deleted, cut or damaged by others.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

#[tokio::test]
async fn renaming_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    let mut ids = Vec::new();
    for turn in 0..6 {
        for _ in 0..10 {
            let attempt = attempt(&audit);
            ids.push(attempt.id());
            attempt.permit().await.unwrap().close(Closing { reason: "allowed", ..Closing::default() });
        }
        fs::rename(&file, dir.path().join(format!("audit.{turn}"))).unwrap();
        // logrotate creates the new file itself, or leaves that to the program.
        if turn % 2 == 0 {
            fs::write(&file, "").unwrap();
        }
        if turn % 3 == 0 {
            audit.reopen();
        }
    }
    audit.shutdown().await.unwrap();

    let old = (0..6).flat_map(|turn| records(&dir.path().join(format!("audit.{turn}"))));
    let all: Vec<_> = old.chain(records(&file)).collect();
    assert_numbered(&all);
    for id in ids {
        assert_eq!(events_of(&all, id), [("decision", "allowed"), ("close", "allowed")]);
    }
}

#[tokio::test]
async fn a_deleted_file_comes_back_without_traffic() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    until("the file has its first record", || fs::metadata(&file).is_ok_and(|f| f.len() > 0)).await;
    fs::remove_file(&file).unwrap();
    until("the file is back", || file.exists()).await;
    assert!(audit.healthy());
}

#[tokio::test]
async fn a_file_that_is_cut_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = open(&file);
    attempt(&audit).refuse().await.unwrap();
    fs::File::options().write(true).open(&file).unwrap().set_len(0).unwrap();
    attempt(&audit).refuse().await.unwrap();
    let records = records(&file);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0]["seq"], 3);
}

#[tokio::test]
async fn a_torn_line_is_ended_first() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    fs::write(&file, "{\"seq\":1}\n{\"seq\":2,\"to").unwrap();
    let audit = open(&file);
    audit.shutdown().await.unwrap();
    let content = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = content.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[1], "{\"seq\":2,\"to");
    assert!(lines[2].starts_with("{\"seq\":1,") && lines[2].contains("\"start\""));
}

#[tokio::test]
async fn a_new_file_is_not_for_everybody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let _audit = open(&file);
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & !0o640, 0, "{mode:o}");
}

#[tokio::test]
async fn batches_can_be_forced_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let audit = Audit::open(Settings { sync: true, ..Settings::new(&file) }, start()).unwrap();
    attempt(&audit).refuse().await.unwrap();
    audit.shutdown().await.unwrap();
    assert_numbered(&records(&file));
}

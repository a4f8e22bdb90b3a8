//! What only shows in a process of its own: being killed, and limits on file sizes. The tests
//! start their own executable again, with the scene in the environment.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;

const SCENE: &str = "EGRET_TEST_AUDIT_FILE";

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap()
}

#[test]
fn killing_the_process_loses_no_acknowledged_decision() {
    if let Ok(file) = env::var(SCENE) {
        return runtime().block_on(acknowledge_for_ever(file.into()));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("audit.ndjson");
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["killing_the_process_loses_no_acknowledged_decision", "--nocapture"])
        .env(SCENE, &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = Vec::new();
    let mut line = String::new();
    while output.read_line(&mut line).unwrap() > 0 {
        if let (Some(begin), true) = (line.find("ack "), line.ends_with('\n')) {
            acknowledged.push(line[begin + 4..].trim().to_owned());
        }
        if acknowledged.len() == 2000 {
            child.kill().unwrap();
        }
        line.clear();
    }
    child.wait().unwrap();
    assert!(acknowledged.len() >= 2000);

    let records = records(&file);
    assert_numbered(&records);
    let decisions: HashSet<_> = of_event(&records, "decision")
        .iter()
        .map(|record| record["id"].as_str().unwrap().to_owned())
        .collect();
    for id in acknowledged {
        assert!(decisions.contains(&id), "{id} was acknowledged but is missing");
    }
}

async fn acknowledge_for_ever(file: PathBuf) {
    let audit = open(file);
    let tasks: Vec<_> = (0..32)
        .map(|_| {
            let audit = audit.clone();
            tokio::spawn(async move {
                loop {
                    let flow = attempt(&audit).permit().await.unwrap();
                    let told = std::io::stdout().lock().write_all(format!("ack {}\n", flow.id()).as_bytes());
                    if told.is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// A limit on the file size cuts a write in the middle, as a full disk does.
#[test]
fn a_write_that_is_cut_leaves_whole_lines() {
    if let Ok(file) = env::var(SCENE) {
        return runtime().block_on(fill_and_recover(Path::new(&file)));
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\""])
        .arg(env::current_exe().unwrap())
        .args(["a_write_that_is_cut_leaves_whole_lines", "--nocapture"])
        .env(SCENE, dir.path().join("audit.ndjson"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let moved = records(&dir.path().join("audit.1"));
    let all: Vec<_> = moved.into_iter().chain(records(&dir.path().join("audit.ndjson"))).collect();
    assert_numbered(&all);
    assert_eq!(of_event(&all, "dropped").len(), 1);
    assert_eq!(of_event(&all, "stop").len(), 1);
}

async fn fill_and_recover(file: &Path) {
    let audit = open(file);
    let tunnel = attempt(&audit).permit().await.unwrap();
    let mut last = None;
    let error = loop {
        let attempt = attempt(&audit);
        last.replace(attempt.id());
        if let Err(error) = attempt.refuse().await {
            break error;
        }
        assert!(fs::metadata(file).unwrap().len() < 100_000, "no limit is in force");
    };
    assert!(matches!(error, AuditUnavailable::NotWritten), "{error}");
    let before = records(file);
    assert!(events_of(&before, last.unwrap()).is_empty());

    let tunnel_id = tunnel.id();
    tunnel.close(Closing { reason: "audit_unavailable", ..Closing::default() });
    fs::rename(file, file.with_file_name("audit.1")).unwrap();
    attempt(&audit).refuse().await.unwrap();
    assert_eq!(events_of(&records(file), tunnel_id), [("close", "audit_unavailable")]);
    audit.shutdown().await.unwrap();
}

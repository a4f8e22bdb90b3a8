//! Rules as written: `check` loads them or not, `explain --batch` says what they decide.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::bench::{self, Problems};
use crate::proxy::rule_config;
use crate::rows::RuleRow;
use crate::support::egret::BINARY;

/// Nothing is served and nothing is resolved: needs no world.
pub fn run(row: &RuleRow) -> Result<Problems, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let config = folder.path().join("egret.toml");
    std::fs::write(&config, rule_config(row.rule.as_slice())).map_err(|error| error.to_string())?;
    let check = egret(&["check"], &config, b"")?;
    let loaded = check.status.code();
    let decision = if loaded == Some(0) { explain(row, &config)? } else { Value::Null };
    let expected = std::iter::once(&row.expected).chain(&row.also_ok);
    let mut problems = bench::best(expected.map(|e| judge(e, loaded, &decision)).collect());
    if !problems.is_empty() {
        problems.push(format!("check said: {}", String::from_utf8_lossy(&check.stderr).trim()));
        problems.push(format!("explain said: {decision}"));
    }
    Ok(problems)
}

fn egret(arguments: &[&str], config: &Path, input: &[u8]) -> Result<Output, String> {
    let mut child = Command::new(BINARY)
        .arg(arguments[0])
        .arg("--config")
        .arg(config)
        .args(&arguments[1..])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{BINARY} does not start: {error}"))?;
    // It may end without reading: that shows in its output.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().map_err(|error| error.to_string())
}

fn explain(row: &RuleRow, config: &Path) -> Result<Value, String> {
    let bare_v6 = row.host.matches(':').count() > 1 && !row.host.contains('[');
    let target =
        if bare_v6 { format!("[{}]:{}", row.host, row.port) } else { format!("{}:{}", row.host, row.port) };
    let question = json!({"sandbox": "sandbox-a", "target": target, "addresses": row.resolved});
    let output = egret(&["explain", "--batch", "-"], config, format!("{question}\n").as_bytes())?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().next().unwrap_or_default()).map_err(|error| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("explain answered no JSON line ({error}), {}: {text:?} {complaint}", output.status)
    })
}

fn judge(expected: &str, loaded: Option<i32>, decision: &Value) -> Problems {
    let fault = if expected == "invalid_rule" {
        (loaded != Some(2)).then(|| format!("check ended with {loaded:?}, expected 2"))
    } else if loaded != Some(0) {
        Some(format!("refused at load, expected {expected}"))
    } else {
        let allowed = decision["verdict"] == "allow";
        let reason = decision["reason"].as_str().unwrap_or_default();
        match expected {
            "bad_request" => {
                (reason != "bad_request").then(|| format!("reason {reason}, expected bad_request"))
            }
            "no_match" => allowed.then(|| "allowed, expected no match".to_owned()),
            "match" => (!allowed).then(|| format!("denied for {reason}, expected allow")),
            other => panic!("no such expectation: {other}"),
        }
    };
    fault.into_iter().collect()
}

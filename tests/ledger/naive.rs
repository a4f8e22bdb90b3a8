//! The rows that an audit file amounts to, by the plainest means.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

/// Folds records into rows as `egret domains --json` shows them.
pub fn fold(records: &[Value]) -> Vec<Value> {
    let mut rows: BTreeMap<(String, String, u64), Value> = BTreeMap::new();
    let mut open: HashMap<&str, (String, String, u64)> = HashMap::new();
    for record in records {
        let key = match record["event"].as_str().unwrap() {
            "start" => {
                open.clear();
                continue;
            }
            "decision" => {
                let sandbox = record["sandbox"].as_str().unwrap_or("(unknown)").to_owned();
                match record["port"].as_u64() {
                    Some(port) => (sandbox, record["host"].as_str().unwrap().to_owned(), port),
                    None => (sandbox, "(none)".to_owned(), 0),
                }
            }
            "close" => match open.remove(record["id"].as_str().unwrap()) {
                Some(key) => key,
                None => continue,
            },
            _ => continue,
        };
        let port = if key.2 == 0 { Value::Null } else { key.2.into() };
        let row = rows.entry(key.clone()).or_insert_with(|| {
            json!({
                "sandbox": key.0, "host": key.1, "port": port, "first_seen": record["ts"],
                "last_seen": record["ts"], "requests": 0, "allow": 0, "deny": 0, "would_deny": 0,
                "bytes_up": 0, "bytes_down": 0,
            })
        });
        let mut add = |field: &str, number: u64| row[field] = (row[field].as_u64().unwrap() + number).into();
        if record["event"] == "decision" {
            add("requests", 1);
            add(record["verdict"].as_str().unwrap(), 1);
            row["last_verdict"] = record["verdict"].clone();
            open.insert(record["id"].as_str().unwrap(), key);
        } else {
            add("bytes_up", record["bytes_up"].as_u64().unwrap());
            add("bytes_down", record["bytes_down"].as_u64().unwrap());
        }
        row["last_reason"] = record["reason"].clone();
        let ts = record["ts"].as_str().unwrap();
        if ts < row["first_seen"].as_str().unwrap() {
            row["first_seen"] = ts.into();
        }
        if ts > row["last_seen"].as_str().unwrap() {
            row["last_seen"] = ts.into();
        }
    }
    rows.into_values().collect()
}

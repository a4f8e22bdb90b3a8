//! The registry and its file, without a proxy around them.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;

fn body(source: &str) -> Value {
    json!({"source": [source], "policy": "p"})
}

fn checked(id: &str, body: Value) -> Result<Checked, String> {
    let WantedBody(wanted) = serde_json::from_value(body).map_err(|error| error.to_string())?;
    wanted.check(id).map_err(|error| error.to_string())
}

fn put(registry: &Registry, id: &str, body: Value) -> Result<Put, String> {
    registry.put(checked(id, body)?, 1000).map_err(|error| error.to_string())
}

fn open(dir: &tempfile::TempDir, now: u64) -> Registry {
    Registry::open(dir.path(), now).unwrap()
}

fn who(registry: &Registry, source: &str) -> Option<String> {
    let snapshot = registry.snapshot();
    snapshot.registered.find(source.parse().unwrap()).map(|found| found.id.to_string())
}

#[test]
fn registrations_survive() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    assert_eq!(put(&registry, "a", body("10.0.0.1")), Ok(Put::Created));
    assert_eq!(put(&registry, "a", body("10.0.0.1")), Ok(Put::Renewed));
    assert_eq!(put(&registry, "b", body("10.0.1.0/24")), Ok(Put::Created));
    assert_eq!(put(&registry, "a", body("10.0.0.2")), Ok(Put::Replaced));
    assert!(registry.remove("b").unwrap().1.is_ok());
    assert!(registry.remove("b").is_none());
    for registry in [registry, open(&dir, 2000)] {
        assert_eq!(who(&registry, "10.0.0.2").as_deref(), Some("a"));
        assert_eq!(who(&registry, "10.0.0.1"), None);
        assert_eq!(who(&registry, "10.0.1.1"), None);
        assert_eq!(registry.snapshot().get("a").unwrap().created, 1000);
    }
    assert_eq!(
        std::fs::read_to_string(dir.path().join(FILE)).unwrap().lines().count(),
        1,
        "it was rewritten"
    );
}

#[test]
fn the_same_changes_nothing_and_another_does() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    put(&registry, "a", body("10.0.0.1")).unwrap();
    let version = registry.snapshot().version;
    put(&registry, "a", body("10.0.0.1")).unwrap();
    assert_eq!(registry.snapshot().version, version);
    let mut other = body("10.0.0.1");
    other["ttl"] = json!("2h");
    assert_eq!(put(&registry, "a", other), Ok(Put::Replaced));
    assert!(registry.snapshot().version > version);
}

#[test]
fn one_that_was_removed_is_not_the_next_of_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    let source: IpAddr = "10.0.0.1".parse().unwrap();
    put(&registry, "a", body("10.0.0.1")).unwrap();
    let client = Arc::clone(registry.snapshot().registered.find(source).unwrap());
    put(&registry, "a", body("10.0.0.0/24")).unwrap();
    assert!(registry.snapshot().holds(&client, source), "it was replaced");
    registry.remove("a").unwrap().1.unwrap();
    put(&registry, "a", body("10.0.0.1")).unwrap();
    assert!(!registry.snapshot().holds(&client, source), "it was removed");
}

#[test]
fn addresses_belong_to_one() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    put(&registry, "a", body("10.0.0.0/24")).unwrap();
    let error = put(&registry, "b", body("10.0.0.7")).unwrap_err();
    assert!(error.contains("sandbox a is registered"), "{error}");
    assert_eq!(who(&registry, "10.0.0.7").as_deref(), Some("a"));
}

#[test]
fn there_is_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    let lines = (0..MOST_REGISTERED).map(|number| {
        let source = format!("10.{}.{}.1", number / 256, number % 256);
        let sandbox = serde_json::from_value(body(&source)).unwrap();
        Line::Put(Box::new(Kept { id: format!("s{number}"), created: 1, expires: None, sandbox }))
    });
    journal::rewrite(&dir.path().join(FILE), lines).unwrap();
    let registry = open(&dir, 1000);
    assert!(put(&registry, "more", body("11.0.0.1")).unwrap_err().contains("10000 sandboxes"));
    assert_eq!(put(&registry, "s1", body("11.0.0.1")), Ok(Put::Replaced));
    registry.remove("s2").unwrap().1.unwrap();
    assert_eq!(put(&registry, "more", body("11.0.0.2")), Ok(Put::Created));
}

#[test]
fn unused_ones_end_and_used_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    for (id, source) in [("unused", "10.0.0.1"), ("asked", "10.0.0.2"), ("open", "10.0.0.3")] {
        let mut body = body(source);
        body["ttl"] = json!("2s");
        put(&registry, id, body).unwrap();
    }
    let open = Arc::clone(registry.snapshot().registered.find("10.0.0.3".parse().unwrap()).unwrap());
    std::thread::sleep(Duration::from_millis(1200));
    registry.used("asked");
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(registry.over(1000), ["unused".into()]);
    drop(open);
    std::thread::sleep(Duration::from_millis(2100));
    assert_eq!(registry.over(1000).len(), 3);
}

#[test]
fn only_clients_keep_a_registration_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    let mut short = body("10.0.0.1");
    short["ttl"] = json!("100ms");
    put(&registry, "a", short).unwrap();
    // As whoever looked before others came.
    let before = registry.snapshot();
    put(&registry, "b", body("10.0.0.2")).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(registry.over(1000), ["a".into()]);
    drop(before);
}

#[test]
fn a_lifetime_ends_whatever_happens() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    let mut long = body("10.0.0.1");
    long["lifetime"] = json!("1m");
    put(&registry, "a", long.clone()).unwrap();
    registry.used("a");
    assert!(registry.over(1059).is_empty());
    assert_eq!(registry.over(1060), ["a".into()]);
    // The same again begins it anew, also for the next process.
    registry.put(checked("a", long).unwrap(), 1030).unwrap();
    assert!(registry.over(1089).is_empty());
    assert!(open(&dir, 1089).snapshot().get("a").is_some());
    assert!(open(&dir, 1090).snapshot().get("a").is_none());
}

#[test]
fn what_is_renewed_meanwhile_does_not_expire() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    let mut short = body("10.0.0.1");
    short["lifetime"] = json!("1m");
    put(&registry, "a", short.clone()).unwrap();
    assert_eq!(registry.over(1060), ["a".into()]);
    registry.put(checked("a", short).unwrap(), 1060).unwrap();
    assert!(registry.remove_over("a", 1060).is_none(), "it was renewed before it was removed");
    assert_eq!(who(&registry, "10.0.0.1").as_deref(), Some("a"));
    assert!(registry.remove_over("a", 1120).is_some());
}

#[test]
fn what_can_not_be_written_is_not_registered_and_is_removed_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    put(&registry, "a", body("10.0.0.1")).unwrap();
    let file = dir.path().join(FILE);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(put(&registry, "b", body("10.0.0.2")).is_err());
    assert_eq!(who(&registry, "10.0.0.2"), None);
    assert!(registry.remove("a").unwrap().1.is_err());
    assert_eq!(who(&registry, "10.0.0.1"), None);
}

/// Makes every write to the file fail, until it is called the other way.
fn break_file(dir: &tempfile::TempDir, broken: bool) {
    let (file, aside) = (dir.path().join(FILE), dir.path().join("aside"));
    if broken {
        std::fs::rename(&file, &aside).unwrap();
        std::fs::create_dir(&file).unwrap();
    } else {
        std::fs::remove_dir(&file).unwrap();
        std::fs::rename(&aside, &file).unwrap();
    }
}

#[test]
fn a_removal_that_could_not_be_written_is_made_up_for() {
    let dir = tempfile::tempdir().unwrap();
    let registry = open(&dir, 1000);
    put(&registry, "z", body("10.0.0.1")).unwrap();
    break_file(&dir, true);
    assert!(registry.remove("z").unwrap().1.is_err());
    break_file(&dir, false);
    put(&registry, "a", body("10.0.0.1")).unwrap();
    for registry in [registry, open(&dir, 1000)] {
        assert_eq!(who(&registry, "10.0.0.1").as_deref(), Some("a"), "the address has another owner now");
        assert!(registry.snapshot().get("z").is_none());
    }
}

#[test]
fn a_damaged_file_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    put(&open(&dir, 1), "a", body("10.0.0.1")).unwrap();
    let file = dir.path().join(FILE);
    let text = std::fs::read_to_string(&file).unwrap();
    for (bad, line) in [
        (format!("{text}nonsense\n"), 2),
        (text.replace("10.0.0.1", "10.0.0.1/8"), 1),
        (text.replace("\"policy\"", "\"police\""), 1),
    ] {
        std::fs::write(&file, &bad).unwrap();
        let error = Registry::open(dir.path(), 1).unwrap_err();
        assert!(matches!(error, RegistryError::Line { line: found, .. } if found == line), "{bad}: {error}");
    }
    std::fs::write(&file, format!("{text}{{\"put\":")).unwrap();
    assert_eq!(who(&open(&dir, 1), "10.0.0.1").as_deref(), Some("a"), "a line that was being written");
    // Also one that was cut within a character.
    std::fs::write(&file, [text.as_bytes(), b"{\"put\":\"\xc3"].concat()).unwrap();
    assert_eq!(who(&open(&dir, 1), "10.0.0.1").as_deref(), Some("a"));
}

#[test]
fn wrong_values() {
    let with = |key: &str, value: Value| {
        let mut body = body("10.0.0.1");
        body[key] = value;
        body
    };
    assert!(checked("a", with("limits", json!({"connections": 3}))).is_ok());
    for (id, body) in [
        ("", body("10.0.0.1")),
        ("a b", body("10.0.0.1")),
        ("a", with("source", json!([]))),
        ("a", with("source", json!("10.0.0.1"))),
        ("a", with("source", json!(["10.0.0.1/8"]))),
        ("a", with("source", json!(["10.0.0.0/08"]))),
        ("a", with("source", json!(["fd00::/08"]))),
        ("a", with("source", json!(["::ffff:10.0.0.1"]))),
        ("a", with("source", json!(["host"]))),
        ("a", with("source", json!(["10.0.0.0/24", "10.0.0.7"]))),
        ("a", with("source", json!(vec!["10.0.0.1"; 17]))),
        ("a", with("policy", json!(7))),
        ("a", with("policy", json!(null))),
        ("a", with("ttl", json!("0s"))),
        ("a", with("ttl", json!(60))),
        ("a", with("ttl", json!(null))),
        ("a", with("ttl", json!("31d"))),
        ("a", with("lifetime", json!("soon"))),
        ("a", with("limits", json!({"bytes": "1"}))),
        ("a", with("limits", json!({"tunnel_idle": "0s"}))),
        ("a", with("limits", json!({"unknown": 1}))),
        ("a", with("limits", json!([]))),
        ("a", with("workspace", json!("a\nb"))),
        ("a", with("tool", json!("x".repeat(129)))),
        ("a", with("unknown", json!(1))),
        ("a", json!({"policy": "p"})),
        ("a", json!({"source": ["10.0.0.1"]})),
        ("a", json!([])),
    ] {
        assert!(checked(id, body.clone()).is_err(), "{id} {body}");
    }
}

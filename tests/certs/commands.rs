//! `egret cert`, as an operator runs it.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::pki::{Pki, egret, printed};

fn complaint(arguments: &[&str], code: i32) -> String {
    let output = egret(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

#[test]
fn keys_are_secret_and_nothing_is_overwritten() {
    let pki = Pki::new();
    let ca = pki.text("ca");
    printed(&["cert", "client", "--ca", &ca, "--sandbox", "build-7", "--out", &pki.text("build-7")]);
    let mode = |name: &str| std::fs::metadata(pki.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["ca.key", "server.key", "build-7.key"].map(mode), [0o600; 3]);
    let before = std::fs::read(pki.path("ca.key")).unwrap();
    assert!(complaint(&["cert", "ca", "--out", &ca], 1).contains("exists; move it away"));
    let again = ["cert", "client", "--ca", &ca, "--sandbox", "build-7", "--out", &pki.text("build-7")];
    assert!(complaint(&again, 1).contains("exists"));
    std::fs::remove_file(pki.path("build-7.key")).unwrap();
    assert!(complaint(&again, 1).contains("build-7.crt exists"));
    assert!(!pki.path("build-7.key").exists());
    assert_eq!(std::fs::read(pki.path("ca.key")).unwrap(), before);
}

#[test]
fn a_certificate_says_what_it_is_for() {
    let pki = Pki::new();
    pki.client("build-7");
    let inspect = |name: &str| {
        let text = printed(&["cert", "inspect", "--json", &pki.text(name)]);
        let all: Value = serde_json::from_str(&text).unwrap();
        all[0].clone()
    };
    let client = inspect("build-7.crt");
    assert_eq!((&client["sandbox"], &client["for"][0]), (&"build-7".into(), &"client".into()));
    assert_eq!((&client["names"][0], &client["current"]), (&"egret:sandbox:build-7".into(), &true.into()));
    let server = inspect("server.crt");
    assert_eq!((&server["sandbox"], &server["for"]), (&Value::Null, &serde_json::json!(["server"])));
    assert_eq!(inspect("ca.crt")["authority"], true);
    let text = printed(&["cert", "inspect", &pki.text("build-7.crt")]);
    assert!(text.contains("sandbox    build-7\n"), "{text}");
    let made = printed(&[
        "cert",
        "client",
        "--json",
        "--ca",
        &pki.text("ca"),
        "--sandbox",
        "b",
        "--out",
        &pki.text("b"),
    ]);
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["certificate"], pki.text("b.crt"));
}

#[test]
fn what_can_not_be_done_is_said() {
    let pki = Pki::new();
    let other = Pki::new();
    let (ca, out) = (pki.text("ca"), pki.text("new"));
    let client = |more: &[&str]| {
        let all = [&["cert", "client", "--ca", &ca, "--out", &out], more].concat();
        complaint(&all, 2)
    };
    assert!(client(&["--sandbox", "a/b"]).contains("`a/b` is not a sandbox ID"));
    assert!(client(&["--sandbox", "a", "--ttl", "3000d"]).contains("choose a shorter --ttl"));
    assert!(client(&["--sandbox", "a", "--ttl", "0s"]).contains("write a time"));
    assert!(
        complaint(&["cert", "client", "--ca", &pki.text("none"), "--sandbox", "a"], 2)
            .contains("can't be read")
    );
    // Not an authority, and an authority with the key of another.
    assert!(
        complaint(&["cert", "client", "--ca", &pki.text("server"), "--sandbox", "a"], 2)
            .contains("authority")
    );
    std::fs::copy(pki.path("ca.crt"), pki.path("mixed.crt")).unwrap();
    std::fs::copy(other.path("ca.key"), pki.path("mixed.key")).unwrap();
    let mixed = pki.text("mixed");
    assert!(
        complaint(&["cert", "server", "--ca", &mixed, "--name", "h"], 2).contains("it is not the key of")
    );
    assert!(
        complaint(&["cert", "server", "--ca", &ca, "--name", "hö st", "--out", &out], 1).contains("egret: ")
    );
    assert!(complaint(&["cert", "server", "--ca", &ca], 2).contains("--name"));
    assert!(
        complaint(&["cert", "inspect", &pki.text("ca.key")], 2).contains("holds no -----BEGIN CERTIFICATE")
    );
    assert!(complaint(&["cert", "revoke", "--ca", &ca, &pki.text("ca.key")], 2).contains("can't be used"));
    assert!(!pki.path("new.key").exists());
}

#[test]
fn the_list_of_revoked_ones_grows() {
    let pki = Pki::new();
    for name in ["a", "b"] {
        pki.client(name);
    }
    let ca = pki.text("ca");
    let count = |more: &[&str]| {
        let text = printed(&[&["cert", "revoke", "--json", "--ca", &ca], more].concat());
        serde_json::from_str::<Value>(&text).unwrap()["revoked"].as_u64()
    };
    assert_eq!(count(&[]), Some(0));
    assert_eq!(count(&[&pki.text("a.crt")]), Some(1));
    assert_eq!(count(&[&pki.text("a.crt")]), Some(1));
    assert_eq!(count(&[&pki.text("b.crt")]), Some(2));
    assert_eq!(count(&[]), Some(2));
}

//! The commands by themselves, without a running proxy.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::setup::{Keys, answering, config, egret, printed};

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn keys_are_made_once_and_kept_secret() {
    let keys = Keys::new();
    let mode = std::fs::metadata(keys.private()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(keys.private()).unwrap();
    for missing in [keys.public(), keys.path("none")] {
        let _ = std::fs::remove_file(&missing);
        let output = egret(&["token", "keygen", "--out", &keys.path("token")]);
        assert_eq!(output.status.code(), Some(1));
        assert!(error_of(&output).contains("exists"), "{}", error_of(&output));
    }
    assert_eq!(std::fs::read(keys.private()).unwrap(), before);
    assert!(!Path::new(&keys.public()).exists());
}

#[test]
fn a_token_can_be_looked_at() {
    let keys = Keys::new();
    let (token, id) = keys.mint(&["--source", "10.0.0.0/8", "--limit", "requests=5/s burst 9"]);
    let shown = printed(&["token", "inspect", &token]);
    assert!(shown.contains(&id) && shown.contains("not verified"), "{shown}");
    assert!(shown.contains("5/s burst 9") && shown.contains("10.0.0.0/8"), "{shown}");
    let public = keys.public();
    let shown = printed(&["token", "inspect", "--key", &public, &token]);
    assert!(shown.contains("\nverified"), "{shown}");
    let url = format!("http://box:{token}@127.0.0.1:3128");
    let json: Value =
        serde_json::from_str(&printed(&["token", "inspect", "--json", "--key", &public, &url])).unwrap();
    assert_eq!((&json["verified"], &json["claims"]["jti"]), (&Value::from(true), &Value::from(id)));
}

#[test]
fn a_token_that_does_not_verify_is_told_apart() {
    let keys = Keys::new();
    let (token, _) = keys.mint(&["--source", "10.0.0.0/8"]);
    let (own, other) = (keys.public(), Keys::new());
    for (arguments, why) in [
        (["--key", &other.public(), "--audience", "egret"], "no key in force"),
        (["--key", &own, "--audience", "other"], "another audience"),
        (["--key", &own, "--source", "11.0.0.1"], "from this address"),
    ] {
        let output = egret(&[&["token", "inspect", &token], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{why}");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains("not verified") && shown.contains(why), "{shown}");
    }
    assert_eq!(egret(&["token", "inspect", "nonsense"]).status.code(), Some(2));
}

#[test]
fn a_url_is_ready_for_a_client() {
    let keys = Keys::new();
    let key = keys.private();
    let mint = ["token", "mint", "--key", &key, "--sandbox", "build-7", "--policy", "build", "--url"];
    for (written, scheme, place) in [
        ("egret:3128", "http", "egret:3128"),
        ("http://egret:3128/", "http", "egret:3128"),
        ("https://Egret.example:443", "https", "egret.example:443"),
        ("[fd00::1]:3128", "http", "[fd00::1]:3128"),
    ] {
        let url = printed(&[&mint[..], &[written]].concat());
        let rest = url.strip_prefix(&format!("{scheme}://build-7:")).unwrap();
        let token = rest.strip_suffix(&format!("@{place}")).unwrap();
        assert_eq!(token.split('.').count(), 3);
    }
}

#[test]
fn what_the_proxy_would_refuse_is_not_made() {
    let keys = Keys::new();
    let key = keys.private();
    for more in [
        ["--sandbox", "a/b"],
        ["--ttl", "31d"],
        ["--ttl", "0s"],
        ["--source", "10.0.0.1/8"],
        ["--limit", "requests"],
        ["--limit", "unknown=1"],
        ["--limit", "connections=0"],
        ["--limit", "tunnel_idle=0s"],
        ["--tool", "a\nb"],
        ["--key", "/nonexistent/key"],
        ["--url", "egret"],
        ["--url", "egret:"],
        ["--url", "egret:0"],
        ["--url", "egret:3128/x"],
        ["--url", "http://egret"],
        ["--url", "socks5h://u@egret:1080"],
        ["--url", "ftp://egret:21"],
    ] {
        let mut arguments = vec!["token", "mint"];
        for own in [["--key", key.as_str()], ["--sandbox", "box"], ["--policy", "p"]] {
            if own[0] != more[0] {
                arguments.extend(own);
            }
        }
        arguments.extend(more);
        let output = egret(&arguments);
        assert_eq!(output.status.code(), Some(2), "{more:?}: {}", error_of(&output));
        assert!(output.stdout.is_empty());
        let named = more.iter().any(|word| error_of(&output).contains(word));
        assert!(named, "{more:?}: {}", error_of(&output));
    }
    for arguments in
        [&["token", "revoke"][..], &["token", "revoke", "a b"], &["token", "revoke", "a", "--sandbox", "b"]]
    {
        assert_eq!(egret(arguments).status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_configuration_says_what_is_wrong_with_its_keys() {
    let (keys, origin) = (Keys::new(), answering());
    let file = keys.path("egret.toml");
    let good = config(&origin, &[&keys]);
    let public = keys.public();
    for (text, expected) in [
        (good.replace(&public, "/nonexistent/key.pub"), "can't be read"),
        (good.replace(&public, &keys.private()), "BEGIN PUBLIC KEY"),
        (good.replace("[identity]\n", "[identity]\naudience = \"\"\n"), "`audience` is empty"),
        (good.replace(&format!("{public:?}"), ""), "needs keys that tokens are verified with"),
        (good.replace("auth = \"token\"", "auth = \"tokens\""), "unknown value"),
    ] {
        std::fs::write(&file, &text).unwrap();
        let output = egret(&["check", "--config", &file]);
        assert_eq!(output.status.code(), Some(2), "{expected}");
        let error = error_of(&output);
        assert!(error.contains(expected) && error.contains("egret.toml:"), "{error}");
    }
    std::fs::write(&file, good).unwrap();
    assert_eq!(printed(&["check", "--config", &file]), "the configuration is valid");
}

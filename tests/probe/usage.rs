//! How it is called, and what it says to a person.

use std::process::Command;

use crate::lab;
use crate::support::egret::BINARY;

fn probe(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(BINARY).arg("probe").args(arguments).env_clear().output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn wrong_usage_says_what_to_write() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("list.toml"), "[[target]]\ntarget = \"tcp:1\"\nexpect = \"blocked\"\n").unwrap();
    std::fs::write(path("other.json"), "{}").unwrap();
    for (arguments, said) in [
        (vec!["--target", "1.1.1.1:80"], "write tcp:ADDRESS:PORT"),
        (vec!["--allowed", "a.example"], "neither a URL nor host:port"),
        (vec!["--redirect", "https://a.example/"], "http:// URLs only"),
        (vec!["--neighbour", "a.example"], "invalid"),
        (vec!["--timeout", "0"], "0 is not in 1..=60"),
        (vec!["--proxy", "socks5://egret:1080"], "http:// and https:// proxies"),
        (vec!["--proxy", "https://egret", "--ca", &path("none.crt")], "can't be read"),
        (vec!["--proxy", "https://egret", "--ca", &path("other.json")], "no -----BEGIN CERTIFICATE"),
        (vec!["--proxy", "https://egret", "--cert", "x"], "--key"),
        (vec!["--proxy", "http://egret", "--ca", "x"], "are for an https:// proxy"),
        (vec!["--write", "x"], "goes with --baseline"),
        (vec!["--baseline", &path("none.json")], "can't be read"),
        (vec!["--baseline", &path("other.json")], "is no baseline"),
        (vec!["--expect", &path("list.toml")], "is not a target"),
        (vec!["--expect", &path("none.toml")], "can't be read"),
    ] {
        let (code, stdout, stderr) = probe(&arguments);
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}: {stderr}");
        assert!(stderr.contains(said), "{arguments:?}: {stderr}");
    }
}

#[test]
fn the_help_explains_itself() {
    let (code, stdout, _) = probe(&["--help"]);
    assert_eq!(code, 0);
    for text in
        ["PASS: N restricted checks and M baseline counterchecks", "UNSUPPORTED never counts", "--may-refuse"]
    {
        assert!(stdout.contains(text), "{text} in\n{stdout}");
    }
}

#[test]
fn a_person_reads_a_line_for_each_check_and_one_for_all() {
    lab::with("usage::a_person_reads_a_line_for_each_check_and_one_for_all", |lab| {
        let text = lab.text(&["--no-defaults", "--proxy", "http://10.77.0.1:3128", "--total", "60"]);
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("PASS: ") && last.ends_with(" restricted checks and 0 baseline counterchecks"),
            "{text}"
        );
        assert!(text.contains("\nnote: there was no baseline"), "{text}");
        assert!(
            text.lines()
                .any(|line| line
                    .starts_with("pass        metadata-proxy 2852039166: CONNECT :80 400 bad_request")),
            "{text}"
        );
        assert!(text.contains("\nUNSUPPORTED allowed -: name a URL"), "{text}");
    });
}

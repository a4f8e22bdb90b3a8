//! `egret domains`, with a proxy and without.

use std::fs;
use std::process::Command;

use crate::support::egret::BINARY;
use crate::{egret_domains, get, origin, rows, serving};

#[test]
fn a_table_for_people() {
    let origin = origin();
    let mut egret = serving(&origin).start();
    assert_eq!(get(&egret, &format!("a.test:{}", origin.port())), 200);
    assert_eq!(get(&egret, "elsewhere.test:80"), 403);
    for _ in 0..2 {
        let output = egret_domains(&egret, &[]);
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(&lines[0][..2], ["SANDBOX", "DESTINATION"]);
        let authority = format!("a.test:{}", origin.port());
        assert_eq!(&lines[1][..2], ["box-127.0.0.1", &authority]);
        assert_eq!(&lines[2][..2], ["box-127.0.0.1", "elsewhere.test:80"]);
        assert_eq!(&lines[2][4..], ["1", "0", "1", "0", "0", "0", "domain_not_allowed"]);
        // The second time there is no proxy, and the answer is the same.
        if egret.exited().is_none() {
            egret.stop();
        }
    }
}

#[test]
fn only_what_is_asked_for() {
    let origin = origin();
    let egret = serving(&origin).start();
    get(&egret, "elsewhere.test:80");
    assert_eq!(rows(&egret, &["--sandbox", "box-127.0.0.1"]).len(), 1);
    assert_eq!(rows(&egret, &["--sandbox", "quiet"]).len(), 0, "configured, but not seen");
    assert_eq!(rows(&egret, &["--since", "1h"]).len(), 1);
    assert_eq!(rows(&egret, &["--since", "2100-01-01T00:00:00Z"]).len(), 0);
    let unknown = egret_domains(&egret, &["--sandbox", "nobody"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no sandbox `nobody`"));
    let wrong = egret_domains(&egret, &["--since", "yesterday"]);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn a_state_directory_in_use_is_said_to_be() {
    let origin = origin();
    let mut egret = serving(&origin).start();
    // A configuration that shares the state directory, but not the control interface.
    let text = fs::read_to_string(egret.config_file()).unwrap();
    let other = egret.dir().join("other.toml");
    fs::write(&other, text.replace(&egret.control.to_string(), "127.0.0.1:9")).unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = Command::new(BINARY);
        command.current_dir(egret.dir()).args(["domains", "--config"]).arg(&other).args(arguments);
        command.output().unwrap()
    };
    let output = ask(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("in use by another process"), "{said}");
    let output = ask(&["--control", &egret.control.to_string()]);
    assert_eq!(output.status.code(), Some(0));
    let output = ask(&["--control", "127.0.0.1:9"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no proxy answers at 127.0.0.1:9"));
    egret.stop();
}

#[test]
fn a_second_proxy_on_one_state_directory_does_not_start() {
    let origin = origin();
    let egret = serving(&origin).start();
    let text = fs::read_to_string(egret.config_file()).unwrap();
    let other = egret.dir().join("other.toml");
    let text = text.replace(&egret.control.to_string(), "127.0.0.1:0");
    fs::write(&other, text.replace(&egret.proxy.to_string(), "127.0.0.1:0")).unwrap();
    let output = Command::new(BINARY).args(["serve", "--config"]).arg(&other).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use by another process"));
}

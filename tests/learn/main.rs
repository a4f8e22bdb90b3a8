//! Observe, learn, enforce: what a running proxy recorded becomes the rules that the next run is
//! held to.
//!
//! Needs no privileges: names stand in `[dns] hosts` with public addresses, and a parent proxy on
//! the loopback answers in their place.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a test may fail loudly, and opens its own sockets"
)]

#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::process::{Command, Output};

use support::client::Client;
use support::egret::{BINARY, Egret};
use support::origin::Origin;

const RANDOM: &str = "q7w8e9r1t2y3u4i5o6p7.one.example";
/// What a sandbox asks for and shall have: method and target.
const WANTED: [(&str, &str); 7] = [
    ("GET", "http://one.example/a"),
    ("POST", "http://one.example/b?c"),
    ("CONNECT", "one.example:443"),
    ("CONNECT", "a.pkgs.example:443"),
    ("CONNECT", "b.pkgs.example:443"),
    ("CONNECT", "c.pkgs.example:443"),
    ("GET", "http://a.pkgs.example/"),
];
/// What is observed too, and nobody proposes.
const ODD: [(&str, &str); 5] = [
    ("CONNECT", "pastebin.com:443"),
    ("CONNECT", "q7w8e9r1t2y3u4i5o6p7.one.example:443"),
    ("CONNECT", "203.0.114.9:443"),
    ("GET", "http://203.0.114.9/"),
    ("GET", "http://one.example:8080/"),
];
/// What was never asked for.
const OTHERS: [(&str, &str); 3] =
    [("GET", "http://other.example/"), ("GET", "http://b.pkgs.example/"), ("CONNECT", "pkgs.example:443")];

/// Answers every tunnel itself, whatever address it leads to.
fn world() -> Origin {
    Origin::start(|visit| {
        let Some(_connect) = visit.head()? else { return Ok(()) };
        visit.send("HTTP/1.1 200 OK\r\n\r\n")?;
        while visit.request()?.is_some() {
            visit.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
        Ok(())
    })
}

/// One sandbox under a policy that is written so.
fn config(parent: &Origin, policy: &str) -> String {
    let names = ["one.example", "pkgs.example", "a.pkgs.example", "b.pkgs.example", "c.pkgs.example"];
    let names = names.into_iter().chain(["d.pkgs.example", "other.example", "pastebin.com", RANDOM]);
    let hosts: Vec<_> = names.map(|name| format!("\"{name}\" = [\"203.0.114.7\"]")).collect();
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\ntimeout = \"1s\"\nhosts = {{ {} }}\n\n\
         [upstream]\nproxy = \"http://{}\"\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [policy.main]\n{policy}\n",
        hosts.join(", "),
        parent.address
    )
}

/// The status of one request.
fn status(egret: &Egret, (method, target): (&str, &str)) -> u16 {
    let mut client = Client::connect(egret.proxy);
    let host = target.trim_start_matches("http://").split('/').next().unwrap();
    let body = if method == "POST" { "Content-Length: 2\r\n\r\nhi" } else { "\r\n" };
    client.send(format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{body}"));
    client.response(method).status
}

fn statuses(egret: &Egret, requests: &[(&str, &str)]) -> Vec<u16> {
    requests.iter().map(|request| status(egret, *request)).collect()
}

fn learn(egret: &Egret, args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    let command = command.args(["learn", "--config", "egret.toml"]).args(args).current_dir(egret.dir());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_same_run_passes_under_the_learned_rules_and_nothing_else_does() {
    let parent = world();
    let egret = Egret::with(config(&parent, "mode = \"observe\"")).start();
    assert_eq!(statuses(&egret, &WANTED), [200; 7]);
    assert_eq!(statuses(&egret, &ODD), [200; 5]);

    fs::create_dir(egret.dir().join("rules")).unwrap();
    let written = learn(&egret, &["--write", "rules/learned.toml"]);
    assert!(written.status.success(), "{written:?}");
    let rules = fs::read_to_string(egret.dir().join("rules/learned.toml")).unwrap();
    for (domain, ports) in [("one.example", "80, 443"), ("a.pkgs.example", "80"), ("*.pkgs.example", "443")] {
        assert!(
            rules.contains(&format!("domains = [\"{domain}\"]\nports = [{ports}]\n")),
            "{domain}: {rules}"
        );
    }
    assert_eq!(rules.matches("[[allow]]").count(), 3, "{rules}");
    let told = text(&written.stderr);
    for (_, target) in ODD {
        let host = target.trim_start_matches("http://").split(['/', ':']).next().unwrap();
        assert!(told.contains(&format!("not proposed: {host}:")), "{host}: {told}");
    }

    egret.configure(&config(&parent, "rules = [\"learned\"]"));
    assert_eq!(egret.reload().status, 200, "{}", egret.log());
    assert_eq!(statuses(&egret, &WANTED), [200; 7]);
    assert_eq!(statuses(&egret, &ODD), [403; 5]);
    assert_eq!(statuses(&egret, &OTHERS), [403; 3]);
    // The wildcard stands for its siblings, too.
    assert_eq!(status(&egret, ("CONNECT", "d.pkgs.example:443")), 200);

    let difference = learn(&egret, &["--against", "rules/learned.toml"]);
    assert_eq!(difference.status.code(), Some(1), "{difference:?}");
    let lines = text(&difference.stdout);
    let found: Vec<_> = lines.lines().map(|line| line.split("  #").next().unwrap()).collect();
    assert_eq!(
        found,
        ["+ b.pkgs.example  ports 80", "+ other.example  ports 80", "+ pkgs.example  ports 443"]
    );
    // Without what was refused in the second run, there is no difference.
    let started = egret.events("reload").pop().unwrap()["ts"].as_str().unwrap().to_owned();
    let before: String = fs::read_to_string(egret.audit_file())
        .unwrap()
        .split_inclusive('\n')
        .take_while(|line| !line.contains(&started))
        .collect();
    fs::write(egret.dir().join("observed.ndjson"), before).unwrap();
    let difference = learn(&egret, &["--against", "rules/learned.toml", "observed.ndjson"]);
    assert_eq!((difference.status.code(), text(&difference.stdout).as_str()), (Some(0), ""));
}

#[test]
fn an_open_policy_and_refusals_teach_as_well() {
    let parent = world();
    let egret = Egret::with(config(&parent, "default = \"allow\"")).start();
    assert_eq!(statuses(&egret, &WANTED[..3]), [200; 3]);
    egret.configure(&config(&parent, ""));
    assert_eq!(egret.reload().status, 200);
    assert_eq!(statuses(&egret, &WANTED[3..]), [403; 4]);
    fs::create_dir(egret.dir().join("rules")).unwrap();
    let learned = learn(&egret, &[]);
    fs::write(egret.dir().join("rules/learned.toml"), learned.stdout).unwrap();
    egret.configure(&config(&parent, "rules = [\"learned\"]"));
    assert_eq!(egret.reload().status, 200, "{}", egret.log());
    assert_eq!(statuses(&egret, &WANTED), [200; 7]);
    assert_eq!(statuses(&egret, &ODD), [403; 5]);
}

//! Commands that ask a running proxy find it by its configuration.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::dns_server::DnsServer;
use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;
use crate::{TOKEN, alive, config, serving, show, status, tunnel};

/// Exit code, standard output and standard error of a command beside the configuration.
fn run(egret: &Egret, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(BINARY).args(arguments).current_dir(egret.dir()).output().unwrap();
    let text = |octets| String::from_utf8(octets).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// With a DNS server that answers, so that the proxy is ready.
fn ready(origin: &Origin) -> (DnsServer, Egret) {
    let dns = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| Ipv4Addr::LOCALHOST).unwrap();
    let text = config(origin).replace("127.0.0.1:9\"]", &format!("{}\"]", dns.address));
    (dns, Egret::with(text).control_token(TOKEN).start())
}

#[test]
fn readiness_is_asked_where_the_configuration_says() {
    let (_dns, egret) = ready(&Origin::echoing());
    assert_eq!(run(&egret, &["ready"]), (0, "ready\n".to_owned(), String::new()));
    let file = egret.config_file();
    assert_eq!(run(&egret, &["ready", "--config", file.to_str().unwrap()]).0, 0);
    // The token of the configuration goes to no other address.
    let control = egret.control.to_string();
    let (code, _, said) = run(&egret, &["ready", "--control", &control]);
    assert_eq!(code, 1);
    assert!(said.contains("wants its token"), "{said}");
    let (code, _, said) = run(&egret, &["ready", "--control", &control, "--config", "egret.toml"]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn a_candidate_that_does_not_load_leaves_the_proxy_ready() {
    let origin = Origin::echoing();
    let (_dns, egret) = ready(&origin);
    egret.configure(&format!("{}\n[policy.broken]\nmode = = 1\n[nonsense]\n", config(&origin)));
    assert_eq!(egret.reload().status, 422);
    assert_eq!(run(&egret, &["ready"]).0, 0);
}

#[test]
fn tokens_are_revoked_where_the_configuration_says() {
    let mut egret = serving(&Origin::echoing()).start();
    let (code, said, _) = run(&egret, &["token", "revoke", "--sandbox", "job"]);
    assert_eq!((code, said.as_str()), (0, "all tokens of sandbox job are revoked\n"));
    assert!(egret.stop().success());
    assert_eq!(egret.events("revoke")[0]["sandbox"], "job");
}

#[test]
fn sandboxes_come_and_go_by_command() {
    let origin = Origin::echoing();
    let egret = serving(&origin).start();
    assert_eq!(status(&egret, "127.1.0.7", &origin), 403);
    let register = [
        "sandbox",
        "register",
        "job",
        "--source",
        "127.1.0.7",
        "--policy",
        "main",
        "--ttl",
        "5m",
        "--limit",
        "connections=7",
        "--workspace",
        "w",
    ];
    assert_eq!(run(&egret, &register), (0, "sandbox job is registered\n".to_owned(), String::new()));
    let mut open = tunnel(&egret, "127.1.0.7", &origin);
    alive(&mut open);
    let (_, body) = show(&egret, "/v1/sandboxes/job");
    let wanted = &body["registered"];
    assert_eq!((&wanted["ttl"], &wanted["workspace"]), (&"5m".into(), &"w".into()), "{body}");
    assert_eq!(wanted["limits"]["connections"], 7);

    let (code, listed, _) = run(&egret, &["sandbox", "list"]);
    assert_eq!(code, 0);
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..4], ["job", "127.1.0.7", "main", "active"], "{listed}");
    assert_eq!(lines[2][..4], ["rest", "-", "-", "configured"], "{listed}");
    let (_, json, _) = run(&egret, &["sandbox", "show", "job", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["registered"]["policy"], "main");

    assert_eq!(run(&egret, &["sandbox", "remove", "job"]).1, "sandbox job is removed\n");
    assert!(open.until_end().is_empty());
    assert_eq!(status(&egret, "127.1.0.7", &origin), 403);
}

#[test]
fn what_is_wrong_with_a_sandbox_is_told() {
    let egret = serving(&Origin::echoing()).start();
    for (arguments, code, said) in [
        (&["register", "a b", "--source", "127.1.0.7", "--policy", "main"][..], 2, "a sandbox ID is"),
        (&["register", "job", "--source", "127.2.0.7", "--policy", "main"], 1, "does not lie in a network"),
        (&["register", "job", "--source", "x", "--policy", "main"], 1, "(400)"),
        (&["register", "job", "--policy", "main"], 2, "--source"),
        (
            &["register", "job", "--source", "127.1.0.7", "--policy", "main", "--limit", "speed=1"],
            2,
            "unknown field `speed`",
        ),
        (&["remove", "job"], 1, "no sandbox of this ID is registered (404)"),
        (&["remove", "rest"], 1, "the configuration has this sandbox"),
        (&["show", "job"], 1, "(404)"),
    ] {
        let (found, out, error) = run(&egret, &[&["sandbox"], arguments].concat());
        assert_eq!((found, out.as_str()), (code, ""), "{arguments:?}: {error}");
        assert!(error.contains(said), "{arguments:?}: {error}");
    }
}

#[test]
fn clients_that_take_no_answer_do_not_keep_others_out() {
    let egret = serving(&Origin::echoing()).start();
    let ask = format!("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    // Answers of more octets than both ends' buffers hold.
    let flood = ask.repeat(10_000);
    let stuck = || {
        let mut stream = TcpStream::connect(egret.control).unwrap();
        stream.set_nonblocking(true).unwrap();
        // As much as fits: the rest would only wait for the answers to be taken.
        while let Ok(1..) = stream.write(flood.as_bytes()) {}
        stream
    };
    let answers = || {
        let mut stream = TcpStream::connect(egret.control).unwrap();
        let asked =
            stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        asked.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200")
    };
    let mut held: Vec<_> = (0..32).map(|_| stuck()).collect();
    // One of them may have found its place taken by the question whether egret is ready.
    let mut refused = 0;
    while refused < 5 {
        refused += 1;
        if answers() {
            assert!(held.len() < 40, "there is a bound");
            held.push(stuck());
            refused = 0;
        }
        thread::sleep(Duration::from_millis(50));
    }
    let begun = Instant::now();
    while !answers() {
        assert!(begun.elapsed() < Duration::from_secs(60), "they are still in use");
        thread::sleep(Duration::from_millis(200));
    }
}

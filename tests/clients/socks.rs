//! Clients over SOCKS5: names that they leave to egret, names that they look up themselves, and tokens.

use std::path::Path;

use crate::bench::{Bench, By, FILE, NO, OK, content, file};
use crate::tool::{self, Outcome};

/// Runs curl with these arguments, and nothing in its environment that names a proxy.
fn curl(bench: &Bench, arguments: &[&str]) -> Option<Outcome> {
    let mut command = tool::command(&tool::find("curl")?, &bench.home());
    command.args(["--silent", "--show-error", "--cacert"]).arg(bench.ca()).args(arguments);
    Some(tool::run(command))
}

#[test]
fn curl_downloads_and_uploads_whichever_way_it_is_told() {
    for by in [By::Source, By::Token] {
        let bench = Bench::start(by);
        let data = content(3 << 20);
        std::fs::write(bench.home().join("data"), &data).unwrap();
        let (url, address) = (bench.socks_url(), bench.egret.socks.to_string());
        for target in bench.urls(OK, FILE) {
            let Some(shown) = curl(&bench, &["--proxy", &url, &target]) else { return };
            assert!(shown.success() == file(), "{target}");
            if by == By::Source {
                let shown = curl(&bench, &["--socks5-hostname", &address, &target]).unwrap();
                assert!(shown.success() == file(), "{target}");
            }
        }
        for target in bench.urls(OK, "/upload") {
            let shown = curl(&bench, &["--proxy", &url, "--upload-file", "data", &target]).unwrap();
            assert!(shown.success() == data, "{target}");
        }
        bench.settle();
    }
}

#[test]
fn curl_is_told_the_kind_of_a_refusal() {
    let bench = Bench::start(By::Source);
    let (url, plain) = (bench.socks_url(), bench.plain.port());
    for (authority, code, reason) in [
        (format!("{NO}:{plain}"), 2, "domain_not_allowed"),
        (format!("{OK}:9"), 2, "port_not_allowed"),
        (format!("{OK}:{}", bench.closed_port), 5, "connect_refused"),
        (format!("unknown.test:{plain}"), 4, "dns_failed"),
        ("169.254.169.254".to_owned(), 2, "address_forbidden"),
        ("[::ffff:169.254.169.254]".to_owned(), 2, "address_forbidden"),
    ] {
        let Some(shown) = curl(&bench, &["--proxy", &url, &format!("http://{authority}/")]) else { return };
        shown.fails_saying(&format!("({code})"));
        let record = bench.egret.events("decision").pop().unwrap();
        assert_eq!((&record["reason"], &record["protocol"]), (&reason.into(), &"socks5".into()), "{record}");
    }
    // Looked up by curl itself, it is an address, which nothing allows.
    let target = format!("http://{OK}:{plain}/");
    let resolve = format!("{OK}:{plain}:127.0.0.1");
    let address = bench.egret.socks.to_string();
    let shown = curl(&bench, &["--resolve", &resolve, "--socks5", &address, &target]).unwrap();
    shown.fails_saying("(2)");
    let record = bench.egret.events("decision").pop().unwrap();
    assert_eq!((&record["host"], &record["reason"]), (&"127.0.0.1".into(), &"address_not_allowed".into()));
}

#[test]
fn curl_is_told_that_its_token_is_bad() {
    let bench = Bench::start(By::Token);
    let address = bench.egret.socks;
    for (proxy, reason) in [
        (format!("socks5h://box:not-a-token@{address}"), "identity_rejected"),
        (format!("socks5h://{address}"), "identity_required"),
    ] {
        let Some(shown) = curl(&bench, &["--proxy", &proxy, &bench.http(OK, FILE)]) else { return };
        shown.fails_saying("curl: (97)");
        assert_eq!(bench.egret.events("decision").pop().unwrap()["reason"], reason);
    }
}

const REQUESTS: &str = "
import os, requests, sys
answer = requests.get(sys.argv[1], verify=os.environ['SSL_CERT_FILE'])
sys.stdout.buffer.write(answer.content)
";

/// By address alone: PySocks writes the length of a user or a password beyond 127 bytes as two.
#[test]
fn requests_takes_it_from_its_environment() {
    let python = Path::new("/usr/bin/python3");
    let bench = Bench::start(By::Source);
    let run = |arguments: &[&str]| {
        let mut command = tool::command(python, &bench.home());
        for name in ["http_proxy", "https_proxy"] {
            command.env(name, bench.socks_url());
        }
        command.env("SSL_CERT_FILE", bench.ca()).arg("-c").args(arguments);
        tool::run(command)
    };
    if !python.is_file() || !run(&["import requests, socks"]).status.success() {
        tool::missing("requests with PySocks");
        return;
    }
    for url in bench.urls(OK, FILE) {
        assert!(run(&[REQUESTS, &url]).success() == file(), "{url}");
    }
    run(&[REQUESTS, &bench.http(NO, FILE)]).fails_saying("0x02: Connection not allowed by ruleset");
    bench.settle();
}

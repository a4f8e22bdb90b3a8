//! curl: both kinds of fetch, uploads, kept connections, and what it shows of a refusal.

use std::process::Command;

use crate::bench::{Bench, By, FILE, NO, OK, OK2, REFUSED, content, file};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &[&str]) -> Outcome>;

/// A bench and how to start curl, or nothing where it is not installed.
fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("curl")?;
    let run = move |bench: &Bench, arguments: &[&str]| {
        let mut command: Command = bench.client(&program);
        command.args(["--silent", "--show-error", "--cacert"]).arg(bench.ca()).args(arguments);
        tool::run(command)
    };
    Some((Bench::start(by), Box::new(run)))
}

#[test]
fn it_downloads() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    for path in [FILE, "/chunked"] {
        for url in bench.urls(OK, path) {
            assert!(curl(&bench, &[&url]).success() == file(), "{url}");
        }
    }
    let seen = &bench.plain.served()[0].request;
    assert_eq!(seen.path(), FILE, "origin-form, with the query");
    assert_eq!(seen.get("host"), Some(format!("{OK}:{}", bench.plain.port()).as_str()));
    bench.settle();
}

#[test]
fn it_asks_for_a_head() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    let shown = String::from_utf8(curl(&bench, &["--head", &bench.http(OK, FILE)]).success()).unwrap();
    assert!(shown.starts_with("HTTP/1.1 200 As Asked\r\n"), "{shown}");
    assert!(shown.contains(&format!("\r\nContent-Length: {}\r\n", file().len())), "{shown}");
    bench.settle();
}

#[test]
fn it_uploads() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    let data = content(3 << 20); // beyond the size where curl waits for a 100 (Continue)
    std::fs::write(bench.home().join("data"), &data).unwrap();
    for url in bench.urls(OK, "/upload") {
        assert!(curl(&bench, &["--upload-file", "data", &url]).success() == data, "{url}");
        assert!(curl(&bench, &["--data-binary", "@data", "-H", "Expect:", &url]).success() == data, "{url}");
        let chunked = ["--upload-file", "data", "-H", "Transfer-Encoding: chunked", &url];
        assert!(curl(&bench, &chunked).success() == data, "{url}");
    }
    bench.settle();
}

#[test]
fn it_tunnels_plain_http() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    assert!(curl(&bench, &["--proxytunnel", &bench.http(OK, FILE)]).success() == file());
    bench.settle();
}

#[test]
fn it_speaks_http_1_0() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    for url in bench.urls(OK, FILE) {
        assert!(curl(&bench, &["--http1.0", "--proxy1.0", &bench.proxy_url(), &url]).success() == file());
    }
    bench.settle();
}

#[test]
fn it_keeps_one_connection_for_two_hosts() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    let (first, second, refused) = (bench.http(OK, "/who"), bench.http(OK2, "/who"), bench.http(NO, "/who"));
    let count = ["--write-out", "%{http_code} %{num_connects}\n", "--output"];
    let mut arguments = Vec::new();
    for (number, url) in [&first, &refused, &second, &first].into_iter().enumerate() {
        arguments.extend((number > 0).then_some("--next"));
        arguments.extend(["--silent"].into_iter().chain(count));
        arguments.extend([["a", "b", "c", "d"][number], url]);
    }
    let shown = curl(&bench, &arguments).success();
    assert_eq!(String::from_utf8_lossy(&shown), "200 1\n403 0\n200 0\n200 0\n");
    let read = |name: &str| std::fs::read_to_string(bench.home().join(name)).unwrap();
    let port = bench.plain.port();
    assert_eq!(read("a"), format!("{OK}:{port}\n"));
    assert_eq!(read("c"), format!("{OK2}:{port}\n"));
    assert_eq!(read("d"), read("a"));
    bench.refused_no(1, 0);
}

#[test]
fn it_shows_why_http_was_refused() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    // Without --fail it shows the body and ends well; with it, only the number.
    let body = curl(&bench, &[&bench.http(NO, FILE)]).success();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((&problem["reason"], &problem["host"]), (&REFUSED.into(), &NO.into()));
    curl(&bench, &["--fail", &bench.http(NO, FILE)]).fails_saying("403");
    let shown = curl(&bench, &["--fail-with-body", &bench.http(NO, FILE)]);
    assert!(shown.text().contains(REFUSED), "{shown:?}");
    bench.refused_no(3, 0);
}

#[test]
fn it_shows_why_a_tunnel_was_refused() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    let url = bench.https(NO, FILE);
    // Its own line has no more than the number; the reason stands in the headers that it shows on
    // request.
    curl(&bench, &[&url]).fails_saying("403");
    curl(&bench, &["--verbose", &url]).fails_saying(&format!("HTTP/1.1 403 egret {REFUSED}"));
    let shown = curl(&bench, &["--include", &url]);
    assert!(shown.text().contains(&format!("X-Egret-Reason: {REFUSED}")), "{shown:?}");
    bench.refused_no(0, 3);
}

#[test]
fn it_shows_the_refusal_of_an_upload() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    std::fs::write(bench.home().join("data"), content(8 << 20)).unwrap();
    let url = bench.http(NO, "/upload");
    for more in [&[][..], &["-H", "Expect:"], &["-H", "Transfer-Encoding: chunked"]] {
        let arguments = [&["--upload-file", "data", &url], more].concat();
        let shown = curl(&bench, &arguments).success();
        assert!(String::from_utf8_lossy(&shown).contains(REFUSED), "{more:?}");
    }
    bench.refused_no(3, 0);
}

#[test]
fn it_tells_causes_apart() {
    let Some((bench, curl)) = setup(By::Source) else { return };
    let plain = bench.plain.port();
    let cases = [
        (format!("{NO}:{plain}"), 403, REFUSED),
        (format!("{OK}:9"), 403, "port_not_allowed"),
        (format!("{OK}:{}", bench.closed_port), 502, "connect_refused"),
        (format!("unknown.test:{plain}"), 502, "dns_failed"),
        ("127.0.0.1:9".to_owned(), 403, "address_not_allowed"),
        ("169.254.169.254".to_owned(), 403, "address_forbidden"),
    ];
    for (authority, status, reason) in &cases {
        let show = ["--dump-header", "-", "--output", "body", "--write-out", "%{http_code}"];
        let url = format!("http://{authority}/");
        let shown = curl(&bench, &[&show[..], &[&url]].concat());
        let text = shown.text();
        assert!(text.starts_with(&format!("HTTP/1.1 {status} egret {reason}\r\n")), "{url}: {shown:?}");
        assert!(text.ends_with(&status.to_string()), "{url}: {shown:?}");
    }
}

#[test]
fn it_sends_its_token() {
    let Some((bench, curl)) = setup(By::Token) else { return };
    std::fs::write(bench.home().join("data"), content(3 << 20)).unwrap();
    for url in bench.urls(OK, "/upload") {
        assert!(curl(&bench, &["--upload-file", "data", &url]).success() == content(3 << 20), "{url}");
        // Asks first what it is to send, and begins its upload anew.
        let asked = curl(&bench, &["--proxy-anyauth", "--upload-file", "data", &url]);
        assert!(asked.success() == content(3 << 20), "{url}");
    }
    bench.settle();
}

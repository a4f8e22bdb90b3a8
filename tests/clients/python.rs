//! Python's own clients: urllib takes the proxy from the environment, http.client is told.

use crate::bench::{Bench, By, FILE, NO, OK, REFUSED, content, file};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &str, &[&str]) -> Outcome>;

/// Runs a script with these arguments.
fn setup(by: By) -> Option<(Bench, Run)> {
    let program = tool::find("python3")?;
    let run = move |bench: &Bench, script: &str, arguments: &[&str]| {
        let mut command = bench.client(&program);
        command.env("SSL_CERT_FILE", bench.ca()).args(["-c", script]).args(arguments);
        tool::run(command)
    };
    Some((Bench::start(by), Box::new(run)))
}

const URLLIB: &str = "
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1]) as answer:
    sys.stdout.buffer.write(answer.read())
";

/// Arguments: proxy address and port, then host, port and path.
const TUNNEL: &str = "
import http.client, sys
proxy, proxy_port, host, port, path = sys.argv[1:]
connection = http.client.HTTPSConnection(proxy, int(proxy_port))
connection.set_tunnel(host, int(port))
for _ in range(2):
    connection.request('GET', path)
    answer = connection.getresponse()
    sys.stdout.buffer.write(answer.read())
connection.close()
";

/// Arguments: proxy address and port, then URL and a file to send, plainly and in chunks.
const PUT: &str = "
import http.client, sys
proxy, proxy_port, url, name = sys.argv[1:]
connection = http.client.HTTPConnection(proxy, int(proxy_port))
data = open(name, 'rb').read()
for body in (data, iter([data[:1000], data[1000:]])):
    connection.request('PUT', url, body=body, encode_chunked=body is not data)
    answer = connection.getresponse()
    print(answer.status, answer.reason)
    assert answer.status != 200 or answer.read() == data
    answer.read()
connection.close()
";

#[test]
fn urllib_downloads() {
    let Some((bench, python)) = setup(By::Source) else { return };
    for path in [FILE, "/chunked"] {
        for url in bench.urls(OK, path) {
            assert!(python(&bench, URLLIB, &[&url]).success() == file(), "{url}");
        }
    }
    bench.settle();
}

#[test]
fn urllib_shows_why_it_was_refused() {
    let Some((bench, python)) = setup(By::Source) else { return };
    python(&bench, URLLIB, &[&bench.http(NO, FILE)])
        .fails_saying(&format!("HTTP Error 403: egret {REFUSED}"));
    python(&bench, URLLIB, &[&bench.https(NO, FILE)])
        .fails_saying(&format!("Tunnel connection failed: 403 egret {REFUSED}"));
    bench.refused_no(1, 1);
}

#[test]
fn http_client_tunnels() {
    let Some((bench, python)) = setup(By::Source) else { return };
    let (address, port) = (bench.egret.proxy.ip().to_string(), bench.egret.proxy.port().to_string());
    let origin = bench.tls.port().to_string();
    let got = python(&bench, TUNNEL, &[&address, &port, OK, &origin, FILE]).success();
    assert!(got == [file(), file()].concat(), "twice over one tunnel");
    python(&bench, TUNNEL, &[&address, &port, NO, &origin, FILE])
        .fails_saying(&format!("Tunnel connection failed: 403 egret {REFUSED}"));
    bench.refused_no(0, 1);
}

#[test]
fn http_client_uploads_with_and_without_a_length() {
    let Some((bench, python)) = setup(By::Source) else { return };
    let (address, port) = (bench.egret.proxy.ip().to_string(), bench.egret.proxy.port().to_string());
    std::fs::write(bench.home().join("data"), content(200_000)).unwrap();
    let shown = python(&bench, PUT, &[&address, &port, &bench.http(OK, "/upload"), "data"]).success();
    assert_eq!(String::from_utf8_lossy(&shown), "200 As Asked\n200 As Asked\n");
    let shown = python(&bench, PUT, &[&address, &port, &bench.http(NO, "/upload"), "data"]).success();
    assert_eq!(String::from_utf8_lossy(&shown), format!("403 egret {REFUSED}\n").repeat(2));
    bench.refused_no(2, 0);
}

#[test]
fn urllib_sends_its_token() {
    let Some((bench, python)) = setup(By::Token) else { return };
    for url in bench.urls(OK, FILE) {
        assert!(python(&bench, URLLIB, &[&url]).success() == file(), "{url}");
    }
    bench.settle();
}

/// requests and httpx, as Debian has them for its own Python.
const LIBRARY: &str = "
import importlib, os, sys
library = importlib.import_module(sys.argv[1])
settings = {'verify': os.environ['SSL_CERT_FILE']}
sys.stdout.buffer.write(library.get(sys.argv[2], **settings).content)
";

#[test]
fn requests_and_httpx_send_their_token() {
    let python = std::path::Path::new("/usr/bin/python3");
    for library in ["requests", "httpx"] {
        let bench = Bench::start(By::Token);
        let run = |script: &str, arguments: &[&str]| {
            let mut command = bench.client(python);
            command.env("SSL_CERT_FILE", bench.ca()).args(["-c", script]).args(arguments);
            tool::run(command)
        };
        if !python.is_file() || !run(&format!("import {library}"), &[]).status.success() {
            tool::missing(library);
            continue;
        }
        for url in bench.urls(OK, FILE) {
            assert!(run(LIBRARY, &[library, &url]).success() == file(), "{library} {url}");
        }
        bench.settle();
    }
}

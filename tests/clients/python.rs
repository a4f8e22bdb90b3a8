//! Python's own clients: urllib takes the proxy from the environment, http.client is told.

use crate::bench::{Bench, FILE, NO, OK, REFUSED, content, file};
use crate::tool::{self, Outcome};

type Run = Box<dyn Fn(&Bench, &str, &[&str]) -> Outcome>;

/// Runs a script with these arguments.
fn setup() -> Option<(Bench, Run)> {
    let program = tool::find("python3")?;
    let run = move |bench: &Bench, script: &str, arguments: &[&str]| {
        let mut command = bench.client(&program);
        command.env("SSL_CERT_FILE", bench.ca()).args(["-c", script]).args(arguments);
        tool::run(command)
    };
    Some((Bench::start(), Box::new(run)))
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
    let Some((bench, python)) = setup() else { return };
    for path in [FILE, "/chunked"] {
        for url in bench.urls(OK, path) {
            assert!(python(&bench, URLLIB, &[&url]).success() == file(), "{url}");
        }
    }
    bench.settle();
}

#[test]
fn urllib_shows_why_it_was_refused() {
    let Some((bench, python)) = setup() else { return };
    python(&bench, URLLIB, &[&bench.http(NO, FILE)])
        .fails_saying(&format!("HTTP Error 403: egret {REFUSED}"));
    python(&bench, URLLIB, &[&bench.https(NO, FILE)])
        .fails_saying(&format!("Tunnel connection failed: 403 egret {REFUSED}"));
    bench.refused_no(1, 1);
}

#[test]
fn http_client_tunnels() {
    let Some((bench, python)) = setup() else { return };
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
    let Some((bench, python)) = setup() else { return };
    let (address, port) = (bench.egret.proxy.ip().to_string(), bench.egret.proxy.port().to_string());
    std::fs::write(bench.home().join("data"), content(200_000)).unwrap();
    let shown = python(&bench, PUT, &[&address, &port, &bench.http(OK, "/upload"), "data"]).success();
    assert_eq!(String::from_utf8_lossy(&shown), "200 As Asked\n200 As Asked\n");
    let shown = python(&bench, PUT, &[&address, &port, &bench.http(NO, "/upload"), "data"]).success();
    assert_eq!(String::from_utf8_lossy(&shown), format!("403 egret {REFUSED}\n").repeat(2));
    bench.refused_no(2, 0);
}

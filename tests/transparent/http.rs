//! Plain HTTP on diverted connections: each request decided on its own, by its `Host`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::in_site;
use crate::site::{ALLOWED, ALLOWED_6, GATEWAY, PATIENCE, REFUSED, text, within};
use crate::support::client::Client;
use crate::support::http1::Response;
use crate::support::wait_for;

/// A connection that the client believes to have to this place.
pub fn connect(address: &str, port: u16) -> Client {
    let address: std::net::IpAddr = address.parse().unwrap();
    within("cl", || Client::connect((address, port).into()))
}

fn ask(client: &mut Client, method: &str, head: &str) -> Response {
    client.send(format!("{head}\r\n\r\n"));
    client.final_response(method)
}

fn reason(response: &Response) -> String {
    response.get("x-egret-reason").unwrap_or_default().to_owned()
}

in_site! {
fn a_program_that_knows_of_no_proxy(site) {
    site.divert();
    let to = format!("ok.test:80:{ALLOWED}");
    let (out, ok) = site.curl(&["--resolve", &to, "http://ok.test/a?b"]);
    assert!(ok && out == "GET /a?b ok.test\n", "{out}");
    let record = site.decision("ok.test");
    let expected = serde_json::json!({
        "sandbox": "box", "identity": "source", "protocol": "transparent", "method": "GET",
        "scheme": "http", "host": "ok.test", "port": 80, "original": ALLOWED, "verdict": "allow",
        "reason": "allowed", "policy": "p", "addresses": [ALLOWED], "dialed": ALLOWED,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&record[key], value, "{key}: {record}");
    }
    assert!(record["client"].as_str().unwrap().starts_with("10.77.1.2:") && record["path_hash"].is_string());
    assert!(record["original_differs"].is_null(), "{record}");
}
}

in_site! {
fn over_ipv6(site) {
    site.divert();
    let to = format!("six.test:80:[{ALLOWED_6}]");
    let (out, ok) = site.curl(&["-6", "--resolve", &to, "http://six.test/"]);
    assert!(ok && out == "GET / six.test\n", "{out}");
    let record = site.decision("six.test");
    assert_eq!((&record["original"], &record["dialed"]), (&ALLOWED_6.into(), &ALLOWED_6.into()), "{record}");
    assert!(record["client"].as_str().unwrap().starts_with("[fd77:1::2]:"), "{record}");
}
}

in_site! {
/// What the client believes to be the address is compared, and never dialled for a name.
fn the_address_that_was_meant_is_not_trusted(site) {
    site.divert();
    let to = format!("ok.test:80:{REFUSED}");
    let (out, ok) = site.curl(&["--resolve", &to, "http://ok.test/"]);
    assert!(ok && out == "GET / ok.test\n", "{out}");
    let record = site.decision("ok.test");
    assert_eq!(record["original"], REFUSED);
    assert_eq!(record["original_differs"], true, "{record}");
    assert_eq!(record["dialed"], ALLOWED);
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
fn what_is_refused_says_why_and_sends_nothing(site) {
    site.divert();
    let to = format!("refused.test:80:{REFUSED}");
    let (out, _) = site.curl(&["--resolve", &to, "-i", "http://refused.test/"]);
    assert!(out.starts_with("HTTP/1.1 403 ") && out.contains("X-Egret-Reason: domain_not_allowed"), "{out}");
    assert!(out.contains("application/problem+json"), "{out}");
    let record = site.decision("refused.test");
    assert_eq!((&record["verdict"], &record["status"]), (&"deny".into(), &403.into()), "{record}");
    // Without a name: as the address itself.
    let (out, _) = site.curl(&["-i", &format!("http://{REFUSED}/")]);
    assert!(out.starts_with("HTTP/1.1 403 "), "{out}");
    let to = format!("ok.test:80:{ALLOWED}");
    let (out, _) = site.curl(&["--resolve", &to, "-i", "http://ok.test/away"]);
    assert!(out.starts_with("HTTP/1.1 403 ") && out.contains("redirect_denied"), "{out}");
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
/// Hosts may change on a connection that goes on, and each is decided anew.
fn every_request_is_decided(site) {
    site.divert();
    let mut client = connect(ALLOWED, 80);
    let get = |client: &mut Client, path: &str, host: &str| {
        ask(client, "GET", &format!("GET {path} HTTP/1.1\r\nHost: {host}"))
    };
    assert_eq!(get(&mut client, "/", "ok.test").status, 200);
    let refused = get(&mut client, "/", "refused.test");
    assert_eq!((refused.status, reason(&refused).as_str()), (403, "domain_not_allowed"));
    assert_eq!(get(&mut client, "/public/x", "paths.test").status, 200);
    assert_eq!(reason(&get(&mut client, "/private", "paths.test")), "path_not_allowed");
    let posted = ask(&mut client, "POST", "POST /public/x HTTP/1.1\r\nHost: paths.test\r\nContent-Length: 0");
    assert_eq!(reason(&posted), "method_not_allowed");
    assert_eq!(get(&mut client, "/", "OK.TEST.:80").status, 200);
    let whole = get(&mut client, "http://ok.test/whole", "ok.test");
    assert_eq!(text(&whole.body), "GET /whole ok.test\n");
    assert_eq!(site.egret.events("decision").len(), 7);
    site.assert_untouched(&[REFUSED]);
}
}

in_site! {
/// Servers ignore one empty line before a request (RFC 9112 section 2.2): the name behind it decides,
/// however it arrives, and on any port.
fn an_empty_line_before_a_request(site) {
    site.divert();
    for (port, parts) in [
        (80, &["\r\nGET / HTTP/1.1\r\nHost: refused.test"][..]),
        (80, &["\r", "\nGET / HTTP/1.1\r\nHost: refused.test"]),
        (8080, &["\r\n", "PROPFIND / HTTP/1.1\r\nHost: refused.test"]),
        (2525, &["\r\nPROPFIND / HTTP/1.1\r\nHost: refused.test"]),
    ] {
        let mut client = connect(ALLOWED, port);
        let (last, first) = parts.split_last().unwrap();
        for part in first {
            client.send(part);
            std::thread::sleep(std::time::Duration::from_millis(300));
        }
        assert_eq!(reason(&ask(&mut client, "GET", last)), "domain_not_allowed", "{parts:?}");
        let record = site.egret.events("decision").pop().unwrap();
        assert_eq!((&record["host"], &record["port"]), (&"refused.test".into(), &port.into()), "{record}");
    }
    assert_eq!(ask(&mut connect(ALLOWED, 80), "GET", "\r\nGET / HTTP/1.1\r\nHost: ok.test").status, 200);
    // One is no request yet, more than one is none at all.
    let mut client = connect(ALLOWED, 80);
    client.send("\r\n\r\nGET / HTTP/1.1\r\nHost: ok.test\r\n\r\n");
    assert!(client.until_end().is_empty());
    assert_eq!(site.egret.events("decision").pop().unwrap()["reason"], "address_not_allowed");
}
}

in_site! {
fn what_is_ambiguous_is_refused(site) {
    site.divert();
    for (method, head, status) in [
        ("GET", "GET / HTTP/1.1", 400),
        ("GET", "GET / HTTP/1.1\r\nHost: ok.test\r\nHost: refused.test", 400),
        ("GET", "GET / HTTP/1.1\r\nHost: ok.test:8080", 400),
        ("GET", "GET / HTTP/1.1\r\nHost: 0x2c.77.1.1", 400),
        ("GET", "GET http://refused.test/ HTTP/1.1\r\nHost: ok.test", 400),
        ("GET", "GET http://ok.test/ HTTP/1.1\r\nHost: refused.test", 400),
        ("GET", "GET https://ok.test/ HTTP/1.1\r\nHost: ok.test", 400),
        ("GET", "GET ok.test/ HTTP/1.1\r\nHost: ok.test", 400),
        ("CONNECT", "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443", 405),
        ("TRACE", "TRACE / HTTP/1.1\r\nHost: ok.test", 405),
    ] {
        let response = ask(&mut connect(ALLOWED, 80), method, head);
        assert_eq!((response.status, reason(&response).as_str()), (status, "bad_request"), "{head}");
    }
    for record in site.egret.events("decision") {
        assert_eq!(record["protocol"], "transparent", "{record}");
        assert_eq!(record["original"], ALLOWED, "{record}");
    }
    // HTTP/1.0 may have no Host: then there is no name.
    let response = ask(&mut connect(ALLOWED, 80), "GET", "GET / HTTP/1.0");
    assert_eq!(reason(&response), "address_not_allowed");
    assert!(site.watch.seen().iter().all(|packet| packet.protocol != 6));
}
}

in_site! {
/// Credentials for a proxy identify nobody here, and a policy for tokens alone is out of reach.
fn only_the_address_identifies(site) {
    site.divert();
    let head = "GET / HTTP/1.1\r\nHost: ok.test\r\nProxy-Authorization: Basic Ym94OmFueQ==";
    assert_eq!(ask(&mut connect(ALLOWED, 80), "GET", head).status, 200);
    site.reload(|config| config.replace("10.77.1.0/24", "10.78.0.0/24"));
    let response = ask(&mut connect(ALLOWED, 80), "GET", "GET / HTTP/1.1\r\nHost: ok.test");
    assert_eq!((response.status, reason(&response).as_str()), (403, "identity_required"));
}
}

in_site! {
/// No way but by the rules: neither the control interface nor egret's own listeners.
fn egret_itself_is_out_of_reach(site) {
    site.divert();
    let response = ask(&mut connect(GATEWAY, 3128), "GET", "GET http://ok.test/ HTTP/1.1\r\nHost: ok.test");
    assert_eq!(response.status, 200, "the proxy itself is");
    // Diverted like everything, and refused: it leads to egret itself.
    for port in [3129, 3130] {
        // It may be reset as early as that.
        let connected = within("cl", || TcpStream::connect((GATEWAY, port)));
        let said = connected.and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: ok.test\r\n\r\n")?;
            stream.read(&mut [0])
        });
        let error = said.unwrap_err();
        let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(kinds.contains(&error.kind()), "port {port}: {error}");
    }
    wait_for("both decisions", PATIENCE, || site.egret.events("decision").len() == 3);
    let refused = |record: &&serde_json::Value| record["host"] == GATEWAY;
    let records = site.egret.events("decision");
    let records: Vec<_> = records.iter().filter(refused).collect();
    assert_eq!(records.len(), 2, "{records:?}");
    for record in records {
        assert_eq!(record["reason"], "address_forbidden");
        assert!(record["detail"].as_str().unwrap().contains("not diverted"), "{record}");
    }
}
}

//! What happens when somebody is slow, absent, or too many.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::setup::{NAME, config, front, get, serving, small};
use crate::support::black_hole::BlackHole;
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::http1;
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn running_out_of_descriptors_is_survived() {
    let origin = small();
    let egret = serving(&origin).shell("ulimit -n 128").start();
    let authority = format!("{NAME}:{}", origin.port());
    // More than it can accept; the rest waits in the listener's queue, or outside of it.
    let connect = |_| TcpStream::connect_timeout(&egret.proxy, Duration::from_millis(500)).ok();
    let silent: Vec<TcpStream> = (0..300).filter_map(connect).collect();
    thread::sleep(Duration::from_millis(500));
    drop(silent);
    let served = || {
        let mut client = Client::connect(egret.proxy);
        client.send(get(&authority, "/"));
        client.response("GET").status == 200
    };
    // As soon as it has seen that they are gone.
    wait_for("service again", Duration::from_secs(5), served);
    for _ in 0..20 {
        assert!(served());
    }
}

#[test]
fn a_slow_head_is_told_so() {
    let (egret, authority) = front(&small());
    let mut client = Client::connect(egret.proxy);
    let began = Instant::now();
    client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: "));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (408, Some("bad_request")));
    assert!(client.until_end().is_empty());
    assert!(began.elapsed() < Duration::from_secs(20), "after {:?}", began.elapsed());
}

#[test]
fn what_is_malformed_uses_up_the_request_rate() {
    let origin = small();
    let authority = format!("{NAME}:{}", origin.port());
    let text = config(&[NAME], origin.port()).replace("\"box\"", "\"box-{ip}\"");
    let egret = Egret::with(format!("{text}\n[policy.main.limits]\nrequests = \"1/h burst 4\"\n")).start();
    let ask = |source: &str, request: String| {
        let mut client = Client::connect_from(source, egret.proxy);
        client.send(request);
        let answer = client.response("GET");
        (answer.status, answer.get("retry-after").is_some(), client)
    };
    let looping = get(&authority, "/").replace("\r\n\r\n", "\r\nVia: 1.1 egret\r\n\r\n");
    let faulty = [
        (400, "\x16\x03\x01\r\n\r\n".to_owned()),
        (400, format!("GET http://{authority}/ HTTP/1.1\r\n\r\n")),
        (405, format!("TRACE http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n")),
        (502, looping),
    ];
    for (status, request) in &faulty {
        let answer = ask("127.0.0.1", request.clone());
        assert_eq!((answer.0, answer.1), (*status, false), "{request:?}");
    }
    for (_, request) in &faulty[..3] {
        let (status, retry_after, mut client) = ask("127.0.0.1", request.clone());
        assert_eq!((status, retry_after), (429, true), "{request:?}");
        assert!(client.until_end().is_empty());
    }
    assert_eq!(ask("127.0.0.1", get(&authority, "/")).0, 429, "what is well-formed counts in the same rate");
    assert_eq!(ask("127.0.0.2", get(&authority, "/")).0, 200, "another sandbox has its own");
    let reasons: Vec<_> =
        egret.events("decision").iter().map(|r| r["reason"].as_str().unwrap().to_owned()).collect();
    let expected = [&["bad_request"; 3][..], &["proxy_loop"], &["rate_limited"; 4], &["allowed"]].concat();
    assert_eq!(reasons, expected);
}

/// What is configured here as one second; each test's own patience is far longer.
fn impatient(port: u16, key: &str) -> Egret {
    Egret::with(format!("[timeouts]\n{key} = \"1s\"\n\n{}", config(&[NAME], port))).start()
}

#[test]
fn a_head_that_trickles_has_no_more_time() {
    let origin = small();
    let egret = impatient(origin.port(), "header");
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    let mut writer = client.stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        use std::io::Write;
        let head = format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nX-Long: ");
        let mut next = head.into_bytes().into_iter().chain(std::iter::repeat(b'x'));
        let until = Instant::now() + Duration::from_secs(20);
        while Instant::now() < until && writer.write_all(&[next.next().unwrap()]).is_ok() {
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(client.response("GET").status, 408);
    drop(client);
    trickle.join().unwrap();
}

#[test]
fn a_connection_that_nobody_accepts_times_out() {
    let hole = BlackHole::open("127.0.0.1:0".parse().unwrap()).unwrap();
    let egret = impatient(hole.address.port(), "connect");
    for (method, request) in [
        ("GET", get(&format!("{NAME}:{}", hole.address.port()), "/")),
        ("CONNECT", format!("CONNECT {NAME}:{0} HTTP/1.1\r\nHost: {NAME}:{0}\r\n\r\n", hole.address.port())),
    ] {
        let mut client = Client::connect(egret.proxy);
        client.send(request);
        let answer = client.response(method);
        assert_eq!((answer.status, answer.get("x-egret-reason")), (504, Some("connect_timeout")));
    }
}

#[test]
fn a_silent_origin_times_out() {
    let origin = Origin::start(|visit| {
        visit.request()?;
        visit.some().map(drop)
    });
    let egret = impatient(origin.port(), "response");
    let mut client = Client::connect(egret.proxy);
    client.send(get(&format!("{NAME}:{}", origin.port()), "/"));
    let answer = client.response("GET");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (504, Some("upstream_timeout")));
}

#[test]
fn a_body_that_stands_still_times_out() {
    let origin = Origin::start(|visit| {
        visit.head()?;
        while !visit.some()?.is_empty() {}
        Ok(())
    });
    let egret = impatient(origin.port(), "body");
    let authority = format!("{NAME}:{}", origin.port());
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "POST http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\nContent-Length: 100\r\n\r\nhalf"
    ));
    let answer = client.until_end();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408 "), "{}", http1::latin1(&answer));
    wait_for("the closing record", Client::PATIENCE, || egret.events("close").len() == 1);
}

#[test]
fn a_refused_connection_is_told_so() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port() // free again at once, and nobody listens there
    };
    let egret = Egret::with(config(&[NAME], port)).start();
    let mut client = Client::connect(egret.proxy);
    client.send(format!("CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n"));
    let answer = client.response("CONNECT");
    assert_eq!((answer.status, answer.get("x-egret-reason")), (502, Some("connect_refused")));
    assert_eq!(answer.get("content-type"), Some("application/problem+json"));
    assert_eq!(answer.get("cache-control"), Some("no-store"));
    let status = answer.get("proxy-status").unwrap();
    assert!(status.starts_with("egret; error=connection_refused"), "{status}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((&problem["reason"], &problem["host"]), (&"connect_refused".into(), &NAME.into()));
    assert_eq!(problem["port"], port);
}

//! `egret ready`.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use super::run::{Run, egret, folder};

/// Asks a control interface that gives this answer.
fn ask(answer: &'static str) -> Run {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        let length = stream.read(&mut request).unwrap();
        stream.write_all(answer.as_bytes()).unwrap();
        String::from_utf8_lossy(&request[..length]).into_owned()
    });
    let run = egret(folder(&[]).path(), &["ready", "--control", &address]);
    assert!(server.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));
    run
}

#[test]
fn nothing_that_listens_is_not_ready() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let run = egret(folder(&[]).path(), &["ready", "--control", &address]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    let wanted = format!("egret: the control interface at {address} does not answer: ");
    assert!(run.stderr.starts_with(&wanted), "{run:?}");
}

#[test]
fn a_proxy_that_is_not_ready_says_why() {
    let run = ask("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\nno policy\n");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert_eq!(run.stderr, "egret: not ready: no policy\n");
}

#[test]
fn a_proxy_that_wants_its_token() {
    let run = ask("HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n{}");
    assert_eq!((run.code, run.stdout.as_str()), (1, ""), "{run:?}");
    assert!(
        run.stderr.ends_with(" wants its token: name the file that holds it with --token-file\n"),
        "{run:?}"
    );
}

#[test]
fn a_proxy_that_is_ready() {
    let run = ask("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "ready\n", ""), "{run:?}");
}

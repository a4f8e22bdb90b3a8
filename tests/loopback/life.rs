//! Start, readiness and stop.

use std::net::TcpStream;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use crate::setup::{NAME, config, config_asking, front, get, name_server, serving};
use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;
use crate::support::wait_for;

#[test]
fn is_ready_once_names_resolve() {
    let dns = name_server();
    let egret = Egret::with(config_asking(&dns, 80)).start();
    assert_eq!(egret.control("GET", "/healthz").status, 200);
    wait_for("readiness", Duration::from_secs(10), || egret.control("GET", "/readyz").status == 200);
    let ready =
        Command::new(BINARY).args(["ready", "--control", &egret.control.to_string()]).status().unwrap();
    assert_eq!(ready.code(), Some(0));
}

#[test]
fn a_stop_lets_what_runs_finish() {
    let (answer_now, waits) = mpsc::channel::<()>();
    let waits = Mutex::new(waits);
    let origin = Origin::start(move |visit| {
        visit.request()?;
        waits.lock().unwrap().recv().unwrap();
        visit.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")?;
        visit.finish()
    });
    let (mut egret, authority) = front(&origin);
    let mut client = Client::connect(egret.proxy);
    client.send(get(&authority, "/"));
    wait_for("the request at the origin", Duration::from_secs(10), || origin.requests().len() == 1);
    egret.signal(Signal::TERM);
    wait_for("a closed listener", Duration::from_secs(10), || TcpStream::connect(egret.proxy).is_err());
    assert!(egret.exited().is_none(), "ended with a request open");
    answer_now.send(()).unwrap();
    assert_eq!(client.response("GET").body, b"done");
    assert_eq!(egret.wait().code(), Some(0));
    assert_eq!(egret.events("start").len(), 1);
    assert_eq!(egret.events("stop").len(), 1);
    assert_eq!(egret.events("decision").len(), egret.events("close").len());
}

#[test]
fn a_stop_closes_in_the_end_what_does_not_finish() {
    let origin = Origin::echoing();
    let text = config(&[NAME], origin.port());
    let mut egret = Egret::with(format!("[timeouts]\ndrain = \"1s\"\n\n{text}")).start();
    let authority = format!("{NAME}:{}", origin.port());
    let mut tunnels: Vec<_> = (0..3).map(|_| Client::tunnel(egret.proxy, &authority)).collect();
    let mut idle = Client::connect(egret.proxy);
    for tunnel in &mut tunnels {
        tunnel.send("12345");
        assert_eq!(tunnel.exactly(5), b"12345");
    }
    egret.signal(Signal::TERM);
    assert!(idle.until_end().is_empty(), "who has asked nothing is not waited for");
    for tunnel in &mut tunnels {
        assert!(tunnel.until_end().is_empty());
    }
    assert_eq!(egret.wait().code(), Some(0));
    let closes = egret.events("close");
    assert_eq!(closes.len(), 3);
    for close in &closes {
        assert_eq!(close["reason"], "shutting_down", "{close}");
        assert_eq!((&close["bytes_up"], &close["bytes_down"]), (&5.into(), &5.into()));
    }
    assert_eq!(egret.audit_records().last().unwrap()["event"], "stop");
}

#[test]
fn a_wrong_configuration_is_told_and_does_not_start() {
    let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let error = serving(&origin).audit("fil = \"x\"\n").try_start().unwrap_err();
    assert!(
        error.contains("exit status: 2") && error.contains("fil") && error.contains("egret.toml"),
        "{error}"
    );
}

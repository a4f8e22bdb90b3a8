//! Another `[upstream]` holds for what is opened from then on; what is pooled another way goes.

use std::io::Read;
use std::time::Duration;

use crate::parent::Parent;
use crate::setup::{NAME, config, decision, get};
use crate::support::client::Client;
use crate::support::egret::Egret;
use crate::support::origin::Origin;
use crate::support::wait_for;

/// A plain request that is over: its connection has gone back to the pool, or is closed.
fn served(egret: &Egret, port: u16, number: usize) {
    assert_eq!(get(egret, port).status, 200);
    wait_for("the end of the request", Duration::from_secs(10), || egret.events("close").len() == number);
}

#[test]
fn new_requests_go_the_new_way_and_open_tunnels_live_on() {
    let (one, two) = (Parent::open(), Parent::open());
    let origin = Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let closing = if request.path() == "/last" { "Connection: close\r\n" } else { "" };
            visit.send(format!("HTTP/1.1 200 OK\r\n{closing}Content-Length: 2\r\n\r\nok"))?;
        }
        Ok(())
    });
    let port = origin.port();
    let egret = Egret::with(config(one.address(), port, "")).start();
    let mut tunnel = Client::tunnel(egret.proxy, &format!("{NAME}:{port}"));
    let ask = |tunnel: &mut Client| {
        tunnel.send(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n"));
        tunnel.response("GET").status
    };
    assert_eq!(ask(&mut tunnel), 200);
    served(&egret, port, 1);
    assert_eq!((one.heads().len(), two.heads().len()), (2, 0));
    let open = egret.open_files();

    // Another parent: the pooled connection is closed, the tunnel is not.
    egret.configure(&config(two.address(), port, ""));
    assert_eq!(egret.reload().status, 200);
    wait_for("the end of the pooled connection", Duration::from_secs(10), || egret.open_files() < open);
    served(&egret, port, 2);
    assert_eq!(decision(&egret, 3)["via_parent"], two.address().to_string());
    assert_eq!((one.heads().len(), two.heads().len()), (2, 1));
    assert_eq!(ask(&mut tunnel), 200);

    // Straight.
    let straight = config(two.address(), port, "no_proxy = [\"origin.test\"]");
    egret.configure(&straight);
    assert_eq!(egret.reload().status, 200);
    served(&egret, port, 3);
    assert!(decision(&egret, 4)["via_parent"].is_null());
    assert_eq!((one.heads().len(), two.heads().len()), (2, 1));

    // Nothing changed: the pooled connection serves on.
    let accepted = origin.accepted();
    egret.configure(&format!("{straight}\n# a comment\n"));
    assert_eq!(egret.reload().status, 200);
    served(&egret, port, 4);
    assert_eq!(origin.accepted(), accepted);

    // A wrong setting changes nothing.
    egret.configure(&straight.replace("http://", "socks5://"));
    let answer = egret.reload();
    assert!(answer.status >= 400, "{answer:?}");
    assert!(String::from_utf8_lossy(&answer.body).contains("socks5"), "{answer:?}");
    served(&egret, port, 5);
    assert_eq!(ask(&mut tunnel), 200);

    // What the policy refuses ends, whatever way it goes.
    egret.configure(&config(two.address(), port, "").replace("*.test", "*.other"));
    assert_eq!(egret.reload().status, 200);
    let mut rest = Vec::new();
    assert_eq!(tunnel.stream.read_to_end(&mut rest).unwrap_or(0), 0);
}

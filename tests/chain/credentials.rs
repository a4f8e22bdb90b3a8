//! Credentials reach the parent and nobody else, and a bad file is an error.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::parent::{Act, Parent};
use crate::setup::{NAME, config, decision, get};
use crate::support::client::Client;
use crate::support::egret::{BINARY, Egret};
use crate::support::origin::Origin;

const SECRET: &str = "hunter2";
const FIELD: &str = "Basic ZWdyZXQ6aHVudGVyMg==";

fn echo_headers() -> Origin {
    Origin::start(|visit| {
        while let Some(request) = visit.request()? {
            let head = request.head;
            visit.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", head.len()))?;
            visit.send(head)?;
        }
        Ok(())
    })
}

/// Egret with a credentials file, through this parent.
fn with_credentials(parent: &Parent, origin: &Origin) -> Egret {
    let more = "credentials_file = \"parent.txt\"";
    // Files of the test are readable by everybody; the shell shuts this one before the start.
    Egret::with(config(parent.address(), origin.port(), more))
        .file("parent.txt", &format!("egret:{SECRET}\n"))
        .shell("chmod 600 parent.txt")
        .start()
}

#[test]
fn they_go_to_the_parent_alone() {
    let origin = echo_headers();
    let parent = Parent::start(|request| match request.get("proxy-authorization") {
        Some(FIELD) => Act::tunnel(),
        _ => Act::status("407 No\r\nProxy-Authenticate: Basic"),
    });
    let egret = with_credentials(&parent, &origin);
    let answer = get(&egret, origin.port());
    assert_eq!(answer.status, 200);
    let echoed = String::from_utf8(answer.body).unwrap().to_ascii_lowercase();
    assert!(!echoed.contains("proxy-") && !echoed.contains("zwdy"), "{echoed}");
    let mut tunnel = Client::tunnel(egret.proxy, &format!("{NAME}:{}", origin.port()));
    tunnel.send(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n"));
    assert_eq!(tunnel.response("GET").status, 200);
    assert_eq!(parent.heads().len(), 2);
    for head in parent.heads() {
        assert_eq!(head.get("proxy-authorization"), Some(FIELD));
    }
    decision(&egret, 2);
    for text in [egret.log(), fs::read_to_string(egret.audit_file()).unwrap()] {
        assert!(!text.contains(SECRET) && !text.contains("ZWdyZXQ6"), "{text}");
    }
}

#[test]
fn what_a_client_sends_for_this_hop_reaches_no_origin_and_no_parent() {
    let (origin, parent) = (echo_headers(), Parent::open());
    let egret = Egret::with(config(parent.address(), origin.port(), "")).start();
    let authority = format!("{NAME}:{}", origin.port());
    let hop = "Proxy-Connection: keep-alive\r\nProxy-Authenticate: Basic\r\nKeep-Alive: timeout=5\r\nTE: gzip\r\n\
               Trailer: X-T\r\nX-Forwarded-For: 10.0.0.1\r\nForwarded: for=10.0.0.1\r\nVia: 1.0 inner\r\n";
    for upgrade in ["", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"] {
        let mut client = Client::connect(egret.proxy);
        client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n{hop}{upgrade}\r\n"));
        let answer = client.response("GET");
        assert_eq!(answer.status, 200);
        let echoed = String::from_utf8(answer.body).unwrap().to_ascii_lowercase();
        for word in ["proxy-", "keep-alive", "gzip", "10.0.0.1", "127.0.0.1"] {
            assert!(!echoed.contains(word), "{word} in {echoed}");
        }
    }
    // Credentials of a client are for egret: without token keys they are refused, here as anywhere.
    let mut client = Client::connect(egret.proxy);
    client.send(format!(
        "CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nProxy-Authorization: Basic c2J4MTp0b2szbg==\r\n\r\n"
    ));
    assert_eq!(client.response("CONNECT").status, 403);
    for head in parent.heads() {
        let text = String::from_utf8_lossy(&head.head).to_ascii_lowercase();
        assert!(!text.contains("proxy-authorization") && !text.contains("forwarded"), "{text}");
    }
    assert!(!fs::read_to_string(egret.audit_file()).unwrap().contains("tok3n"));
    assert!(!egret.log().contains("c2J4MTp0b2szbg"), "{}", egret.log());
}

/// What `egret check` says of a credentials file with this text and mode.
fn checked(text: Option<&str>, mode: u32) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let (file, secret) = (dir.path().join("egret.toml"), dir.path().join("parent.txt"));
    if let Some(text) = text {
        fs::write(&secret, text).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(mode)).unwrap();
    }
    let more = format!("credentials_file = {:?}", secret.display().to_string());
    fs::write(&file, config("127.0.0.1:9".parse().unwrap(), 80, &more)).unwrap();
    let output = Command::new(BINARY).args(["check", "--config"]).arg(&file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_bad_file_is_an_error_that_does_not_show_it() {
    assert_eq!(checked(Some("egret:hunter2"), 0o600).0, Some(0));
    assert_eq!(checked(Some("egret:hunter2\n"), 0o640).0, Some(0));
    for (text, mode, said) in [
        (None, 0, "No such file"),
        (Some("egret:hunter2"), 0o644, "mode 0644"),
        (Some("egret:hunter2"), 0o602, "mode 0602"),
        (Some("hunter2"), 0o600, "no colon"),
        (Some(":hunter2"), 0o600, "no user name"),
        (Some(""), 0o600, "no user name"),
        (Some("egret:hunter2\negret:hunter2\n"), 0o600, "more than one line"),
    ] {
        let (code, output) = checked(text, mode);
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(said) && !output.contains(SECRET), "{output}");
        assert!(output.contains("egret.toml:"), "{output}");
    }
}

#[test]
fn a_changed_file_is_read_again() {
    let origin = echo_headers();
    let parent = Parent::start(|request| match request.get("proxy-authorization") {
        Some("Basic bmV3OnNlY3JldA==") => Act::tunnel(),
        _ => Act::status("407 No\r\nProxy-Authenticate: Basic"),
    });
    let egret = with_credentials(&parent, &origin);
    assert_eq!(get(&egret, origin.port()).status, 502);
    fs::write(egret.dir().join("parent.txt"), "new:secret").unwrap();
    crate::support::wait_for("the reload", std::time::Duration::from_secs(10), || {
        get(&egret, origin.port()).status == 200
    });
    // A file that got worse leaves what is in force.
    fs::set_permissions(egret.dir().join("parent.txt"), Permissions::from_mode(0o644)).unwrap();
    assert!(egret.reload().status >= 400);
    assert_eq!(get(&egret, origin.port()).status, 200);
}

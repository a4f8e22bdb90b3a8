//! Containers at work.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;
use tempfile::TempDir;

use crate::engine::{Container, Network, image};
use crate::support::client::Client;
use crate::support::http1::Response;
use crate::support::origin::Origin;

const PAGE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\npage\n";

fn get(container: &Container, host: &str) -> Response {
    let mut client = Client::connect(container.proxy());
    client.send(format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.final_response("GET")
}

/// The body of a refusal.
fn refusal(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap()
}

/// A file that a container may read.
fn config(text: &str) -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("egret.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    (folder, file)
}

#[test]
fn with_its_own_configuration_it_refuses_everything() {
    let Some(image) = image() else { return };
    let network = Network::create();
    let origin = Origin::start_on(network.gateway, |visit| visit.send(PAGE));
    let container = Container::start(&image, &network, None);
    let answer = get(&container, &origin.address.to_string());
    assert_eq!((answer.status, refusal(&answer)["reason"].as_str()), (403, Some("identity_required")));
    assert_eq!(origin.accepted(), 0);
    assert_eq!(container.stop(), "0");
}

#[test]
fn with_a_policy_it_lets_through_what_that_allows() {
    let Some(image) = image() else { return };
    let network = Network::create();
    let [allowed, other] = [(), ()].map(|()| {
        Origin::start_on(network.gateway, |visit| {
            while visit.request()?.is_some() {
                visit.send(PAGE)?;
            }
            Ok(())
        })
    });
    let gateway = network.gateway;
    let (_folder, file) = config(&format!(
        "[listen]\nproxy = \"0.0.0.0:3128\"\n\n\
         [dns]\nhosts = {{ \"allowed.test\" = \"{gateway}\", \"other.test\" = \"{gateway}\" }}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"{gateway}\"]\npolicy = \"p\"\n\n\
         [policy.p]\nrules = [\"github-read\"]\n\n\
         [[policy.p.allow]]\ndomains = [\"allowed.test:{}\"]\naddresses = [\"{gateway}\"]\n",
        allowed.port()
    ));
    let container = Container::start(&image, &network, Some(&file));
    let answer = get(&container, &format!("allowed.test:{}", allowed.port()));
    assert_eq!((answer.status, answer.body.as_slice()), (200, b"page\n".as_slice()));
    let answer = get(&container, &format!("other.test:{}", other.port()));
    assert_eq!((answer.status, refusal(&answer)["reason"].as_str()), (403, Some("domain_not_allowed")));
    assert_eq!(other.accepted(), 0);

    let status = fs::read_to_string(format!("/proc/{}/status", container.inspect("{{.State.Pid}}"))).unwrap();
    let has =
        |line: &str| assert!(status.lines().any(|l| l.split_whitespace().eq(line.split(' '))), "{status}");
    has("Uid: 65532 65532 65532 65532");
    has("CapEff: 0000000000000000");
    has("NoNewPrivs: 1");

    assert_eq!(container.stop(), "0");
    let audit = container.read("/var/lib/egret/audit.ndjson");
    let records: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<_> = records.iter().map(|record| record["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["start", "decision", "close", "decision", "stop"], "{audit}");
    assert_eq!((&records[1]["verdict"], &records[3]["verdict"]), (&"allow".into(), &"deny".into()));
}

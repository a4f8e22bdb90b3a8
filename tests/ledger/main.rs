//! The ledger as its users see it: what it says is what the audit file says, also after a crash.
//!
//! Needs no privileges: names stand in `[dns] hosts`, and every port is a free one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    missing_docs,
    reason = "a test may fail loudly, and opens its own sockets"
)]

mod command;
mod control;
mod crash;
mod naive;
#[path = "../support/mod.rs"]
mod support;

use std::process::{Command, Output};

use serde_json::Value;

use support::client::Client;
use support::egret::{BINARY, Builder, Egret};
use support::origin::Origin;

/// Allows `a.test`, `b.test` and every `*.many.test` on this origin's port, for sandboxes by the
/// client's address.
fn serving(origin: &Origin) -> Builder {
    Egret::with(format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\nhosts = {{ \"a.test\" = [\"127.0.0.1\"], \"b.test\" = [\"127.0.0.1\"] }}\n\n\
         [[sandbox]]\nid = \"quiet\"\nsource = [\"127.9.9.9/32\"]\npolicy = \"main\"\n\n\
         [[sandbox]]\nid = \"box-{{ip}}\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [policy.main]\ndefault = \"deny\"\n\n\
         [[policy.main.allow]]\ndomains = [\"a.test\", \"b.test\"]\naddresses = [\"127.0.0.1/32\"]\nports = [{}]\n",
        origin.port()
    ))
}

fn origin() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
}

/// A request from the loopback; the status of its answer.
fn get(egret: &Egret, authority: &str) -> u16 {
    let mut client = Client::connect(egret.proxy);
    client.send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n"));
    client.response("GET").status
}

fn egret_domains(egret: &Egret, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.current_dir(egret.dir()).args(["domains", "--config"]).arg(egret.config_file()).args(arguments);
    command.output().unwrap()
}

/// `egret domains --json`, which must succeed.
fn rows(egret: &Egret, arguments: &[&str]) -> Vec<Value> {
    let output = egret_domains(egret, &[&["--json"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

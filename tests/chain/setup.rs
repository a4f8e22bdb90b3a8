//! Configurations that these tests share.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

use crate::support::client::Client;
use crate::support::egret::{Builder, Egret};
use crate::support::http1::Response;
use crate::support::wait_for;

/// The name under which origins are allowed.
pub const NAME: &str = "origin.test";

/// Allows `origin.test`, at these addresses, on this port, through this parent.
pub fn config_at(parent: &str, addresses: &[&str], port: u16, more: &str) -> String {
    let listed: Vec<_> = addresses.iter().map(|address| format!("{address:?}")).collect();
    format!(
        "[dns]\nservers = [\"127.0.0.1:9\"]\ntimeout = \"1s\"\nhosts = {{ \"{NAME}\" = [{}] }}\n\n\
         [timeouts]\nconnect = \"4s\"\n\n\
         [upstream]\nproxy = \"http://{parent}\"\n{more}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [policy.main]\n\n\
         [[policy.main.allow]]\ndomains = [\"*.test\"]\nshared_suffix = true\naddresses = [\"127.0.0.0/8\", \"::1/128\"]\nports = [{port}]\n",
        listed.join(", ")
    )
}

/// The same with one address.
pub fn config(parent: SocketAddr, port: u16, more: &str) -> String {
    config_at(&parent.to_string(), &["127.0.0.1"], port, more)
}

pub fn through(parent: SocketAddr, port: u16) -> Builder {
    Egret::with(config(parent, port, ""))
}

/// What a plain request gets.
pub fn get(egret: &Egret, port: u16) -> Response {
    let mut client = Client::connect(egret.proxy);
    client.send(format!("GET http://{NAME}:{port}/ HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n"));
    client.response("GET")
}

/// What a CONNECT gets.
pub fn connect(egret: &Egret, port: u16) -> Response {
    let mut client = Client::connect(egret.proxy);
    client.send(format!("CONNECT {NAME}:{port} HTTP/1.1\r\nHost: {NAME}:{port}\r\n\r\n"));
    client.response("CONNECT")
}

/// The last decision, once there are so many.
pub fn decision(egret: &Egret, count: usize) -> Value {
    wait_for("the record", Duration::from_secs(10), || egret.events("decision").len() >= count);
    egret.events("decision").pop().unwrap()
}

//! Configurations that these tests share.

use crate::support::dns_server::{Answer, DnsServer};
use crate::support::egret::{Builder, Egret};
use crate::support::origin::Origin;

/// The name under which `serving` allows an origin.
pub const NAME: &str = "origin.test";

/// Allows `origin.test` on the port of this origin, and nothing else.
pub fn serving(origin: &Origin) -> Builder {
    Egret::with(config(&[NAME], origin.port()))
}

/// Egret, already running, in front of this origin, and the authority to ask for.
pub fn front(origin: &Origin) -> (Egret, String) {
    (serving(origin).start(), format!("{NAME}:{}", origin.port()))
}

/// An origin whose answer is `ok`.
pub fn small() -> Origin {
    Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
}

/// Allows these names on this port; they resolve to the loopback without a query.
pub fn config(names: &[&str], port: u16) -> String {
    let hosts: Vec<String> = names.iter().map(|name| format!("\"{name}\" = [\"127.0.0.1\"]")).collect();
    let dns = format!("servers = [\"127.0.0.1:9\"]\nhosts = {{ {} }}", hosts.join(", "));
    let domains: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    config_with(&dns, &domains.join(", "), port)
}

/// Allows every `*.origin.test` on this port; all of them resolve to the loopback but `missing`.
pub fn config_asking(dns: &DnsServer, port: u16) -> String {
    config_with(&format!("servers = [\"{}\"]", dns.address), "\"*.origin.test\"", port)
}

/// A server that knows all names, but for `missing.origin.test`.
pub fn name_server() -> DnsServer {
    let server = DnsServer::start("127.0.0.1:0".parse().unwrap(), |_| std::net::Ipv4Addr::LOCALHOST).unwrap();
    server.reset([("missing.origin.test".to_owned(), vec![Answer::rcode("NXDOMAIN")])].into(), None);
    server
}

fn config_with(dns: &str, domains: &str, port: u16) -> String {
    format!(
        "[dns]\n{dns}\n\n\
         [[sandbox]]\nid = \"box\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"main\"\n\n\
         [policy.main]\ndefault = \"deny\"\n\n\
         [[policy.main.allow]]\ndomains = [{domains}]\naddresses = [\"127.0.0.1/32\"]\nports = [{port}]\n"
    )
}

/// A request without a body.
pub fn get(authority: &str, path: &str) -> String {
    format!("GET http://{authority}{path} HTTP/1.1\r\nHost: {authority}\r\n\r\n")
}

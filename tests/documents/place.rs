//! The world of the documents: every name leads somewhere, and an origin is there.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tempfile::TempDir;

use crate::alike::PAGE;
use crate::session::Session;
use crate::site::{Reply, Site};
use crate::support::dns_server::DnsServer;
use crate::support::origin::Request;
use crate::support::world::{self, World};
use crate::tls;

/// Names by which origins are asked over TLS.
const SECURE: [&str; 5] =
    ["example.com", "git.example", "git.example.com", "index.corp.example", "files.corp.example"];
/// Where egret itself is for its clients.
const EGRET: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 1);
/// Where all else is.
const ORIGIN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 34);
/// Where the operator's name server is, in the documents.
const OWN_DNS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// Follows a document in a world of its own, in which the test of this name is started anew. What it
/// needs of programs is said where it is missing.
pub fn follow(test: &str, document: &str, programs: &[&str]) {
    if !world::inside()
        && let Some(missing) = programs.iter().find(|program| !is_there(program))
    {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "`{missing}` is not installed");
        println!("skipped, for want of `{missing}`");
        return;
    }
    world::in_a_world(test, || {
        let files = TempDir::new().unwrap();
        let _world = World::enter(files.path()).unwrap();
        let lead = |name: &str| if name.trim_end_matches('.') == "egret" { EGRET } else { ORIGIN };
        for address in [world::DNS_ADDRESS.parse().unwrap(), OWN_DNS] {
            let _ = DnsServer::start(SocketAddr::new(address.into(), 53), lead).unwrap();
        }
        let (authority, config) = tls::authority(&SECURE);
        for (port, config) in [(80, None), (443, Some(config))] {
            Site::start_at((Ipv4Addr::UNSPECIFIED, port).into(), Arc::new(answer), config);
        }
        Session::begin().believing(&authority).follow(document);
    });
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin".into(), "/sbin".into()];
    std::env::split_paths(&path).chain(usual).any(|folder| folder.join(program).is_file())
}

/// A page; and what registries say, where one is asked, and a place that has moved.
fn answer(request: &Request) -> Reply {
    let host = request.get("host").unwrap_or_default();
    match (host.trim_end_matches(":443"), request.path()) {
        ("index.corp.example", "/crates/config.json") => {
            Reply::ok(r#"{"dl":"https://files.corp.example/crates"}"#)
        }
        ("index.corp.example", path) if path.starts_with("/npm/") => {
            Reply::ok(r#"{"dist":{"tarball":"https://files.corp.example/npm/npm-1.0.0.tgz"}}"#)
        }
        (_, "/moved") => {
            let headers = vec![("Location".to_owned(), "http://elsewhere.example/".to_owned())];
            Reply { status: 302, headers, ..Reply::ok("") }
        }
        _ => Reply::ok(PAGE),
    }
}

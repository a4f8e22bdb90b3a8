//! Reads `listen.dns`, and finds what can't go with it.

use std::net::SocketAddr;

use egret_policy::reader::Table;
use egret_policy::{Listeners, Problems, Spot};

use super::listen::read_addresses;
use crate::resolve::DnsServers;

/// The addresses where clients ask for names.
pub(super) fn read_listeners(table: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<SocketAddr> {
    let written = table.strings("dns", problems).unwrap_or_default();
    // An answer has to come from the address that was asked, which such a socket does not know.
    let any = |text: &str| text.parse().is_ok_and(|address: SocketAddr| address.ip().is_unspecified());
    for address in written.iter().filter(|address| any(&address.value)) {
        let message = format!("`dns` can't listen on every address, as {}", address.value);
        problems.error(&address.spot, message, "list the addresses that clients ask");
    }
    read_addresses("dns", written, problems)
}

/// Refuses DNS servers that are our own listener: each question would ask for itself.
pub(super) fn refuse_loop(
    servers: &DnsServers,
    place: Option<&Spot>,
    own: &[SocketAddr],
    problems: &mut Problems,
) {
    if own.is_empty() {
        return;
    }
    let listeners = Listeners { bound: own.to_vec() };
    // A list that can't be read is told where it is used.
    for server in servers.specs().unwrap_or_default() {
        let address = server.addr().get();
        if !listeners.contain(address, crate::dial::is_local) {
            continue;
        }
        let message = format!("the DNS server {address} is a listener of egret itself");
        let help = "name the servers that answer for egret in [dns] `servers`";
        match place {
            Some(place) => problems.error(place, message, help),
            None => problems.unplaced(format!("{message}; {help}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::{ConfigSource, load};

    fn problems_of(text: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("egret.toml");
        std::fs::write(&path, text).unwrap();
        match load(&ConfigSource::File { path, rules: None }, 1, None) {
            Ok(_) => String::new(),
            Err(problems) => problems.to_string(),
        }
    }

    #[test]
    fn addresses_of_its_own() {
        let with =
            |listen: &str| problems_of(&format!("[listen]\n{listen}\n[dns]\nservers = [\"192.0.2.53\"]\n"));
        assert_eq!(with("dns = [\"127.0.0.1:53\", \"[::1]:53\"]"), "");
        for (listen, part) in [
            ("dns = \"0.0.0.0:53\"", "every address"),
            ("dns = \"[::]:53\"", "every address"),
            ("dns = \"127.0.0.1\"", "is not an address and port"),
            ("dns = [\"127.0.0.1:53\", \"127.0.0.1:53\"]", "listed twice"),
            ("dns = \"127.0.0.1:3128\"", "`proxy` and `dns` are both"),
            ("proxy = \"0.0.0.0:53\"\ndns = \"127.0.0.1:53\"", "`proxy` and `dns` are both"),
            ("dns = \"127.0.0.1:3129\"", "`dns` and `control` are both"),
        ] {
            let problems = with(listen);
            assert!(problems.contains(part), "{listen}: {problems}");
        }
    }

    #[test]
    fn nobody_asks_themselves() {
        let with = |server: &str| {
            problems_of(&format!("[listen]\ndns = \"127.0.0.1:5353\"\n[dns]\nservers = [\"{server}\"]\n"))
        };
        assert!(with("127.0.0.1:5353").contains("a listener of egret itself"));
        assert!(with("tcp://127.0.0.1:5353").contains("a listener of egret itself"));
        assert_eq!(with("127.0.0.2:5353"), "");
        assert_eq!(with(&Ipv4Addr::LOCALHOST.to_string()), "");
    }
}

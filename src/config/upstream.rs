//! Reads `[upstream]`: the parent proxy, what does not go through it, and its credentials.
//!
//! A password stands in a file of its own: text of the configuration is shown in messages.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use egret_policy::reader::{Located, Table};
use egret_policy::{
    Destination, Host, Listeners, NamePattern, Nat64Prefix, Problems, Scheme, Spot, parse_network,
};
use ipnet::IpNet;

use super::{Files, StaticHosts};
use crate::chain::{Chain, Credentials, NoProxy, Parent};

const EXAMPLE: &str = "write a URL like \"http://proxy.corp.example:3128\"";
const CREDENTIALS: &str = "write one line into it, user:password";
const NO_PROXY: &str = "write a name, `*.name`, `**.name`, an address or a network";

/// The chain, and where its parent is named.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) chain: Chain,
    place: Option<Spot>,
}

/// Reads the table; the pseudonym is ours, the prefixes those of `[dns]`.
pub(super) fn read(
    table: Option<Table<'_, '_>>,
    (pseudonym, nat64): (&str, &[Nat64Prefix]),
    files: &mut Files,
    problems: &mut Problems,
) -> Written {
    let Some(mut table) = table else {
        return Written::default();
    };
    let proxy = table.string("proxy", problems);
    if proxy.is_none() && !table.has("proxy") {
        problems.error(&table.spot(), "[upstream] needs `proxy`", EXAMPLE);
    }
    let parent = proxy.as_ref().and_then(|text| read_proxy(text, problems));
    let mut no_proxy = NoProxy { nat64: nat64.to_vec(), ..NoProxy::default() };
    for text in table.strings("no_proxy", problems).into_iter().flatten() {
        match read_no_proxy(&text, problems) {
            Some(Entry::Network(net)) => no_proxy.networks.push(net),
            Some(Entry::Names(pattern)) => no_proxy.names.push(pattern),
            None => {}
        }
    }
    let file = table.string("credentials_file", problems);
    let credentials = file.and_then(|file| read_credentials(&file, files, problems));
    table.finish(problems);
    match parent {
        Some(place) => Written {
            chain: Chain::new(Parent::new(place, pseudonym, credentials), no_proxy),
            place: proxy.map(|text| text.spot),
        },
        None => Written::default(),
    }
}

fn read_proxy(text: &Located<String>, problems: &mut Problems) -> Option<Destination> {
    let shown = text.value.escape_debug();
    if text.value.contains('@') {
        let help = "write \"user:password\" into a file, and name that as `credentials_file`";
        problems.secret_error(&text.spot, "the URL of `proxy` holds a user or a password", help);
        return None;
    }
    let Some((scheme, rest)) = text.value.split_once("://") else {
        problems.error(&text.spot, format!("`{shown}` is not the URL of a proxy"), EXAMPLE);
        return None;
    };
    if scheme.eq_ignore_ascii_case("https") {
        let help = "write http://; what a tunnel carries has its own TLS, and the way to the parent can be a TLS tunnel of another program";
        problems.error(&text.spot, "TLS to a parent proxy is not supported", help);
        return None;
    }
    if !scheme.eq_ignore_ascii_case("http") {
        let message = format!("`{}` is not a way to speak to a parent proxy", scheme.escape_debug());
        problems.error(&text.spot, message, format!("{EXAMPLE}; it has to permit CONNECT"));
        return None;
    }
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#']) {
        problems.error(&text.spot, format!("`{shown}` has more than a host and a port"), EXAMPLE);
        return None;
    }
    let place = match Destination::parse_authority(authority.as_bytes()) {
        Ok(place) => place,
        Err(cause) => {
            let message = format!("`{shown}` names no host and port: {cause}");
            problems.error(&text.spot, message, format!("{EXAMPLE}, port included"));
            return None;
        }
    };
    match place.host() {
        Host::Address(address) if is_no_host(*address) => {
            problems.error(&text.spot, format!("{address} is not the address of one host"), EXAMPLE);
            None
        }
        // A socket to the mapped form would be one to the IPv4 address.
        Host::Address(address) => {
            let host = Host::Address(address.to_canonical());
            Some(Destination::new(Scheme::Tunnel, host, place.port()))
        }
        Host::Name(_) => Some(place),
    }
}

fn is_no_host(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_unspecified() || address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST)
}

enum Entry {
    Network(IpNet),
    Names(NamePattern),
}

fn read_no_proxy(text: &Located<String>, problems: &mut Problems) -> Option<Entry> {
    if matches!(text.value.as_str(), "*" | "**") {
        problems.error(&text.spot, "nothing would go through the parent proxy", "remove [upstream]");
        return None;
    }
    let url = text.value.contains("://");
    if !url && text.value.contains('/') || text.value.parse::<IpAddr>().is_ok() {
        return parse_network(text, problems).map(Entry::Network);
    }
    match NamePattern::parse(&text.value) {
        Ok(pattern) => Some(Entry::Names(pattern)),
        Err(cause) => {
            problems.error(&text.spot, cause.to_string(), NO_PROXY);
            None
        }
    }
}

fn read_credentials(
    file: &Located<String>,
    files: &mut Files,
    problems: &mut Problems,
) -> Option<Credentials> {
    let (cause, help) = match files.read_secret(Path::new(&file.value)) {
        Ok(text) => match Credentials::parse(&text) {
            Ok(credentials) => return Some(credentials),
            Err(cause) => (cause.to_string(), CREDENTIALS.to_owned()),
        },
        Err(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
            (cause.to_string(), format!("let egret and nobody else read it: chmod 600 {}", file.value))
        }
        Err(cause) => (cause.to_string(), CREDENTIALS.to_owned()),
    };
    problems.error(&file.spot, format!("the credentials {} can't be used: {cause}", file.value), help);
    None
}

/// Refuses a parent that is one of our own listeners, as far as that can be known without DNS.
pub(super) fn refuse_loop(
    written: &Written,
    listeners: &Listeners,
    hosts: &StaticHosts,
    problems: &mut Problems,
) {
    let (Some(parent), Some(place)) = (written.chain.parent(), &written.place) else {
        return;
    };
    let addresses = match parent.host() {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match hosts.get(name.as_str()) {
            Some(fixed) => fixed.clone(),
            None if name.is_localhost() => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
            None => Vec::new(),
        },
    };
    let mut reached = addresses.into_iter().map(|address| (address.to_canonical(), parent.port()).into());
    if let Some(own) = reached.find(|address| listeners.contain(*address, crate::dial::is_local)) {
        let help = "name the proxy that comes after this one";
        problems.error(place, format!("{parent} is a listener of egret itself ({own})"), help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use egret_policy::SourceFile;
    use egret_policy::reader::read_document;

    fn read_text(text: &str) -> (Written, Problems) {
        let file = SourceFile::new("egret.toml", format!("[upstream]\n{text}"));
        let mut problems = Problems::default();
        let written = read_document(&file, &mut problems, |mut root, problems| {
            read(root.table("upstream", problems), ("egret", &[]), &mut Files::default(), problems)
        });
        (written, problems)
    }

    /// The only problem with a proxy written so.
    fn fault(proxy: &str) -> String {
        let (written, problems) = read_text(&format!("proxy = {proxy:?}\n"));
        assert!(written.chain.parent().is_none(), "{proxy}");
        assert_eq!(problems.iter().count(), 1, "{proxy}: {problems}");
        problems.to_string()
    }

    #[test]
    fn a_parent_is_a_host_and_a_port() {
        for (proxy, shown) in [
            ("http://proxy.corp.example:3128", "proxy.corp.example:3128"),
            ("HTTP://Proxy.Corp.Example.:8080/", "proxy.corp.example:8080"),
            ("http://10.0.0.1:80", "10.0.0.1:80"),
            ("http://[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
            ("http://[fd00::1]:3128", "[fd00::1]:3128"),
        ] {
            let (written, problems) = read_text(&format!("proxy = {proxy:?}\n"));
            assert_eq!(problems.iter().count(), 0, "{proxy}: {problems}");
            assert_eq!(written.chain.parent().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_with_another_is_said() {
        for (proxy, said) in [
            ("", "not the URL of a proxy"),
            ("proxy.corp.example:3128", "not the URL of a proxy"),
            ("https://proxy.corp.example:3128", "TLS to a parent proxy is not supported"),
            ("socks5://proxy.corp.example:1080", "`socks5` is not a way to speak"),
            ("http://proxy.corp.example", "names no host and port"),
            ("http://proxy.corp.example:0", "names no host and port"),
            ("http://proxy.corp.example:99999", "names no host and port"),
            ("http://:3128", "names no host and port"),
            ("http://2130706433:3128", "names no host and port"),
            ("http://proxy.corp.example:3128/path", "more than a host and a port"),
            ("http://proxy.corp.example:3128?x", "more than a host and a port"),
            ("http://0.0.0.0:3128", "not the address of one host"),
            ("http://[ff02::1]:3128", "not the address of one host"),
        ] {
            let fault = fault(proxy);
            assert!(fault.contains(said), "{proxy}: {fault}");
            assert!(fault.starts_with("egret.toml:2:9: "), "{fault}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        for proxy in ["http://user:hunter2@proxy.corp.example:3128", "user:hunter2@proxy:3128"] {
            let (_, problems) = read_text(&format!("proxy = {proxy:?}\n"));
            let shown = format!("{problems}\n{}", crate::diagnostics::render(&problems, false));
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains("egret.toml:2:9") && shown.contains("credentials_file"), "{shown}");
        }
    }

    #[test]
    fn no_proxy_holds_names_and_networks() {
        let good = "proxy = \"http://p.example:1\"\nno_proxy = [\"**.a.example\", \"b.example:8443\", \"10.0.0.0/8\", \"fd00::/8\", \"192.0.2.1\"]\n";
        let (_, problems) = read_text(good);
        assert_eq!(problems.iter().count(), 0, "{problems}");
        for bad in
            ["*", ".a.example", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.1:80", "http://a.example", "", "a b"]
        {
            let (_, problems) = read_text(&format!("proxy = \"http://p.example:1\"\nno_proxy = {bad:?}\n"));
            assert_eq!(problems.iter().count(), 1, "{bad:?}: {problems}");
        }
    }

    #[test]
    fn a_table_without_a_proxy_is_no_chain() {
        for text in ["", "no_proxy = \"a.example\"\n", "prxy = \"http://p.example:1\"\n", "proxy = 1\n"] {
            let (written, problems) = read_text(text);
            assert!(written.chain.parent().is_none() && problems.any_error(), "{text:?}");
        }
    }

    #[test]
    fn our_own_listener_is_no_parent() {
        let listeners = Listeners { bound: vec!["127.0.0.1:3128".parse().unwrap()] };
        let hosts = StaticHosts::from([("self.example".to_owned(), vec![[127, 0, 0, 1].into()])]);
        for (host, refused) in [
            ("127.0.0.1:3128", true),
            ("[::ffff:127.0.0.1]:3128", true),
            ("localhost:3128", true),
            ("self.example:3128", true),
            ("127.0.0.1:3129", false),
            ("other.example:3128", false),
        ] {
            let (written, mut problems) = read_text(&format!("proxy = \"http://{host}\"\n"));
            refuse_loop(&written, &listeners, &hosts, &mut problems);
            assert_eq!(problems.any_error(), refused, "{host}: {problems}");
        }
    }
}

//! Reads `[listen]`: where clients come in, by which protocol, and the control interface.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use egret_policy::Problems;
use egret_policy::reader::{Located, Table};

use super::tls::{self, TlsPart};
use super::{Files, Listen, unreadable_help};

const TOKEN_FILE: &str =
    "write a random token of 16 characters or more into it, as of `openssl rand -hex 24`";
pub(super) const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Reads `[listen]`, with what its TLS listener shows and believes.
pub(super) fn read(
    table: Option<Table<'_, '_>>,
    files: &mut Files,
    problems: &mut Problems,
) -> (Listen, TlsPart) {
    let mut listen = Listen {
        proxy: vec![SocketAddr::new(LOOPBACK, 3128)],
        tls: Vec::new(),
        socks: Vec::new(),
        dns: Vec::new(),
        transparent: Vec::new(),
        control: SocketAddr::new(LOOPBACK, 3129),
        name: "egret".to_owned(),
        max_connections: None,
        control_token: None,
    };
    let Some(mut table) = table else {
        return (listen, TlsPart::default());
    };
    // One that can't be read is an error of its own.
    let names_token = table.has("control_token_file");
    let tls = tls::read(&mut table, files, problems);
    listen.tls.clone_from(&tls.addresses);
    let socks = table.strings("socks", problems).unwrap_or_default();
    listen.socks = read_addresses("socks", socks, problems);
    if let Some(written) = table.strings("proxy", problems) {
        let alone = listen.tls.is_empty() && listen.socks.is_empty() && !table.has("transparent");
        if written.is_empty() && alone {
            problems.error(
                &table.spot(),
                "`proxy` names no address",
                "write an address like \"127.0.0.1:3128\"",
            );
        }
        listen.proxy = read_addresses("proxy", written, problems);
    }
    listen.dns = super::dns::read_listeners(&mut table, problems);
    if let Some(written) = table.strings("transparent", problems) {
        listen.transparent = read_addresses("transparent", written, problems);
    }
    let control = table.string("control", problems);
    if let Some(parsed) = control.as_ref().and_then(|c| read_address(c, problems)) {
        listen.control = parsed;
    }
    if let Some(name) = table.string("name", problems) {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.value.is_empty() || !name.value.bytes().all(token) {
            problems.error(
                &name.spot,
                "`name` is not a pseudonym",
                "write a word of letters, digits, - and .",
            );
        }
        listen.name = name.value;
    }
    let most = table.integer("max_connections", (1, 1_000_000), problems);
    listen.max_connections = most.and_then(|n| usize::try_from(n.value).ok());
    if let Some(file) = table.string("control_token_file", problems) {
        listen.control_token = read_token(&file, problems);
    }
    refuse_clashes(&listen, &table, problems);
    if !listen.control.ip().is_loopback()
        && !names_token
        && let Some(control) = control
    {
        let message = "a control interface beyond loopback needs `control_token_file`";
        problems.error(&control.spot, message, "add it, or listen on 127.0.0.1");
    }
    table.finish(problems);
    (listen, tls)
}

/// Refuses one address for two listeners, but for `proxy` and `socks`, which the first octet tells
/// apart.
fn refuse_clashes(listen: &Listen, table: &Table<'_, '_>, problems: &mut Problems) {
    let keys = [
        ("proxy", &listen.proxy[..]),
        ("socks", &listen.socks),
        ("tls", &listen.tls),
        ("transparent", &listen.transparent),
        ("dns", &listen.dns),
        ("control", &[listen.control]),
    ];
    for (at, &(key, own)) in keys.iter().enumerate() {
        for &(other, others) in keys.iter().take(at).filter(|(other, _)| (*other, key) != ("proxy", "socks"))
        {
            if let Some(both) = own.iter().find(|own| others.iter().any(|other| clash(own, other))) {
                let message = format!("`{other}` and `{key}` are both {both}");
                problems.error(&table.spot(), message, format!("give `{key}` a port of its own"));
            }
        }
    }
}

/// Can't both be listened on? A listener on every address takes each one.
fn clash(one: &SocketAddr, other: &SocketAddr) -> bool {
    let all = |address: &SocketAddr| address.ip().is_unspecified();
    let both = one.ip() == other.ip() || one.is_ipv4() == other.is_ipv4() && (all(one) || all(other));
    one.port() != 0 && one.port() == other.port() && both
}

/// The addresses of a listener, without those that can't be read.
pub(super) fn read_addresses(
    key: &str,
    written: Vec<Located<String>>,
    problems: &mut Problems,
) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for address in written {
        let Some(parsed) = read_address(&address, problems) else { continue };
        if parsed.port() != 0 && addresses.contains(&parsed) {
            let message = format!("{parsed} is listed twice in `{key}`");
            problems.error(&address.spot, message, "list it once");
        }
        addresses.push(parsed);
    }
    addresses
}

pub(super) fn read_address(text: &Located<String>, problems: &mut Problems) -> Option<SocketAddr> {
    let parsed = text.value.parse().ok();
    if parsed.is_none() {
        let message = format!("`{}` is not an address and port", text.value.escape_debug());
        problems.error(&text.spot, message, "write an address like \"127.0.0.1:3128\" or \"[::1]:3128\"");
    }
    parsed
}

pub(super) fn read_token(file: &Located<String>, problems: &mut Problems) -> Option<String> {
    match std::fs::read_to_string(&file.value) {
        Ok(text) if text.trim().len() >= 16 => Some(text.trim().to_owned()),
        Ok(_) => {
            let message = format!("the token in {} is shorter than 16 characters", file.value);
            problems.error(&file.spot, message, TOKEN_FILE);
            None
        }
        Err(cause) => {
            let help = unreadable_help(&cause, TOKEN_FILE);
            problems.error(&file.spot, format!("{} can't be read: {cause}", file.value), help);
            None
        }
    }
}

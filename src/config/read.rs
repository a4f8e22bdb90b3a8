//! Reads the tables of the configuration file that are not the policy's.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use egret_policy::reader::{Located, Table};
use egret_policy::units::parse_duration;
use egret_policy::{DnsName, Nat64Prefix, Problems, RegisterText, limits, strict_network, word};
use ipnet::IpNet;

use super::{
    AuditSettings, Dns, Files, OnAuditFailure, Reloadable, Settings, StaticHosts, Timeouts, Tokens, listen,
    unreadable_help, upstream,
};
use crate::identity::PublicKey;
use crate::resolve::{DnsServers, ServerSpec};

/// Each may have to be tried for a token, so there must not be many.
const MOST_KEYS: usize = 8;

/// Reads everything but `deny`, `policy` and `sandbox`.
pub(super) fn settings(
    root: &mut Table<'_, '_>,
    files: &mut Files,
    problems: &mut Problems,
) -> (Settings, Reloadable) {
    let listen = root.table("listen", problems);
    let names_token = listen.as_ref().is_some_and(|table| table.has("control_token_file"));
    let (listen, tls) = listen::read(listen, files, problems);
    let dns_table = root.table("dns", problems);
    let dns_place = dns_table.as_ref().map(Table::spot);
    let (dns, nat64) = read_dns(dns_table, problems);
    super::dns::refuse_loop(&dns.servers, dns_place.as_ref(), &listen.dns, problems);
    let audit = read_audit(root.table("audit", problems), problems);
    let mut state_dir = PathBuf::from("egret-state");
    if let Some(mut state) = root.table("state", problems) {
        if let Some(dir) = path(&mut state, "dir", problems) {
            state_dir = dir;
        }
        state.finish(problems);
    }
    let (anonymous, register, tokens) = read_identity(root.table("identity", problems), files, problems);
    if let (Some(network), false) = (register.networks.first(), names_token) {
        let message = "`register` needs `control_token_file`: else whoever reaches the control interface could make a sandbox of itself";
        problems.error(&network.spot, message, "add `control_token_file` to [listen]");
    }
    let timeouts = read_timeouts(root.table("timeouts", problems), problems);
    let upstream = upstream::read(root.table("upstream", problems), (&listen.name, &nat64), files, problems);
    let settings = Settings { listen, dns, audit, state_dir, timeouts };
    (settings, Reloadable { upstream, nat64, anonymous, register, tokens, tls })
}

fn read_dns(table: Option<Table<'_, '_>>, problems: &mut Problems) -> (Dns, Vec<Nat64Prefix>) {
    let mut dns = Dns {
        servers: DnsServers::System,
        timeout: Duration::from_secs(5),
        hosts: StaticHosts::default(),
        ca: None,
    };
    let Some(mut table) = table else {
        return (dns, Vec::new());
    };
    if let Some(written) = table.strings("servers", problems) {
        dns.servers = read_servers(&table, &written, problems);
    }
    if let Some(timeout) = duration(&mut table, "timeout", problems) {
        dns.timeout = timeout;
    }
    if let Some(hosts) = table.table("hosts", problems) {
        dns.hosts = read_hosts(hosts, problems);
    }
    if let Some(file) = table.string("ca_file", problems) {
        match std::fs::read(&file.value) {
            Ok(pem) => dns.ca = Some(pem),
            Err(cause) => problems.error(&file.spot, format!("{} can't be read: {cause}", file.value), ""),
        }
    }
    let nat64 = table.strings("nat64", problems).into_iter().flatten();
    let nat64 = nat64.filter_map(|text| read_nat64(&text, problems)).collect();
    table.finish(problems);
    (dns, nat64)
}

fn read_servers(table: &Table<'_, '_>, written: &[Located<String>], problems: &mut Problems) -> DnsServers {
    if let [only] = written
        && only.value == "system"
    {
        return DnsServers::System;
    }
    if written.is_empty() {
        problems.error(
            &table.spot(),
            "`servers` names no DNS server",
            "write \"system\" or a list of addresses",
        );
    }
    let parse = |text: &Located<String>| match text.value.parse::<ServerSpec>() {
        Ok(server) => Some(server),
        Err(error) => {
            problems.error(&text.spot, error.to_string(), "");
            None
        }
    };
    DnsServers::List(written.iter().filter_map(parse).collect())
}

fn read_hosts(table: Table<'_, '_>, problems: &mut Problems) -> StaticHosts {
    let mut hosts = HashMap::new();
    for (name, written) in table.named_strings(problems) {
        let parsed = match DnsName::parse(name.value.as_bytes()) {
            Ok(parsed) => parsed,
            Err(error) => {
                let message = format!("`{}` is not a name: {error}", name.value.escape_debug());
                problems.error(&name.spot, message, "write an A-label name");
                continue;
            }
        };
        let mut addresses = Vec::new();
        for text in written {
            match text.value.parse::<IpAddr>() {
                Ok(address) => addresses.push(address),
                Err(_) => {
                    let message = format!("`{}` is not an IP address", text.value.escape_debug());
                    problems.error(&text.spot, message, "write an address like \"127.0.0.1\"");
                }
            }
        }
        if hosts.insert(parsed.as_str().to_owned(), addresses).is_some() {
            problems.error(&name.spot, format!("`{parsed}` is listed twice"), "list it once");
        }
    }
    hosts
}

fn read_nat64(text: &Located<String>, problems: &mut Problems) -> Option<Nat64Prefix> {
    let prefix = match strict_network(&text.value) {
        Some(IpNet::V6(net)) => Nat64Prefix::new(net),
        _ => None,
    };
    if prefix.is_none() {
        let message = format!("`{}` is not a NAT64 prefix", text.value.escape_debug());
        let help = "write an IPv6 network of length 32, 40, 48, 56, 64 or 96 (RFC 6052)";
        problems.error(&text.spot, message, help);
    }
    prefix
}

fn read_identity(
    table: Option<Table<'_, '_>>,
    files: &mut Files,
    problems: &mut Problems,
) -> (Option<Located<String>>, RegisterText, Tokens) {
    let mut register = RegisterText::default();
    let mut tokens = Tokens { named: false, keys: Vec::new(), audience: "egret".to_owned() };
    let Some(mut table) = table else {
        return (None, register, tokens);
    };
    let anonymous = table.string("anonymous", problems);
    register.networks = table.strings("register", problems).unwrap_or_default();
    register.policies = table.strings("register_policies", problems).unwrap_or_default();
    for (before, file) in table.strings("token_keys", problems).into_iter().flatten().enumerate() {
        if before == MOST_KEYS {
            let message = format!("there are more than {MOST_KEYS} token keys");
            problems.error(&file.spot, message, "remove those that nothing is signed with any more");
            break;
        }
        tokens.named = true;
        tokens.keys.extend(read_key(&file, files, problems));
    }
    if let Some(audience) = table.string("audience", problems) {
        if audience.value.is_empty() {
            problems.error(
                &audience.spot,
                "`audience` is empty",
                "write the word that tokens carry in `aud`",
            );
        }
        tokens.audience = audience.value;
    }
    table.finish(problems);
    (anonymous, register, tokens)
}

fn read_key(file: &Located<String>, files: &mut Files, problems: &mut Problems) -> Option<PublicKey> {
    let text = match files.read(Path::new(&file.value)) {
        Ok(text) => text,
        Err(cause) => {
            let message = format!("the token key {} can't be read: {cause}", file.value);
            let help = unreadable_help(&cause, "make one with `egret token keygen`");
            problems.error(&file.spot, message, help);
            return None;
        }
    };
    let key = PublicKey::from_pem(&text);
    if let Err(cause) = &key {
        let message = format!("the token key {} can't be used: {cause}", file.value);
        problems.error(&file.spot, message, "name the .pub file that `egret token keygen` made");
    }
    key.ok()
}

fn read_audit(table: Option<Table<'_, '_>>, problems: &mut Problems) -> AuditSettings {
    let mut audit = AuditSettings {
        file: PathBuf::from("audit.ndjson"),
        on_failure: OnAuditFailure::Deny,
        paths: false,
        sync: false,
    };
    let Some(mut table) = table else {
        return audit;
    };
    if let Some(file) = path(&mut table, "file", problems) {
        audit.file = file;
    }
    let words = [("deny", OnAuditFailure::Deny), ("allow", OnAuditFailure::Allow)];
    if let Some(on_failure) = word(&mut table, "on_failure", &words, problems) {
        audit.on_failure = on_failure;
    }
    audit.paths = table.boolean("paths", problems).is_some_and(|b| b.value);
    audit.sync = table.boolean("sync", problems).is_some_and(|b| b.value);
    table.finish(problems);
    audit
}

fn read_timeouts(table: Option<Table<'_, '_>>, problems: &mut Problems) -> Timeouts {
    let mut timeouts = Timeouts {
        header: Duration::from_secs(10),
        idle: Duration::from_secs(60),
        tls: Duration::from_secs(10),
        connect: Duration::from_secs(10),
        response: Duration::from_secs(30),
        body: Duration::from_secs(300),
        drain: Duration::from_secs(30),
    };
    let Some(mut table) = table else {
        return timeouts;
    };
    for (key, target) in [
        ("header", &mut timeouts.header),
        ("idle", &mut timeouts.idle),
        ("tls", &mut timeouts.tls),
        ("connect", &mut timeouts.connect),
        ("response", &mut timeouts.response),
        ("body", &mut timeouts.body),
        ("drain", &mut timeouts.drain),
    ] {
        if let Some(value) = duration(&mut table, key, problems) {
            *target = value;
        }
    }
    table.finish(problems);
    timeouts
}

/// A place that egret writes to.
fn path(table: &mut Table<'_, '_>, key: &'static str, problems: &mut Problems) -> Option<PathBuf> {
    let text = table.string(key, problems)?;
    if text.value.is_empty() {
        problems.error(&text.spot, format!("`{key}` is empty"), "write a path, or remove the key");
        return None;
    }
    Some(text.value.into())
}

fn duration(table: &mut Table<'_, '_>, key: &'static str, problems: &mut Problems) -> Option<Duration> {
    let text = table.string(key, problems)?;
    let parse = |t: &str| parse_duration(t).filter(|d| !d.is_zero());
    limits::value(&text, key, "\"5s\"", parse, problems)
}

//! Which module may name which, and what the policy crate must not name.

use std::collections::BTreeSet;

use crate::code::{Token, is_word, lines_with, text_at, tokens};
use crate::tree::{Source, module_of, report, sources};

/// What each module under `src/` may name of the others: a module with all that is in it, or
/// single items. A module that stands here not at all may not exist.
const IMPORTS: &[(&str, &[&str])] = &[
    ("audit", &[]),
    ("chain", &[]),
    ("client_hello", &[]),
    ("client_tls", &["identity"]),
    // The commands put everything together; that is their whole work.
    ("cli", &["*"]),
    (
        "config",
        &[
            "chain::Chain",
            "chain::Credentials",
            "chain::NoProxy",
            "chain::Parent",
            "client_tls",
            "dial::is_local",
            "identity::PublicKey",
            "identity::TokenKeys",
            "identity::Trust",
            "resolve::DnsServers",
            "resolve::ResolverSettings",
            "resolve::ServerSpec",
        ],
    ),
    (
        "control",
        &[
            "audit",
            "egress",
            "identity::Entry",
            "identity::Put",
            "identity::RegistryError",
            "identity::Revocation",
            "identity::Wanted",
            "identity::WantedBody",
            "identity::is_token_id",
            "ledger",
            "reload",
        ],
    ),
    ("diagnostics", &[]),
    ("dial", &[]),
    ("dns_message", &[]),
    (
        "egress",
        &[
            "audit",
            "chain",
            "client_hello",
            "client_tls::ClientTls",
            "config::Timeouts",
            "dial",
            "dns_message",
            "forward",
            "identity",
            "limit",
            "metrics",
            "redirect",
            "relay",
            "resolve",
            "stream",
        ],
    ),
    (
        "entry",
        &[
            "dns_message",
            "client_hello",
            "egress",
            "forward::BodySender",
            "forward::OutBody",
            "forward::SendError",
            "forward::Upstream",
            "http1",
            "redirect",
            "socks5",
            "stream",
        ],
    ),
    ("forward", &["chain::Way", "http1", "stream::read_plain"]),
    ("http1", &[]),
    ("identity", &[]),
    ("learn", &["ledger::Sighting", "ledger::Verdict"]),
    ("ledger", &["audit::Tap", "audit::Timestamp", "audit::Written"]),
    ("lib", &[]),
    ("limit", &["relay::Direction", "relay::Meter"]),
    ("main", &[]),
    ("metrics", &["audit::Audit", "relay::Counters"]),
    ("redirect", &[]),
    ("registry", &["egress::Errand", "learn::Base", "learn::Rules", "learn::doubt"]),
    ("relay", &["stream"]),
    ("reload", &["audit", "config", "egress"]),
    ("run", &["audit::Tap", "audit::Written", "server::Door", "server::bind_datagrams", "server::listen"]),
    // DNS servers are spoken to through the one place that opens sockets.
    (
        "resolve",
        &["dial::ConfiguredAddr", "dial::configured_tcp", "dial::configured_udp", "dns_message::Service"],
    ),
    ("server", &["dial::keep_alive", "entry"]),
    ("socks5", &[]),
    ("stream", &[]),
];

/// Names that only some modules or files may use, whatever they import.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("TcpSocket", &["dial"], "outbound sockets are opened in src/dial.rs"),
    (
        "Socket::new",
        &["dial", "server", "src/cli/probe/socket.rs"],
        "sockets are made in src/dial.rs and src/server.rs, and where the probe looks for ways past them",
    ),
    (
        "hickory_resolver",
        &["dns_message", "resolve"],
        "names are looked up in src/resolve/, messages of clients are in src/dns_message/",
    ),
    ("axum", &["control"], "the control interface is the only server that is not ours"),
];

/// What the policy crate must not name, because it decides and does nothing else.
const NOT_IN_POLICY: &[&str] = &[
    "tokio",
    "hyper",
    "rustls",
    "async",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "ToSocketAddrs",
    "std::fs",
    "std::io",
    "std::env",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
];

#[test]
fn modules_name_only_what_they_may() {
    let mut offences = Vec::new();
    for source in sources("src") {
        let own = module_of(&source.path);
        let Some((_, allowed)) = IMPORTS.iter().find(|(module, _)| *module == own) else {
            offences.push(format!(
                "{}:1: module `{own}` has no row; add one to IMPORTS in tests/tidy/imports.rs",
                source.path
            ));
            continue;
        };
        for (line, name) in named_modules(&source) {
            let module = name.split("::").next().unwrap_or_default();
            let fits = |entry: &str| entry == "*" || entry == module || entry == name;
            if module != own && !allowed.iter().any(|entry| fits(entry)) {
                offences.push(format!(
                    "{}:{line}: `{own}` names `crate::{name}`; go through a module it may name ({}), or change the table in ARCHITECTURE.md and IMPORTS",
                    source.path,
                    allowed.join(", ")
                ));
            }
        }
        let owns = |owners: &[&str]| owners.contains(&own.as_str()) || owners.contains(&source.path.as_str());
        for (word, owners, why) in RESERVED.iter().filter(|(_, owners, _)| !owns(owners)) {
            for line in lines_with(&source.code, word) {
                offences.push(format!(
                    "{}:{line}: `{word}` outside {}: {why}",
                    source.path,
                    owners.join(", ")
                ));
            }
        }
    }
    report(offences);
}

#[test]
fn the_table_has_no_row_for_a_module_that_is_gone() {
    let modules: BTreeSet<String> = sources("src").iter().map(|source| module_of(&source.path)).collect();
    let gone = IMPORTS.iter().filter(|(module, _)| !modules.contains(*module));
    report(
        gone.map(|(module, _)| {
            format!("tests/tidy/imports.rs: IMPORTS has a row for `{module}`, which is gone; remove it")
        })
        .collect(),
    );
}

#[test]
fn the_policy_crate_does_no_io() {
    let mut offences = Vec::new();
    for source in sources("policy/src") {
        for word in NOT_IN_POLICY {
            for line in lines_with(&source.code, word) {
                offences.push(format!(
                    "{}:{line}: `{word}` in the policy crate; take it as a value from src/",
                    source.path
                ));
            }
        }
    }
    report(offences);
}

/// What a file names of this crate's modules, as `module` or `module::item`, with the line.
pub fn named_modules(source: &Source) -> Vec<(usize, String)> {
    let tokens = tokens(&source.code);
    let depth = source.path.trim_start_matches("src/").trim_end_matches("/mod.rs").split('/').count();
    let depth = if matches!(source.path.as_str(), "src/lib.rs" | "src/main.rs") { 0 } else { depth };
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let start = at;
        while text_at(&tokens, at) == "super" && text_at(&tokens, at + 1) == "::" {
            at += 2;
        }
        if text_at(&tokens, at) == "crate" && text_at(&tokens, at + 1) == "::" {
            at += 2;
        } else if at == start || (at - start) / 2 < depth {
            // Not a path, or one that stays inside the module.
            at = at.max(start + 1);
            continue;
        }
        let line = tokens[start].line;
        let mut paths = Vec::new();
        at = use_tree(&tokens, at, "", &mut paths);
        // The first two parts say it: the module, and the item if there is one.
        out.extend(paths.iter().map(|path| (line, path.split("::").take(2).collect::<Vec<_>>().join("::"))));
    }
    out
}

/// Reads `a::{b, c::D}` from a token on: all paths in it, and where it ends.
fn use_tree(tokens: &[Token<'_>], mut at: usize, before: &str, paths: &mut Vec<String>) -> usize {
    let join = |name: &str| if before.is_empty() { name.to_owned() } else { format!("{before}::{name}") };
    match text_at(tokens, at) {
        "{" => {
            at += 1;
            while !matches!(text_at(tokens, at), "}" | "") {
                let next = use_tree(tokens, at, before, paths);
                at = next.max(at + 1);
                while matches!(text_at(tokens, at), ",") {
                    at += 1;
                }
            }
            at + 1
        }
        "self" | "*" => {
            paths.push(before.to_owned());
            at + 1
        }
        name if is_word(name) => {
            let path = join(name);
            let follows = text_at(tokens, at + 2);
            if text_at(tokens, at + 1) == "::" && (is_word(follows) || matches!(follows, "{" | "*")) {
                return use_tree(tokens, at + 2, &path, paths);
            }
            paths.push(path);
            // `as` and its name say nothing new.
            if text_at(tokens, at + 1) == "as" { at + 3 } else { at + 1 }
        }
        _ => at,
    }
}

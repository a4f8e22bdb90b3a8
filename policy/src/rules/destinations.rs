//! Reads where a rule leads: name patterns and networks, and refuses those that nobody means.

use std::net::IpAddr;

use ipnet::IpNet;

use super::read::Kind;
use crate::names::{NamePattern, Reach};
use crate::networks::{METADATA_NAMES, Nat64Prefix, forbidden_around};
use crate::reader::Located;
use crate::source::{Problems, Spot};

pub(super) fn read_pattern(
    domain: &Located<String>,
    kind: Kind,
    shared_suffix: bool,
    problems: &mut Problems,
) -> Option<NamePattern> {
    let pattern = match NamePattern::parse(&domain.value) {
        Ok(pattern) => pattern,
        Err(error) => {
            problems.error(&domain.spot, error.to_string().escape_debug().to_string(), error.help);
            return None;
        }
    };
    if kind == Kind::Allow {
        check_suffix(&pattern, &domain.spot, shared_suffix, problems);
        if pattern.reach == Reach::Exact && METADATA_NAMES.contains(&pattern.name.as_str()) {
            let message = format!("`{pattern}` is a metadata service, so the rule can never match");
            problems.error(&domain.spot, message, "remove it; no rule can allow it");
        }
    }
    Some(pattern)
}

/// Refuses a wildcard on a suffix under which strangers can register names, or whose subdomains
/// are such suffixes (as those of `kobe.jp` are).
fn check_suffix(pattern: &NamePattern, spot: &Spot, shared_suffix: bool, problems: &mut Problems) {
    let name = pattern.name.as_str();
    if pattern.reach == Reach::Exact {
        return;
    }
    // Any label shows whether the list has a wildcard there.
    let below = format!("a.{name}");
    let Some(kind) = suffix_kind(name).or_else(|| suffix_kind(&below).filter(Option::is_some)) else {
        return;
    };
    match kind {
        Some(psl::Type::Icann) => {
            let message = format!("`{pattern}` is a wildcard on the public suffix `{name}`");
            problems.error(spot, message, "name the domains below it");
        }
        _ if shared_suffix => {}
        Some(psl::Type::Private) => {
            let message =
                format!("`{pattern}` is a wildcard on `{name}`, where strangers can register names");
            problems.error(spot, message, "name the hosts, or add `shared_suffix = true` if all are meant");
        }
        None => {
            let message = format!("`{pattern}` is a wildcard on a top-level domain");
            problems.error(spot, message, "name the domains below it, or add `shared_suffix = true`");
        }
    }
}

/// The part of the Public Suffix List that has the name as a suffix; a top-level domain that is
/// not listed is in no part.
fn suffix_kind(name: &str) -> Option<Option<psl::Type>> {
    let suffix = psl::suffix(name.as_bytes())?;
    (suffix.as_bytes() == name.as_bytes()).then(|| suffix.typ())
}

pub(super) fn read_network(
    text: &Located<String>,
    kind: Kind,
    nat64: &[Nat64Prefix],
    problems: &mut Problems,
) -> Option<IpNet> {
    let net = parse_network(text, problems)?;
    if kind == Kind::Deny {
        return Some(net);
    }
    if net.prefix_len() == 0 {
        let help = "leave `addresses` out for public addresses, or name the networks";
        problems.error(&text.spot, format!("`{net}` is every address"), help);
        return None;
    }
    if let Some(range) = forbidden_around(&net, nat64) {
        let message = format!("`{}` lies inside a forbidden range: {}", text.value, range.name);
        problems.error(&text.spot, message, "remove it; no rule can allow it");
        return None;
    }
    Some(net)
}

/// Parses an address or a CIDR network, strictly.
pub fn parse_network(text: &Located<String>, problems: &mut Problems) -> Option<IpNet> {
    let parsed = match text.value.split_once('/') {
        None => text.value.parse::<IpAddr>().ok().map(IpNet::from),
        // Not the parser of ipnet, which takes leading zeros.
        Some((address, length)) => parse_length(length)
            .zip(address.parse::<IpAddr>().ok())
            .and_then(|(length, address)| IpNet::new(address, length).ok()),
    };
    let Some(net) = parsed else {
        let message = format!("`{}` is not an IP address or network", text.value.escape_debug());
        problems.error(
            &text.spot,
            message,
            "write an address, or a network like 10.20.0.0/16 or fd00:1::/48",
        );
        return None;
    };
    if net.addr() != net.network() {
        let message = format!("`{net}` has host bits set");
        let help = format!("write {}, or {} for the one address", net.trunc(), net.addr());
        problems.error(&text.spot, message, help);
        return None;
    }
    Some(net)
}

fn parse_length(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

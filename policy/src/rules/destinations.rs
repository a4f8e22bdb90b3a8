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

/// Refuses a wildcard on a suffix under which strangers can register names, or with such suffixes
/// below it: `s3.amazonaws.com` lies below `amazonaws.com`.
fn check_suffix(pattern: &NamePattern, spot: &Spot, shared_suffix: bool, problems: &mut Problems) {
    let name = pattern.name.as_str();
    if pattern.reach == Reach::Exact {
        return;
    }
    let below = has_suffixes_below(name);
    // Any label shows whether the list has a wildcard there, as it has on `kobe.jp`.
    let kind = suffix_kind(name).or_else(|| suffix_kind(&format!("a.{name}")).filter(Option::is_some));
    let (message, help) = match kind {
        Some(Some(psl::Type::Icann)) => public_suffix(pattern),
        // A top-level domain that only the suffixes below it are listed of, such as `za`.
        Some(None) if below => public_suffix(pattern),
        _ if shared_suffix => return,
        Some(Some(psl::Type::Private)) => (
            format!("`{pattern}` is a wildcard on `{name}`, where strangers can register names"),
            "name the hosts, or add `shared_suffix = true` if all are meant",
        ),
        Some(None) => (
            format!("`{pattern}` is a wildcard on a top-level domain"),
            "name the domains below it, or add `shared_suffix = true`",
        ),
        None if below => (
            format!("`{pattern}` covers suffixes below `{name}` where strangers can register names"),
            "name the hosts, or add `shared_suffix = true` if all are meant",
        ),
        None => return,
    };
    problems.error(spot, message, help);
}

fn public_suffix(pattern: &NamePattern) -> (String, &'static str) {
    let message = format!("`{pattern}` is a wildcard on the public suffix `{}`", pattern.name);
    (message, "name the domains below it")
}

/// The part of the Public Suffix List that has the name as a suffix; a top-level domain that is
/// not listed is in no part.
fn suffix_kind(name: &str) -> Option<Option<psl::Type>> {
    let suffix = psl::suffix(name.as_bytes())?;
    (suffix.as_bytes() == name.as_bytes()).then(|| suffix.typ())
}

/// Does the Public Suffix List have entries below the name? The list can be asked for one name
/// only. It reads labels from the right as long as an entry may still follow, so it asks for one
/// more than there are exactly where something lies below.
fn has_suffixes_below(name: &str) -> bool {
    let mut asked = false;
    let labels = name.rsplit('.').map(str::as_bytes);
    let labels = labels.chain(std::iter::from_fn(|| {
        asked = true;
        None
    }));
    psl::Psl::find(&psl::List, labels);
    asked
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

/// Reads an address or a CIDR network, strictly, and says what is wrong with it.
pub fn parse_network(text: &Located<String>, problems: &mut Problems) -> Option<IpNet> {
    let parsed = network(&text.value);
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

/// An address or a network without host bits.
#[must_use]
pub fn strict_network(text: &str) -> Option<IpNet> {
    network(text).filter(|net| net.addr() == net.network())
}

fn network(text: &str) -> Option<IpNet> {
    // Not the parser of ipnet, which takes leading zeros.
    match text.split_once('/') {
        None => text.parse::<IpAddr>().ok().map(IpNet::from),
        Some((address, length)) => {
            let (length, address) = (parse_length(length)?, address.parse::<IpAddr>().ok()?);
            IpNet::new(address, length).ok()
        }
    }
}

fn parse_length(text: &str) -> Option<u8> {
    let plain = text == "0" || !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds the list to what `has_suffixes_below` takes for granted.
    #[test]
    fn the_list_shows_what_lies_below_a_name() {
        for name in ["com", "co.uk", "za", "kobe.jp", "amazonaws.com", "core.windows.net", "windows.net"] {
            assert!(has_suffixes_below(name), "{name}");
        }
        for name in
            ["a.com", "example.com", "github.io", "s3.amazonaws.com", "a.amazonaws.com", "corp", "a.corp"]
        {
            assert!(!has_suffixes_below(name), "{name}");
        }
    }
}

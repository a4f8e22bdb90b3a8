//! Reads `[[allow]]` and `[[deny]]` tables.
//!
//! A rule that can't be enforced as written is an error here, so that none is accepted and
//! then ignored.

use std::sync::Arc;

use super::destinations::{read_network, read_pattern};
use super::{Rule, RuleList, TlsRule};
use crate::names::{NamePattern, Reach};
use crate::networks::Nat64Prefix;
use crate::paths::PathGlob;
use crate::ports::{PortSet, parse_range};
use crate::reader::{Located, Scalar, Table};
use crate::source::{Problems, Spot};

/// Which table a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Allow,
    Deny,
}

/// What the reading of a rule depends on beside its table.
struct Context<'a> {
    nat64: &'a [Nat64Prefix],
    /// Deny rules that win over what is read.
    denied: &'a [Arc<RuleList>],
}

impl RuleList {
    /// Reads `[[deny]]` tables; everything wrong with them becomes a problem.
    pub fn read_deny(tables: Vec<Table<'_, '_>>, nat64: &[Nat64Prefix], problems: &mut Problems) -> Self {
        Self::read(tables, Kind::Deny, &Context { nat64, denied: &[] }, problems)
    }

    /// Reads `[[allow]]` tables; an entry that a rule of `denied` covers whole gets a warning.
    pub fn read_allow(
        tables: Vec<Table<'_, '_>>,
        denied: &[Arc<Self>],
        nat64: &[Nat64Prefix],
        problems: &mut Problems,
    ) -> Self {
        Self::read(tables, Kind::Allow, &Context { nat64, denied }, problems)
    }

    fn read(tables: Vec<Table<'_, '_>>, kind: Kind, context: &Context<'_>, problems: &mut Problems) -> Self {
        let mut list = Self::default();
        for table in tables {
            list.read_rule(table, kind, context, problems);
        }
        list
    }

    fn read_rule(
        &mut self,
        mut table: Table<'_, '_>,
        kind: Kind,
        context: &Context<'_>,
        problems: &mut Problems,
    ) {
        let spot = table.spot();
        let Ok(number) = u32::try_from(self.rules.len()) else {
            problems.error(&spot, "too many rules in one list", "");
            return;
        };
        let shared = table.boolean("shared_suffix", problems);
        let strangers = shared.as_ref().is_some_and(|shared| shared.value);
        let domains = table.strings("domains", problems);
        let networks = table.strings("addresses", problems);
        check_some(&table, domains.as_deref(), networks.as_deref(), problems);
        let named = table.has("domains");
        let (ports, ports_at) = read_ports(&mut table, kind, problems);
        // Entries that can't be read may have been meant to use both.
        let unread = domains.as_ref().is_none_or(Vec::is_empty);
        let (mut uses_ports, mut uses_suffix) = (unread, unread && named);
        for domain in domains.into_iter().flatten() {
            let Some(pattern) = read_pattern(&domain, kind, strangers, problems) else {
                (uses_ports, uses_suffix) = (true, true);
                continue;
            };
            uses_ports |= pattern.ports.is_none();
            uses_suffix |= pattern.reach != Reach::Exact;
            warn_if_denied(&pattern, &ports, context.denied, &domain.spot, problems);
            if self.index.insert(&pattern, number).is_err() {
                problems.error(&domain.spot, "too many domains in one list", "");
            }
        }
        let addresses = networks.into_iter().flatten();
        let addresses: Vec<_> =
            addresses.filter_map(|n| read_network(&n, kind, context.nat64, problems)).collect();
        if !named {
            self.literals.extend(addresses.iter().map(|net| (*net, number)));
        }
        let tls = read_tls(&mut table, "tls", problems);
        if let (Kind::Deny, Some(tls)) = (kind, &tls) {
            problems.error(&tls.spot, "`tls` has no meaning in a [[deny]] table", "remove it");
        }
        let methods = read_methods(&mut table, problems);
        let paths = read_paths(&mut table, problems);
        let reason = table.string("reason", problems).map(|r| r.value.into());
        let inspected = table.has("methods") || table.has("paths");
        for (at, idle, message, help) in [
            (
                ports_at,
                !uses_ports,
                "`ports` says nothing: every domain has a port of its own",
                "remove it, or the ports of the domains",
            ),
            (
                shared.map(|shared| shared.spot),
                !uses_suffix,
                "`shared_suffix` says nothing: no domain is a wildcard",
                "remove it",
            ),
            (
                tls.as_ref().map(|tls| tls.spot.clone()),
                kind == Kind::Allow && inspected,
                "`tls` says nothing: a rule with `methods` or `paths` never matches a tunnel",
                "remove it, or write a rule without them for tunnels",
            ),
        ] {
            if let Some(at) = at.filter(|_| idle) {
                problems.warning(&at, message, help);
            }
        }
        table.finish(problems);
        let tls = tls.map(|t| t.value);
        self.rules.push(Rule { cite: spot.cite(), ports, addresses, tls, methods, paths, reason, named });
    }
}

fn check_some(
    table: &Table<'_, '_>,
    domains: Option<&[Located<String>]>,
    networks: Option<&[Located<String>]>,
    problems: &mut Problems,
) {
    let spot = table.spot();
    if domains.is_some_and(<[_]>::is_empty) {
        let help = "name a domain, or remove the rule";
        problems.error(&spot, "`domains` is empty, so the rule can never match", help);
    } else if networks.is_some_and(<[_]>::is_empty) {
        let help = "name a network, or remove the key";
        problems.error(&spot, "`addresses` is empty, so the rule can never match", help);
    } else if !table.has("domains") && !table.has("addresses") {
        let help = "add `domains` or `addresses`";
        problems.error(&spot, "the rule names no destination, so it can never match", help);
    }
}

fn warn_if_denied(
    pattern: &NamePattern,
    ports: &PortSet,
    denied: &[Arc<RuleList>],
    spot: &Spot,
    problems: &mut Problems,
) {
    let ports = pattern.ports.as_ref().unwrap_or(ports);
    if let Some(rule) = denied.iter().find_map(|list| list.denying(pattern, ports)) {
        let message = format!("`{pattern}` never matches: the deny rule {} covers it", rule.cite);
        problems.warning(spot, message, "remove it, or narrow the deny rule; deny beats allow");
    }
}

/// The ports of a rule, and where they are written.
fn read_ports(table: &mut Table<'_, '_>, kind: Kind, problems: &mut Problems) -> (PortSet, Option<Spot>) {
    let default = match kind {
        Kind::Allow => PortSet::web(),
        Kind::Deny => PortSet::all(),
    };
    let Some(written) = table.numbers_or_strings("ports", problems) else {
        return (default, None);
    };
    let Some(at) = written.first().map(|first| first.spot.clone()) else {
        let spot = table.spot();
        problems.error(
            &spot,
            "`ports` is empty, so the rule can never match",
            "name a port, or remove the key",
        );
        return (default, None);
    };
    let mut ranges = Vec::new();
    for item in written {
        let range = match &item.value {
            Scalar::Number(n) => u16::try_from(*n).ok().filter(|&n| n > 0).map(|n| (n, n)),
            Scalar::Text(text) => parse_range(text),
        };
        match range {
            Some(range) => ranges.push(range),
            None => problems.error(
                &item.spot,
                "this is not a port or a range of ports",
                "write numbers from 1 to 65535, or ranges like \"8000-8010\"",
            ),
        }
    }
    (PortSet::of(ranges), Some(at))
}

/// Reads a `tls` or `default_tls` key.
pub fn read_tls(
    table: &mut Table<'_, '_>,
    key: &'static str,
    problems: &mut Problems,
) -> Option<Located<TlsRule>> {
    let text = table.string(key, problems)?;
    let value = match text.value.as_str() {
        "required" => TlsRule::Required,
        "any" => TlsRule::Any,
        other => {
            let message = format!("`{key}` has an unknown value: `{}`", other.escape_debug());
            problems.error(&text.spot, message, "write \"required\" or \"any\"");
            return None;
        }
    };
    Some(Located { value, spot: text.spot })
}

fn read_methods(table: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<String> {
    let Some(written) = table.strings("methods", problems) else {
        return Vec::new();
    };
    if written.is_empty() {
        let spot = table.spot();
        problems.error(
            &spot,
            "`methods` is empty, so the rule can never match",
            "name a method, or remove the key",
        );
    }
    let mut methods = Vec::new();
    for method in written {
        let token = !method.value.is_empty()
            && method.value.bytes().all(|b| b.is_ascii_uppercase() || b == b'-' || b == b'_');
        if !token {
            let message = format!("`{}` is not a method", method.value.escape_debug());
            problems.error(&method.spot, message, "write methods in upper case, such as \"GET\"");
        } else if matches!(method.value.as_str(), "CONNECT" | "TRACE") {
            let message = format!("a rule with `methods` never matches {}", method.value);
            let help = "leave `methods` out to allow tunnels; TRACE is always refused";
            problems.error(&method.spot, message, help);
        } else {
            methods.push(method.value);
        }
    }
    methods
}

fn read_paths(table: &mut Table<'_, '_>, problems: &mut Problems) -> Vec<PathGlob> {
    let Some(written) = table.strings("paths", problems) else {
        return Vec::new();
    };
    if written.is_empty() {
        let spot = table.spot();
        problems.error(
            &spot,
            "`paths` is empty, so the rule can never match",
            "name a path, or remove the key",
        );
    }
    let parse = |path: Located<String>| match PathGlob::parse(&path.value) {
        Ok(glob) => Some(glob),
        Err(error) => {
            let message = format!("`{}`: {error}", path.value.escape_debug());
            problems.error(&path.spot, message, "write paths like \"/repos/*/releases/**\"");
            None
        }
    };
    written.into_iter().filter_map(parse).collect()
}

//! Allow and deny rules: read from `[[allow]]` and `[[deny]]` tables, checked, and kept in a
//! form that can be matched.
//!
//! A rule that can't be enforced as written is an error here, so that none is accepted and
//! then ignored.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::host::DnsName;
use crate::names::{NameIndex, NamePattern, Reach};
use crate::networks::{METADATA_NAMES, Nat64Prefix, effective, forbidden_around};
use crate::paths::PathGlob;
use crate::ports::{PortSet, parse_range};
use crate::reader::{Located, Scalar, Table};
use crate::source::{Problems, Spot};

/// Must a tunnel carry TLS for the host that it was opened to?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsRule {
    /// Its first bytes must be a TLS ClientHello whose server name is the CONNECT host.
    Required,
    /// Anything may flow.
    Any,
}

impl TlsRule {
    /// What holds where nothing is said: required on 443.
    #[must_use]
    pub const fn default_for(port: u16) -> Self {
        if port == 443 { Self::Required } else { Self::Any }
    }
}

/// Which table a rule stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Allow,
    Deny,
}

/// What the reading of a rule depends on beside its table.
struct Context<'a> {
    nat64: &'a [Nat64Prefix],
    /// Deny rules that win over what is read.
    denied: &'a [Arc<RuleList>],
}

/// A rule, checked. Its domains and literals live in the indexes of its [`RuleList`].
#[derive(Debug)]
pub struct Rule {
    /// `file:line`, as audit records cite it.
    pub cite: Arc<str>,
    /// Ports of entries that have none of their own.
    pub ports: PortSet,
    /// Networks in which every resolved address must lie; empty: public addresses.
    pub addresses: Vec<IpNet>,
    /// What a tunnel must carry, where the rule says so.
    pub tls: Option<TlsRule>,
    /// Methods, in upper case; empty: any.
    pub methods: Vec<String>,
    /// Path globs; empty: any.
    pub paths: Vec<PathGlob>,
    /// The operator's words for the client.
    pub reason: Option<Arc<str>>,
    /// Does it have domains? Otherwise it is about addresses alone.
    pub named: bool,
}

impl Rule {
    /// Does one of its networks hold the address, or the IPv4 address that it embeds?
    #[must_use]
    pub fn holds(&self, address: IpAddr, nat64: &[Nat64Prefix]) -> bool {
        let inside = effective(address, nat64);
        self.addresses.iter().any(|net| net.contains(&address) || net.contains(&inside))
    }

    /// Is it limited to requests that can be read?
    #[must_use]
    pub fn needs_request(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }
}

/// Rules of one kind in file order, with what finds them.
#[derive(Debug, Default)]
pub struct RuleList {
    rules: Vec<Rule>,
    index: NameIndex,
    /// Networks of rules without domains.
    literals: Vec<(IpNet, u32)>,
}

impl RuleList {
    /// A rule by its number.
    #[must_use]
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(usize::try_from(number).ok()?)
    }

    /// Calls `found` for each rule that names the domain, with the ports that count, in no order.
    pub fn each_named<'a>(&'a self, name: &DnsName, mut found: impl FnMut(u32, &'a Rule, &'a PortSet)) {
        self.index.each_match(name, |matched| {
            if let Some(rule) = self.rule(matched.rule) {
                found(matched.rule, rule, matched.ports.unwrap_or(&rule.ports));
            }
        });
    }

    /// Calls `found` for each rule with a pattern on the domain or a parent of it, and whether
    /// one of them covers the domain; for explanations.
    pub fn each_related<'a>(&'a self, name: &DnsName, mut found: impl FnMut(&'a Rule, &'a PortSet, bool)) {
        self.index.each_related(name, |matched, covers| {
            if let Some(rule) = self.rule(matched.rule) {
                found(rule, matched.ports.unwrap_or(&rule.ports), covers);
            }
        });
    }

    /// The rules without domains, with one of their networks each; for explanations.
    pub fn literals(&self) -> impl Iterator<Item = (&IpNet, &Rule)> {
        self.literals.iter().filter_map(|(net, number)| Some((net, self.rule(*number)?)))
    }

    /// Calls `found` for each rule without domains whose networks hold the address, in file order.
    pub fn each_holding<'a>(
        &'a self,
        address: IpAddr,
        nat64: &[Nat64Prefix],
        mut found: impl FnMut(u32, &'a Rule),
    ) {
        let inside = effective(address, nat64);
        let mut last = None;
        for (net, number) in &self.literals {
            if (net.contains(&address) || net.contains(&inside)) && last != Some(*number) {
                last = Some(*number);
                if let Some(rule) = self.rule(*number) {
                    found(*number, rule);
                }
            }
        }
    }

    /// Are there rules whose verdict needs the resolved addresses?
    #[must_use]
    pub fn has_address_rules(&self) -> bool {
        !self.literals.is_empty()
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Is there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// A rule that denies every request for the pattern's names on these ports.
    fn denying(&self, pattern: &NamePattern, ports: &PortSet) -> Option<&Rule> {
        let mut denying = None;
        self.index.each_covering(pattern, |matched| {
            let whole = |rule: &&Rule| {
                let denied = matched.ports.unwrap_or(&rule.ports);
                rule.addresses.is_empty() && !rule.needs_request() && denied.holds_all_of(ports)
            };
            denying = denying.or_else(|| self.rule(matched.rule).filter(whole));
        });
        denying
    }

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
        let shared = table.boolean("shared_suffix", problems).is_some_and(|b| b.value);
        let domains = table.strings("domains", problems);
        let networks = table.strings("addresses", problems);
        check_some(&table, domains.as_deref(), networks.as_deref(), problems);
        let named = table.has("domains");
        let ports = read_ports(&mut table, kind, problems);
        for domain in domains.into_iter().flatten() {
            let Some(pattern) = read_pattern(&domain, kind, shared, problems) else {
                continue;
            };
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

fn read_pattern(
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

fn read_network(
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

fn read_ports(table: &mut Table<'_, '_>, kind: Kind, problems: &mut Problems) -> PortSet {
    let default = match kind {
        Kind::Allow => PortSet::web(),
        Kind::Deny => PortSet::all(),
    };
    let Some(written) = table.numbers_or_strings("ports", problems) else {
        return default;
    };
    if written.is_empty() {
        let spot = table.spot();
        problems.error(
            &spot,
            "`ports` is empty, so the rule can never match",
            "name a port, or remove the key",
        );
        return default;
    }
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
    PortSet::of(ranges)
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

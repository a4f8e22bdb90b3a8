//! Policies as plain data, written out as TOML, and a decision that reads like the contract:
//! it looks at every rule in turn and knows no index.

use std::net::IpAddr;

use egret_policy::{Class, classify};
use ipnet::IpNet;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// An entry of `domains`: what stands before the name, the name, its own port.
#[derive(Debug, Clone)]
pub struct Entry {
    pub stars: &'static str,
    pub name: String,
    pub port: Option<u16>,
}

/// A rule of either kind; empty lists are left out of the file.
#[derive(Debug, Clone)]
pub struct Rule {
    pub entries: Vec<Entry>,
    pub addresses: Vec<&'static str>,
    pub ports: Vec<u16>,
    pub methods: Vec<&'static str>,
    pub paths: Vec<&'static str>,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub operator: Vec<Rule>,
    pub deny: Vec<Rule>,
    pub allow: Vec<Rule>,
    pub default_allow: bool,
    pub observe: bool,
}

/// A request in parts.
#[derive(Debug, Clone)]
pub struct Question {
    pub host: String,
    pub port: u16,
    /// Method and path; `None` is a tunnel.
    pub request: Option<(&'static str, &'static str)>,
    pub answer: Vec<IpAddr>,
}

/// What a question gets, from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Refused,
    Observed,
    Allowed,
}

const ADDRESSES: &[&str] = &[
    "8.8.8.8",
    "9.9.9.9",
    "10.0.0.1",
    "10.1.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "fd00::1",
    "fd00:ec2::254",
    "2606:4700::1",
    "64:ff9b::808:808",
    "64:ff9b::a00:1",
    "::ffff:8.8.8.8",
];
const NETWORKS: &[&str] = &[
    "8.0.0.0/8",
    "10.0.0.0/16",
    "10.0.0.0/8",
    "10.0.0.1",
    "127.0.0.0/8",
    "fd00::/8",
    "2606:4700::/32",
    "64:ff9b::a00:0/104",
];
const PORTS: &[u16] = &[80, 443, 8443];
const METHODS: &[&str] = &["GET", "POST"];
const GLOBS: &[&str] = &["/a/**", "/b/*"];
const PATHS: &[&str] = &["/a", "/a/x/../y", "/b/x", "/b/x/y", "/%61/", "/b%2fx", "/"];

fn few<T: Clone + std::fmt::Debug + 'static>(of: &'static [T]) -> impl Strategy<Value = Vec<T>> {
    prop_oneof![5 => Just(Vec::new()), 1 => subsequence(of.to_vec(), 1..=2)]
}

fn name() -> impl Strategy<Value = String> {
    "([ab]\\.){0,1}[ab]\\.z\\.test"
}

fn entry() -> impl Strategy<Value = Entry> {
    let port = prop_oneof![3 => Just(None), 1 => select(PORTS).prop_map(Some)];
    (select(vec!["", "*.", "**."]), name(), port).prop_map(|(stars, name, port)| Entry { stars, name, port })
}

pub fn rule() -> impl Strategy<Value = Rule> {
    let entries = prop_oneof![4 => prop::collection::vec(entry(), 1..4), 1 => Just(Vec::new())];
    (entries, few(NETWORKS), few(PORTS), few(METHODS), few(GLOBS), select(NETWORKS)).prop_map(
        |(entries, mut addresses, ports, methods, paths, network)| {
            if entries.is_empty() && addresses.is_empty() {
                addresses.push(network);
            }
            Rule { entries, addresses, ports, methods, paths }
        },
    )
}

pub fn model() -> impl Strategy<Value = Model> {
    let rules = |most| prop::collection::vec(rule(), 0..most);
    (rules(2), rules(3), rules(6), any::<bool>(), any::<bool>()).prop_map(
        |(operator, deny, allow, default_allow, observe)| Model {
            operator,
            deny,
            allow,
            default_allow,
            observe,
        },
    )
}

pub fn question() -> impl Strategy<Value = Question> {
    let request = prop_oneof![Just(None), (select(METHODS), select(PATHS)).prop_map(Some)];
    let host = prop_oneof![4 => name(), 1 => select(ADDRESSES).prop_map(str::to_owned)];
    (host, select(PORTS), request, prop::collection::vec(select(ADDRESSES), 1..4)).prop_map(
        |(host, port, request, answer)| {
            let literal: Option<IpAddr> = host.parse().ok();
            let answer =
                literal.map_or_else(|| answer.iter().map(|a| a.parse().unwrap()).collect(), |a| vec![a]);
            let host = literal.filter(IpAddr::is_ipv6).map_or_else(|| host.clone(), |_| format!("[{host}]"));
            Question { host, port, request, answer }
        },
    )
}

impl Question {
    pub fn method_and_target(&self) -> (&'static str, String) {
        let Self { host, port, .. } = self;
        match self.request {
            None => ("CONNECT", format!("{host}:{port}")),
            Some((method, path)) => (method, format!("http://{host}:{port}{path}")),
        }
    }
}

impl Model {
    /// The file, and the lines of the allow rules in it.
    pub fn write(&self) -> (String, Vec<usize>) {
        let mut text = String::new();
        for rule in &self.operator {
            rule.write("deny", &mut text);
        }
        let word = |yes, a, b| if yes { a } else { b };
        text += &format!(
            "[policy.p]\nmode = \"{}\"\ndefault = \"{}\"\n",
            word(self.observe, "observe", "enforce"),
            word(self.default_allow, "allow", "deny")
        );
        let lines = self.allow.iter().map(|rule| rule.write("policy.p.allow", &mut text)).collect();
        for rule in &self.deny {
            rule.write("policy.p.deny", &mut text);
        }
        text += "[[sandbox]]\nid = \"box\"\nsource = \"0.0.0.0/0\"\npolicy = \"p\"\n";
        (text, lines)
    }

    /// What the contract says, and by which allow rule.
    pub fn decide(&self, question: &Question) -> (Level, Option<usize>) {
        let addresses = &question.answer;
        let forbidden = |a: &IpAddr| matches!(classify(*a, &[]), Class::Forbidden(_));
        let mut denials = self.operator.iter().chain(&self.deny);
        if denials.any(|rule| rule.denies(question)) || addresses.iter().any(forbidden) {
            return (Level::Refused, None);
        }
        let accepts = |rule: &Rule| {
            rule.names(question, false)
                && addresses.iter().all(|a| rule.permits(*a))
                && rule.fits(question, false)
        };
        let public = addresses.iter().all(|a| classify(*a, &[]) == Class::Public);
        match self.allow.iter().position(accepts) {
            Some(number) => (Level::Allowed, Some(number)),
            None if self.default_allow && public && [80, 443].contains(&question.port) => {
                (Level::Allowed, None)
            }
            None if self.observe && public => (Level::Observed, None),
            None => (Level::Refused, None),
        }
    }
}

impl Rule {
    fn write(&self, table: &str, text: &mut String) -> usize {
        let line = text.lines().count() + 1;
        *text += &format!("[[{table}]]\n");
        let entry =
            |e: &Entry| format!("{}{}{}", e.stars, e.name, e.port.map_or(String::new(), |p| format!(":{p}")));
        let entries: Vec<_> = self.entries.iter().map(entry).collect();
        let mut list = |key: &str, items: String| {
            if items != "[]" {
                *text += &format!("{key} = {items}\n");
            }
        };
        list("domains", format!("{entries:?}"));
        list("addresses", format!("{:?}", self.addresses));
        list("ports", format!("{:?}", self.ports));
        list("methods", format!("{:?}", self.methods));
        list("paths", format!("{:?}", self.paths));
        line
    }

    fn denies(&self, question: &Question) -> bool {
        let inside = self.addresses.is_empty() || question.answer.iter().any(|a| self.holds(*a));
        // Without names it is about every host that resolves there.
        let named =
            self.entries.is_empty() && self.has_port(question, None, true) || self.names(question, true);
        named && inside && self.fits(question, true)
    }

    /// Does an entry cover the host and its port, or the networks of a rule without entries a literal?
    fn names(&self, question: &Question, deny: bool) -> bool {
        if let Some(literal) = question.literal() {
            return self.entries.is_empty() && self.holds(literal) && self.has_port(question, None, deny);
        }
        self.entries.iter().any(|entry| {
            let below = question.host.ends_with(&format!(".{}", entry.name));
            let covers = match entry.stars {
                "" => question.host == entry.name,
                "*." => below,
                _ => below || question.host == entry.name,
            };
            covers && self.has_port(question, entry.port, deny)
        })
    }

    fn has_port(&self, question: &Question, own: Option<u16>, deny: bool) -> bool {
        match own {
            Some(port) => port == question.port,
            None if self.ports.is_empty() => deny || [80, 443].contains(&question.port),
            None => self.ports.contains(&question.port),
        }
    }

    pub fn holds(&self, address: IpAddr) -> bool {
        let inside = match address {
            IpAddr::V6(v6) if v6.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0] => {
                let [.., a, b, c, d] = v6.octets();
                IpAddr::from([a, b, c, d])
            }
            other => other,
        };
        let nets = self
            .addresses
            .iter()
            .map(|net| net.parse::<IpNet>().unwrap_or_else(|_| net.parse::<IpAddr>().unwrap().into()));
        nets.into_iter().any(|net| net.contains(&address) || net.contains(&inside))
    }

    fn permits(&self, address: IpAddr) -> bool {
        match classify(address, &[]) {
            Class::Public => self.addresses.is_empty() || self.holds(address),
            Class::Private(_) => self.holds(address),
            Class::Forbidden(_) => false,
        }
    }

    fn fits(&self, question: &Question, deny: bool) -> bool {
        let Some((method, path)) = question.request else {
            return self.methods.is_empty() && self.paths.is_empty();
        };
        let method_fits = self.methods.is_empty() || self.methods.contains(&method);
        method_fits && (self.paths.is_empty() || self.paths.iter().any(|glob| path_fits(glob, path, deny)))
    }
}

impl Question {
    fn literal(&self) -> Option<IpAddr> {
        self.host.trim_matches(['[', ']']).parse().ok()
    }
}

/// What each path of `PATHS` is under each of the `GLOBS`, by hand.
fn path_fits(glob: &str, path: &str, deny: bool) -> bool {
    match path {
        "/a" | "/a/x/../y" | "/%61/" => glob == "/a/**",
        "/b/x" => glob == "/b/*",
        // An encoded slash: no allow rule has it, every deny rule does.
        "/b%2fx" => deny,
        _ => false,
    }
}

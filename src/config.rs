//! The configuration: files as written become settings as checked, or a list of all problems.
//!
//! Nothing is guessed: an unknown key, a wrong type or an unreadable file refuses the whole.

mod control;
mod dns;
mod files;
mod listen;
mod read;
mod run;
mod tls;
mod upstream;

pub use control::ControlPlace;
pub use files::{Files, unreadable_help};

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use egret_policy::reader::{Located, read_document};
use egret_policy::{Listeners, Nat64Prefix, Policy, Problems, RegisterText, SourceFile, Surroundings};

use crate::chain::Chain;
use crate::client_tls::ClientTls;
use crate::identity::{PublicKey, TokenKeys};
use crate::resolve::{DnsServers, ResolverSettings};

/// Where the configuration comes from.
#[derive(Debug, Clone)]
pub enum ConfigSource {
    /// A file; rule sets lie in `rules/` beside it or in the given directory.
    File {
        /// The configuration file.
        path: PathBuf,
        /// `--rules DIR`.
        rules: Option<PathBuf>,
    },
    /// Built-in defaults: loopback clients are the sandbox `local`, which may reach what is
    /// named here and nothing else.
    BuiltIn {
        /// Name patterns of `--allow`.
        allow: Vec<String>,
    },
    /// For one command: every client is one sandbox, and nothing else identifies any.
    Run(RunSource),
}

pub use run::{RunRules, RunSource};

/// Names with fixed addresses.
pub type StaticHosts = HashMap<String, Vec<IpAddr>>;

/// `[listen]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listen {
    /// Where clients connect.
    pub proxy: Vec<SocketAddr>,
    /// Where clients connect over TLS.
    pub tls: Vec<SocketAddr>,
    /// Where clients connect over SOCKS. One that is in `proxy` as well takes both.
    pub socks: Vec<SocketAddr>,
    /// Where clients ask for names.
    pub dns: Vec<SocketAddr>,
    /// Where connections of clients that know of no proxy are diverted to.
    pub transparent: Vec<SocketAddr>,
    /// The control interface.
    pub control: SocketAddr,
    /// The pseudonym in `Via` and `Proxy-Status` (RFC 9110 section 7.6.3).
    pub name: String,
    /// The ceiling on client connections; `None` derives it from the descriptor limit.
    pub max_connections: Option<usize>,
    /// Who may use the control interface, where it is not on loopback.
    pub control_token: Option<String>,
}

/// `[dns]`, but for `nat64`, which is the policy's.
#[derive(Debug, Clone)]
pub struct Dns {
    /// Whom to ask.
    pub servers: DnsServers,
    /// The longest look-up.
    pub timeout: Duration,
    /// Static answers.
    pub hosts: StaticHosts,
    /// Further certificate authorities for DNS over TLS and HTTPS, as PEM.
    pub ca: Option<Vec<u8>>,
}

impl Dns {
    /// What the resolver needs of it.
    #[must_use]
    pub fn resolver(&self) -> ResolverSettings {
        ResolverSettings {
            servers: self.servers.clone(),
            timeout: self.timeout,
            hosts: self.hosts.clone(),
            extra_ca_pem: self.ca.clone(),
            ..ResolverSettings::default()
        }
    }
}

/// What to do with traffic when the audit record can't be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnAuditFailure {
    /// Refuse it.
    Deny,
    /// Let it pass; the gap is counted and logged.
    Allow,
}

/// `[audit]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditSettings {
    /// The file, or `-` for standard output.
    pub file: PathBuf,
    /// What happens when it can't be written.
    pub on_failure: OnAuditFailure,
    /// Are paths written as they are instead of as a keyed hash?
    pub paths: bool,
    /// Is each batch forced to the disk?
    pub sync: bool,
}

/// `[timeouts]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a whole request head.
    pub header: Duration,
    /// For a client connection without a request.
    pub idle: Duration,
    /// For reading the ClientHello of a tunnel.
    pub tls: Duration,
    /// For connecting to a destination, all its addresses together.
    pub connect: Duration,
    /// For the head of an origin's response.
    pub response: Duration,
    /// For a body, either way, to make any progress.
    pub body: Duration,
    /// For open connections at a stop.
    pub drain: Duration,
}

/// Everything that is fixed while the process runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `[listen]`.
    pub listen: Listen,
    /// `[dns]`.
    pub dns: Dns,
    /// `[audit]`.
    pub audit: AuditSettings,
    /// `[state] dir`.
    pub state_dir: PathBuf,
    /// `[timeouts]`.
    pub timeouts: Timeouts,
}

/// A configuration that loaded.
#[derive(Debug)]
pub struct Loaded {
    /// The fixed part.
    pub settings: Settings,
    /// The policy.
    pub policy: Policy,
    /// Which way connections go.
    pub chain: Chain,
    /// What tokens are verified with; `None` where they are off.
    pub token_keys: Option<TokenKeys>,
    /// How clients are received over TLS; `None` where there is no such listener.
    pub client_tls: Option<ClientTls>,
    /// Warnings.
    pub problems: Problems,
}

/// Loads and checks everything.
///
/// `listeners` are the addresses as bound, when there are any; before that they are taken from
/// the file.
///
/// # Errors
/// All problems at once.
pub fn load(
    source: &ConfigSource,
    generation: u64,
    listeners: Option<&Listeners>,
) -> Result<Loaded, Problems> {
    load_noting(source, generation, listeners, &mut Files::default())
}

/// As [`load`], noting every file that is read, also where loading fails.
///
/// # Errors
/// All problems at once.
pub fn load_noting(
    source: &ConfigSource,
    generation: u64,
    listeners: Option<&Listeners>,
    files: &mut Files,
) -> Result<Loaded, Problems> {
    let mut problems = Problems::default();
    let (file, rule_sets) = match source {
        ConfigSource::BuiltIn { allow } => {
            (SourceFile::new("built-in defaults", built_in(allow)), RuleSets::In(PathBuf::from("rules")))
        }
        ConfigSource::Run(RunSource { rules: RunRules::Own { rule_set, allow }, .. }) => {
            let text = run::text(rule_set.is_some(), allow);
            (SourceFile::new("the command line", text), RuleSets::One(rule_set.clone().unwrap_or_default()))
        }
        ConfigSource::File { path, rules }
        | ConfigSource::Run(RunSource { rules: RunRules::Policy { path, rules, .. }, .. }) => {
            let text = match files.read(path) {
                Ok(text) => text,
                Err(cause) => {
                    problems.unplaced(format!("{} can't be read: {cause}", path.display()));
                    return Err(problems);
                }
            };
            let beside = || path.parent().map_or_else(|| PathBuf::from("rules"), |dir| dir.join("rules"));
            let rule_sets = RuleSets::In(rules.clone().unwrap_or_else(beside));
            (SourceFile::new(&path.display().to_string(), text), rule_sets)
        }
    };
    let read = |mut root: egret_policy::reader::Table<'_, '_>, problems: &mut Problems| {
        let (settings, part) = read::settings(&mut root, files, problems);
        let Listen { proxy, tls, socks, transparent, dns, control, .. } = &settings.listen;
        let bound = proxy.iter().chain(tls).chain(socks).chain(transparent).chain(dns).chain([control]);
        let own = Listeners { bound: bound.copied().collect() };
        let listeners = listeners.cloned().unwrap_or(own);
        upstream::refuse_loop(&part.upstream, &listeners, &settings.dns.hosts, problems);
        let around = Surroundings {
            generation,
            listeners,
            nat64: part.nat64,
            anonymous: part.anonymous,
            // Keys that can't be read are a problem of their own.
            tokens: part.tokens.named,
            register: part.register,
            certificates: part.tls.certificates,
        };
        let mut fetch = |name: &str| {
            let path = rule_sets.path(name);
            let text = files.read(&path).map_err(|cause| format!("{}: {cause}", path.display()))?;
            Ok(SourceFile::new(&path.display().to_string(), text))
        };
        let policy = Policy::read(&mut root, around, &mut fetch, problems);
        root.finish(problems);
        (settings, policy, part.tokens, part.upstream.chain, part.tls.client_tls)
    };
    let (settings, mut policy, mut tokens, chain, mut client_tls) = read_document(&file, &mut problems, read);
    if let ConfigSource::Run(source) = source {
        source.hold(&mut policy, &mut problems);
        // The listener says who the client is.
        (tokens.keys, client_tls) = (Vec::new(), None);
    }
    problems.sort();
    if problems.any_error() {
        return Err(problems);
    }
    let token_keys = (!tokens.keys.is_empty()).then(|| TokenKeys::new(tokens.keys, &tokens.audience));
    Ok(Loaded { settings, policy, chain, token_keys, client_tls, problems })
}

/// Where rule sets lie.
enum RuleSets {
    /// In a folder, by their names.
    In(PathBuf),
    /// There is one, whatever its name.
    One(PathBuf),
}

impl RuleSets {
    fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::In(folder) => folder.join(format!("{name}.toml")),
            Self::One(path) => path.clone(),
        }
    }
}

/// What can be reloaded: `[upstream]`, and the parts of `[listen]`, `[dns]` and `[identity]` that are
/// not fixed or that the policy needs.
struct Reloadable {
    upstream: upstream::Written,
    nat64: Vec<Nat64Prefix>,
    anonymous: Option<Located<String>>,
    register: RegisterText,
    tokens: Tokens,
    tls: tls::TlsPart,
}

/// The part of `[identity]` that tokens need.
struct Tokens {
    /// Is any key named, whether it can be read or not?
    named: bool,
    keys: Vec<PublicKey>,
    audience: String,
}

/// The configuration that holds without a file.
fn built_in(allow: &[String]) -> String {
    let head = "[[sandbox]]\nid = \"local\"\nsource = [\"127.0.0.0/8\", \"::1/128\"]\npolicy = \"local\"\n[policy.local]\n";
    format!("{head}{}", allow_table("local", allow))
}

/// The rule of a policy that allows name patterns; nothing for none.
fn allow_table(policy: &str, patterns: &[String]) -> String {
    if patterns.is_empty() {
        return String::new();
    }
    let patterns: String = patterns.iter().map(|pattern| format!("  {},\n", quote(pattern))).collect();
    format!("[[policy.{policy}.allow]]\ndomains = [\n{patterns}]\n")
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The default configuration file: `./egret.toml`, else `/etc/egret/egret.toml`, if one exists.
#[must_use]
pub fn default_file() -> Option<PathBuf> {
    ["egret.toml", "/etc/egret/egret.toml"].into_iter().map(PathBuf::from).find(|path| path.exists())
}

/// Names of settings that a reload can't change, where two configurations differ in them.
#[must_use]
pub fn needs_restart(old: &Settings, new: &Settings) -> Vec<&'static str> {
    let mut out = Vec::new();
    let mut differ = |name, differs: bool| {
        if differs {
            out.push(name);
        }
    };
    differ("listen", old.listen != new.listen);
    differ("dns", !same_dns(&old.dns, &new.dns));
    differ("audit", old.audit != new.audit);
    differ("state", old.state_dir != new.state_dir);
    differ("timeouts", old.timeouts != new.timeouts);
    out
}

fn same_dns(old: &Dns, new: &Dns) -> bool {
    old.servers == new.servers && old.timeout == new.timeout && old.hosts == new.hosts && old.ca == new.ca
}

#[cfg(test)]
mod tests {
    use egret_policy::Registered;

    use super::*;

    #[test]
    fn built_in_defaults_load_and_allow_what_is_named() {
        let source = ConfigSource::BuiltIn { allow: vec!["a.example".to_owned()] };
        let loaded = load(&source, 1, None).unwrap();
        assert_eq!(loaded.settings.listen.proxy, ["127.0.0.1:3128".parse().unwrap()]);
        assert!(loaded.policy.sandboxes.identify([127, 0, 0, 1].into(), &Registered::default()).is_ok());
        assert!(loaded.policy.sandboxes.identify([10, 0, 0, 1].into(), &Registered::default()).is_err());
    }

    #[test]
    fn a_bad_pattern_on_the_command_line_is_a_problem() {
        let source = ConfigSource::BuiltIn { allow: vec!["*\"\n".to_owned()] };
        assert!(load(&source, 1, None).is_err());
    }
}

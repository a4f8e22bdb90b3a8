//! A row's policy as egret's configuration.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::corpus::P0;
use crate::rows::Unlock;
use crate::support::egret::{Builder, Egret};
use crate::support::world::DNS_ADDRESS;
use crate::token;

/// Where every row finds the proxy.
pub const PROXY: &str = "127.0.0.1:3128";
const CONTROL: &str = "127.0.0.1:3129";

/// What one row needs; egret is started anew where it differs from the row before.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub rules: Vec<String>,
    pub unlocks: Vec<Unlock>,
    /// Don't ask for TLS on 443.
    pub tls_any: bool,
    /// Keys of the policy's `limits` with their values as TOML.
    pub limits: Vec<(&'static str, String)>,
    /// How long a body may stand still, where the default is too long to wait for.
    pub body_timeout: Option<Duration>,
    /// Clients have to send a token.
    pub tokens: bool,
    /// Further addresses to listen on.
    pub listen: Vec<SocketAddr>,
}

impl Policy {
    pub fn p0() -> Self {
        Self::of(P0.map(str::to_owned).to_vec())
    }

    pub fn of(rules: Vec<String>) -> Self {
        Self {
            rules,
            unlocks: Vec::new(),
            tls_any: false,
            limits: Vec::new(),
            body_timeout: None,
            tokens: false,
            listen: Vec::new(),
        }
    }

    pub fn builder(&self) -> Builder {
        let mut listen: Vec<SocketAddr> = vec![PROXY.parse().unwrap()];
        listen.extend(&self.listen);
        let builder = Egret::with(self.config()).listen(&listen, CONTROL.parse().unwrap());
        if self.tokens { builder.file("token.pub", &token::public_key()) } else { builder }
    }

    fn config(&self) -> String {
        let tables: String = self.rules.iter().map(|rule| self.allow_table(rule)).collect();
        let limits: String = self.limits.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        let body =
            self.body_timeout.map(|time| format!("body = \"{}s\"\n", time.as_secs())).unwrap_or_default();
        let (identity, sandboxes) = match self.tokens {
            true => ("token_keys = [\"token.pub\"]\n", format!("{SANDBOXES}auth = \"token\"\n")),
            false => ("", SANDBOXES.to_owned()),
        };
        format!(
            "[identity]\n{identity}\n[timeouts]\n{body}\n[dns]\nservers = [\"{DNS_ADDRESS}:53\"]\n\n\
             {sandboxes}\n[policy.other]\ndefault = \"deny\"\n\n\
             [policy.main]\nmode = \"enforce\"\ndefault = \"deny\"\n\n{tables}\n\
             [policy.main.limits]\n{limits}"
        )
    }

    fn allow_table(&self, rule: &str) -> String {
        let unlocks: Vec<&Unlock> = self.unlocks.iter().filter(|u| u.host == host_of(rule)).collect();
        let mut out = format!("[[policy.main.allow]]\ndomains = [{}]\n", toml_string(rule));
        if !unlocks.is_empty() {
            let addresses: Vec<String> = unlocks.iter().map(|u| toml_string(&u.cidr)).collect();
            let ports: Vec<String> = unlocks.iter().map(|u| u.port.to_string()).collect();
            out += &format!("addresses = [{}]\nports = [{}]\n", addresses.join(", "), ports.join(", "));
        }
        if self.tls_any {
            out += "tls = \"any\"\n";
        }
        out
    }
}

/// Every client is sandbox-a but one, whose name a forged header could claim.
const SANDBOXES: &str = "\
[[sandbox]]
id = \"sandbox-b\"
source = [\"127.0.0.3/32\"]
policy = \"other\"

[[sandbox]]
id = \"sandbox-a\"
source = [\"0.0.0.0/0\", \"::/0\"]
policy = \"main\"
";

/// The configuration of one row of `rules.jsonl`; `deny X` goes to a deny table.
pub fn rule_config(rules: &[String]) -> String {
    let mut out =
        format!("{SANDBOXES}\n[policy.other]\ndefault = \"deny\"\n\n[policy.main]\ndefault = \"deny\"\n");
    for rule in rules {
        let (table, rule) =
            rule.strip_prefix("deny ").map_or(("allow", rule.as_str()), |rule| ("deny", rule));
        out += &format!("\n[[policy.main.{table}]]\n{}", rule_keys(rule));
    }
    out
}

/// A rule that is, or tries to be, an address goes to `addresses`; any other to `domains`.
fn rule_keys(rule: &str) -> String {
    if let Some((address, port)) = rule.strip_prefix('[').and_then(|rest| rest.split_once("]:"))
        && address.parse::<IpAddr>().is_ok()
    {
        return format!("addresses = [{}]\nports = [{port}]\n", toml_string(address));
    }
    let (start, _) = rule.split_once('/').unwrap_or((rule, ""));
    let v4 = !start.is_empty() && start.chars().all(|c| c.is_ascii_digit() || c == '.');
    let v6 =
        start.matches(':').count() > 1 && start.chars().all(|c| c.is_ascii_hexdigit() || ":.".contains(c));
    let key = if v4 || v6 { "addresses" } else { "domains" };
    format!("{key} = [{}]\n", toml_string(rule))
}

fn host_of(rule: &str) -> &str {
    match rule.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        _ => rule,
    }
}

/// A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped.
fn toml_string(text: &str) -> String {
    serde_json::to_string(text).unwrap().replace('\x7f', "\\u007f")
}

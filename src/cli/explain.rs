//! `egret explain`: what the live engine decides for a destination, with the rule, and why the
//! near misses did not match.
//!
//! A question is written down as a request head and read like one, so that the answer is what a
//! client would get.

use std::fmt::Write as _;
use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use egret_policy::{
    Client, Host, Intent, NearMiss, Policy, Reason, Refusal, Resolution, Verdict as PolicyVerdict,
};
use serde::{Deserialize, Serialize};

use super::{BAD_INPUT, ConfigArgs, DENIED, FAILED, OK, complain, say};
use crate::config::{Files, Settings};
use crate::entry::question;
use crate::resolve::Resolver;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Sandbox that asks
    #[arg(long, value_name = "ID", default_value = "local")]
    sandbox: String,
    /// HTTP method [default: GET for a URL, CONNECT for host:port]
    #[arg(long, value_name = "M")]
    method: Option<String>,
    /// Address that stands in for DNS; repeatable
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    /// Answer JSON lines from a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "method", "addresses"])]
    batch: Option<PathBuf>,
    /// URL or host:port
    #[arg(required_unless_present = "batch")]
    target: Option<String>,
}

/// A question, as a line of a batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    sandbox: String,
    method: Option<String>,
    target: String,
    host_header: Option<String>,
    addresses: Option<Vec<IpAddr>>,
}

/// The answer to a question.
#[derive(Debug, Serialize)]
struct Answer {
    verdict: &'static str,
    reason: &'static str,
    status: Option<u16>,
    rule: Option<Arc<str>>,
    policy: Option<Arc<str>>,
    generation: u64,
    host: Option<String>,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    near_misses: Vec<Near>,
    #[serde(skip)]
    fallback: Option<String>,
}

#[derive(Debug, Serialize)]
struct Near {
    rule: Arc<str>,
    why: String,
}

struct Explainer {
    policy: Arc<Policy>,
    settings: Settings,
    runtime: tokio::runtime::Runtime,
    resolver: Option<Resolver>,
}

impl ExplainArgs {
    pub(super) fn run(self) -> u8 {
        let loaded = match self.config.load(Vec::new(), &mut Files::default()) {
            Ok((loaded, _)) => loaded,
            Err(code) => return code,
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                complain(&format!("no runtime: {error}"));
                return FAILED;
            }
        };
        let policy = Arc::new(loaded.policy);
        let mut explainer = Explainer { policy, settings: loaded.settings, runtime, resolver: None };
        if let Some(file) = self.batch {
            return explainer.batch(&file);
        }
        let addresses = (!self.addresses.is_empty()).then_some(self.addresses);
        let target = self.target.unwrap_or_default();
        let question =
            Question { sandbox: self.sandbox, method: self.method, target, host_header: None, addresses };
        match explainer.answer(&question) {
            Ok(answer) if self.json => answer.code().max(say(&answer.to_json())),
            Ok(answer) => answer.code().max(say(&answer.to_text(&question))),
            Err(message) => {
                complain(&message);
                BAD_INPUT
            }
        }
    }
}

impl Explainer {
    fn batch(&mut self, file: &PathBuf) -> u8 {
        let input: Box<dyn BufRead> = if file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            match std::fs::File::open(file) {
                Ok(file) => Box::new(io::BufReader::new(file)),
                Err(error) => {
                    complain(&format!("{} can't be read: {error}", file.display()));
                    return BAD_INPUT;
                }
            }
        };
        let mut code = OK;
        let mut stdout = io::stdout().lock();
        for (number, line) in input.lines().enumerate() {
            let answer = line
                .map_err(|error| error.to_string())
                .and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()))
                .and_then(|question| self.answer(&question));
            let text = answer.map(|answer| answer.to_json()).unwrap_or_else(|error| {
                code = BAD_INPUT;
                complain(&format!("line {}: {error}", number + 1));
                serde_json::json!({ "error": error }).to_string() + "\n"
            });
            if stdout.write_all(text.as_bytes()).is_err() {
                return FAILED;
            }
        }
        code
    }

    fn answer(&mut self, question: &Question) -> Result<Answer, String> {
        let client = self.client(&question.sandbox)?;
        let method = question.method.as_deref();
        let asked = question::read(method, &question.target, question.host_header.as_deref());
        let (destination, action) = match asked {
            Ok(asked) => asked,
            Err((status, fault)) => {
                let refusal = Refusal::new(Reason::BadRequest).with_detail(fault);
                return Ok(self.refused(&client, None, &refusal, Some(status), Vec::new()));
            }
        };
        let intent = Intent { client, destination, action };
        let grant = match self.policy.decide(&intent) {
            PolicyVerdict::Allow(grant) => grant,
            PolicyVerdict::Deny(refusal) => return Ok(self.refuse(&intent, &refusal, Vec::new())),
        };
        let addresses = match (intent.destination.host(), &question.addresses) {
            (Host::Address(address), _) => vec![*address],
            (Host::Name(_), Some(given)) => given.clone(),
            (Host::Name(name), None) => match self.look_up(name.as_str())? {
                Ok(addresses) => addresses,
                Err(refusal) => return Ok(self.refuse(&intent, &refusal, Vec::new())),
            },
        };
        match grant.pin(&Resolution { addresses: addresses.clone() }, crate::dial::is_local) {
            Ok(route) => {
                let refusal = route.would_deny.clone();
                let reason = refusal.as_ref().map_or(Reason::Allowed, |refusal| refusal.reason);
                let mut answer = self.base(&intent.client, Some(&intent));
                answer.verdict = if refusal.is_some() { "would_deny" } else { "allow" };
                answer.reason = reason.code();
                answer.rule = refusal.map_or(route.rule, |refusal| refusal.rule);
                answer.addresses = addresses;
                if answer.verdict == "would_deny" {
                    self.add_near_misses(&mut answer, &intent);
                }
                Ok(answer)
            }
            Err(refusal) => Ok(self.refuse(&intent, &refusal, addresses)),
        }
    }

    fn client(&self, sandbox: &str) -> Result<Client, String> {
        self.policy.sandboxes.by_id(sandbox).ok_or_else(|| {
            let known: Vec<_> = self.policy.sandboxes.ids().collect();
            format!("there is no sandbox `{}`; known: {}", sandbox.escape_debug(), known.join(", "))
        })
    }

    /// Asks the configured DNS servers, as the proxy would.
    fn look_up(&mut self, name: &str) -> Result<Result<Vec<IpAddr>, Refusal>, String> {
        if self.resolver.is_none() {
            let settings = self.settings.dns.resolver();
            let _inside = self.runtime.enter();
            self.resolver = Some(Resolver::new(settings).map_err(|error| error.to_string())?);
        }
        let Some(resolver) = &self.resolver else {
            return Err("there is no resolver".to_owned());
        };
        Ok(match self.runtime.block_on(resolver.lookup(name)) {
            Ok(answer) => Ok(answer.addresses.to_vec()),
            Err(error) => {
                let reason = crate::egress::dns_reason(&error);
                Err(Refusal::new(reason).with_detail(error.to_string()))
            }
        })
    }

    fn refuse(&self, intent: &Intent, refusal: &Refusal, addresses: Vec<IpAddr>) -> Answer {
        let mut answer = self.refused(&intent.client, Some(intent), refusal, None, addresses);
        self.add_near_misses(&mut answer, intent);
        answer
    }

    fn refused(
        &self,
        client: &Client,
        intent: Option<&Intent>,
        refusal: &Refusal,
        status: Option<u16>,
        addresses: Vec<IpAddr>,
    ) -> Answer {
        let mut answer = self.base(client, intent);
        answer.reason = refusal.reason.code();
        answer.status = status.or(refusal.reason.status());
        answer.rule = refusal.rule.clone();
        answer.detail = refusal.detail.as_deref().map(str::to_owned);
        answer.addresses = addresses;
        answer
    }

    fn base(&self, client: &Client, intent: Option<&Intent>) -> Answer {
        Answer {
            verdict: "deny",
            reason: Reason::Allowed.code(),
            status: None,
            rule: None,
            policy: Some(Arc::clone(&client.policy)),
            generation: self.policy.generation,
            host: intent.map(|intent| intent.destination.host().to_string()),
            port: intent.map(|intent| intent.destination.port()),
            addresses: Vec::new(),
            detail: None,
            near_misses: Vec::new(),
            fallback: None,
        }
    }

    fn add_near_misses(&self, answer: &mut Answer, intent: &Intent) {
        let near = self.policy.near_misses(intent).into_iter();
        answer.near_misses = near.map(|NearMiss { rule, why }| Near { rule, why }).collect();
        answer.fallback = self.policy.fallback_text(intent);
    }
}

impl Answer {
    fn code(&self) -> u8 {
        match (self.verdict, self.reason) {
            (_, "bad_request") => BAD_INPUT,
            ("deny", _) => DENIED,
            _ => OK,
        }
    }

    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    fn to_text(&self, question: &Question) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let status = self.status.map(|status| format!(" ({status})")).unwrap_or_default();
        let _ = writeln!(out, "{}: {}{status}", self.verdict, self.reason);
        let place = match (&self.host, self.port) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => question.target.escape_debug().to_string(),
        };
        let mut row = |name: &str, value: &str| {
            let _ = writeln!(out, "  {name:<10}{value}");
        };
        row("target", &place);
        row("sandbox", &question.sandbox);
        if let Some(policy) = &self.policy {
            row("policy", policy);
        }
        row("rule", self.rule.as_deref().unwrap_or("none"));
        if !self.addresses.is_empty() {
            let addresses: Vec<_> = self.addresses.iter().map(ToString::to_string).collect();
            row("addresses", &addresses.join(", "));
        }
        if let Some(detail) = &self.detail {
            row("detail", detail);
        }
        for near in &self.near_misses {
            row("near miss", &format!("{} {}", near.rule, near.why));
        }
        if let Some(fallback) = &self.fallback {
            row("default", fallback);
        }
        out
    }
}

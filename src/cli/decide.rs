//! One question put to the live engine, and the answer as commands show it.
//!
//! A question is written down as a request head and read like one, so that the answer is what a
//! client would get. Never looks a name up: the caller says where addresses come from.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use egret_policy::{
    Client, Entry, Host, Identity, Intent, NearMiss, Policy, Reason, Refusal, Resolution,
    Verdict as PolicyVerdict,
};
use serde::{Deserialize, Serialize};

use super::{BAD_INPUT, DENIED, OK};
use crate::chain::Chain;
use crate::entry::question;
use crate::identity::Snapshot;

/// A question, as a line of a batch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Question {
    pub(super) sandbox: String,
    /// The policy that its token names; without one, the configuration knows the sandbox.
    pub(super) policy: Option<String>,
    pub(super) method: Option<String>,
    pub(super) target: String,
    pub(super) host_header: Option<String>,
    pub(super) addresses: Option<Vec<IpAddr>>,
}

/// The answer to a question.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    pub(super) verdict: &'static str,
    pub(super) reason: &'static str,
    status: Option<u16>,
    pub(super) rule: Option<Arc<str>>,
    pub(super) policy: Option<Arc<str>>,
    generation: u64,
    host: Option<String>,
    port: Option<u16>,
    addresses: Vec<IpAddr>,
    /// How the addresses are reached, where there is a parent proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    near_misses: Vec<Near>,
    #[serde(skip)]
    fallback: Option<String>,
}

/// A rule that is close, and what it lacks.
#[derive(Debug, Serialize)]
struct Near {
    rule: Arc<str>,
    why: String,
}

/// What DNS says of a name, or the refusal that it causes.
pub(super) type Addresses = Result<Vec<IpAddr>, Refusal>;

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("there is no sandbox `{}`{}", id.escape_debug(), list(known))]
    UnknownSandbox { id: String, known: Vec<String> },
    #[error("there is no policy `{}`; write [policy.NAME] in the configuration", .0.escape_debug())]
    UnknownPolicy(String),
    /// Nobody can say what the name's addresses are.
    #[error("{0}")]
    NoAddresses(String),
}

/// The sandboxes that there are, behind word of one that there is not.
fn list(known: &[String]) -> String {
    if known.is_empty() { ", nor any other".to_owned() } else { format!("; known: {}", known.join(", ")) }
}

/// Answers questions by one policy.
pub(super) struct Decider {
    policy: Arc<Policy>,
    chain: Chain,
    registered: Snapshot,
}

impl Decider {
    pub(super) fn new(policy: Policy, chain: Chain) -> Self {
        Self { policy: Arc::new(policy), chain, registered: Snapshot::default() }
    }

    /// Knows these as well.
    pub(super) fn with_registered(self, registered: Snapshot) -> Self {
        Self { registered, ..self }
    }

    /// Decides; `look_up` is asked for a name that is allowed and whose addresses are not given.
    pub(super) fn answer(
        &self,
        question: &Question,
        look_up: impl FnOnce(&str) -> Result<Addresses, String>,
    ) -> Result<Answer, Unanswered> {
        let client = match &question.policy {
            Some(policy) => self.by_token(&question.sandbox, policy)?,
            None => self.client(&question.sandbox)?,
        };
        let method = question.method.as_deref();
        let asked = question::read(method, &question.target, question.host_header.as_deref());
        let (destination, action) = match asked {
            Ok(asked) => asked,
            Err((status, fault)) => {
                let refusal = Refusal::new(Reason::BadRequest).with_detail(fault);
                return Ok(self.refused(&client, None, &refusal, Some(status), Vec::new()));
            }
        };
        let intent = Intent { client, entry: Entry::Proxy, destination, action };
        let grant = match self.policy.decide(&intent) {
            PolicyVerdict::Allow(grant) => grant,
            PolicyVerdict::Deny(refusal) => return Ok(self.refuse(&intent, &refusal, Vec::new())),
        };
        let addresses = match (intent.destination.host(), &question.addresses) {
            (Host::Address(address), _) => vec![*address],
            (Host::Name(_), Some(given)) => given.clone(),
            (Host::Name(name), None) => match look_up(name.as_str()).map_err(Unanswered::NoAddresses)? {
                Ok(addresses) => addresses,
                Err(refusal) => return Ok(self.refuse(&intent, &refusal, Vec::new())),
            },
        };
        let pinned = grant.pin(&Resolution { addresses: addresses.clone() }, crate::dial::is_local);
        let parent = self.chain.refuse_parent(&intent.destination, &addresses);
        match pinned.and_then(|route| parent.map_or(Ok(route), Err)) {
            Ok(route) => {
                let refusal = route.would_deny.clone();
                let reason = refusal.as_ref().map_or(Reason::Allowed, |refusal| refusal.reason);
                let mut answer = self.base(&intent.client, Some(&intent));
                answer.verdict = if refusal.is_some() { "would_deny" } else { "allow" };
                answer.reason = reason.code();
                answer.rule = refusal.map_or(route.rule, |refusal| refusal.rule);
                answer.way = self.chain.describe(&intent.destination, &addresses);
                answer.addresses = addresses;
                if answer.verdict == "would_deny" {
                    self.add_near_misses(&mut answer, &intent);
                }
                Ok(answer)
            }
            Err(refusal) => Ok(self.refuse(&intent, &refusal, addresses)),
        }
    }

    fn client(&self, sandbox: &str) -> Result<Client, Unanswered> {
        let registered = || {
            let known = &self.registered.get(sandbox)?.registration.0;
            self.policy.sandboxes.by_registration(known, known.sources.first()?.addr()).ok()
        };
        self.policy.sandboxes.by_id(sandbox).or_else(registered).ok_or_else(|| {
            let registered = self.registered.iter().map(|entry| entry.registration.id.to_string());
            let known = self.policy.sandboxes.ids().chain(registered).collect();
            Unanswered::UnknownSandbox { id: sandbox.to_owned(), known }
        })
    }

    /// A client whose token says who it is, and which policy holds for it.
    fn by_token(&self, sandbox: &str, policy: &str) -> Result<Client, Unanswered> {
        if !self.policy.has(policy) {
            return Err(Unanswered::UnknownPolicy(policy.to_owned()));
        }
        let source = IpAddr::from([0, 0, 0, 0]);
        Ok(Client { sandbox: sandbox.into(), policy: policy.into(), identity: Identity::Source, source })
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
            way: None,
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
    /// The exit code that says the verdict.
    pub(super) fn code(&self) -> u8 {
        match (self.verdict, self.reason) {
            // A target that is none is bad input, whatever the policy.
            (_, "bad_request") => BAD_INPUT,
            ("deny", _) => DENIED,
            _ => OK,
        }
    }

    /// One line.
    pub(super) fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    pub(super) fn to_text(&self, question: &Question) -> String {
        let headline = self.headline();
        format!("{headline}\n{}", self.explanation(question))
    }

    /// The verdict, its reason and its status on one line.
    pub(super) fn headline(&self) -> String {
        let status = self.status.map(|status| format!(" ({status})")).unwrap_or_default();
        format!("{}: {}{status}", self.verdict, self.reason)
    }

    /// What was asked, what decided, and why the near misses did not: one indented line each.
    pub(super) fn explanation(&self, question: &Question) -> String {
        let mut out = String::new();
        let place = match (&self.host, self.port) {
            (Some(host), Some(port)) => format!("{host}:{port}"),
            _ => question.target.escape_debug().to_string(),
        };
        let mut row = |name: &str, value: &str| {
            // Writing to a string does not fail.
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
        if let Some(way) = &self.way {
            row("way", way);
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

//! Loads a policy from text, as the shell does from files, and asks it questions.

#![allow(dead_code, reason = "each test program uses a part")]

pub mod cases;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use egret_policy::reader::{Located, read_document};
use egret_policy::{
    Action, Destination, Entry, Host, Intent, Listeners, Nat64Prefix, Policy, Problems, Refusal,
    RegisterText, Registered, Resolution, Route, SourceFile, Spot, Surroundings, TargetError, Verdict,
};

/// The name under which the main file is cited.
pub const MAIN: &str = "egret.toml";

/// Everything that a load needs beside the main file.
#[derive(Debug, Default)]
pub struct World {
    /// Rule sets by name.
    pub rule_sets: Vec<(String, String)>,
    pub listeners: Vec<SocketAddr>,
    /// Addresses of this machine.
    pub local: Vec<IpAddr>,
    pub nat64: Vec<Nat64Prefix>,
    pub anonymous: Option<String>,
    /// Are there keys for tokens?
    pub tokens: bool,
    /// Are there authorities for certificates?
    pub certificates: bool,
    /// Networks and policies that may be registered.
    pub registrable: (Vec<String>, Vec<String>),
}

impl World {
    fn register(&self, file: &Arc<SourceFile>) -> RegisterText {
        let located = |texts: &[String]| {
            let each = texts.iter().map(|text| Located { value: text.clone(), spot: Spot::new(file, 0..0) });
            each.collect()
        };
        let (networks, policies) = &self.registrable;
        RegisterText { networks: located(networks), policies: located(policies) }
    }
}

/// Reads the policy part of a main file; its keys are all that the file may hold.
pub fn read(text: &str, world: &World) -> (Arc<Policy>, Problems) {
    let file = SourceFile::new(MAIN, text.to_owned());
    let mut problems = Problems::default();
    let anonymous = world.anonymous.clone().map(|value| Located { value, spot: Spot::new(&file, 0..0) });
    let around = Surroundings {
        generation: 7,
        listeners: Listeners { bound: world.listeners.clone() },
        nat64: world.nat64.clone(),
        anonymous,
        tokens: world.tokens,
        register: world.register(&file),
        certificates: world.certificates,
    };
    let mut fetch = |name: &str| {
        let found = world.rule_sets.iter().find(|(known, _)| known == name);
        let (_, text) = found.ok_or_else(|| "there is no such file".to_owned())?;
        Ok(SourceFile::new(&format!("rules/{name}.toml"), text.clone()))
    };
    let policy = read_document(&file, &mut problems, |mut root, problems| {
        let policy = Policy::read(&mut root, around, &mut fetch, problems);
        root.finish(problems);
        policy
    });
    (Arc::new(policy), problems)
}

/// Reads a file that must be without an error.
pub fn load(text: &str, world: &World) -> Arc<Policy> {
    let (policy, problems) = read(text, world);
    assert!(!problems.any_error(), "{problems}\nin\n{text}");
    policy
}

/// A request line without its version, as a destination and an action.
pub fn parse_request(method: &str, target: &str) -> Result<(Destination, Action), TargetError> {
    if method == "CONNECT" {
        return Ok((Destination::parse_authority(target.as_bytes())?, Action::Tunnel));
    }
    let parsed = Destination::parse_absolute(target.as_bytes())?;
    Ok((parsed.destination, Action::Request { method: method.into(), path: parsed.path.into() }))
}

/// What came of a question.
#[derive(Debug)]
pub enum Outcome {
    /// Refused by name, port, method or path: nothing was looked up.
    Refused(Refusal),
    /// Refused for the addresses.
    RefusedAfterLookup(Refusal),
    Routed(Route),
}

impl Outcome {
    pub fn route(&self) -> Option<&Route> {
        match self {
            Self::Routed(route) => Some(route),
            _ => None,
        }
    }

    /// Does traffic flow?
    pub fn passes(&self) -> bool {
        self.route().is_some()
    }

    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) | Self::RefusedAfterLookup(refusal) => Some(refusal),
            Self::Routed(_) => None,
        }
    }
}

/// Asks for a client at `source`; a literal is its own answer.
pub fn ask(
    policy: &Arc<Policy>,
    source: IpAddr,
    (destination, action): (Destination, Action),
    answer: &[IpAddr],
    local: &[IpAddr],
) -> Outcome {
    let client = match policy.sandboxes.identify(source, &Registered::default()) {
        Ok(client) => client,
        Err(refusal) => return Outcome::Refused(refusal),
    };
    let addresses = match destination.host() {
        Host::Address(literal) => vec![*literal],
        Host::Name(_) => answer.to_vec(),
    };
    match policy.decide(&Intent { client, entry: Entry::Proxy, destination, action }) {
        Verdict::Deny(refusal) => Outcome::Refused(refusal),
        Verdict::Allow(grant) => {
            match grant.pin(&Resolution { addresses }, |address| local.contains(&address)) {
                Ok(route) => Outcome::Routed(route),
                Err(refusal) => Outcome::RefusedAfterLookup(refusal),
            }
        }
    }
}

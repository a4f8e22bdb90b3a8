//! Asks the policy what rules would do with a destination. Decides nothing itself.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use egret_policy::reader::read_document;
use egret_policy::{
    Action, Client, Destination, Entry, Identity, Intent, Policy, Problems, Reason, SourceFile, Surroundings,
    Verdict,
};

/// The policy under which a rule set is asked by itself.
const ALONE: &str = "alone";

/// Rules that can be asked: a whole configuration, or one rule set under a policy of its own.
#[derive(Debug)]
pub struct Rules {
    policy: Arc<Policy>,
}

impl Rules {
    /// The rules of a configuration.
    #[must_use]
    pub fn of(policy: Policy) -> Self {
        Self { policy: Arc::new(policy) }
    }

    /// Loads a rule set as a policy that takes it would.
    ///
    /// # Errors
    /// What is wrong with it; warnings alone are no error.
    pub fn read(rule_set: &Arc<SourceFile>) -> Result<Self, Problems> {
        let text = format!("[policy.{ALONE}]\nrules = [\"{ALONE}\"]\n");
        let file = SourceFile::new("a policy of its own", text);
        let mut problems = Problems::default();
        let around = Surroundings { generation: 1, ..Surroundings::default() };
        let mut fetch = |_: &str| Ok(Arc::clone(rule_set));
        let policy = read_document(&file, &mut problems, |mut root, problems| {
            Policy::read(&mut root, around, &mut fetch, problems)
        });
        if problems.any_error() { Err(problems) } else { Ok(Self::of(policy)) }
    }

    /// Is this text a rule set that loads?
    pub(super) fn loads(text: String) -> bool {
        Self::read(&SourceFile::new("a rule set", text)).is_ok()
    }

    /// The address that is reached at this one, behind a NAT64 translator another.
    #[must_use]
    pub fn reached(&self, address: IpAddr) -> IpAddr {
        self.policy.reached(address)
    }

    /// Is there a policy of this name?
    #[must_use]
    pub fn knows(&self, policy: &str) -> bool {
        self.policy.effective(&client(policy)).is_some()
    }

    /// What refuses the destination under a policy whatever it allows; an unknown policy, nothing.
    pub(super) fn denial(&self, policy: &str, place: &Destination) -> Option<String> {
        match self.policy.decide(&intent(policy, place, Action::Place)) {
            Verdict::Deny(refusal) if refusal.reason == Reason::DomainDenied => {
                let by = refusal.rule.as_deref().or(refusal.detail.as_deref());
                Some(by.unwrap_or_default().to_owned())
            }
            Verdict::Deny(_) | Verdict::Allow(_) => None,
        }
    }

    /// The allow rules, as `file:line`, that let some request pass there.
    pub(super) fn accepting(&self, policy: &str, place: &Destination) -> Vec<Arc<str>> {
        self.policy.accepting(&intent(policy, place, Action::Place))
    }

    /// Does an allow rule let every request pass there, whatever its method and path?
    pub(super) fn opens(&self, policy: &str, place: &Destination) -> bool {
        !self.policy.accepting(&intent(policy, place, Action::Tunnel)).is_empty()
    }

    /// The same questions to a rule set by itself.
    pub(super) fn denial_alone(&self, place: &Destination) -> Option<String> {
        self.denial(ALONE, place)
    }

    pub(super) fn accepting_alone(&self, place: &Destination) -> Vec<Arc<str>> {
        self.accepting(ALONE, place)
    }
}

fn intent(policy: &str, place: &Destination, action: Action) -> Intent {
    Intent { client: client(policy), entry: Entry::Proxy, destination: place.clone(), action }
}

/// Somebody under a policy; rules ask for no more.
fn client(policy: &str) -> Client {
    Client {
        sandbox: "learn".into(),
        policy: policy.into(),
        identity: Identity::Listener,
        source: Ipv4Addr::LOCALHOST.into(),
    }
}

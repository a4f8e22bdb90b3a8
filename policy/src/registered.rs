//! Sandboxes that were registered while the proxy runs, and which of them a source address is.
//!
//! Immutable: another registration makes another table. What may be registered at all stands in
//! the configuration, and is looked at again whenever a client is identified.

use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;

use ipnet::IpNet;

use crate::limits::Limits;

/// A registered sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The sandbox ID.
    pub id: Arc<str>,
    /// Which of those that had the ID one after the other: what replaces one has the same, what is
    /// registered after one was removed has another.
    pub life: u64,
    /// The clients that are this sandbox.
    pub sources: Vec<IpNet>,
    /// Must they send a token? Their addresses alone are nobody then.
    pub by_token: bool,
    /// The name of the policy that holds for it.
    pub policy: Arc<str>,
    /// Limits that hold beside those of the policy.
    pub limits: Option<Arc<Limits>>,
    /// Free words for the audit record.
    pub workspace: Option<Arc<str>>,
    /// Free words for the audit record.
    pub tool: Option<Arc<str>>,
}

/// A registration as tables hold it, all of them the same one: who counts those that hold what is
/// inside counts clients.
#[derive(Debug, PartialEq, Eq)]
pub struct Listed(pub Arc<Registration>);

impl Deref for Listed {
    type Target = Arc<Registration>;

    fn deref(&self) -> &Arc<Registration> {
        &self.0
    }
}

/// All registrations. No two of them hold the same address.
#[derive(Debug, Default)]
pub struct Registered {
    list: Vec<Arc<Listed>>,
    /// Every source with the place of its registration, in order.
    sources: Vec<(IpNet, usize)>,
}

impl Registered {
    /// A table of these, of which no two may [overlap](Self::overlapping).
    #[must_use]
    pub fn new(list: Vec<Arc<Listed>>) -> Self {
        let each = list.iter().enumerate();
        let mut sources: Vec<_> =
            each.flat_map(|(at, one)| one.sources.iter().map(move |source| (*source, at))).collect();
        sources.sort_unstable();
        Self { list, sources }
    }

    /// The one that holds this address, an IPv4-mapped one as what it maps.
    #[must_use]
    pub fn find(&self, source: IpAddr) -> Option<&Arc<Registration>> {
        let source = source.to_canonical();
        // Sources don't overlap, so only the last that begins before can hold it.
        let after = self.sources.partition_point(|(net, _)| net.network() <= source);
        let (net, at) = self.sources.get(after.checked_sub(1)?)?;
        self.list.get(*at).map(|listed| &listed.0).filter(|_| net.contains(&source))
    }

    /// One other than `id` that holds an address of these networks.
    #[must_use]
    pub fn overlapping(&self, id: &str, sources: &[IpNet]) -> Option<&Arc<Registration>> {
        let meets = |one: &IpNet| sources.iter().any(|other| one.contains(other) || other.contains(one));
        let mut known = self.list.iter().map(|listed| &listed.0);
        known.find(|known| *known.id != *id && known.sources.iter().any(meets))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Is nothing registered?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// What may be registered, by `[identity]`.
#[derive(Debug, Default)]
pub struct Registrable {
    /// Every source must lie in one of these.
    pub(crate) networks: Vec<IpNet>,
    /// The policies that may be named; every one if none is listed.
    pub(crate) policies: Vec<Arc<str>>,
}

/// Why something may not be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRegistrable {
    /// Nothing may.
    #[error("`identity.register` names no networks, so no sandbox can be registered")]
    Off,
    /// A source is elsewhere.
    #[error("{0} does not lie in a network of `identity.register`")]
    Source(IpNet),
    /// The policy is not one of those listed.
    #[error("`identity.register_policies` does not list the policy")]
    Policy,
}

impl Registrable {
    /// May this be registered? Whether its policy exists is not looked at.
    ///
    /// # Errors
    /// The first thing that forbids it.
    pub fn check(&self, registration: &Registration) -> Result<(), NotRegistrable> {
        if self.networks.is_empty() {
            return Err(NotRegistrable::Off);
        }
        let outside = |source: &&IpNet| !self.networks.iter().any(|net| net.contains(*source));
        if let Some(source) = registration.sources.iter().find(outside) {
            return Err(NotRegistrable::Source(*source));
        }
        if self.policies.is_empty() || self.policies.contains(&registration.policy) {
            return Ok(());
        }
        Err(NotRegistrable::Policy)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn registration(id: &str, sources: &[&str]) -> Arc<Listed> {
        Arc::new(Listed(Arc::new(Registration {
            id: id.into(),
            life: 1,
            sources: sources.iter().map(|source| source.parse().unwrap()).collect(),
            by_token: false,
            policy: "p".into(),
            limits: None,
            workspace: None,
            tool: None,
        })))
    }

    #[test]
    fn the_one_that_holds_an_address() {
        let registered = Registered::new(vec![
            registration("a", &["10.0.0.0/24", "2001:db8::/64"]),
            registration("b", &["10.0.1.5/32", "10.0.2.0/23"]),
        ]);
        let find = |source: &str| registered.find(source.parse().unwrap()).map(|found| found.id.to_string());
        for (source, id) in [
            ("10.0.0.0", Some("a")),
            ("10.0.0.255", Some("a")),
            ("::ffff:10.0.0.7", Some("a")),
            ("2001:db8::7", Some("a")),
            ("10.0.1.5", Some("b")),
            ("10.0.3.255", Some("b")),
            ("10.0.1.4", None),
            ("10.0.4.0", None),
            ("9.255.255.255", None),
            ("2001:db8:0:1::", None),
            ("::", None),
        ] {
            assert_eq!(find(source).as_deref(), id, "{source}");
        }
    }

    #[test]
    fn overlaps_are_found_both_ways() {
        let registered = Registered::new(vec![registration("a", &["10.0.0.0/24"])]);
        let overlapping =
            |id: &str, source: &str| registered.overlapping(id, &[source.parse().unwrap()]).is_some();
        assert!(overlapping("b", "10.0.0.7/32") && overlapping("b", "10.0.0.0/8"));
        assert!(!overlapping("b", "10.0.1.0/24") && !overlapping("b", "::/0"));
        assert!(!overlapping("a", "10.0.0.0/24"), "its own");
    }

    #[test]
    fn what_may_be_registered() {
        let check = |networks: &[&str], policies: &[&str], sources: &[&str]| {
            let networks = networks.iter().map(|net| net.parse().unwrap()).collect();
            let policies = policies.iter().map(|name| Arc::from(*name)).collect();
            Registrable { networks, policies }.check(&registration("a", sources))
        };
        assert_eq!(check(&[], &[], &["10.0.0.1/32"]), Err(NotRegistrable::Off));
        assert_eq!(check(&["10.0.0.0/8"], &[], &["10.0.0.1/32"]), Ok(()));
        let outside = "11.0.0.1/32";
        let refused = Err(NotRegistrable::Source(outside.parse().unwrap()));
        assert_eq!(check(&["10.0.0.0/8"], &[], &["10.0.0.1/32", outside]), refused);
        assert!(check(&["10.0.0.0/8"], &[], &["0.0.0.0/0"]).is_err());
        assert_eq!(check(&["10.0.0.0/8"], &["q"], &["10.0.0.1/32"]), Err(NotRegistrable::Policy));
        assert_eq!(check(&["10.0.0.0/8"], &["q", "p"], &["10.0.0.1/32"]), Ok(()));
    }

    proptest! {
        #[test]
        fn finding_is_looking_at_all(
            nets in prop::collection::vec((0..64_u8, 24..=32_u8), 0..20),
            asked in prop::collection::vec((0..4_u8, any::<u8>()), 20),
        ) {
            let mut list: Vec<Arc<Listed>> = Vec::new();
            for (number, (third, length)) in nets.into_iter().enumerate() {
                let net = IpNet::new(IpAddr::from([10, 0, third / 16, (third % 16) * 16]), length).unwrap().trunc();
                let id = number.to_string();
                if Registered::new(list.clone()).overlapping(&id, &[net]).is_none() {
                    list.push(registration(&id, &[&net.to_string()]));
                }
            }
            let registered = Registered::new(list.clone());
            for (third, fourth) in asked {
                let source = IpAddr::from([10, 0, third, fourth]);
                let naive = list.iter().find(|one| one.sources.iter().any(|net| net.contains(&source)));
                prop_assert_eq!(registered.find(source), naive.map(|one| &one.0));
            }
        }
    }
}

//! How many distinct names below one registrable domain a sandbox may ask for. Each name that
//! reaches a stranger's DNS server tells it as much as its labels hold.
//!
//! In memory alone: a restart begins every window anew.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use egret_policy::units::Quota;
use egret_policy::{DnsName, Reason, looks_random};

use super::clock::Now;
use super::window::Window;
use super::{Account, Exceeded, REST};

/// What a name counts whose labels look as if they carried data.
const HEAVY: u64 = 10;
/// Octets from which on a name is one of those.
const LONG: usize = 100;
/// Most domains of one account that are told apart; what comes later counts together.
const MOST_OF_ACCOUNT: usize = 256;
/// Most domains of all accounts.
const MOST: usize = 65_536;

/// The windows of all sandboxes.
#[derive(Debug, Default)]
pub(super) struct Names {
    domains: HashMap<Account, HashMap<Box<str>, Domain>>,
    /// How many domains there are.
    count: usize,
    hasher: RandomState,
}

/// A registrable domain.
#[derive(Debug, Default)]
struct Domain {
    window: Window,
    seen: HashSet<u64>,
}

impl Names {
    pub(super) fn count(
        &mut self,
        account: &Account,
        name: &DnsName,
        quota: Quota,
        now: Now,
    ) -> Result<(), Exceeded> {
        let hash = self.hasher.hash_one(name);
        let domain = self.domain(account, name.registrable());
        if domain.window.roll(quota, now) {
            domain.seen.clear();
        }
        if domain.seen.contains(&hash) {
            return Ok(());
        }
        let cost = cost(name).min(quota.amount.max(1));
        if domain.window.left(quota, now) < cost {
            let retry_after = domain.window.ends_in(quota, now);
            return Err(Exceeded { reason: Reason::QuotaExceeded, limit: "dns_names", retry_after });
        }
        domain.window.take(cost, quota, now);
        domain.seen.insert(hash);
        Ok(())
    }

    /// Forgets windows that are over.
    pub(super) fn forget_old(&mut self, now: Now) {
        for domains in self.domains.values_mut() {
            domains.retain(|_, domain| domain.window.end().is_none_or(|end| end > now.instant));
        }
        self.domains.retain(|_, domains| !domains.is_empty());
        self.count = self.domains.values().map(HashMap::len).sum();
    }

    fn domain(&mut self, account: &Account, name: &str) -> &mut Domain {
        let known = self.domains.get(account);
        let (mut account, mut name) = (account.clone(), name);
        if known.is_none_or(|domains| !domains.contains_key(name)) {
            if self.count >= MOST {
                account = Account { sandbox: REST.into(), policy: REST.into(), token: None };
                name = "";
            } else if known.is_some_and(|domains| domains.len() >= MOST_OF_ACCOUNT) {
                name = "";
            }
        }
        let domains = self.domains.entry(account).or_default();
        if !domains.contains_key(name) {
            self.count += 1;
        }
        domains.entry(name.into()).or_default()
    }
}

fn cost(name: &DnsName) -> u64 {
    if name.as_str().len() >= LONG || looks_random(name.as_str()).is_some() { HEAVY } else { 1 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const QUOTA: Quota = Quota { amount: 30, period: Duration::from_secs(3600) };

    fn account(sandbox: &str) -> Account {
        Account { sandbox: sandbox.into(), policy: Arc::from("p"), token: None }
    }

    fn name(text: &str) -> DnsName {
        DnsName::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn distinct_names_of_one_domain_run_out() {
        let (mut names, now) = (Names::default(), Now::read());
        let mut count = |sandbox: &str, text: &str, now| {
            names.count(&account(sandbox), &name(text), QUOTA, now).map_err(|exceeded| exceeded.limit)
        };
        for n in 0..30 {
            assert_eq!(count("a", &format!("n{n}.x.a.example"), now), Ok(()));
        }
        assert_eq!(count("a", "n30.x.a.example", now), Err("dns_names"));
        // What was asked for before costs nothing, and other domains and sandboxes have their own.
        assert_eq!(count("a", "n7.x.a.example", now), Ok(()));
        assert_eq!(count("a", "n30.x.b.example", now), Ok(()));
        assert_eq!(count("b", "n30.x.a.example", now), Ok(()));
        let later = Now { instant: now.instant + Duration::from_secs(3600), ..now };
        assert_eq!(count("a", "n30.x.a.example", later), Ok(()));
    }

    #[test]
    fn labels_that_may_carry_data_count_more() {
        let (mut names, now) = (Names::default(), Now::read());
        let long = format!("{}.a.example", ["word-and-word"; 8].join("."));
        let random = ["q7w8e9r1t2y3u4i5o6p7.a.example", "4f9a1c77e02bd6385a11c0de.a.example", &long];
        for text in random {
            assert!(names.count(&account("a"), &name(text), QUOTA, now).is_ok(), "{text}");
        }
        assert!(names.count(&account("a"), &name("www.a.example"), QUOTA, now).is_err());
    }

    #[test]
    fn bounded_and_tidied() {
        let (mut names, now) = (Names::default(), Now::read());
        for n in 0..1000 {
            let _ = names.count(&account("a"), &name(&format!("www.d{n}.example")), QUOTA, now);
        }
        assert_eq!(names.count, MOST_OF_ACCOUNT + 1);
        // All that came later count together.
        assert!(names.count(&account("a"), &name("www.d2000.example"), QUOTA, now).is_err());
        names.forget_old(Now { instant: now.instant + Duration::from_secs(3600), ..now });
        assert!(names.domains.is_empty() && names.count == 0);
    }
}

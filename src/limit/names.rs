//! How many distinct names below one registrable domain a sandbox may ask for. Each name that
//! reaches a stranger's DNS server tells it as much as its labels hold.

use std::collections::{HashMap, HashSet};

use egret_policy::units::Quota;
use egret_policy::{DnsName, Reason, looks_random};

use super::clock::Now;
use super::hosts::{HostHash, HostKey};
use super::line::{KeptNames, What};
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
/// What stands for all domains that are not told apart.
const OTHERS: HostHash = 0;
/// Names that are told in one line.
const NAMES_IN_A_LINE: usize = 256;

/// The windows of all sandboxes.
#[derive(Debug, Default)]
pub(super) struct Names {
    domains: HashMap<Account, HashMap<HostHash, Domain>>,
    /// How many domains there are.
    count: usize,
}

/// A registrable domain.
#[derive(Debug, Default)]
struct Domain {
    window: Window,
    seen: HashSet<HostHash>,
    /// The last line about it.
    ticket: u64,
}

impl Names {
    /// Counts a name, and hands what has to be written down before it may be asked for to `keep`,
    /// which gives the number of that line. The number to wait for: also for a line that another
    /// question has queued.
    pub(super) fn count(
        &mut self,
        (account, name): (&Account, &DnsName),
        key: &HostKey,
        quota: Quota,
        now: Now,
        keep: impl FnOnce(&Account, What) -> u64,
    ) -> Result<u64, Exceeded> {
        let (account, hash) = self.place(account, key.hash(name.registrable()));
        let domain = self.domain(&account, hash);
        if domain.window.roll(quota, now) {
            domain.seen.clear();
        }
        let named = key.hash(name.as_str());
        if domain.seen.contains(&named) {
            return Ok(domain.ticket);
        }
        let cost = cost(name).min(quota.amount.max(1));
        if domain.window.left(quota, now) < cost {
            let retry_after = domain.window.ends_in(quota, now);
            return Err(Exceeded { reason: Reason::QuotaExceeded, limit: "dns_names", retry_after });
        }
        domain.window.take(cost, quota, now);
        let first = domain.seen.is_empty();
        domain.seen.insert(named);
        if let Some(window) = domain.window.settled(now) {
            let line = KeptNames { domain: hash, window, first, names: vec![named] };
            domain.ticket = keep(&account, What::DnsNames(line));
        }
        Ok(domain.ticket)
    }

    /// Takes over what a line of an earlier process says.
    pub(super) fn restore(&mut self, account: &Account, kept: KeptNames, now: Now) {
        let KeptNames { domain: hash, window, first, names } = kept;
        let window = Window::restored(window, now);
        if window.end().is_some() {
            let domain = self.domain(account, hash);
            if first {
                domain.seen.clear();
            }
            domain.window = window;
            domain.seen.extend(names);
        }
    }

    /// Those of whom something is known.
    pub(super) fn accounts(&self) -> Vec<Account> {
        self.domains.keys().cloned().collect()
    }

    /// Everything there is to know of one.
    pub(super) fn all(&mut self, account: &Account, now: Now) -> Vec<What> {
        let mut lines = Vec::new();
        for (&hash, domain) in self.domains.get_mut(account).into_iter().flatten() {
            let Some(window) = domain.window.settled(now) else { continue };
            let seen: Vec<_> = domain.seen.iter().copied().collect();
            lines.extend(seen.chunks(NAMES_IN_A_LINE).enumerate().map(|(number, names)| {
                What::DnsNames(KeptNames { domain: hash, window, first: number == 0, names: names.to_vec() })
            }));
        }
        lines
    }

    /// Forgets windows that are over.
    pub(super) fn forget_old(&mut self, now: Now) {
        for domains in self.domains.values_mut() {
            domains.retain(|_, domain| domain.window.end().is_none_or(|end| end > now.instant));
        }
        self.domains.retain(|_, domains| !domains.is_empty());
        self.count = self.domains.values().map(HashMap::len).sum();
    }

    /// Where a domain of an account is counted.
    fn place(&self, account: &Account, domain: HostHash) -> (Account, HostHash) {
        let known = self.domains.get(account);
        if known.is_some_and(|domains| domains.contains_key(&domain)) {
            (account.clone(), domain)
        } else if self.count >= MOST {
            (Account { sandbox: REST.into(), policy: REST.into(), token: None }, OTHERS)
        } else if known.is_some_and(|domains| domains.len() >= MOST_OF_ACCOUNT) {
            (account.clone(), OTHERS)
        } else {
            (account.clone(), domain)
        }
    }

    fn domain(&mut self, account: &Account, hash: HostHash) -> &mut Domain {
        let domains = self.domains.entry(account.clone()).or_default();
        if !domains.contains_key(&hash) {
            self.count += 1;
        }
        domains.entry(hash).or_default()
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

    fn count(names: &mut Names, key: &HostKey, sandbox: &str, text: &str, now: Now) -> Result<u64, Exceeded> {
        names.count((&account(sandbox), &name(text)), key, QUOTA, now, |_, _| 0)
    }

    #[test]
    fn distinct_names_of_one_domain_run_out() {
        let (mut names, key, now) = (Names::default(), HostKey::random().unwrap(), Now::read());
        let mut count = |sandbox: &str, text: &str, now| {
            count(&mut names, &key, sandbox, text, now).map(drop).map_err(|exceeded| exceeded.limit)
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
        let (mut names, key, now) = (Names::default(), HostKey::random().unwrap(), Now::read());
        let long = format!("{}.a.example", ["word-and-word"; 8].join("."));
        let random = ["q7w8e9r1t2y3u4i5o6p7.a.example", "4f9a1c77e02bd6385a11c0de.a.example", &long];
        for text in random {
            assert!(count(&mut names, &key, "a", text, now).is_ok(), "{text}");
        }
        assert!(count(&mut names, &key, "a", "www.a.example", now).is_err());
    }

    #[test]
    fn whatever_is_told_is_known_again() {
        let (mut names, key, now) = (Names::default(), HostKey::random().unwrap(), Now::read());
        let quota = Quota { amount: 1000, ..QUOTA };
        let mut told = Vec::new();
        let mut count = |names: &mut Names, number: usize, now: Now| {
            let asked = (&account("a"), &name(&format!("n{number}.a.example")));
            names.count(asked, &key, quota, now, |_, line| {
                told.push(line);
                0
            })
        };
        // A window that is over by the time of the second one, which begins with other names.
        let later = Now { instant: now.instant + QUOTA.period, wall: now.wall + 3_600_000_000 };
        (0..10).for_each(|number| assert!(count(&mut names, number, now).is_ok()));
        (5..1005).for_each(|number| assert!(count(&mut names, number, later).is_ok()));
        assert!(count(&mut names, 0, later).is_err());
        let anew = names.all(&account("a"), later);
        assert!(anew.len() > 1, "more than fits a line");
        for lines in [told, anew] {
            let mut again = Names::default();
            for line in lines {
                let What::DnsNames(kept) = line else { panic!("{line:?}") };
                again.restore(&account("a"), kept, later);
            }
            let mut count = |number: usize| {
                let asked = (&account("a"), &name(&format!("n{number}.a.example")));
                again.count(asked, &key, quota, later, |_, _| 0)
            };
            assert!((5..1005).all(|number| count(number).is_ok()) && count(0).is_err());
        }
    }

    #[test]
    fn bounded_and_tidied() {
        let (mut names, key, now) = (Names::default(), HostKey::random().unwrap(), Now::read());
        for n in 0..1000 {
            let _ = count(&mut names, &key, "a", &format!("www.d{n}.example"), now);
        }
        assert_eq!(names.count, MOST_OF_ACCOUNT + 1);
        // All that came later count together.
        assert!(count(&mut names, &key, "a", "www.d2000.example", now).is_err());
        names.forget_old(Now { instant: now.instant + Duration::from_secs(3600), ..now });
        assert!(names.domains.is_empty() && names.count == 0);
    }
}

//! The counts of one account.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use egret_policy::units::{Quota, Rate};
use egret_policy::{Limits, Reason};

use super::Exceeded;
use super::clock::Now;
use super::hosts::HostHash;
use super::line::{KeptHosts, What};
use super::rate::{Pace, longest_rest};
use super::window::Window;
use crate::relay::Direction;

/// When to come back where a slot may become free at any time.
const SOON: Duration = Duration::from_secs(1);

/// Most rates that are counted for one account at a time.
const MOST_RATES: usize = 16;

/// Hosts that are told in one line.
const HOSTS_IN_A_LINE: usize = 256;

/// One for each rate that was asked for lately: a reload takes effect, and going back and forth
/// between two rates refills neither.
#[derive(Debug, Default)]
struct Paces(VecDeque<Pace>);

impl Paces {
    /// Takes one in, or says how long it has to wait.
    fn check(&mut self, rate: Rate) -> Result<(), Duration> {
        if !self.0.iter().any(|known| known.rate() == rate) {
            // Most have one rate, and there are many of them.
            self.0.reserve_exact(1);
            self.push(Pace::new(rate));
        }
        self.0.iter().find(|known| known.rate() == rate).map_or(Ok(()), Pace::check)
    }

    fn restore(&mut self, pace: Pace) {
        self.0.retain(|known| known.rate() != pace.rate());
        self.push(pace);
    }

    fn push(&mut self, pace: Pace) {
        if self.0.len() >= MOST_RATES {
            self.0.pop_front();
        }
        self.0.push_back(pace);
    }
}

/// One account.
#[derive(Debug, Default)]
pub(super) struct Sandbox {
    rates: Paces,
    /// The same for questions for names.
    questions: Paces,
    open: u32,
    hosts: HashSet<HostHash>,
    /// A host that no line tells yet.
    new_host: Option<HostHash>,
    host_window: Window,
    both: Window,
    up: Window,
    down: Window,
    /// When the last window that may run is over.
    busy_until: Option<Instant>,
    /// The last line about it: what it grants passes when that is written.
    pub(super) ticket: u64,
    /// Is it on the list of those whose lines say more than was used?
    pub(super) listed: bool,
}

impl Sandbox {
    pub(super) fn admit(&mut self, limits: &Limits, now: Now) -> Result<(), Exceeded> {
        if limits.connections.is_some_and(|most| self.open >= most) {
            return Err(Exceeded {
                reason: Reason::TooManyConnections,
                limit: "connections",
                retry_after: SOON,
            });
        }
        self.check_bytes(limits, now)?;
        if let Some(rate) = limits.requests {
            self.busy_for(longest_rest(rate), now);
            self.rates.check(rate).map_err(|wait| too_fast("requests", wait))?;
        }
        self.open = self.open.saturating_add(1);
        Ok(())
    }

    /// Takes a question for a name in.
    pub(super) fn ask(&mut self, rate: Rate, now: Now) -> Result<(), Exceeded> {
        self.busy_for(longest_rest(rate), now);
        self.questions.check(rate).map_err(|wait| too_fast("dns_queries", wait))
    }

    /// Is anything left of every byte quota?
    pub(super) fn check_bytes(&mut self, limits: &Limits, now: Now) -> Result<(), Exceeded> {
        for (limit, quota, window) in [
            ("bytes", limits.bytes, &mut self.both),
            ("bytes_up", limits.bytes_up, &mut self.up),
            ("bytes_down", limits.bytes_down, &mut self.down),
        ] {
            if let Some(quota) = quota
                && window.left(quota, now) == 0
            {
                return Err(used_up(limit, window.ends_in(quota, now)));
            }
        }
        Ok(())
    }

    pub(super) fn release(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    pub(super) fn count_host(&mut self, host: HostHash, quota: Quota, now: Now) -> Result<(), Exceeded> {
        if self.host_window.roll(quota, now) {
            self.hosts.clear();
        }
        if self.hosts.contains(&host) {
            return Ok(());
        }
        if self.host_window.left(quota, now) == 0 {
            return Err(used_up("domains", self.host_window.ends_in(quota, now)));
        }
        self.host_window.take(1, quota, now);
        self.hosts.insert(host);
        self.new_host = Some(host);
        self.busy_for(quota.period, now);
        Ok(())
    }

    /// How many of `want` bytes may pass now.
    pub(super) fn take_bytes(
        &mut self,
        direction: Direction,
        want: usize,
        limits: &Limits,
        now: Now,
    ) -> usize {
        let (own, own_quota) = match direction {
            Direction::Up => (&mut self.up, limits.bytes_up),
            Direction::Down => (&mut self.down, limits.bytes_down),
        };
        let mut granted = u64::try_from(want).unwrap_or(u64::MAX);
        let mut longest = Duration::ZERO;
        for (window, quota) in [(&mut self.both, limits.bytes), (&mut *own, own_quota)] {
            if let Some(quota) = quota {
                granted = granted.min(window.left(quota, now));
                longest = longest.max(quota.period);
            }
        }
        for (window, quota) in [(&mut self.both, limits.bytes), (own, own_quota)] {
            if let Some(quota) = quota {
                window.take(granted, quota, now);
            }
        }
        self.busy_for(longest, now);
        usize::try_from(granted).unwrap_or(want)
    }

    pub(super) fn give_back(&mut self, direction: Direction, unused: usize, limits: &Limits) {
        let unused = u64::try_from(unused).unwrap_or(u64::MAX);
        let (own, own_quota) = match direction {
            Direction::Up => (&mut self.up, limits.bytes_up),
            Direction::Down => (&mut self.down, limits.bytes_down),
        };
        for (window, quota) in [(&mut self.both, limits.bytes), (own, own_quota)] {
            if quota.is_some() {
                window.give_back(unused);
            }
        }
    }

    /// Has it nothing open and no window running?
    pub(super) fn is_idle(&self, now: Now) -> bool {
        self.open == 0 && self.busy_until.is_none_or(|until| until <= now.instant)
    }

    /// Is a request under way?
    pub(super) const fn is_open(&self) -> bool {
        self.open > 0
    }

    /// What has to be written down before what was granted may pass.
    pub(super) fn unkept(&mut self, now: Now) -> Vec<What> {
        let mut lines = Vec::new();
        lines.extend(self.both.unkept(now).map(What::Bytes));
        lines.extend(self.up.unkept(now).map(What::BytesUp));
        lines.extend(self.down.unkept(now).map(What::BytesDown));
        if let Some(host) = self.new_host.take()
            && let Some(window) = self.host_window.settled(now)
        {
            lines.push(What::Domains(KeptHosts { window, hosts: vec![host] }));
        }
        lines.extend(self.rates.0.iter_mut().filter_map(|pace| pace.unkept(now)).map(What::Requests));
        lines.extend(self.questions.0.iter_mut().filter_map(|pace| pace.unkept(now)).map(What::DnsQueries));
        lines
    }

    /// Do the lines about it say more than was used?
    pub(super) fn is_ahead(&self) -> bool {
        [self.both, self.up, self.down].iter().any(Window::is_ahead) || self.paces().any(Pace::is_ahead)
    }

    /// What was used, exactly, but for the hosts.
    pub(super) fn settled(&mut self, now: Now) -> Vec<What> {
        let mut lines = Vec::new();
        lines.extend(self.both.settled(now).map(What::Bytes));
        lines.extend(self.up.settled(now).map(What::BytesUp));
        lines.extend(self.down.settled(now).map(What::BytesDown));
        lines.extend(self.rates.0.iter_mut().filter_map(|pace| pace.settled(now)).map(What::Requests));
        lines.extend(self.questions.0.iter_mut().filter_map(|pace| pace.settled(now)).map(What::DnsQueries));
        lines
    }

    /// Everything there is to know, exactly.
    pub(super) fn all(&mut self, now: Now) -> Vec<What> {
        let mut lines = self.settled(now);
        if let Some(window) = self.host_window.settled(now) {
            let hosts: Vec<_> = self.hosts.iter().copied().collect();
            let mut told = 0;
            lines.extend(hosts.chunks(HOSTS_IN_A_LINE).map(|hosts| {
                told += u64::try_from(hosts.len()).unwrap_or(0);
                let window = super::window::KeptWindow { used: told, ..window };
                What::Domains(KeptHosts { window, hosts: hosts.to_vec() })
            }));
        }
        lines
    }

    /// Takes over what a line of an earlier process says; later lines replace earlier ones.
    pub(super) fn restore(&mut self, what: What, now: Now) {
        match what {
            What::Bytes(window) => self.both = Window::restored(window, now),
            What::BytesUp(window) => self.up = Window::restored(window, now),
            What::BytesDown(window) => self.down = Window::restored(window, now),
            What::Domains(KeptHosts { window, hosts }) => {
                // The first hosts of a window are as many as it counts.
                if u64::try_from(hosts.len()).is_ok_and(|count| count >= window.used) {
                    self.hosts.clear();
                }
                self.host_window = Window::restored(window, now);
                if self.host_window.end().is_some() {
                    self.hosts.extend(hosts);
                } else {
                    self.hosts.clear();
                }
            }
            What::Requests(kept) => self.rates.restore(Pace::restored(kept, now)),
            What::DnsQueries(kept) => self.questions.restore(Pace::restored(kept, now)),
            // Those are no account's own.
            What::DnsNames(_) => {}
        }
        let windows = [self.both, self.up, self.down, self.host_window].map(|window| window.end());
        let ends = windows.into_iter().chain(self.paces().map(Pace::rested));
        self.busy_until = ends.flatten().max();
    }

    fn paces(&self) -> impl Iterator<Item = &Pace> {
        self.rates.0.iter().chain(&self.questions.0)
    }

    fn busy_for(&mut self, period: Duration, now: Now) {
        // A window too long to be added up is never over.
        let until = now.instant.checked_add(period);
        self.busy_until = self.busy_until.max(until);
    }
}

fn too_fast(limit: &'static str, retry_after: Duration) -> Exceeded {
    Exceeded { reason: Reason::RateLimited, limit, retry_after }
}

fn used_up(limit: &'static str, retry_after: Duration) -> Exceeded {
    Exceeded { reason: Reason::QuotaExceeded, limit, retry_after }
}

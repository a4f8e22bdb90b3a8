//! The limits of a policy, as read; counting them is the shell's work.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::reader::{Located, Table};
use crate::source::Problems;
use crate::units::{Quota, Rate, parse_duration, parse_quota, parse_rate};

/// How long a tunnel may be silent when its policy says nothing.
pub const DEFAULT_TUNNEL_IDLE: Duration = Duration::from_secs(3600);

/// Questions for names when the policy says nothing: 20 a second, 100 at once.
pub const DEFAULT_DNS_QUERIES: Rate = Rate {
    amount: NonZeroU32::MIN.saturating_add(19),
    period: Duration::from_secs(1),
    burst: NonZeroU32::MIN.saturating_add(99),
};
/// Distinct names under one registrable domain that may be asked for when the policy says nothing.
pub const DEFAULT_DNS_NAMES: Quota = Quota { amount: 100, period: Duration::from_secs(3600) };

/// Limits that hold for each sandbox of a policy; absent means unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// CONNECTs and forwarded requests.
    pub requests: Option<Rate>,
    /// Tunnels and requests under way at once.
    pub connections: Option<u32>,
    /// Payload bytes both ways.
    pub bytes: Option<Quota>,
    /// Payload bytes from the sandbox.
    pub bytes_up: Option<Quota>,
    /// Payload bytes to the sandbox.
    pub bytes_down: Option<Quota>,
    /// Distinct hosts that were allowed.
    pub domains: Option<Quota>,
    /// Questions for names.
    pub dns_queries: Option<Rate>,
    /// Distinct names below one registrable domain that only a wildcard or a default lets be asked for.
    pub dns_names: Option<Quota>,
    /// How long a tunnel may pass no byte either way.
    pub tunnel_idle: Option<Duration>,
    /// How long a tunnel may be open.
    pub tunnel_lifetime: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tunnel_idle: Some(DEFAULT_TUNNEL_IDLE),
            dns_queries: Some(DEFAULT_DNS_QUERIES),
            dns_names: Some(DEFAULT_DNS_NAMES),
            ..Self::NONE
        }
    }
}

impl Limits {
    /// Nothing is limited.
    pub const NONE: Self = Self {
        requests: None,
        connections: None,
        bytes: None,
        bytes_up: None,
        bytes_down: None,
        domains: None,
        dns_queries: None,
        dns_names: None,
        tunnel_idle: None,
        tunnel_lifetime: None,
    };

    /// The same with the shorter of the times that each gives a tunnel.
    ///
    /// What is counted is not merged: two quotas over different periods have no narrower one, so
    /// each set of limits is counted by itself.
    #[must_use]
    pub fn with_shorter_tunnels(&self, other: &Self) -> Self {
        let shorter = |a: Option<Duration>, b: Option<Duration>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (one, None) | (None, one) => one,
        };
        Self {
            tunnel_idle: shorter(self.tunnel_idle, other.tunnel_idle),
            tunnel_lifetime: shorter(self.tunnel_lifetime, other.tunnel_lifetime),
            ..self.clone()
        }
    }

    /// Reads a `limits` table.
    pub fn read(mut table: Table<'_, '_>, problems: &mut Problems) -> Self {
        let mut limits = Self::default();
        for (key, target) in [("requests", &mut limits.requests), ("dns_queries", &mut limits.dns_queries)] {
            if let Some(text) = table.string(key, problems) {
                *target = value(&text, key, "\"50/s burst 200\"", parse_rate, problems);
            }
        }
        let most = i64::from(u32::MAX);
        let connections = table.integer("connections", (1, most), problems);
        limits.connections = connections.and_then(|n| u32::try_from(n.value).ok());
        let quotas = [
            ("bytes", &mut limits.bytes, true),
            ("bytes_up", &mut limits.bytes_up, true),
            ("bytes_down", &mut limits.bytes_down, true),
            ("domains", &mut limits.domains, false),
            ("dns_names", &mut limits.dns_names, false),
        ];
        for (key, target, size) in quotas {
            if let Some(text) = table.string(key, problems) {
                let example = if size { "\"2GiB/day\"" } else { "\"200/hour\"" };
                *target = value(&text, key, example, |t| parse_quota(t, size), problems);
            }
        }
        for (key, target) in
            [("tunnel_idle", &mut limits.tunnel_idle), ("tunnel_lifetime", &mut limits.tunnel_lifetime)]
        {
            if let Some(text) = table.string(key, problems) {
                // Zero means without a limit.
                let parsed = value(&text, key, "\"15m\", or \"0s\" for no limit", parse_duration, problems);
                *target = parsed.filter(|d| !d.is_zero());
            }
        }
        table.finish(problems);
        limits
    }
}

/// Parses one value; a problem names the key and shows an example.
pub fn value<T>(
    text: &Located<String>,
    key: &str,
    example: &str,
    parse: impl FnOnce(&str) -> Option<T>,
    problems: &mut Problems,
) -> Option<T> {
    let parsed = parse(&text.value);
    if parsed.is_none() {
        let message = format!("`{key}` can't be read: `{}`", text.value.escape_debug());
        problems.error(&text.spot, message, format!("write it like {example}"));
    }
    parsed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tunnel_gets_the_shorter_times_and_no_other_limit_changes() {
        let seconds = |n| Some(Duration::from_secs(n));
        let policy = Limits { connections: Some(9), tunnel_idle: seconds(60), ..Limits::NONE };
        let token = Limits {
            connections: Some(1),
            tunnel_idle: seconds(90),
            tunnel_lifetime: seconds(5),
            ..Limits::NONE
        };
        let both = policy.with_shorter_tunnels(&token);
        assert_eq!(both, Limits { tunnel_lifetime: seconds(5), ..policy.clone() });
        let shorter = Limits { tunnel_idle: seconds(1), ..Limits::NONE };
        assert_eq!(policy.with_shorter_tunnels(&shorter).tunnel_idle, seconds(1));
        assert_eq!(policy.with_shorter_tunnels(&Limits::NONE), policy);
    }
}

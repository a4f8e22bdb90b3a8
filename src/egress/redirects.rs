//! Redirects: decided like any other destination, and linked to the request that follows them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use egret_policy::{Action, Destination, Host, Intent, Mode, Reason, Refusal, Resolution, Scheme, Verdict};

use super::Egress;
use crate::audit::{self, AttemptId, Endpoint, Event, Redirect, Text};
use crate::redirect::Target;

/// How long after a redirect a request to its target counts as following it.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(60);
/// Most redirects of a sandbox that are remembered; the oldest go first.
const REMEMBERED: usize = 64;
/// Most targets of one response, each counted once.
const MOST_TARGETS: usize = 4;

/// A redirect that was passed on.
#[derive(Debug)]
struct Passed {
    host: Host,
    port: u16,
    id: AttemptId,
    when: Instant,
}

/// Redirects that were passed on, by sandbox.
#[derive(Debug, Default)]
pub(super) struct Redirects(Mutex<HashMap<Arc<str>, VecDeque<Passed>>>);

impl Redirects {
    /// The attempt whose response named this destination to this sandbox.
    pub(super) fn source_of(&self, intent: &Intent) -> Option<AttemptId> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let to = &intent.destination;
        let passed = map.get(&intent.client.sandbox)?.iter().rev();
        let mut same = passed.filter(|passed| passed.host == *to.host() && passed.port == to.port());
        same.next().filter(|passed| passed.when.elapsed() < FOLLOWED_WITHIN).map(|passed| passed.id)
    }

    fn remember(&self, sandbox: &Arc<str>, to: &Destination, id: AttemptId) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = map.entry(Arc::clone(sandbox)).or_default();
        // The last one to a place is who sent the client there: many to one place push out no other.
        passed.retain(|passed| passed.host != *to.host() || passed.port != to.port());
        if passed.len() >= REMEMBERED {
            passed.pop_front();
        }
        let (host, port) = (to.host().clone(), to.port());
        passed.push_back(Passed { host, port, id, when: Instant::now() });
    }

    pub(super) fn forget_old(&self) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.retain(|_, passed| passed.back().is_some_and(|last| last.when.elapsed() < FOLLOWED_WITHIN));
    }
}

/// A response names a destination that its sandbox may not reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the response redirects to a destination that is not allowed")]
pub struct RedirectDenied;

/// What the policy says of a redirect.
enum Said {
    Permitted,
    WouldDeny(Refusal),
    Denied(Refusal),
}

impl Egress {
    /// Decides the targets of a response to `intent`, without using up limits. All of it has the time of
    /// a response.
    ///
    /// # Errors
    /// One is not permitted, or not decided in time; that is recorded.
    pub(super) async fn check_redirects(
        &self,
        intent: &Intent,
        id: AttemptId,
        targets: &[Target],
    ) -> Result<(), RedirectDenied> {
        let until = tokio::time::Instant::now() + self.timeouts().response;
        for (number, target) in targets.iter().enumerate() {
            let said = match target {
                // Each may need a look-up; nobody follows that many.
                _ if number >= MOST_TARGETS => Said::Denied(Refusal::new(Reason::RedirectDenied)),
                Target::Place(to) => {
                    let judged = tokio::time::timeout_at(until, self.judge_redirect(intent, to)).await;
                    judged.unwrap_or_else(|_| Said::Denied(Refusal::new(Reason::RedirectDenied)))
                }
                Target::Foreign { host, port, .. } => self.judge_foreign(intent, host, *port),
            };
            match said {
                Said::Permitted => {}
                Said::WouldDeny(refusal) => {
                    self.record_redirect(intent, id, target, audit::Verdict::WouldDeny, &refusal);
                }
                Said::Denied(refusal) => {
                    self.record_redirect(intent, id, target, audit::Verdict::Deny, &refusal);
                    return Err(RedirectDenied);
                }
            }
        }
        // Only now: a client that gets a refusal is sent nowhere.
        for target in targets {
            if let Target::Place(to) = target {
                self.redirects.remember(&intent.client.sandbox, to, id);
            }
        }
        Ok(())
    }

    /// No rule can allow what no request can ask for. A policy that only observes holds that back, as
    /// far as nothing else is against its host.
    fn judge_foreign(&self, from: &Intent, host: &str, port: u16) -> Said {
        let refusal = Refusal::new(Reason::DomainNotAllowed);
        let policy = self.policy();
        if policy.effective(&from.client).is_none_or(|policy| policy.mode == Mode::Enforce) {
            return Said::Denied(refusal);
        }
        let Ok(host) = Host::parse(host.as_bytes()) else {
            return Said::WouldDeny(refusal);
        };
        let destination = Destination::new(Scheme::Tunnel, host, port);
        let intent =
            Intent { client: from.client.clone(), entry: from.entry, destination, action: Action::Place };
        match policy.decide(&intent) {
            Verdict::Allow(_) => Said::WouldDeny(refusal),
            Verdict::Deny(refusal) => Said::Denied(refusal),
        }
    }

    async fn judge_redirect(&self, from: &Intent, to: &Destination) -> Said {
        let action = match to.scheme() {
            Scheme::Http => Action::Place,
            Scheme::Tunnel => Action::Tunnel,
        };
        let intent =
            Intent { client: from.client.clone(), entry: from.entry, destination: to.clone(), action };
        let grant = match self.policy().decide(&intent) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(refusal) => return Said::Denied(refusal),
        };
        let Ok(answer) = self.look_up(&intent, &grant).await else {
            // The request that follows will fail by itself.
            return Said::Permitted;
        };
        let Resolution { addresses } = answer;
        match grant.pin(&Resolution { addresses }, crate::dial::is_local) {
            Ok(route) => route.would_deny.map_or(Said::Permitted, Said::WouldDeny),
            Err(refusal) => Said::Denied(refusal),
        }
    }

    fn record_redirect(
        &self,
        intent: &Intent,
        id: AttemptId,
        target: &Target,
        verdict: audit::Verdict,
        refusal: &Refusal,
    ) {
        let to = match target {
            Target::Place(to) => endpoint(to),
            Target::Foreign { scheme, host, port } => {
                Endpoint { scheme: Text::from(scheme.as_str()), host: Text::from(host.as_str()), port: *port }
            }
        };
        self.parts.audit.event(&Event::Redirect(Redirect {
            id,
            sandbox: Text::from(&intent.client.sandbox),
            from: endpoint(&intent.destination),
            to,
            verdict,
            reason: refusal.reason.code(),
            rule: refusal.rule.as_ref().map(Text::from),
            generation: self.policy.load().generation,
        }));
    }
}

fn endpoint(destination: &Destination) -> Endpoint {
    let scheme = match destination.scheme() {
        Scheme::Http => "http",
        Scheme::Tunnel => "https",
    };
    Endpoint {
        scheme: Text::from(scheme),
        host: super::refuse::host_text(destination.host()),
        port: destination.port(),
    }
}

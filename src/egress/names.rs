//! Questions for names: decided, limited, resolved and checked like everything else, and recorded
//! before their answers leave. Nothing is dialled for them, and no later dial trusts them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use egret_policy::{
    Action, Client, Destination, DnsName, Entry, Host, Intent, NameGrant, NameVerdict, Policy, Reason,
    Refusal, Resolution, Scheme, Verdict,
};

use super::open::accounts;
use super::refuse::{dns_reason, identify_record, verdict_word};
use super::{Egress, live};
use crate::audit::{self, Attempt, Text};
use crate::dns_message::{Answer, Asked, Code, Kind, Note, Received, Service};
use crate::limit::Exceeded;
use crate::resolve::{Answer as Found, ResolveError};

/// Least and most seconds for which clients may remember an answer. A short life makes a reload and
/// a moved name count soon; nothing that is dialled depends on it.
const TTL: (u64, u64) = (1, 60);

/// Where a service is that names no port (RFC 9460 section 9.1).
const HTTPS_PORT: u16 = 443;

/// Codes of extended errors (RFC 8914 section 4).
mod extended {
    pub(super) const OTHER: u16 = 0;
    pub(super) const NOT_READY: u16 = 14;
    pub(super) const BLOCKED: u16 = 15;
    pub(super) const PROHIBITED: u16 = 18;
    pub(super) const NOT_SUPPORTED: u16 = 21;
    pub(super) const NO_REACHABLE_AUTHORITY: u16 = 22;
    pub(super) const NETWORK_ERROR: u16 = 23;
}

/// What a question came to.
struct Decided {
    answer: Answer,
    /// Why it has no records, where that is not what DNS says.
    refusal: Option<Refusal>,
}

impl Egress {
    /// Who asks from this address: no question for a name carries credentials.
    ///
    /// # Errors
    /// As [`Egress::identify_connection`].
    pub fn identify_asker(&self, source: IpAddr) -> Result<Client, Refusal> {
        self.identify_connection(source, None)
    }

    /// Decides a question, and records it, unless it is one of many beyond the rate. The answer is what
    /// its client may know.
    pub async fn answer_name(&self, client: &Client, received: &Received, peer: SocketAddr) -> Answer {
        let policy = self.policy.load_full();
        let within =
            self.parts.limiter.ask(&accounts(&policy, client)).map_err(|exceeded| limited(&exceeded));
        if let Err(refusal) = &within
            && self.floods.count(&client.sandbox)
        {
            self.parts.metrics.decided("deny", refusal.reason);
            return Decided::refuse(refusal.clone()).answer;
        }
        let mut request = question_record(received, peer);
        identify_record(&mut request, client);
        let mut attempt = self.parts.audit.begin(request);
        let decided = match (within, &received.asked) {
            (Err(refusal), _) => {
                note_policy(&mut attempt, &policy, client);
                Decided::refuse(refusal)
            }
            (Ok(()), Ok(asked)) => self.decide_name(&mut attempt, client, asked).await,
            (Ok(()), Err(unfit)) => {
                let refusal = Refusal::new(Reason::BadRequest).with_detail(unfit.to_string());
                Decided::unfit(unfit.code(), refusal)
            }
        };
        self.record_name(attempt, decided).await
    }

    /// Records how many questions beyond their rates were counted: for a while, or all at the end.
    pub fn tell_floods(&self, all: bool) {
        for told in self.floods.tell(all) {
            self.parts.audit.event(&told);
        }
    }

    /// Records a question of a client that is not known. It learns nothing but that.
    pub async fn refuse_asker(&self, received: &Received, peer: SocketAddr, refusal: Refusal) -> Answer {
        let attempt = self.parts.audit.begin(question_record(received, peer));
        let answer = self.record_name(attempt, Decided::refuse(refusal)).await;
        Answer { note: None, ..answer }
    }

    /// Nothing leaves that is not recorded.
    async fn record_name(&self, mut attempt: Attempt, decided: Decided) -> Answer {
        let Decided { answer, refusal } = decided;
        let outcome = attempt.outcome_mut();
        outcome.status = Some(answer.code.number());
        if let Some(refusal) = refusal {
            outcome.reason = refusal.reason.code();
            outcome.detail = refusal.detail.as_deref().map(Text::from);
            if let Some(rule) = &refusal.rule {
                outcome.rule = Some(Text::from(rule));
            }
            self.parts.metrics.decided(verdict_word(outcome.verdict), refusal.reason);
        } else {
            self.parts.metrics.decided(verdict_word(outcome.verdict), Reason::Allowed);
        }
        match attempt.refuse().await {
            Ok(()) => answer,
            Err(error) => {
                let refusal = Refusal::new(Reason::AuditUnavailable).with_detail(error.to_string());
                Decided::refuse(refusal).answer
            }
        }
    }

    async fn decide_name(&self, attempt: &mut Attempt, client: &Client, asked: &Asked) -> Decided {
        if self.parts.signals.stopping() {
            return Decided::refuse(Refusal::new(Reason::ShuttingDown));
        }
        if self.parts.signals.audit_failed() {
            return Decided::refuse(Refusal::new(Reason::AuditUnavailable));
        }
        let grant = match self.grant_name(attempt, client, &asked.name, true) {
            Ok(grant) => grant,
            Err(refusal) => return Decided::refuse(refusal),
        };
        let started = Instant::now();
        let looked_up = self.look_up_name(client, &grant, asked.kind).await;
        self.parts.metrics.dns_seconds.observe(started.elapsed().as_secs_f64());
        attempt.outcome_mut().dns = Some(started.elapsed());
        let (found, services) = match looked_up {
            Ok(found) => found,
            Err(error) => return Decided::unresolved(&error),
        };
        let unsaid = found.unsaid.clone();
        let resolution = Resolution::from(found);
        attempt.outcome_mut().addresses = Some(resolution.addresses.iter().copied().collect());
        let life = self.parts.resolver.life(grant.lookup()).as_secs().clamp(TTL.0, TTL.1);
        let ttl = u32::try_from(life).unwrap_or(1);
        // A policy may have come into force while DNS took its time.
        let grant = match self.grant_name(attempt, client, &asked.name, false) {
            Ok(grant) => grant,
            Err(refusal) => return Decided::refuse(refusal),
        };
        match grant.pin(&resolution, crate::dial::is_local) {
            Ok(found) => {
                let outcome = attempt.outcome_mut();
                outcome.reason = Reason::Allowed.code();
                outcome.rule = found.route.rule.as_ref().map(Text::from);
                if let Some(held_back) = &found.route.would_deny {
                    outcome.verdict = audit::Verdict::WouldDeny;
                    outcome.reason = held_back.reason.code();
                    outcome.rule = held_back.rule.as_ref().map(Text::from);
                }
                let pinned: Vec<IpAddr> = found.addresses().collect();
                let services = self.permitted(client, &asked.name, &pinned, &services);
                let addresses = pinned.into_iter().filter(|address| match asked.kind {
                    Kind::A => address.is_ipv4(),
                    Kind::Aaaa => address.is_ipv6(),
                    Kind::Https => false,
                });
                let addresses: Vec<IpAddr> = addresses.collect();
                // That there are none is not known where the servers failed at this family.
                if let (true, Kind::A | Kind::Aaaa, Some(error)) = (addresses.is_empty(), asked.kind, &unsaid)
                {
                    return Decided::unresolved(error);
                }
                let answer = Answer { addresses, services, ttl, ..Answer::empty(Code::NoError, None) };
                Decided { answer, refusal: None }
            }
            Err(refusal) => {
                attempt.outcome_mut().verdict = audit::Verdict::Deny;
                Decided::refuse(refusal)
            }
        }
    }

    /// Decides by rules, by the policy in force. `counted` if limits count the name.
    fn grant_name(
        &self,
        attempt: &mut Attempt,
        client: &Client,
        name: &DnsName,
        counted: bool,
    ) -> Result<Box<NameGrant>, Refusal> {
        let (policy, registered) = (self.policy.load_full(), self.registered());
        note_policy(attempt, &policy, client);
        if live::still_identified(&policy, &registered.registered, client).is_none() {
            let refusal = Refusal::new(Reason::IdentityRejected);
            return Err(refusal.with_detail("the identity no longer holds"));
        }
        let grant = match policy.decide_name(client, name) {
            NameVerdict::Allow(grant) => grant,
            NameVerdict::Deny(refusal) => return Err(refusal),
        };
        if counted {
            let accounts = accounts(&policy, client);
            let count = self.parts.limiter.count_name(&accounts, name, !grant.is_named());
            count.map_err(|exceeded| limited(&exceeded))?;
        }
        let outcome = attempt.outcome_mut();
        outcome.verdict = audit::Verdict::Allow;
        if let Some(held_back) = grant.would_deny() {
            outcome.verdict = audit::Verdict::WouldDeny;
            outcome.rule = held_back.rule.as_ref().map(Text::from);
        }
        Ok(grant)
    }

    /// Looks a granted name up; for HTTPS records its addresses too, by which the name is judged.
    async fn look_up_name(
        &self,
        client: &Client,
        grant: &NameGrant,
        kind: Kind,
    ) -> Result<(Found, Arc<[Service]>), ResolveError> {
        let resolver = &self.parts.resolver;
        if let (Some(known), Kind::A | Kind::Aaaa) = (resolver.known(grant.lookup()), kind) {
            return Ok((known?, Arc::default()));
        }
        let Some(_turn) = self.turns.take(&client.sandbox, resolver.timeout()).await else {
            return Err(ResolveError::Timeout);
        };
        let found = resolver.resolve(grant.lookup()).await?;
        let services = match kind {
            Kind::A | Kind::Aaaa => Arc::default(),
            Kind::Https => resolver.resolve_services(grant.lookup()).await?,
        };
        Ok((found, services))
    }

    /// The services whose port may be reached, with those hints alone that are checked addresses.
    fn permitted(
        &self,
        client: &Client,
        name: &DnsName,
        pinned: &[IpAddr],
        services: &[Service],
    ) -> Vec<Service> {
        let policy = self.policy.load_full();
        let checked = |address: IpAddr| pinned.contains(&address);
        let mut out = Vec::new();
        for service in services {
            if !may_reach(&policy, client, name, service.port.unwrap_or(HTTPS_PORT), pinned) {
                continue;
            }
            let mut service = service.clone();
            if !service.ipv4.iter().all(|address| checked((*address).into())) {
                service.ipv4.clear();
            }
            if !service.ipv6.iter().all(|address| checked((*address).into())) {
                service.ipv6.clear();
            }
            // A hint that every client has to understand can't be taken out.
            let lacks =
                |key: &u16| *key == 4 && service.ipv4.is_empty() || *key == 6 && service.ipv6.is_empty();
            if !service.mandatory.iter().any(lacks) {
                out.push(service);
            }
        }
        out
    }
}

impl Decided {
    fn refuse(refusal: Refusal) -> Self {
        let (code, extended) = told(refusal.reason);
        let note = Note { code: extended, text: refusal.reason.code() };
        Self { answer: Answer::empty(code, Some(note)), refusal: Some(refusal) }
    }

    fn unfit(code: Code, refusal: Refusal) -> Self {
        let note = Note { code: extended::NOT_SUPPORTED, text: refusal.reason.code() };
        Self { answer: Answer::empty(code, Some(note)), refusal: Some(refusal) }
    }

    /// Nothing that DNS says of an allowed name is a refusal of ours.
    fn unresolved(error: &ResolveError) -> Self {
        let refusal = Refusal::new(dns_reason(error)).with_detail(error.to_string());
        match error {
            ResolveError::NotFound { nxdomain } => {
                let code = if *nxdomain { Code::NxDomain } else { Code::NoError };
                Self { answer: Answer::empty(code, None), refusal: Some(refusal) }
            }
            ResolveError::Failed(_) | ResolveError::Timeout => Self::refuse(refusal),
        }
    }
}

/// By what a question is refused, unless it is granted.
fn note_policy(attempt: &mut Attempt, policy: &Policy, client: &Client) {
    let outcome = attempt.outcome_mut();
    outcome.verdict = audit::Verdict::Deny;
    outcome.generation = Some(policy.generation);
    outcome.policy = Some(Text::from(&client.policy));
}

fn limited(exceeded: &Exceeded) -> Refusal {
    Refusal::new(exceeded.reason).with_detail(format!("limit: {}", exceeded.limit))
}

/// How a refusal is told: its code and its extended error.
const fn told(reason: Reason) -> (Code, u16) {
    match reason {
        Reason::DomainDenied
        | Reason::DomainNotAllowed
        | Reason::PortNotAllowed
        | Reason::MethodNotAllowed
        | Reason::PathNotAllowed
        | Reason::AddressForbidden
        | Reason::AddressNotAllowed
        | Reason::MixedAnswer => (Code::Refused, extended::BLOCKED),
        Reason::IdentityRequired
        | Reason::IdentityRejected
        | Reason::RateLimited
        | Reason::QuotaExceeded
        | Reason::TooManyConnections => (Code::Refused, extended::PROHIBITED),
        Reason::DnsTimeout => (Code::ServFail, extended::NO_REACHABLE_AUTHORITY),
        Reason::DnsFailed => (Code::ServFail, extended::NETWORK_ERROR),
        Reason::ShuttingDown => (Code::ServFail, extended::NOT_READY),
        // Also for what no question for a name comes to: fail closed.
        _ => (Code::ServFail, extended::OTHER),
    }
}

/// May the client reach this port of a name with these addresses?
fn may_reach(policy: &Arc<Policy>, client: &Client, name: &DnsName, port: u16, pinned: &[IpAddr]) -> bool {
    let destination = Destination::new(Scheme::Tunnel, Host::Name(name.clone()), port);
    let intent = Intent { client: client.clone(), entry: Entry::Dns, destination, action: Action::Place };
    let answer = Resolution { addresses: pinned.to_vec() };
    match policy.decide(&intent) {
        Verdict::Allow(grant) => port != 0 && grant.pin(&answer, crate::dial::is_local).is_ok(),
        Verdict::Deny(_) => false,
    }
}

fn question_record(received: &Received, peer: SocketAddr) -> audit::Request {
    let host = match &received.asked {
        Ok(asked) => Some(Text::from(asked.name.as_str())),
        Err(_) => received.shown.as_ref().map(Text::new),
    };
    audit::Request {
        client: Some(peer),
        protocol: Some(audit::Protocol::Dns),
        host,
        qtype: received.kind.as_deref().map(Text::from),
        ..audit::Request::default()
    }
}

//! Numbers for Prometheus. Labels come from closed sets, so that no client can make new series.

use std::sync::atomic::{AtomicU64, Ordering};

use egret_policy::Reason;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::relay::Counters;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    verdict: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Way {
    direction: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    decisions: Family<Decision, Counter>,
    bytes: Family<Way, Counter>,
    reloads: Family<Outcome, Counter>,
    parents: Family<Outcome, Counter>,
    refused_connections: Counter,
    dropped_questions: Counter,
    connections: Gauge,
    tunnels: Gauge,
    generation: Gauge<u64, AtomicU64>,
    audit_healthy: Gauge,
    audit_records: Gauge<u64, AtomicU64>,
    audit_dropped: Gauge<u64, AtomicU64>,
    ledger_rows: Gauge<u64, AtomicU64>,
    ledger_lag: Gauge<u64, AtomicU64>,
    limits_kept: Gauge,
    registered: Gauge<u64, AtomicU64>,
    /// Time that look-ups take.
    pub dns_seconds: Histogram,
}

/// Counts something as open until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it counts the thing as closed"]
pub struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("egret");
        let decisions = Family::default();
        registry.register("decisions", "Requests by verdict and reason", decisions.clone());
        let bytes = Family::default();
        registry.register_with_unit("payload", "Payload relayed", Unit::Bytes, bytes.clone());
        let reloads = Family::default();
        registry.register("reloads", "Reloads of the configuration by result", reloads.clone());
        let parents = Family::default();
        let help = "Tunnels that a parent proxy was asked for, by what came of it";
        registry.register("parent_tunnels", help, parents.clone());
        let refused_connections = Counter::default();
        let help = "Client connections refused at the ceiling";
        registry.register("connections_refused", help, refused_connections.clone());
        let dropped_questions = Counter::default();
        let help = "Questions for names that were not answered, for want of room or of a known client";
        registry.register("dns_dropped", help, dropped_questions.clone());
        let connections = Gauge::default();
        registry.register("connections_open", "Client connections", connections.clone());
        let tunnels = Gauge::default();
        registry.register("tunnels_open", "Tunnels that carry bytes", tunnels.clone());
        let generation = Gauge::default();
        registry.register("policy_generation", "Generation of the policy in force", generation.clone());
        let audit_healthy = Gauge::default();
        registry.register("audit_healthy", "1 while the audit can be written", audit_healthy.clone());
        let audit_records = Gauge::default();
        registry.register("audit_records", "Records written since the start", audit_records.clone());
        let audit_dropped = Gauge::default();
        registry.register("audit_dropped", "Records that had to be given up", audit_dropped.clone());
        let ledger_rows = Gauge::default();
        registry.register("ledger_rows", "Destinations in the ledger", ledger_rows.clone());
        let ledger_lag = Gauge::default();
        let help = "Audit records that the ledger has not folded yet";
        registry.register("ledger_lag_records", help, ledger_lag.clone());
        let limits_kept = Gauge::default();
        let help = "1 while a restart finds what sandboxes have used of their limits";
        registry.register("limits_kept", help, limits_kept.clone());
        let registered = Gauge::default();
        let help = "Sandboxes that are registered through the control interface";
        registry.register("sandboxes_registered", help, registered.clone());
        let dns_seconds = Histogram::new([0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 5.0]);
        registry.register_with_unit("dns", "Time that look-ups take", Unit::Seconds, dns_seconds.clone());
        Self {
            registry,
            decisions,
            bytes,
            reloads,
            parents,
            refused_connections,
            dropped_questions,
            connections,
            tunnels,
            generation,
            audit_healthy,
            audit_records,
            audit_dropped,
            ledger_rows,
            ledger_lag,
            limits_kept,
            registered,
            dns_seconds,
        }
    }
}

impl Metrics {
    /// A request was decided.
    pub fn decided(&self, verdict: &'static str, reason: Reason) {
        self.decisions.get_or_create(&Decision { verdict, reason: reason.code() }).inc();
    }

    /// A tunnel or exchange ended after moving these bytes.
    pub fn moved(&self, counters: &Counters) {
        for (direction, count) in [("up", &counters.up), ("down", &counters.down)] {
            self.bytes.get_or_create(&Way { direction }).inc_by(count.load(Ordering::Relaxed));
        }
    }

    /// A reload ended; `generation` is in force now.
    pub fn reloaded(&self, ok: bool, generation: u64) {
        let result = if ok { "ok" } else { "error" };
        self.reloads.get_or_create(&Outcome { result }).inc();
        self.generation.set(generation);
    }

    /// The policy at the start.
    pub fn started(&self, generation: u64) {
        self.generation.set(generation);
    }

    /// The size of the ledger, and the records that it lags behind.
    pub fn ledger(&self, rows: u64, lag: u64) {
        self.ledger_rows.set(rows);
        self.ledger_lag.set(lag);
    }

    /// How many sandboxes are registered.
    pub fn registered(&self, count: usize) {
        self.registered.set(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// Are counts against limits on the disk?
    pub fn limits(&self, kept: bool) {
        self.limits_kept.set(i64::from(kept));
    }

    /// A parent proxy was asked for a tunnel: `ok`, or the code of a reason.
    pub fn parent_asked(&self, result: &'static str) {
        self.parents.get_or_create(&Outcome { result }).inc();
    }

    /// A client connection was turned away at the ceiling.
    pub fn connection_refused(&self) {
        self.refused_connections.inc();
    }

    /// A question for a name was left without an answer.
    pub fn question_dropped(&self) {
        self.dropped_questions.inc();
    }

    /// A client connection.
    pub fn connection_open(&self) -> Open {
        self.connections.inc();
        Open(self.connections.clone())
    }

    /// A tunnel.
    pub fn tunnel_open(&self) -> Open {
        self.tunnels.inc();
        Open(self.tunnels.clone())
    }

    /// Everything in the text format of OpenMetrics.
    #[must_use]
    pub fn render(&self, audit: &crate::audit::Audit) -> String {
        self.audit_healthy.set(i64::from(audit.healthy()));
        self.audit_records.set(audit.counters().records.get());
        self.audit_dropped.set(audit.counters().dropped.get());
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut out, &self.registry);
        out
    }
}

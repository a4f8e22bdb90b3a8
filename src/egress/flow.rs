//! Permitted bytes under way: what they may do, and the record of their end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use egret_policy::{Reason, Route};

use super::Egress;
use crate::audit::{Closing, Flow, Text};
use crate::relay::{self, Counters, End};

/// How long one side of a tunnel may be silent after the other has ended.
const HALF_CLOSED: Duration = Duration::from_secs(60);

/// Why what was permitted has to end.
#[derive(Debug)]
pub(super) struct Cause {
    pub(super) reason: Reason,
    pub(super) detail: Option<String>,
}

impl From<Reason> for Cause {
    fn from(reason: Reason) -> Self {
        Self { reason, detail: None }
    }
}

/// Records the end of relayed bytes, with what had passed, even if the task is dropped.
pub(super) struct FlowWatch {
    pub(super) flow: Option<Flow>,
    pub(super) counters: Arc<Counters>,
    pub(super) egress: Arc<Egress>,
}

impl FlowWatch {
    pub(super) fn new(flow: Flow, egress: Arc<Egress>) -> Self {
        Self { flow: Some(flow), counters: Arc::default(), egress }
    }

    /// The relay is over.
    pub(super) fn end(mut self, end: End<impl Into<Cause>>, status: Option<u16>) {
        let (reason, error) = match end {
            End::Finished => (Reason::Allowed, None),
            End::ClientError(error) => (Reason::ClientCancel, Some(error.to_string())),
            End::UpstreamError(error) => (Reason::UpstreamClosed, Some(error.to_string())),
            End::Idle => (Reason::IdleTimeout, None),
            End::HalfClosed => (Reason::IdleTimeout, Some("half-closed without progress".to_owned())),
            End::Lifetime => (Reason::LifetimeExceeded, None),
            End::Exhausted => (Reason::QuotaExceeded, None),
            End::Stopped(cause) | End::Refused(cause) => {
                let Cause { reason, detail } = cause.into();
                (reason, detail)
            }
        };
        self.record(reason, error, status);
    }

    /// Records the end, once.
    pub(super) fn record(&mut self, reason: Reason, error: Option<String>, status: Option<u16>) {
        if let Some(flow) = self.flow.take() {
            self.egress.parts.metrics.moved(&self.counters);
            close(flow, &self.counters, reason, error, status);
        }
    }
}

impl Drop for FlowWatch {
    fn drop(&mut self) {
        let stopping = self.egress.stopping();
        let reason = if stopping { Reason::ShuttingDown } else { Reason::ClientCancel };
        self.record(reason, None, None);
    }
}

fn close(flow: Flow, counters: &Counters, reason: Reason, error: Option<String>, status: Option<u16>) {
    flow.close(Closing {
        bytes_up: counters.up.load(Ordering::Relaxed),
        bytes_down: counters.down.load(Ordering::Relaxed),
        status,
        reason: reason.code(),
        error: error.map(Text::from),
    });
}

/// The time limits of a route, for the relay.
pub(super) fn relay_limits(route: &Route) -> relay::Limits {
    relay::Limits {
        idle: route.limits.tunnel_idle,
        lifetime: route.limits.tunnel_lifetime,
        half_closed: HALF_CLOSED,
    }
}

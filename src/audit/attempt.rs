//! The life of one attempt in the audit file: one `decision`, then one `close` if it let traffic
//! begin, whatever becomes of the task that owns it.
//!
//! | the owner | records |
//! |---|---|
//! | calls [`Attempt::refuse`] | `decision` |
//! | calls [`Attempt::permit`], then [`Flow::close`] or drops the flow | `decision`, `close` |
//! | drops the attempt, or the future of `permit` before the writer took the record | `decision` with `client_cancel` |
//! | drops the future of `permit` after that | `decision`, `close` with `client_cancel` |
//! | drops the future of `refuse` | `decision` |
//!
//! A name that does not resolve or an origin that refuses the connection is a refusal in this
//! sense: no traffic began, `verdict` stays `allow`, `status` tells what the client got.

use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::line::Line;
use super::queue::{Closed, Lost};
use super::record::{CLIENT_CANCEL, CloseRecord, DecisionRecord};
use super::ticket::{Settled, Ticket};
use super::{
    AttemptId, AuditUnavailable, Closing, OnFailure, Outcome, Protocol, Request, Shared, Timestamp, Verdict,
};

/// The reason of traffic that a late failure of the audit ended.
const AUDIT_UNAVAILABLE: &str = "audit_unavailable";

#[derive(Clone, Debug)]
struct Core {
    shared: Arc<Shared>,
    id: AttemptId,
    began: Instant,
}

/// A question that was asked and is not decided yet.
#[derive(Debug)]
#[must_use = "dropping an attempt records it as cancelled by the client"]
pub struct Attempt {
    core: Core,
    request: Request,
    outcome: Outcome,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Undecided,
    /// The record is on its way; `permits` if traffic begins once it is written.
    Sent {
        ticket: Arc<Ticket>,
        permits: bool,
    },
    Done,
}

impl Attempt {
    pub(super) fn new(shared: Arc<Shared>, request: Request) -> Self {
        let core = Core { id: shared.ids.next(), shared, began: Instant::now() };
        Self { core, request, outcome: Outcome::default(), stage: Stage::Undecided }
    }

    /// The audit ID, which refusals carry as `X-Egret-Request`.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.core.id
    }

    /// The verdict so far.
    #[must_use]
    pub fn verdict(&self) -> super::Verdict {
        self.outcome.verdict
    }

    /// Does whoever asked get a status of HTTP for an answer? Of what is diverted, only a request.
    #[must_use]
    pub fn is_answered_by_status(&self) -> bool {
        match self.request.protocol {
            None | Some(Protocol::Connect | Protocol::Http) => true,
            Some(Protocol::Transparent) => self.request.method.is_some(),
            Some(Protocol::Socks5 | Protocol::Dns) => false,
        }
    }

    /// What is known of the request.
    #[must_use]
    pub const fn request(&self) -> &Request {
        &self.request
    }

    /// What is known of the request; may be completed until the decision.
    pub fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    /// What has become of it so far: rule, addresses and so on, as soon as they are known, so
    /// that an attempt which is dropped half-way tells how far it got.
    pub fn outcome_mut(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Records that no traffic begins. Returns once the record is written.
    ///
    /// # Errors
    /// The record could not be written; the answer to the client stays a refusal.
    pub async fn refuse(mut self) -> Result<(), AuditUnavailable> {
        self.record(false).await
    }

    /// Records that traffic begins. Returns once the record is written; before that no byte may
    /// go to the origin.
    ///
    /// # Errors
    /// The record could not be written: traffic must not begin. Never happens with
    /// [`OnFailure::Allow`] before the shutdown. An attempt whose verdict is `deny` can't be
    /// permitted.
    pub async fn permit(mut self) -> Result<Flow, AuditUnavailable> {
        if self.outcome.verdict == Verdict::Deny {
            return Err(AuditUnavailable::Denied);
        }
        self.record(true).await?;
        Ok(Flow { core: self.core.clone(), closing: Closing::default() })
    }

    async fn record(&mut self, permits: bool) -> Result<(), AuditUnavailable> {
        let shared = Arc::clone(&self.core.shared);
        let line = self.encode()?;
        let ticket = Arc::new(Ticket::default());
        let stage = &mut self.stage;
        let written = async {
            let lead = shared.queue.push_awaited(line, Arc::clone(&ticket)).await?;
            *stage = Stage::Sent { ticket: Arc::clone(&ticket), permits };
            if let Some(lead) = lead {
                shared.write(lead).await;
            }
            Ok::<_, Closed>(ticket.settled().await)
        };
        let result = match tokio::time::timeout(shared.patience(), written).await {
            Ok(Ok(Settled::Recorded)) => Ok(()),
            Ok(Ok(Settled::Lost)) => Err(AuditUnavailable::NotWritten),
            Ok(Err(Closed)) => Err(AuditUnavailable::Stopped),
            Err(_) => self.give_up(),
        };
        self.stage = Stage::Done;
        result
    }

    /// The writer did not answer in time: it hangs in a system call, or far too much is queued.
    fn give_up(&mut self) -> Result<(), AuditUnavailable> {
        let shared = &self.core.shared;
        shared.stalled();
        match (mem::replace(&mut self.stage, Stage::Done), shared.on_failure) {
            (Stage::Sent { .. }, OnFailure::Allow) => return Ok(()),
            (_, OnFailure::Allow) => {
                shared.queue.lose(Lost::one_record());
                return Ok(());
            }
            // It may still get into the file, as permitted; then the file must tell the end too.
            (Stage::Sent { ticket, permits }, OnFailure::Deny) if !ticket.abandon() => {
                if permits {
                    let closing = Closing { reason: AUDIT_UNAVAILABLE, ..Closing::default() };
                    self.core.close(&closing, Some(ticket));
                }
            }
            (_, OnFailure::Deny) => shared.queue.lose(Lost::one_refused()),
        }
        Err(AuditUnavailable::TimedOut)
    }

    fn encode(&self) -> Result<Line, AuditUnavailable> {
        Ok(Line::encode(&DecisionRecord {
            ts: Timestamp::now(),
            event: "decision",
            id: self.core.id,
            request: &self.request,
            outcome: &self.outcome,
        })?)
    }

    fn record_cancelled(&mut self) {
        self.outcome.reason = CLIENT_CANCEL;
        self.outcome.status = None;
        self.record_unawaited();
    }

    fn record_unawaited(&self) {
        match self.encode() {
            Ok(line) => self.core.shared.queue.push_kept(line, None),
            Err(_) => self.core.shared.queue.lose(Lost::one_record()),
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        match mem::replace(&mut self.stage, Stage::Done) {
            Stage::Undecided => self.record_cancelled(),
            Stage::Sent { ticket, permits } if ticket.abandon() => {
                if permits {
                    self.record_cancelled()
                } else {
                    self.record_unawaited()
                }
            }
            Stage::Sent { ticket, permits: true } => self.core.close(&Closing::default(), Some(ticket)),
            Stage::Sent { permits: false, .. } | Stage::Done => {}
        }
    }
}

/// Permitted traffic, whose end is owed to the audit file.
#[derive(Debug)]
#[must_use = "dropping a flow records its end"]
pub struct Flow {
    core: Core,
    closing: Closing,
}

impl Flow {
    /// The audit ID.
    #[must_use]
    pub fn id(&self) -> AttemptId {
        self.core.id
    }

    /// Time since the attempt began.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.core.began.elapsed()
    }

    /// What the record will say if the flow is dropped; `client_cancel` unless changed.
    pub fn closing_mut(&mut self) -> &mut Closing {
        &mut self.closing
    }

    /// Records the end. Does not wait: the record is kept until it can be written.
    pub fn close(mut self, closing: Closing) {
        self.closing = closing;
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.core.close(&self.closing, None);
    }
}

impl Core {
    fn close(&self, closing: &Closing, after: Option<Arc<Ticket>>) {
        let record = CloseRecord {
            ts: Timestamp::now(),
            event: "close",
            id: self.id,
            duration: Some(self.began.elapsed()),
            closing,
        };
        match Line::encode(&record) {
            Ok(line) => self.shared.queue.push_kept(line, after),
            Err(_) => self.shared.queue.lose(Lost::one_record()),
        }
    }
}

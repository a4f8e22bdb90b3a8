//! The control interface: health, readiness, metrics, reload, revocations, registered sandboxes, and
//! what the ledger knows. On a listener of its own.
//!
//! Never dials and never reads what sandboxes send.

mod events;
mod ledger;
mod problem;
mod sandboxes;
mod tokens;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;

use crate::audit::Audit;
use crate::egress::{Egress, Signals};
use crate::ledger::Ledger;
use crate::reload::Reloader;

/// Most connections at once.
const MOST_CONNECTIONS: usize = 32;
/// How long a client may take for a request head, also on an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take none of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest request head in octets.
const MAX_HEAD: usize = 16 * 1024;
/// Longest request body in octets.
const MAX_BODY: usize = 64 * 1024;
/// How long to wait when a connection can't be accepted.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// How long the answer of the DNS servers to a readiness question is believed.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// What the control interface can ask and tell.
pub struct Control {
    /// For metrics and DNS.
    pub egress: Arc<Egress>,
    /// Its health.
    pub audit: Audit,
    /// What each sandbox touched.
    pub ledger: Ledger,
    /// Reloads on request.
    pub reloader: Arc<Reloader>,
    /// Is the process stopping?
    pub signals: Signals,
    /// Who may use the interface; `None` where only this machine reaches it.
    pub token: Option<String>,
}

#[derive(Debug, Serialize)]
struct Ready {
    ready: bool,
    policy_generation: u64,
    audit: bool,
    dns: bool,
    stopping: bool,
}

impl Control {
    /// Serves until the future that `stopping` is ends.
    pub async fn serve(self, listener: TcpListener, stopping: impl Future<Output = ()> + Send) {
        let control = Arc::new(self);
        let guarded = Router::new()
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/v1/reload", post(reload))
            .route("/v1/tokens/revoke", post(tokens::revoke))
            .merge(ledger::routes())
            .merge(sandboxes::routes())
            .layer(middleware::from_fn_with_state(Arc::clone(&control), authorise));
        let app = Router::new()
            .route("/healthz", get(healthz))
            .merge(guarded)
            .layer(DefaultBodyLimit::max(MAX_BODY))
            .layer(middleware::map_response(problem::told_as_one))
            .with_state(control);
        let service = TowerToHyperService::new(app);
        let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        let mut stopping = std::pin::pin!(stopping);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stopping => return,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            // Beyond the bound, the connection is just closed: a sandbox may reach this port.
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else { continue };
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEAD);
            let mut stream = TimeoutStream::new(stream);
            stream.set_write_timeout(Some(WRITE_TIMEOUT));
            let connection = http.serve_connection(TokioIo::new(Box::pin(stream)), service.clone());
            tokio::spawn(async move {
                // Whatever goes wrong there is the client's affair.
                let _ = connection.await;
                drop(slot);
            });
        }
    }
}

/// Lets only holders of the token through, where there is one.
async fn authorise(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    let Some(token) = &control.token else {
        if is_addressed_directly(&request) {
            return next.run(request).await;
        }
        let message = "name the control interface by its address, or by localhost\n";
        return (StatusCode::MISDIRECTED_REQUEST, message).into_response();
    };
    let given = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.split_at_checked(b"Bearer ".len()));
    // A scheme is written in any case (RFC 9110 section 11.1).
    let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    let given = given.map(|(_, token)| token).unwrap_or_default();
    if aws_lc_rs::constant_time::verify_slices_are_equal(given, token.as_bytes()).is_ok() {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "the control interface needs its token\n").into_response()
}

/// Without a token, a page in a browser on this machine must not get through by a name of its own
/// that resolves to loopback.
fn is_addressed_directly(request: &Request) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.contains(']')).map_or(host, |(name, _)| name);
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(control): State<Arc<Control>>) -> Response {
    let ready = Ready {
        ready: false,
        policy_generation: control.egress.policy().generation,
        audit: control.audit.healthy(),
        dns: control.egress.dns_answers(PROBE_EVERY).await,
        stopping: control.signals.stopping(),
    };
    let ready = Ready { ready: ready.audit && ready.dns && !ready.stopping, ..ready };
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ready)).into_response()
}

async fn metrics(State(control): State<Arc<Control>>) -> Response {
    let numbers = control.ledger.numbers();
    control.egress.metrics().ledger(numbers.rows, numbers.lag);
    control.egress.metrics().limits(control.egress.limits_are_kept());
    control.egress.metrics().registered(control.egress.registered().registered.len());
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], control.egress.metrics().render(&control.audit)).into_response()
}

async fn reload(State(control): State<Arc<Control>>) -> Response {
    let report = control.reloader.reload().await;
    let status = if report.ok { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(report)).into_response()
}

//! The control interface: health, readiness, metrics, reload, revocations. On a listener of its own.
//!
//! Never dials and never reads what sandboxes send.

mod tokens;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use serde::Serialize;
use tokio::net::TcpListener;

use crate::audit::Audit;
use crate::egress::{Egress, Signals};
use crate::reload::Reloader;

/// How long the answer of the DNS servers to a readiness question is believed.
const PROBE_EVERY: Duration = Duration::from_secs(5);

/// What the control interface can ask and tell.
pub struct Control {
    /// For metrics and DNS.
    pub egress: Arc<Egress>,
    /// Its health.
    pub audit: Audit,
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
    ///
    /// # Errors
    /// The listener failed.
    pub async fn serve(
        self,
        listener: TcpListener,
        stopping: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        let control = Arc::new(self);
        let guarded = Router::new()
            .route("/readyz", get(readyz))
            .route("/metrics", get(metrics))
            .route("/v1/reload", post(reload))
            .route("/v1/tokens/revoke", post(tokens::revoke))
            .layer(middleware::from_fn_with_state(Arc::clone(&control), authorise));
        let app = Router::new().route("/healthz", get(healthz)).merge(guarded).with_state(control);
        axum::serve(listener, app).with_graceful_shutdown(stopping).await
    }
}

/// Lets only holders of the token through, where there is one.
async fn authorise(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    let Some(token) = &control.token else {
        return next.run(request).await;
    };
    let given = request.headers().get(header::AUTHORIZATION).map(|value| value.as_bytes());
    let given = given.and_then(|value| value.strip_prefix(b"Bearer ")).unwrap_or_default();
    if aws_lc_rs::constant_time::verify_slices_are_equal(given, token.as_bytes()).is_ok() {
        return next.run(request).await;
    }
    let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
    (StatusCode::UNAUTHORIZED, challenge, "the control interface needs its token\n").into_response()
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
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], control.egress.metrics().render(&control.audit)).into_response()
}

async fn reload(State(control): State<Arc<Control>>) -> Response {
    let report = control.reloader.reload().await;
    let status = if report.ok { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
    (status, Json(report)).into_response()
}

//! What the ledger knows, for people and scripts. Reads only.

use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use egret_policy::Reason;
use serde::Serialize;

use super::Control;
use super::events::EventStream;
use super::problem::{Problem, parameters};
use crate::ledger::{DomainRow, Filter, LedgerError, RECENT_DECISIONS, read_since};

const VERDICTS: [&str; 3] = ["allow", "deny", "would_deny"];
/// Decisions that are told unless more are asked for.
const DEFAULT_LIMIT: usize = 100;

#[derive(Serialize)]
struct Domains {
    sandbox: String,
    domains: Vec<DomainRow>,
}

/// The routes under `/v1` that the ledger answers.
pub(super) fn routes() -> Router<Arc<Control>> {
    Router::new()
        .route("/v1/sandboxes/{id}/domains", only_get(get(domains)))
        .route("/v1/decisions", only_get(get(decisions)))
        .route("/v1/events", only_get(get(events)))
}

pub(super) fn only_get(route: MethodRouter<Arc<Control>>) -> MethodRouter<Arc<Control>> {
    route.fallback(|| async {
        let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this resource is only read: use GET");
        ([(header::ALLOW, "GET, HEAD")], problem).into_response()
    })
}

async fn domains(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let [since] = parameters(query.as_deref(), ["since"])?;
    let since = since.as_deref().map(since_value).transpose()?;
    control.ledger.settle().await;
    let (ledger, sandbox) = (control.ledger.clone(), id.clone());
    let found = blocking(move || ledger.domains(&sandbox)).await?;
    let mut domains = match found {
        Some(domains) => domains,
        None if is_known(&control, &id) => Vec::new(),
        None => return Err(unknown_sandbox(&id)),
    };
    if let Some(since) = since {
        domains.retain(|row| row.counts.last_seen >= since);
    }
    Ok(Json(Domains { sandbox: id, domains }).into_response())
}

async fn decisions(
    State(control): State<Arc<Control>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let known = ["sandbox", "verdict", "reason", "host", "since", "limit"];
    let [sandbox, verdict, reason, host, since, limit] = parameters(query.as_deref(), known)?;
    let verdict = verdict.map(|word| closed("verdict", word, VERDICTS)).transpose()?;
    let reasons = Reason::ALL.iter().map(|reason| reason.code());
    let reason = reason.map(|code| closed("reason", code, reasons)).transpose()?;
    let since = since.as_deref().map(since_value).transpose()?;
    let limit = limit.as_deref().map_or(Ok(DEFAULT_LIMIT), limit_value)?;
    control.ledger.settle().await;
    if let Some(id) = &sandbox
        && !is_known(&control, id)
    {
        let (ledger, id) = (control.ledger.clone(), id.clone());
        let seen = blocking(move || Ok(ledger.domains(&id)?.is_some())).await?;
        if !seen {
            return Err(unknown_sandbox(sandbox.as_deref().unwrap_or_default()));
        }
    }
    let filter = Filter { sandbox, verdict, reason, host, since, limit };
    // The records are JSON already.
    let body = format!("{{\"decisions\":[{}]}}", control.ledger.decisions(&filter).join(","));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

async fn events(State(control): State<Arc<Control>>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let [] = parameters(query.as_deref(), [])?;
    let Some(listener) = control.ledger.listen() else {
        let detail = "too many listen already, or the process is stopping; try again later";
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail));
    };
    let head = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((head, axum::body::Body::new(EventStream::new(listener))).into_response())
}

/// The IDs that the configuration writes out; those with `{ip}` exist once they are seen.
pub(super) fn configured(control: &Control) -> Vec<String> {
    control.egress.policy().sandboxes.ids().filter(|id| !id.contains('{')).collect()
}

/// Is it configured or registered, seen or not?
fn is_known(control: &Control, id: &str) -> bool {
    configured(control).iter().any(|known| known == id) || control.egress.registered().get(id).is_some()
}

pub(super) fn unknown_sandbox(id: &str) -> Problem {
    let detail = format!("no sandbox `{}` was seen, is configured or registered", id.escape_debug());
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// A word of a closed set.
fn closed(key: &str, word: String, set: impl IntoIterator<Item = &'static str>) -> Result<String, Problem> {
    let set: Vec<_> = set.into_iter().collect();
    if set.contains(&word.as_str()) {
        return Ok(word);
    }
    let shown = word.escape_debug();
    Err(Problem::bad_request(format!("`{shown}` is no {key} (known: {})", set.join(", "))))
}

fn since_value(text: &str) -> Result<String, Problem> {
    read_since(text, SystemTime::now()).ok_or_else(|| {
        let shown = text.escape_debug();
        let help = "write a time like 2026-11-29T18:15:48Z (with %2B for +) or how long ago, like 1h";
        Problem::bad_request(format!("`{shown}` is no time for since; {help}"))
    })
}

fn limit_value(text: &str) -> Result<usize, Problem> {
    let parsed = text.parse().ok().filter(|limit| (1..=RECENT_DECISIONS).contains(limit));
    parsed.ok_or_else(|| Problem::bad_request(format!("limit is a number from 1 to {RECENT_DECISIONS}")))
}

/// Reads the disk where that holds nobody up.
pub(super) async fn blocking<T: Send + 'static>(
    look: impl FnOnce() -> Result<T, LedgerError> + Send + 'static,
) -> Result<T, Problem> {
    let looked = tokio::task::spawn_blocking(look).await;
    let failed = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, "a question to the ledger failed");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the ledger can't be read; see the log")
    };
    match looked {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}

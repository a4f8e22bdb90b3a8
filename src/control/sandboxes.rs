//! Sandboxes: those that were seen, those that are configured, and those that are registered here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Json, Router};
use serde::Serialize;

use super::Control;
use super::ledger::{blocking, configured, only_get, unknown_sandbox};
use super::problem::{Problem, parameters};
use crate::audit::Timestamp;
use crate::egress::NotRegistered;
use crate::identity::{Entry, Put, RegistryError, Wanted, WantedBody};
use crate::ledger::{Notes, OTHERS, SandboxRow, UNKNOWN};

/// Most sandboxes of one answer, and how many are told unless fewer are asked for.
const MOST: usize = 1000;

#[derive(Serialize)]
struct Sandboxes {
    sandboxes: Vec<Sandbox>,
    /// The `cursor` of the next answer, if there is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    ledger: Notes,
}

#[derive(Default, Serialize)]
struct Sandbox {
    sandbox: String,
    /// Does a `[[sandbox]]` table name it?
    configured: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    registered: Option<Registered>,
    #[serde(flatten)]
    row: Option<SandboxRow>,
}

#[derive(Serialize)]
struct Registered {
    #[serde(flatten)]
    wanted: Wanted,
    created: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<Timestamp>,
    /// When it ends if it stays unused.
    expires_unused: Timestamp,
    /// `active`, or `refused` where the policy in force does not permit it.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// The routes of sandboxes, but for what the ledger knows of each.
pub(super) fn routes() -> Router<Arc<Control>> {
    let one: MethodRouter<Arc<Control>> = get(show).put(register).delete(deregister);
    Router::new().route("/v1/sandboxes", only_get(get(list))).route("/v1/sandboxes/{id}", one)
}

async fn list(State(control): State<Arc<Control>>, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let [limit, cursor] = parameters(query.as_deref(), ["limit", "cursor"])?;
    let limit = limit.as_deref().map_or(Ok(MOST), limit_value)?;
    let cursor = cursor.unwrap_or_default();
    if ![UNKNOWN, OTHERS, ""].contains(&&*cursor) && !egret_policy::is_sandbox_id(&cursor) {
        return Err(Problem::bad_request("cursor is the `next` of the answer before"));
    }
    control.ledger.settle().await;
    let (ledger, after) = (control.ledger.clone(), cursor.clone());
    // One more than is told, to see whether there is more.
    let look = move || Ok((ledger.sandboxes_after(&after, limit + 1)?, ledger.notes()?));
    let (seen, notes) = blocking(look).await?;
    let mut found: BTreeMap<String, Sandbox> = BTreeMap::new();
    for (id, row) in seen {
        found.entry(id).or_default().row = Some(row);
    }
    for id in configured(&control) {
        found.entry(id).or_default().configured = true;
    }
    for entry in control.egress.registered().iter() {
        let registered = registered(&control, entry);
        found.entry(entry.registration.id.to_string()).or_default().registered = Some(registered);
    }
    let rest = found.into_iter().filter(|(id, _)| cursor.is_empty() || *id > cursor);
    let mut sandboxes: Vec<_> =
        rest.take(limit + 1).map(|(id, found)| Sandbox { sandbox: id, ..found }).collect();
    let more = sandboxes.len() > limit;
    sandboxes.truncate(limit);
    let next = sandboxes.last().filter(|_| more).map(|last| last.sandbox.clone());
    Ok(Json(Sandboxes { sandboxes, next, ledger: notes }).into_response())
}

async fn show(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let [] = parameters(query.as_deref(), [])?;
    control.ledger.settle().await;
    let (ledger, asked) = (control.ledger.clone(), id.clone());
    let row = blocking(move || ledger.sandbox(&asked)).await?;
    let configured = configured(&control).contains(&id);
    let state = control.egress.registered();
    let registered = state.get(&id).map(|entry| registered(&control, entry));
    if row.is_none() && !configured && registered.is_none() {
        return Err(unknown_sandbox(&id));
    }
    Ok(Json(Sandbox { sandbox: id, configured, registered, row }).into_response())
}

async fn register(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    Json(WantedBody(wanted)): Json<WantedBody>,
) -> Result<Response, Problem> {
    let [] = parameters(query.as_deref(), [])?;
    let (egress, asked) = (Arc::clone(&control.egress), id.clone());
    let put = tokio::task::spawn_blocking(move || egress.register(&asked, wanted)).await;
    let put = put.map_err(|error| broken(&error))?.map_err(refused)?;
    let status = if put == Put::Created { StatusCode::CREATED } else { StatusCode::OK };
    let state = control.egress.registered();
    let registered = state.get(&id).map(|entry| registered(&control, entry));
    Ok((status, Json(Sandbox { sandbox: id, registered, ..Sandbox::default() })).into_response())
}

async fn deregister(
    State(control): State<Arc<Control>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, Problem> {
    let [] = parameters(query.as_deref(), [])?;
    if !egret_policy::is_sandbox_id(&id) {
        return Err(Problem::bad_request("a sandbox ID is 1 to 64 of A-Z a-z 0-9 . _ -"));
    }
    let (egress, asked) = (Arc::clone(&control.egress), id.clone());
    let removed = tokio::task::spawn_blocking(move || egress.deregister(&asked)).await;
    match removed.map_err(|error| broken(&error))? {
        Some(Ok(())) => Ok(StatusCode::NO_CONTENT),
        Some(Err(error)) => {
            tracing::error!(%error, sandbox = %id, "a sandbox was deleted until the next restart only");
            let detail = format!("deleted until the next restart only: {error}");
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail))
        }
        None if control.egress.policy().sandboxes.has_id(&id) => {
            let detail = "the configuration has this sandbox; remove it there";
            Err(Problem::new(StatusCode::CONFLICT, detail))
        }
        None => Err(Problem::new(StatusCode::NOT_FOUND, "no sandbox of this ID is registered")),
    }
}

fn registered(control: &Control, entry: &Entry) -> Registered {
    let problem = control.egress.unusable(&entry.registration);
    let at = |seconds| Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Registered {
        wanted: entry.wanted.clone(),
        created: at(entry.created),
        expires: entry.expires().map(at),
        expires_unused: Timestamp::from(SystemTime::now() + control.egress.unused_for(entry)),
        state: if problem.is_some() { "refused" } else { "active" },
        problem,
    }
}

fn refused(error: NotRegistered) -> Problem {
    let status = match &error {
        NotRegistered::Forbidden(_) => StatusCode::FORBIDDEN,
        NotRegistered::NoPolicy(_)
        | NotRegistered::NoKeys
        | NotRegistered::Registry(RegistryError::Bad(_)) => StatusCode::BAD_REQUEST,
        NotRegistered::Configured
        | NotRegistered::Registry(RegistryError::Overlap(_) | RegistryError::Full) => StatusCode::CONFLICT,
        NotRegistered::Registry(RegistryError::Io { .. } | RegistryError::Line { .. }) => {
            tracing::error!(%error, "a sandbox was not registered");
            StatusCode::INTERNAL_SERVER_ERROR
        }
    };
    Problem::new(status, error.to_string())
}

fn broken(error: &tokio::task::JoinError) -> Problem {
    tracing::error!(%error, "a question broke off");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "that broke off; see the log")
}

fn limit_value(text: &str) -> Result<usize, Problem> {
    let parsed = text.parse().ok().filter(|limit| (1..=MOST).contains(limit));
    parsed.ok_or_else(|| Problem::bad_request(format!("limit is a number from 1 to {MOST}")))
}

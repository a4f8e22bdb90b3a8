//! Revoking tokens.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::Control;
use super::problem::Problem;
use crate::identity::{Revocation, is_token_id};

/// What a revocation did.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    revoked: Revocation,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Report {
    fn answer(status: StatusCode, revoked: Revocation, error: Option<String>) -> Response {
        (status, Json(Self { ok: error.is_none(), revoked, error })).into_response()
    }
}

/// `{"jti": ID}` revokes a token, `{"sandbox": ID}` all that were issued for a sandbox.
pub(super) async fn revoke(
    State(control): State<Arc<Control>>,
    Json(what): Json<Revocation>,
) -> Result<Response, Problem> {
    let known = match &what {
        Revocation::Jti(id) => is_token_id(id),
        Revocation::Sandbox(id) => egret_policy::is_sandbox_id(id),
    };
    if !known {
        let detail = "that is neither the ID of a token (its claim jti) nor of a sandbox";
        return Err(Problem::bad_request(detail));
    }
    let (egress, wanted) = (Arc::clone(&control.egress), what.clone());
    let revoked = tokio::task::spawn_blocking(move || egress.revoke(wanted)).await;
    let error = match revoked {
        Ok(Ok(())) => return Ok(Report::answer(StatusCode::OK, what, None)),
        Ok(Err(error)) => format!("revoked until the next restart only: {error}"),
        Err(error) => format!("the revocation broke off: {error}"),
    };
    tracing::error!("{error}");
    Ok(Report::answer(StatusCode::INTERNAL_SERVER_ERROR, what, Some(error)))
}

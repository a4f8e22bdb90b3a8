//! Answers that say what was wrong with a question (RFC 9457), and the questions' parameters.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// Longest explanation in octets.
const MAX_DETAIL: usize = 4096;

/// A refused question.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let title = self.status.canonical_reason().unwrap_or_default();
        let body = Body { r#type: "about:blank", title, status: self.status.as_u16(), detail: &self.detail };
        (self.status, [(header::CONTENT_TYPE, "application/problem+json")], Json(body)).into_response()
    }
}

/// Says every error in the one form, also those that routing and reading a body come to.
pub(super) async fn told_as_one(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let is_told = kind.is_some_and(|kind| kind.contains("json"));
    if is_told || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, MAX_DETAIL).await.unwrap_or_default();
    let detail = match (String::from_utf8_lossy(&text).trim(), status) {
        ("", StatusCode::NOT_FOUND) => "there is no such resource".to_owned(),
        ("", StatusCode::METHOD_NOT_ALLOWED) => "the resource has no such method; see Allow".to_owned(),
        (text, _) => text.to_owned(),
    };
    let problem = Problem::new(status, detail).into_response();
    // Allow and WWW-Authenticate stay.
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(problem.headers().clone());
    Response::from_parts(parts, problem.into_body())
}

/// The parameters of a query, each at most once.
///
/// # Errors
/// One that is not `known`, or comes twice.
pub(super) fn parameters<const N: usize>(
    query: Option<&str>,
    known: [&str; N],
) -> Result<[Option<String>; N], Problem> {
    let mut out = [const { None }; N];
    for (key, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
        let shown = key.escape_debug();
        let place = known.iter().position(|known| *known == key).and_then(|at| out.get_mut(at));
        let Some(place) = place else {
            let help = if N == 0 {
                "there are none here".to_owned()
            } else {
                format!("known: {}", known.join(", "))
            };
            return Err(Problem::bad_request(format!("unknown parameter `{shown}` ({help})")));
        };
        if place.replace(value.into_owned()).is_some() {
            return Err(Problem::bad_request(format!("parameter `{shown}` comes twice")));
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_in_any_order() {
        let found = parameters(Some("b=2&a=%41+c"), ["a", "b", "c"]).unwrap();
        assert_eq!(found, [Some("A c".to_owned()), Some("2".to_owned()), None]);
        assert_eq!(parameters(None, ["a"]).unwrap(), [None]);
        assert_eq!(parameters(Some(""), []).unwrap(), [] as [Option<String>; 0]);
    }

    #[test]
    fn unknown_and_repeated_ones_are_refused() {
        let detail = |query| parameters(Some(query), ["a"]).unwrap_err().detail;
        assert_eq!(detail("x=1"), "unknown parameter `x` (known: a)");
        assert_eq!(detail("a=1&a=1"), "parameter `a` comes twice");
        assert!(parameters(Some("a"), []).is_err());
    }
}

//! `--limit KEY=VALUE` of commands that make a token or register a sandbox.

use serde_json::{Map, Value};

use super::BAD_INPUT;
use super::files::Failure;
use crate::identity::LimitClaims;

/// Read as the proxy will read them, so that one which it would refuse is never asked for.
pub(super) fn read_limits(written: &[String]) -> Result<Option<LimitClaims>, Failure> {
    let mut limits = Map::new();
    for text in written {
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| (format!("--limit {text}: write KEY=VALUE, as requests=5/s"), BAD_INPUT))?;
        let value = match value.parse::<u32>() {
            Ok(number) if key == "connections" => Value::from(number),
            _ => Value::from(value),
        };
        if limits.insert(key.to_owned(), value).is_some() {
            return Err((format!("--limit {key} stands twice"), BAD_INPUT));
        }
    }
    if limits.is_empty() {
        return Ok(None);
    }
    let limits = serde_json::from_value(Value::Object(limits));
    limits.map(Some).map_err(|error| (format!("--limit: {error}"), BAD_INPUT))
}

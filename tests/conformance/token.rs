//! The token that rows call `tok-a`: theirs stands for any that is valid.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use egret::identity::{Claims, SigningKey, now, sign};
use serde_json::json;

/// `sandbox-a:tok-a` in base64.
const IN_ROWS: &str = "c2FuZGJveC1hOnRvay1h";

static KEY: LazyLock<SigningKey> = LazyLock::new(|| SigningKey::generate().unwrap());

/// The same with a token that the proxy of this process accepts.
static VALID: LazyLock<String> = LazyLock::new(|| {
    let claims: Claims = serde_json::from_value(json!({
        "sub": "sandbox-a", "policy": "main", "aud": "egret", "exp": now() + 86_400, "nbf": now(), "jti": "a",
    }))
    .unwrap();
    STANDARD.encode(format!("sandbox-a:{}", sign(&claims, &KEY).unwrap()))
});

pub fn public_key() -> String {
    KEY.public().unwrap().to_pem()
}

/// The text with a token that is valid where a row has one.
pub fn fill_in(text: &str) -> String {
    if text.contains(IN_ROWS) { text.replace(IN_ROWS, &VALID) } else { text.to_owned() }
}

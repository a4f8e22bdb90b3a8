//! `egret token mint`: a signed token for one sandbox.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use egret_policy::Destination;
use egret_policy::units::parse_duration;
use serde::Serialize;

use super::{BAD_INPUT, FAILED, Failure, finish, read_made};
use crate::cli::limits::read_limits;
use crate::identity::{Audience, BadClaim, Claims, MAX_LIFETIME, MAX_TOKEN, SigningKey, login_of, now, sign};

/// Octets of randomness in a token's ID.
const ID_LENGTH: usize = 16;

#[derive(Debug, Args)]
pub(super) struct MintArgs {
    /// Private key to sign with
    #[arg(long, value_name = "FILE", default_value = "certs/token.key")]
    key: PathBuf,
    /// Sandbox that the token makes of its bearer
    #[arg(long, value_name = "ID")]
    sandbox: String,
    /// Policy that holds for it
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// How long it is valid, as 90s, 15m or 12h; at most 30d
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = read_ttl)]
    ttl: Duration,
    /// Proxy that it is for, as `audience` of its [identity]
    #[arg(long, value_name = "WORD", default_value = "egret")]
    audience: String,
    /// Network from which it may be used; repeatable [default: anywhere]
    #[arg(long = "source", value_name = "CIDR")]
    sources: Vec<String>,
    /// Word for the audit record
    #[arg(long, value_name = "TEXT")]
    workspace: Option<String>,
    /// Word for the audit record
    #[arg(long, value_name = "TEXT")]
    tool: Option<String>,
    /// Limit beside the policy's, as requests=5/s or bytes=1GiB/day; repeatable
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limits: Vec<String>,
    /// Print the proxy's URL with the token in it; http:// or socks5h:// may stand before the host
    #[arg(long, value_name = "HOST:PORT")]
    url: Option<String>,
    /// Print the token and what it claims as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Minted {
    token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    claims: Claims,
}

impl MintArgs {
    pub(super) fn run(self) -> u8 {
        let json = self.json;
        finish(self.mint(), json, |minted| minted.url.as_ref().unwrap_or(&minted.token).clone())
    }

    fn mint(self) -> Result<Minted, Failure> {
        let key = read_made(&self.key, "; make one with `egret token keygen`, or name yours with --key")?;
        let key = SigningKey::from_pem(&key);
        let key = key.map_err(|error| (format!("{}: {error}", self.key.display()), BAD_INPUT))?;
        let url = self.url;
        let begin = now();
        let claims = Claims {
            sub: self.sandbox,
            policy: self.policy,
            aud: Audience::One(self.audience),
            exp: begin.saturating_add(self.ttl.as_secs()),
            nbf: begin,
            jti: random_id()?,
            iat: Some(begin),
            src: (!self.sources.is_empty()).then_some(self.sources),
            workspace: self.workspace,
            tool: self.tool,
            limits: read_limits(&self.limits)?,
        };
        claims.check().map_err(|claim| (bad_option(claim), BAD_INPUT))?;
        let token = sign(&claims, &key).map_err(|error| (error.to_string(), FAILED))?;
        if token.len() > MAX_TOKEN {
            return Err((
                format!("the token would be longer than {MAX_TOKEN} bytes; name fewer sources"),
                BAD_INPUT,
            ));
        }
        let url = url.map(|url| proxy_url(&url, &claims.sub, &token)).transpose()?;
        Ok(Minted { token, url, claims })
    }
}

/// The proxy's URL with sandbox and token as user and password.
fn proxy_url(written: &str, sandbox: &str, token: &str) -> Result<String, Failure> {
    let (scheme, rest) = written.split_once("://").unwrap_or(("http", written));
    let wrong = |why: &str| {
        let message = format!("--url {written}: {why}write HOST:PORT, or http:// or socks5h:// before it");
        (message, BAD_INPUT)
    };
    // Without a port, clients guess one, and not all the same.
    let authority = rest.strip_suffix('/').unwrap_or(rest).as_bytes();
    let place = Destination::parse_authority(authority).map_err(|error| {
        let error = error.to_string();
        wrong(&format!("{}; ", error.split(';').next().unwrap_or(&error)))
    })?;
    match scheme {
        "http" | "https" => Ok(format!("{scheme}://{sandbox}:{token}@{place}")),
        "socks5" | "socks5h" => {
            let (user, password) = login_of(sandbox, token).ok_or_else(|| {
                let message = "the token is too long for SOCKS, which has room for two times 255 bytes; name fewer sources or limits";
                (message.to_owned(), BAD_INPUT)
            })?;
            Ok(format!("{scheme}://{user}:{password}@{place}"))
        }
        _ => Err(wrong("")),
    }
}

/// The option that a claim was made of, and what it may be.
fn bad_option(claim: BadClaim) -> String {
    match claim.0 {
        "sub" => "--sandbox: write 1 to 64 of A-Z a-z 0-9 . _ -".to_owned(),
        "src" => "--source: write a network or an address, as 172.30.0.0/24".to_owned(),
        "workspace" | "tool" => format!("--{}: write at most 128 bytes, no control characters", claim.0),
        other => match other.strip_prefix("limits.") {
            Some(key) => format!("--limit {key}: write a value as in the `limits` of a policy"),
            None => claim.to_string(),
        },
    }
}

fn read_ttl(text: &str) -> Result<Duration, String> {
    let most = Duration::from_secs(MAX_LIFETIME);
    parse_duration(text)
        .filter(|ttl| (Duration::from_secs(1)..=most).contains(ttl))
        .ok_or_else(|| "write a time from 1s to 30d, as 15m".to_owned())
}

fn random_id() -> Result<String, Failure> {
    let mut octets = [0; ID_LENGTH];
    aws_lc_rs::rand::fill(&mut octets)
        .map_err(|_| ("the system gives no random bytes".to_owned(), FAILED))?;
    Ok(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}

//! `egret token inspect`: what a token claims, and whether that can be believed.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use super::{BAD_INPUT, FAILED, Failure, OK, finish, read_file, read_token};
use crate::identity::{Claims, Credentials, PublicKey, TokenError, TokenKeys, now, unverified};

#[derive(Debug, Args)]
pub(super) struct InspectArgs {
    /// The token, a proxy URL with it, or - for standard input
    token: String,
    /// Public key to verify it with; repeatable
    #[arg(long = "key", value_name = "FILE")]
    keys: Vec<PathBuf>,
    /// Audience that it has to be for
    #[arg(long, value_name = "WORD", default_value = "egret")]
    audience: String,
    /// Address from which it shall be used [default: one that it permits]
    #[arg(long, value_name = "IP")]
    source: Option<IpAddr>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Inspected {
    verified: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    header: Value,
    claims: Value,
}

impl InspectArgs {
    pub(super) fn run(self) -> u8 {
        let (json, asked) = (self.json, !self.keys.is_empty());
        let inspected = self.inspect();
        let failed = asked && inspected.as_ref().is_ok_and(|inspected| !inspected.verified);
        let code = finish(inspected, json, Inspected::to_text);
        code.max(if failed { FAILED } else { OK })
    }

    fn inspect(&self) -> Result<Inspected, Failure> {
        let token = read_token(&self.token)?;
        let (header, claims) =
            unverified(&token).ok_or_else(|| (TokenError::Shape.to_string(), BAD_INPUT))?;
        let problem = if self.keys.is_empty() {
            Some("no key was given: add --key certs/token.pub".to_owned())
        } else {
            let source = self.source.or_else(|| permitted(&claims)).unwrap_or(Ipv4Addr::UNSPECIFIED.into());
            let credentials = Credentials { user: None, token };
            self.read_keys()?.identify(&credentials, source, now()).err().map(|(error, _)| error.to_string())
        };
        Ok(Inspected { verified: problem.is_none(), problem, header, claims })
    }

    fn read_keys(&self) -> Result<TokenKeys, Failure> {
        let read = |path: &PathBuf| {
            let key = PublicKey::from_pem(&read_file(path)?);
            key.map_err(|error| (format!("{}: {error}", path.display()), BAD_INPUT))
        };
        let keys = self.keys.iter().map(read).collect::<Result<_, _>>()?;
        Ok(TokenKeys::new(keys, &self.audience))
    }
}

/// An address that the claims permit, if they name networks.
fn permitted(claims: &Value) -> Option<IpAddr> {
    let claims: Claims = serde_json::from_value(claims.clone()).ok()?;
    let first = claims.src.as_ref()?.first()?;
    first.split('/').next()?.parse().ok()
}

impl Inspected {
    fn to_text(&self) -> String {
        let verdict = match &self.problem {
            None => "verified; whether it was revoked, and whether its policy exists, only the proxy knows"
                .to_owned(),
            Some(problem) => format!("not verified: {problem}"),
        };
        let claims = serde_json::to_string_pretty(&self.claims).unwrap_or_default();
        format!("{claims}\n{verdict}")
    }
}

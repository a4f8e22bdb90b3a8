//! `egret token revoke`: has a running proxy refuse tokens from now on.

use clap::Args;

use super::ask::RemoteArgs;
use super::{BAD_INPUT, FAILED, Failure, finish};
use crate::identity::{Revocation, is_token_id};

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    /// ID of the token: its claim `jti`, as `egret token inspect` shows it
    #[arg(value_name = "JTI", required_unless_present = "sandbox", conflicts_with = "sandbox")]
    token: Option<String>,
    /// Revoke every token that was issued for this sandbox up to now
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print what was revoked as JSON
    #[arg(long)]
    json: bool,
}

impl RevokeArgs {
    pub(super) fn run(self) -> u8 {
        let json = self.json;
        finish(self.revoke(), json, |what| match what {
            Revocation::Jti(id) => format!("token {id} is revoked"),
            Revocation::Sandbox(id) => format!("all tokens of sandbox {id} are revoked"),
        })
    }

    fn revoke(self) -> Result<Revocation, Failure> {
        let what = match (self.token, self.sandbox) {
            (Some(id), None) if is_token_id(&id) => Revocation::Jti(id),
            (None, Some(id)) if egret_policy::is_sandbox_id(&id) => Revocation::Sandbox(id),
            _ => {
                return Err((
                    "that is not an ID; `egret token inspect` shows a token's `jti`".to_owned(),
                    BAD_INPUT,
                ));
            }
        };
        let body = serde_json::to_string(&what).map_err(|error| (error.to_string(), FAILED))?;
        match self.remote.ask("POST", "/v1/tokens/revoke", Some(&body)) {
            Ok((200, _)) => Ok(what),
            Ok((status, answer)) => {
                Err((format!("not revoked for good ({status}): {}", answer.trim()), FAILED))
            }
            Err(message) => Err((message, FAILED)),
        }
    }
}

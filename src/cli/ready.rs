//! `egret ready`: asks a running proxy whether it is ready, for health checks without curl.

use clap::Args;

use super::remote::RemoteArgs;
use super::{FAILED, complain, say};

#[derive(Debug, Args)]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

impl ReadyArgs {
    pub(super) fn run(self) -> u8 {
        match self.remote.ask("GET", "/readyz", None) {
            Ok(answer) if answer.status == 200 => say("ready\n"),
            Ok(answer) => {
                complain(&format!("not ready: {}", answer.body));
                FAILED
            }
            Err(message) => {
                complain(&message);
                FAILED
            }
        }
    }
}

//! `egret ready`: asks a running proxy whether it is ready, for health checks without curl.

use clap::Args;

use super::ask::RemoteArgs;
use super::{FAILED, complain, say};

#[derive(Debug, Args)]
pub(super) struct ReadyArgs {
    #[command(flatten)]
    remote: RemoteArgs,
}

impl ReadyArgs {
    pub(super) fn run(self) -> u8 {
        match self.remote.ask("GET", "/readyz", None) {
            Ok((200, _)) => say("ready\n"),
            Ok((_, answer)) => {
                complain(&format!("not ready: {}", answer.trim()));
                FAILED
            }
            Err(message) => {
                complain(&message);
                FAILED
            }
        }
    }
}

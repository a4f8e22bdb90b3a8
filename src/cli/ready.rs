//! `egret ready`: asks a running proxy whether it is ready, for health checks without curl.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::ask::Asked;
use super::{FAILED, complain, say};

#[derive(Debug, Args)]
pub(super) struct ReadyArgs {
    /// Address of the control interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    control: SocketAddr,
    /// File with the control interface's token, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl ReadyArgs {
    pub(super) fn run(self) -> u8 {
        match self.ask() {
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

    fn ask(&self) -> Result<(u16, String), String> {
        let asked = Asked::new(self.control, self.token_file.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.and_then(|runtime| runtime.block_on(asked.get("/readyz")));
        answer.map_err(|error| format!("the control interface at {} does not answer: {error}", self.control))
    }
}

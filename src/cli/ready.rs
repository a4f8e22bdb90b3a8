//! `egret ready`: asks a running proxy whether it is ready, for health checks without curl.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{FAILED, complain, say};
use crate::dial::{ConfiguredAddr, configured_tcp};

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asked = runtime.and_then(|runtime| runtime.block_on(self.ask()));
        match asked {
            Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => say("ready\n"),
            Ok(answer) => {
                let what = answer.rsplit("\r\n\r\n").next().unwrap_or_default();
                complain(&format!("not ready: {}", what.trim()));
                FAILED
            }
            Err(error) => {
                complain(&format!("the control interface at {} does not answer: {error}", self.control));
                FAILED
            }
        }
    }

    async fn ask(&self) -> io::Result<String> {
        let token = match &self.token_file {
            Some(file) => format!("Authorization: Bearer {}\r\n", std::fs::read_to_string(file)?.trim()),
            None => String::new(),
        };
        let control = self.control;
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {control}\r\n{token}Connection: close\r\n\r\n");
        let exchange = async {
            let mut stream = configured_tcp(ConfiguredAddr::new(control), None, PATIENCE).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok(answer)
        };
        tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

//! Asks the control interface of a running proxy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::{ConfiguredAddr, configured_tcp};

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which proxy to ask.
#[derive(Debug, Args)]
pub(super) struct RemoteArgs {
    /// Address of the control interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    control: SocketAddr,
    /// File with the control interface's token, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

/// What it answered.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl RemoteArgs {
    /// Sends one request, with a JSON body if there is one.
    ///
    /// # Errors
    /// In words for a person.
    pub(super) fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<Answer, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asked = runtime.and_then(|runtime| runtime.block_on(self.exchange(method, path, body)));
        let text =
            asked.map_err(|e| format!("the control interface at {} does not answer: {e}", self.control))?;
        let status =
            text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| format!("{} does not speak HTTP", self.control))?;
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body.trim().to_owned()).unwrap_or_default();
        Ok(Answer { status, body })
    }

    async fn exchange(&self, method: &str, path: &str, body: Option<&str>) -> io::Result<String> {
        let token = match &self.token_file {
            Some(file) => format!("Authorization: Bearer {}\r\n", std::fs::read_to_string(file)?.trim()),
            None => String::new(),
        };
        let control = self.control;
        let body = match body {
            Some(json) => {
                format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}", json.len())
            }
            None => "\r\n".to_owned(),
        };
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: {control}\r\n{token}Connection: close\r\n{body}");
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

//! Asks the control interface of a running proxy.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::{ConfiguredAddr, configured_tcp};

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which proxy to ask, for commands that do nothing else.
#[derive(Debug, Args)]
pub(super) struct RemoteArgs {
    /// Address of the control interface
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:3129")]
    control: SocketAddr,
    /// File with the control interface's token, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl RemoteArgs {
    /// The status and the body of the answer to one request, which has a JSON body if there is one.
    ///
    /// # Errors
    /// In words for a person.
    pub(super) fn ask(
        &self,
        method: &str,
        target: &str,
        json: Option<&str>,
    ) -> Result<(u16, String), String> {
        let asked = Asked::new(self.control, self.token_file.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.and_then(|runtime| runtime.block_on(asked.send(method, target, json)));
        match answer {
            Ok((401, _)) => Err(format!(
                "the control interface at {} wants its token: name the file that holds it with --token-file",
                self.control
            )),
            answer => answer.map_err(|error| {
                format!("the control interface at {} does not answer: {error}", self.control)
            }),
        }
    }
}

/// Whom to ask.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub control: SocketAddr,
    pub token: Option<String>,
}

impl Asked {
    /// With the token in a file, if there is one.
    pub(super) fn new(control: SocketAddr, token_file: Option<&Path>) -> Result<Self, String> {
        let read = |file: &Path| match std::fs::read_to_string(file) {
            Ok(text) => Ok(text.trim().to_owned()),
            Err(error) => Err(format!("{} can't be read: {error}", file.display())),
        };
        Ok(Self { control, token: token_file.map(read).transpose()? })
    }

    /// The status and the body of the answer to a GET.
    pub(super) async fn get(&self, target: &str) -> io::Result<(u16, String)> {
        self.send("GET", target, None).await
    }

    async fn send(&self, method: &str, target: &str, json: Option<&str>) -> io::Result<(u16, String)> {
        let control = self.control;
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let content = json.map(|json| {
            format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{json}", json.len())
        });
        let content = content.unwrap_or_else(|| "\r\n".to_owned());
        let request =
            format!("{method} {target} HTTP/1.1\r\nHost: {control}\r\n{token}Connection: close\r\n{content}");
        let exchange = async {
            let mut stream = configured_tcp(ConfiguredAddr::new(control), None, PATIENCE).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, io::Error>(answer)
        };
        let answer =
            tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| io::ErrorKind::TimedOut)??;
        split(&answer).ok_or_else(|| io::Error::other("the answer is not HTTP; is that address egret's?"))
    }
}

fn split(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

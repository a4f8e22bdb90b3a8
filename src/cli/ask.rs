//! Asks the control interface of a running proxy.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::{ConfiguredAddr, configured_tcp};

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

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
        let control = self.control;
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let token = token.unwrap_or_default();
        let request = format!("GET {target} HTTP/1.1\r\nHost: {control}\r\n{token}Connection: close\r\n\r\n");
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

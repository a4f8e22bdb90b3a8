//! Asks the control interface of a running proxy.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::config::{self, ControlPlace};
use crate::diagnostics;
use crate::dial::{ConfiguredAddr, configured_tcp};

/// How long the proxy may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Which proxy to ask, for commands that do nothing else.
#[derive(Debug, Args)]
pub(super) struct RemoteArgs {
    /// Configuration file of the proxy, which says where to ask it [default: ./egret.toml, else
    /// /etc/egret/egret.toml, else 127.0.0.1:3129 is asked]
    #[arg(long, value_name = "FILE", conflicts_with = "control")]
    config: Option<PathBuf>,
    /// Address of the control interface, instead of what a configuration says
    #[arg(long, value_name = "ADDR")]
    control: Option<SocketAddr>,
    /// File with the control interface's token [default: the configuration's]
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
        let asked = self.asked()?;
        let control = asked.control;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let answer = runtime.and_then(|runtime| runtime.block_on(asked.send(method, target, json)));
        match answer {
            Ok((401, _)) => Err(format!(
                "the control interface at {control} wants its token: name the file that holds it with \
                 --token-file"
            )),
            answer => answer.map_err(|error| {
                let help = match error.kind() {
                    io::ErrorKind::ConnectionRefused => {
                        "; start `egret serve`, or say where it is with --config or --control"
                    }
                    _ => "",
                };
                format!("the control interface at {control} does not answer: {error}{help}")
            }),
        }
    }

    /// What is given on the command line, or else in the configuration. A token of the configuration
    /// goes to the address of the configuration alone.
    fn asked(&self) -> Result<Asked, String> {
        let file = match self.control {
            Some(control) => return Asked::new(control, self.token_file.as_deref()),
            None => self.config.clone().or_else(config::default_file),
        };
        let place = file.map_or_else(|| Ok(ControlPlace::default()), |file| ControlPlace::of(&file));
        let place = place.map_err(|problems| {
            let told = diagnostics::render(&problems, false);
            // Whoever shows it says already that it is one.
            told.strip_prefix("error: ").unwrap_or(&told).trim_end().to_owned()
        })?;
        let given = Asked::new(place.address, self.token_file.as_deref())?;
        Ok(Asked { token: given.token.or(place.token), ..given })
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

/// The JSON of an answer, null if there is none; or what is wrong, in words for a person.
pub(super) fn read_answer((status, body): (u16, String)) -> Result<Value, String> {
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    let detail = answer.get("detail").and_then(Value::as_str).unwrap_or(body.trim());
    Err(format!("{detail} ({status})"))
}

/// The list under a key of an answer.
pub(super) fn take_list(answer: &mut Value, key: &str) -> Result<Vec<Value>, String> {
    match answer.get_mut(key).map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(format!("its answer has no `{key}`; is it another version of egret?")),
    }
}

/// Every sandbox that a proxy knows, page by page; `ask` gives the answer to a GET.
pub(super) fn every_sandbox<E: From<String>>(
    ask: impl Fn(&str) -> Result<Value, E>,
) -> Result<Vec<Value>, E> {
    let mut found = Vec::new();
    let mut target = "/v1/sandboxes".to_owned();
    loop {
        let mut page = ask(&target)?;
        found.extend(take_list(&mut page, "sandboxes")?);
        let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(found) };
        let cursor: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        target = format!("/v1/sandboxes?cursor={cursor}");
    }
}

fn split(answer: &str) -> Option<(u16, String)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    Some((status, body.to_owned()))
}

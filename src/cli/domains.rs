//! `egret domains`: what each sandbox touched, from a running proxy or from its state directory.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde_json::Value;

use super::ask::Asked;
use super::table::table;
use super::{BAD_INPUT, ConfigArgs, FAILED, complain, say};
use crate::config;
use crate::ledger::{self, Ledger, read_since};

#[derive(Debug, Args)]
pub(super) struct DomainsArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Control interface of the proxy [default: the configuration's; without an answer there, its
    /// state directory is read]
    #[arg(long, value_name = "ADDR")]
    control: Option<SocketAddr>,
    /// File with the control interface's token, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Only this sandbox
    #[arg(long, value_name = "ID")]
    sandbox: Option<String>,
    /// Only what was seen since then: RFC 3339, or how long ago, like 1h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl DomainsArgs {
    pub(super) fn run(self) -> u8 {
        let since = match &self.since {
            Some(text) => match read_since(text, SystemTime::now()) {
                Some(since) => Some(since),
                None => {
                    complain(&format!("--since {}: write 2026-11-29T18:15:48Z or 1h", text.escape_debug()));
                    return BAD_INPUT;
                }
            },
            None => None,
        };
        let json = self.json;
        let rows = match self.rows() {
            Ok(rows) => rows,
            Err(code) => return code,
        };
        let is_wanted = |row: &&Value| since.as_deref().is_none_or(|since| text(row, "last_seen") >= since);
        let rows = rows.iter().filter(is_wanted);
        say(&if json {
            rows.map(|row| format!("{row}\n")).collect()
        } else {
            table(&HEADINGS, rows.map(cells))
        })
    }

    /// All rows, or the exit code after a complaint.
    fn rows(self) -> Result<Vec<Value>, u8> {
        let failed = |message: String| {
            complain(&message);
            FAILED
        };
        let sandbox = self.sandbox.as_deref();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(format!("no runtime: {error}")))?;
        if let Some(control) = self.control {
            let asked = Asked::new(control, self.token_file.as_deref()).map_err(failed)?;
            let rows = runtime.block_on(remote(&asked, sandbox));
            return rows.map_err(|error| failed(error.with(control)));
        }
        let loaded = self.config.load()?;
        let settings = loaded.settings;
        let mut asked = Asked::new(settings.listen.control, self.token_file.as_deref()).map_err(failed)?;
        asked.token = asked.token.or_else(|| settings.listen.control_token.clone());
        match runtime.block_on(remote(&asked, sandbox)) {
            Ok(rows) => Ok(rows),
            Err(Trouble::NobodyThere) => local(&settings, sandbox).map_err(failed),
            Err(error) => Err(failed(error.with(asked.control))),
        }
    }
}

/// Why a proxy gave no rows.
enum Trouble {
    NobodyThere,
    Said(String),
}

impl Trouble {
    fn with(self, control: SocketAddr) -> String {
        match self {
            Self::NobodyThere => {
                format!("no proxy answers at {control}; leave --control out to read its files")
            }
            Self::Said(what) => format!("the control interface at {control}: {what}"),
        }
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::NobodyThere,
            _ => Self::Said(format!("no answer: {error}")),
        }
    }
}

/// Asks a running proxy.
async fn remote(asked: &Asked, sandbox: Option<&str>) -> Result<Vec<Value>, Trouble> {
    let ids = match sandbox {
        Some(id) => vec![id.to_owned()],
        None => every_id(asked).await?,
    };
    let mut rows = Vec::new();
    for id in ids {
        let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
        let target = format!("/v1/sandboxes/{}/domains", id.replace('+', "%20"));
        rows.extend(list(asked, &target, "domains").await?);
    }
    Ok(rows)
}

/// The IDs of all sandboxes that the proxy knows, page by page.
async fn every_id(asked: &Asked) -> Result<Vec<String>, Trouble> {
    let mut ids: Vec<String> = Vec::new();
    let mut target = "/v1/sandboxes".to_owned();
    loop {
        let mut page = answer(asked, &target).await?;
        let rows = take_list(&mut page, "sandboxes")?;
        ids.extend(rows.iter().map(|row| text(row, "sandbox").to_owned()));
        let Some(next) = page.get("next").and_then(Value::as_str) else { return Ok(ids) };
        let cursor: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        target = format!("/v1/sandboxes?cursor={cursor}");
    }
}

/// The list under a key of the answer.
async fn list(asked: &Asked, target: &str, key: &str) -> Result<Vec<Value>, Trouble> {
    take_list(&mut answer(asked, target).await?, key)
}

async fn answer(asked: &Asked, target: &str) -> Result<Value, Trouble> {
    let (status, body) = asked.get(target).await?;
    let answer: Value = serde_json::from_str(&body).unwrap_or_default();
    if status != 200 {
        let detail = answer.get("detail").and_then(Value::as_str).unwrap_or(body.trim());
        return Err(Trouble::Said(format!("{detail} ({status})")));
    }
    Ok(answer)
}

fn take_list(answer: &mut Value, key: &str) -> Result<Vec<Value>, Trouble> {
    match answer.get_mut(key).map(Value::take) {
        Some(Value::Array(rows)) => Ok(rows),
        _ => Err(Trouble::Said(format!("its answer has no `{key}`; is it another version of egret?"))),
    }
}

/// Reads the state directory, and of the audit file what is not in there yet.
fn local(settings: &config::Settings, sandbox: Option<&str>) -> Result<Vec<Value>, String> {
    let settings = ledger::Settings {
        state_dir: settings.state_dir.clone(),
        audit_file: settings.audit.file.clone(),
        limits: ledger::Limits::default(),
    };
    let rows = || {
        let ledger = Ledger::open(settings)?;
        ledger.catch_up()?;
        let ids = match sandbox {
            Some(id) => vec![id.to_owned()],
            None => ledger.sandboxes()?.into_iter().map(|(id, _)| id).collect(),
        };
        let mut rows = Vec::new();
        for id in ids {
            rows.extend(ledger.domains(&id)?.unwrap_or_default());
        }
        Ok(rows)
    };
    let rows = rows().map_err(|error: ledger::LedgerError| error.to_string())?;
    rows.iter().map(serde_json::to_value).collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row.get(key).and_then(Value::as_str).unwrap_or_default()
}

const HEADINGS: [&str; 11] = [
    "SANDBOX",
    "DESTINATION",
    "FIRST SEEN",
    "LAST SEEN",
    "REQUESTS",
    "ALLOWED",
    "DENIED",
    "WOULD DENY",
    "BYTES UP",
    "BYTES DOWN",
    "LAST REASON",
];

fn cells(row: &Value) -> [String; HEADINGS.len()] {
    let plain = |key| text(row, key).to_owned();
    let number = |key| row.get(key).and_then(Value::as_u64).unwrap_or_default().to_string();
    let host = text(row, "host");
    let destination = match row.get("port").and_then(Value::as_u64) {
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    [
        plain("sandbox"),
        destination,
        plain("first_seen"),
        plain("last_seen"),
        number("requests"),
        number("allow"),
        number("deny"),
        number("would_deny"),
        number("bytes_up"),
        number("bytes_down"),
        plain("last_reason"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_destinations_have_no_port() {
        let cells = cells(&serde_json::json!({ "sandbox": "box", "host": "*", "port": null }));
        assert_eq!(cells[1], "*");
    }
}

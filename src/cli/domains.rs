//! `egret domains`: what each sandbox touched, from a running proxy or from its state directory.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

use clap::Args;
use serde_json::Value;
use tokio::runtime::Runtime;

use super::ask::{Asked, every_sandbox, read_answer, take_list};
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
            let rows = remote(|target| get(&runtime, &asked, target), sandbox);
            return rows.map_err(|error| failed(error.with(control)));
        }
        let loaded = self.config.load()?;
        let settings = loaded.settings;
        let mut asked = Asked::new(settings.listen.control, self.token_file.as_deref()).map_err(failed)?;
        asked.token = asked.token.or_else(|| settings.listen.control_token.clone());
        match remote(|target| get(&runtime, &asked, target), sandbox) {
            Ok(rows) => Ok(rows),
            Err(Trouble::NobodyThere) if !settings.state_dir.is_dir() => Err(failed(format!(
                "no proxy answers at {}, and there is no state directory {}; start `egret serve`, or say which one is meant with --config or --control",
                asked.control,
                settings.state_dir.display()
            ))),
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

impl From<String> for Trouble {
    fn from(what: String) -> Self {
        Self::Said(what)
    }
}

fn get(runtime: &Runtime, asked: &Asked, target: &str) -> Result<Value, Trouble> {
    Ok(read_answer(runtime.block_on(asked.get(target))?)?)
}

/// Asks a running proxy; `ask` gives the answer to a GET.
fn remote(
    ask: impl Fn(&str) -> Result<Value, Trouble>,
    sandbox: Option<&str>,
) -> Result<Vec<Value>, Trouble> {
    let ids = match sandbox {
        Some(id) => vec![id.to_owned()],
        None => every_sandbox(&ask)?.iter().map(|row| text(row, "sandbox").to_owned()).collect(),
    };
    let mut rows = Vec::new();
    for id in ids {
        let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
        let target = format!("/v1/sandboxes/{}/domains", id.replace('+', "%20"));
        rows.extend(take_list(&mut ask(&target)?, "domains")?);
    }
    Ok(rows)
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

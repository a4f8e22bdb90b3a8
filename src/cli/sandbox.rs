//! `egret sandbox`: registers sandboxes at a running proxy, removes and lists them.

use clap::{Args, Subcommand};
use serde_json::Value;

use super::ask::{RemoteArgs, every_sandbox, read_answer};
use super::files::{Failure, finish};
use super::limits::read_limits;
use super::table::table;
use super::{BAD_INPUT, FAILED};
use crate::identity::Wanted;

#[derive(Debug, Args)]
pub(super) struct SandboxArgs {
    #[command(subcommand)]
    command: SandboxCommand,
}

#[derive(Debug, Subcommand)]
enum SandboxCommand {
    /// Say which addresses are a sandbox, or renew that
    Register(RegisterArgs),
    /// End a sandbox: what it has open is closed, its tokens are revoked
    Remove(OneArgs),
    /// Show a sandbox
    Show(OneArgs),
    /// List the sandboxes that were seen, are configured or are registered
    List(ListArgs),
}

#[derive(Debug, Args)]
struct RegisterArgs {
    #[command(flatten)]
    one: OneArgs,
    /// Network or address of its clients; repeatable
    #[arg(long = "source", value_name = "CIDR", required = true)]
    sources: Vec<String>,
    /// What it takes to be the sandbox: source or token [default: source]
    #[arg(long, value_name = "WORD")]
    auth: Option<String>,
    /// Policy that holds for it
    #[arg(long, value_name = "NAME")]
    policy: String,
    /// How long it may be unused before it expires [default: 1h]
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
    /// How long it holds at most [default: for ever]
    #[arg(long, value_name = "TIME")]
    lifetime: Option<String>,
    /// Word for the audit record
    #[arg(long, value_name = "TEXT")]
    workspace: Option<String>,
    /// Word for the audit record
    #[arg(long, value_name = "TEXT")]
    tool: Option<String>,
    /// Limit beside the policy's, as requests=5/s or bytes=1GiB/day; repeatable
    #[arg(long = "limit", value_name = "KEY=VALUE")]
    limits: Vec<String>,
}

#[derive(Debug, Args)]
struct OneArgs {
    /// Sandbox ID
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print the proxy's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl SandboxArgs {
    pub(super) fn run(self) -> u8 {
        match self.command {
            SandboxCommand::Register(args) => {
                let (json, id) = (args.one.json, args.one.id.clone());
                finish(args.register(), json, |_| format!("sandbox {id} is registered"))
            }
            SandboxCommand::Remove(args) => {
                let removed = args.ask("DELETE", None);
                finish(removed, args.json, |_| format!("sandbox {} is removed", args.id))
            }
            SandboxCommand::Show(args) => {
                finish(args.ask("GET", None), args.json, |sandbox| rows(std::slice::from_ref(sandbox)))
            }
            SandboxCommand::List(args) => {
                let found =
                    every_sandbox(|target| args.remote.ask("GET", target, None).and_then(read_answer));
                finish(found.map_err(|message| (message, FAILED)), args.json, |found| rows(found))
            }
        }
    }
}

impl RegisterArgs {
    fn register(self) -> Result<Value, Failure> {
        let wanted = Wanted {
            source: self.sources,
            auth: self.auth,
            policy: self.policy,
            ttl: self.ttl,
            lifetime: self.lifetime,
            limits: read_limits(&self.limits)?,
            workspace: self.workspace,
            tool: self.tool,
        };
        let body = serde_json::to_string(&wanted).map_err(|error| (error.to_string(), FAILED))?;
        self.one.ask("PUT", Some(&body))
    }
}

impl OneArgs {
    fn ask(&self, method: &str, json: Option<&str>) -> Result<Value, Failure> {
        if !egret_policy::is_sandbox_id(&self.id) {
            let message = format!("{}: a sandbox ID is 1 to 64 of A-Z a-z 0-9 . _ -", self.id.escape_debug());
            return Err((message, BAD_INPUT));
        }
        let answer = self.remote.ask(method, &format!("/v1/sandboxes/{}", self.id), json);
        answer.and_then(read_answer).map_err(|message| (message, FAILED))
    }
}

const HEADINGS: [&str; 7] =
    ["SANDBOX", "SOURCE", "POLICY", "STATE", "EXPIRES UNUSED", "LAST SEEN", "REQUESTS"];

fn rows(found: &[Value]) -> String {
    table(&HEADINGS, found.iter().map(cells)).trim_end().to_owned()
}

fn cells(row: &Value) -> [String; HEADINGS.len()] {
    let text = |path: &str| row.pointer(path).and_then(Value::as_str).unwrap_or("-").to_owned();
    let sources = row.pointer("/registered/source").and_then(Value::as_array);
    let sources = sources.map(|list| list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","));
    let configured = row.get("configured").and_then(Value::as_bool).unwrap_or_default();
    let state = match row.pointer("/registered/state").and_then(Value::as_str) {
        Some(state) => state,
        None if configured => "configured",
        None => "seen",
    };
    [
        text("/sandbox"),
        sources.unwrap_or_else(|| "-".to_owned()),
        text("/registered/policy"),
        state.to_owned(),
        text("/registered/expires_unused"),
        text("/last_seen"),
        row.get("requests").and_then(Value::as_u64).unwrap_or_default().to_string(),
    ]
}

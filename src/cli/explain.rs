//! `egret explain`: what the live engine decides for a destination, with the rule, and why the
//! near misses did not match.

use std::io::{self, BufRead, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use egret_policy::Refusal;

use super::decide::{Addresses, Answer, Decider, Question, Unanswered};
use super::{BAD_INPUT, ConfigArgs, FAILED, OK, complain, no_file, say};
use crate::config::Files;
use crate::identity::{self, Registry};
use crate::resolve::{Resolver, ResolverSettings};

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Name pattern to allow, with the built-in defaults; repeatable
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// Sandbox that asks
    #[arg(long, value_name = "ID", default_value = "local")]
    sandbox: String,
    /// Policy of a sandbox that only its token knows
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// HTTP method [default: GET for a URL, CONNECT for host:port]
    #[arg(long, value_name = "M")]
    method: Option<String>,
    /// Address that stands in for DNS; repeatable
    #[arg(long = "address", value_name = "IP")]
    addresses: Vec<IpAddr>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    /// Answer JSON lines from a file, or - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["target", "method", "addresses", "policy"])]
    batch: Option<PathBuf>,
    /// URL or host:port
    #[arg(required_unless_present = "batch")]
    target: Option<String>,
}

/// What a line of a batch is.
const LINE: &str = r#"not a question like {"sandbox":"ID","target":"URL or host:port"}"#;

struct Explainer {
    decider: Decider,
    names: Names,
}

/// The configured DNS servers, asked from the first name on.
struct Names {
    settings: ResolverSettings,
    runtime: tokio::runtime::Runtime,
    resolver: Option<Resolver>,
}

impl ExplainArgs {
    pub(super) fn run(self) -> u8 {
        let (loaded, source) = match self.config.load_noting(self.allow, &mut Files::default()) {
            Ok(both) => both,
            Err(code) => return code,
        };
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                complain(&format!("no runtime: {error}"));
                return FAILED;
            }
        };
        // What a running proxy has registered is in its state directory.
        let registered = match Registry::look(&loaded.settings.state_dir, identity::now()) {
            Ok(registered) => registered,
            Err(error) => {
                complain(&error.to_string());
                return BAD_INPUT;
            }
        };
        let decider = Decider::new(loaded.policy, loaded.chain).with_registered(registered);
        let names = Names { settings: loaded.settings.dns.resolver(), runtime, resolver: None };
        let mut explainer = Explainer { decider, names };
        if let Some(file) = self.batch {
            return explainer.batch(&file);
        }
        let addresses = (!self.addresses.is_empty()).then_some(self.addresses);
        let target = self.target.unwrap_or_default();
        let question = Question {
            sandbox: self.sandbox,
            policy: self.policy,
            method: self.method,
            target,
            host_header: None,
            addresses,
        };
        match explainer.answer(&question) {
            Ok(answer) if self.json => answer.code().max(say(&answer.to_json())),
            Ok(answer) => answer.code().max(say(&answer.to_text(&question))),
            Err(error @ Unanswered::UnknownSandbox { .. }) => {
                let help = no_file(&source)
                    .unwrap_or("name one with --sandbox ID, a token's with --policy NAME as well");
                complain(&format!("{error}; {help}"));
                BAD_INPUT
            }
            Err(error) => {
                complain(&error.to_string());
                BAD_INPUT
            }
        }
    }
}

impl Explainer {
    fn batch(&mut self, file: &PathBuf) -> u8 {
        let input: Box<dyn BufRead> = if file.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            match std::fs::File::open(file) {
                Ok(file) => Box::new(io::BufReader::new(file)),
                Err(error) => {
                    complain(&format!("{} can't be read: {error}", file.display()));
                    return BAD_INPUT;
                }
            }
        };
        let mut code = OK;
        let mut stdout = io::stdout().lock();
        for (number, line) in input.lines().enumerate() {
            if line.as_ref().is_ok_and(|line| line.trim_ascii().is_empty()) {
                continue;
            }
            let answer = line
                .map_err(|error| error.to_string())
                .and_then(|line| serde_json::from_str(&line).map_err(|error| format!("{LINE}: {error}")))
                .and_then(|question| self.answer(&question).map_err(|error| error.to_string()));
            let text = answer.map(|answer| answer.to_json()).unwrap_or_else(|error| {
                code = BAD_INPUT;
                complain(&format!("line {}: {error}", number + 1));
                serde_json::json!({ "error": error }).to_string() + "\n"
            });
            if stdout.write_all(text.as_bytes()).is_err() {
                return FAILED;
            }
        }
        code
    }

    fn answer(&mut self, question: &Question) -> Result<Answer, Unanswered> {
        let names = &mut self.names;
        self.decider.answer(question, |name| names.look_up(name))
    }
}

impl Names {
    /// Asks the configured DNS servers, as the proxy would.
    fn look_up(&mut self, name: &str) -> Result<Addresses, String> {
        if self.resolver.is_none() {
            let _inside = self.runtime.enter();
            self.resolver = Some(Resolver::new(self.settings.clone()).map_err(|error| error.to_string())?);
        }
        let Some(resolver) = &self.resolver else {
            return Err("there is no resolver".to_owned());
        };
        Ok(match self.runtime.block_on(resolver.lookup(name)) {
            Ok(answer) => Ok(answer.addresses.to_vec()),
            Err(error) => {
                let reason = crate::egress::dns_reason(&error);
                Err(Refusal::new(reason).with_detail(error.to_string()))
            }
        })
    }
}

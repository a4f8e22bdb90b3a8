//! The command line: one file a command.

mod ask;
mod cert;
mod check;
mod completions;
mod decide;
mod domains;
mod expectation;
mod explain;
mod files;
mod init;
mod learn;
mod limits;
mod man;
mod nft;
mod probe;
mod ready;
mod registry;
mod replace;
mod rule_set;
mod run;
mod runtime;
mod sandbox;
mod schema;
mod serve;
mod table;
mod test;
mod token;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use egret_policy::Problems;

use crate::config::{self, ConfigSource, Files, Loaded};
use crate::diagnostics;

/// The command succeeded, or the answer is yes.
const OK: u8 = 0;
/// The command failed.
const FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const BAD_INPUT: u8 = 2;
/// The decision is a denial.
const DENIED: u8 = 3;

/// An egress-controlling forward proxy for sandboxed tools.
#[derive(Debug, Parser)]
#[command(name = "egret", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the proxy
    Serve(serve::ServeArgs),
    /// Run a command whose only way out is egret
    Run(run::RunArgs),
    /// Become the command of `egret run`, which starts this
    #[command(hide = true)]
    Become(run::BecomeArgs),
    /// Validate the configuration and all rule sets
    Check(check::CheckArgs),
    /// Show what the policy decides for a destination, and why
    Explain(explain::ExplainArgs),
    /// Run policy expectations against the configuration
    Test(test::TestArgs),
    /// Write a starter configuration
    Init(init::InitArgs),
    /// Show which destinations each sandbox touched
    Domains(domains::DomainsArgs),
    /// Propose rules for what sandboxes asked for
    Learn(learn::LearnArgs),
    /// Print or apply nftables rules that leave sandboxes no way but egret
    Nft(nft::NftArgs),
    /// Show from inside a sandbox that egret is its only way out
    Probe(Box<probe::ProbeArgs>),
    /// Ask a running proxy whether it is ready
    Ready(ready::ReadyArgs),
    /// Register sandboxes at a running proxy, remove and list them
    Sandbox(sandbox::SandboxArgs),
    /// Write rules for the registries that package managers are set to
    Registry(registry::RegistryArgs),
    /// Make, inspect and revoke short-lived tokens of sandboxes
    Token(token::TokenArgs),
    /// Make, inspect and revoke certificates for a TLS listener and its clients
    Cert(cert::CertArgs),
    /// Print a JSON Schema of the configuration or of rule sets, for editors
    Schema(schema::SchemaArgs),
    /// Print completions of the command line for a shell
    Completions(completions::CompletionsArgs),
    /// Write manual pages
    Man(man::ManArgs),
}

/// Which configuration to use.
#[derive(Clone, Debug, Args)]
struct ConfigArgs {
    /// Configuration file [default: ./egret.toml, else /etc/egret/egret.toml, else built-in]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the rule sets [default: rules/ beside the configuration file]
    #[arg(long, value_name = "DIR")]
    rules: Option<PathBuf>,
}

impl Cli {
    /// Runs the command.
    #[must_use]
    pub fn run(self) -> ExitCode {
        let code = match self.command {
            Command::Serve(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::Become(args) => args.run(),
            Command::Check(args) => args.run(),
            Command::Explain(args) => args.run(),
            Command::Test(args) => args.run(),
            Command::Init(args) => args.run(),
            Command::Domains(args) => args.run(),
            Command::Learn(args) => args.run(),
            Command::Nft(args) => args.run(),
            Command::Probe(args) => args.run(),
            Command::Ready(args) => args.run(),
            Command::Sandbox(args) => args.run(),
            Command::Registry(args) => args.run(),
            Command::Token(args) => args.run(),
            Command::Cert(args) => args.run(),
            Command::Schema(args) => args.run(),
            Command::Completions(args) => args.run(),
            Command::Man(args) => args.run(),
        };
        ExitCode::from(code)
    }
}

impl ConfigArgs {
    /// The source, with the patterns of `--allow` where there is no file.
    fn source(self, allow: Vec<String>) -> Result<ConfigSource, String> {
        match self.config.or_else(|| if allow.is_empty() { config::default_file() } else { None }) {
            Some(_) if !allow.is_empty() => {
                Err("--allow goes with the built-in defaults; with --config, write the rule into the file"
                    .to_owned())
            }
            Some(path) => Ok(ConfigSource::File { path, rules: self.rules }),
            None if self.rules.is_some() => {
                Err("--rules needs a configuration file; add --config FILE".to_owned())
            }
            None => Ok(ConfigSource::BuiltIn { allow }),
        }
    }

    /// Loads it; problems are shown, and the exit code is returned where there are errors.
    fn load(self) -> Result<Loaded, u8> {
        self.load_noting(Vec::new(), &mut Files::default()).map(|(loaded, _)| loaded)
    }

    /// The same with patterns of `--allow`, noting the files that are read.
    fn load_noting(self, allow: Vec<String>, files: &mut Files) -> Result<(Loaded, ConfigSource), u8> {
        let source = self.source(allow).map_err(|message| {
            complain(&message);
            BAD_INPUT
        })?;
        match config::load_noting(&source, 1, None, files) {
            Ok(loaded) => {
                show(&loaded.problems);
                Ok((loaded, source))
            }
            Err(problems) => {
                show(&problems);
                Err(BAD_INPUT)
            }
        }
    }
}

/// What helps where something is not known because no file was found to read.
fn no_file(source: &ConfigSource) -> Option<&'static str> {
    matches!(source, ConfigSource::BuiltIn { .. })
        .then_some("no configuration was found here, so name it with --config FILE")
}

/// Shows problems on standard error.
fn show(problems: &Problems) {
    let mut stderr = io::stderr().lock();
    let text = diagnostics::render(problems, stderr.is_terminal());
    // There is no other place to complain to.
    let _ = stderr.write_all(text.as_bytes());
}

/// One line on standard error.
fn complain(message: &str) {
    tell(&format!("egret: {message}\n"));
}

/// Text on standard error.
fn tell(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Text on standard output; the exit code says whether it could be written.
fn say(text: &str) -> u8 {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => OK,
        // Whoever closed the pipe has read enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => OK,
        Err(_) => FAILED,
    }
}

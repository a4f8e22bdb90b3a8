//! `egret run`: runs a command whose only way out is egret, and tells in the end what it asked for.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use egret_policy::{Listeners, is_sandbox_id};
use nix::errno::Errno;

use super::nft::{NftError, rules, try_nft};
use super::runtime::in_runtime;
use super::serve::{Bound, Proxy, start_log};
use super::{complain, learn, show, tell};
use crate::audit::Tap;
use crate::config::{self, ConfigSource, Files, Loaded, RunRules, RunSource};
use crate::run::{
    Ended, Inside, PROXY, RESOLV_CONF, Scratch, StartError, Summary, Supervisor, Unrouted, become_command,
    diverted_to, standard_way_out,
};
use crate::server::Budget;

/// egret itself has failed, as `env`, `timeout` and others have it.
const OWN_FAILURE: u8 = 125;
/// The command was found and can't be executed.
const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
const NOT_FOUND: u8 = 127;
/// What is logged where `EGRET_LOG` says nothing: the terminal is the command's.
const LOG: &str = "warn,hickory_net=off,hickory_proto=off,hickory_resolver=off";
const QUIET_LOG: &str = "error,hickory_net=off,hickory_proto=off,hickory_resolver=off";
/// Open files that a run takes by itself.
const LEAST_DESCRIPTORS: usize = 64;
/// How long connections may last that nobody of the command's is left to use.
const DRAIN: Duration = Duration::from_secs(2);

/// Said where something found no route, as all do that connect by themselves.
const PAST_THE_PROXY: &str = "something tried to go past the proxy, and found no network; --transparent serves programs that know of no proxy";

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Name pattern to allow; repeatable
    #[arg(long, value_name = "PATTERN")]
    allow: Vec<String>,
    /// A rule set file; or, with --config, the name of a policy
    #[arg(long, value_name = "FILE|NAME")]
    policy: Option<String>,
    /// Configuration file with the policy; without it, nothing is allowed but what options say
    #[arg(long, value_name = "FILE", conflicts_with = "allow")]
    config: Option<PathBuf>,
    /// Folder of the rule sets [default: rules/ beside the configuration file]
    #[arg(long, value_name = "DIR", requires = "config")]
    rules: Option<PathBuf>,
    /// Let pass what only the allow rules would refuse, and record it
    #[arg(long)]
    observe: bool,
    /// Write what was learned to a rule set; with --observe
    #[arg(long, value_name = "FILE", requires = "observe")]
    learn: Option<PathBuf>,
    /// Learn destinations on this port too, beside 80 and 443; repeatable, with --learn
    #[arg(long = "port", value_name = "PORT", requires = "learn", value_parser = clap::value_parser!(u16).range(1..))]
    ports: Vec<u16>,
    /// Serve programs that know of no proxy too: divert what they connect to, and answer for names;
    /// needs the program nft
    #[arg(long)]
    transparent: bool,
    /// Append the audit to a file; without it, the audit is not kept
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// The command's sandbox ID in the audit
    #[arg(long, value_name = "ID", default_value = "run", value_parser = sandbox_id)]
    sandbox: String,
    /// No summary, no warnings
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    /// The summary as one line of JSON on standard error
    #[arg(long)]
    json: bool,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// What the process inside is started with.
#[derive(Debug, Args)]
pub(super) struct BecomeArgs {
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl BecomeArgs {
    pub(super) fn run(self) -> u8 {
        become_command(&self.command, |rules| {
            try_nft(rules).map_err(|error| {
                let help = match error {
                    NftError::Missing => "; install nftables, or run without --transparent",
                    NftError::NotRun(_) => "",
                    NftError::Said(_) => "; the kernel may lack nf_tables, nft_redir or nft_reject_inet",
                };
                format!("connections can't be diverted: {error}{help}")
            })
        });
        OWN_FAILURE
    }
}

/// Are enough open files permitted?
fn descriptors() -> Result<(), String> {
    match Budget::most_descriptors() {
        few if few < LEAST_DESCRIPTORS => Err(format!(
            "{few} open files are permitted, and a run takes {LEAST_DESCRIPTORS} and more; raise the limit (ulimit -n)"
        )),
        _ => Ok(()),
    }
}

fn sandbox_id(text: &str) -> Result<String, String> {
    if is_sandbox_id(text) {
        Ok(text.to_owned())
    } else {
        Err("write 1 to 64 of A-Z a-z 0-9 . _ -".to_owned())
    }
}

impl RunArgs {
    pub(super) fn run(self) -> u8 {
        self.run_command().unwrap_or_else(|message| {
            if !message.is_empty() {
                complain(&message);
            }
            OWN_FAILURE
        })
    }

    /// The exit status; an error that was told already is empty.
    fn run_command(self) -> Result<u8, String> {
        let (source, mut files) = (self.source(), Files::default());
        self.check_rule_set()?;
        let mut loaded = config::load_noting(&source, 1, None, &mut files).map_err(|problems| {
            show(&problems);
            String::new()
        })?;
        show(&loaded.problems);
        self.check_audit()?;
        if let Some(name) = standard_way_out() {
            return Err(format!(
                "{name} is a network socket, which the command could connect to anywhere; put a pipe between, as with `cat |` or `| cat`"
            ));
        }
        let learner = self.learn.as_deref().map(|path| learn::Learner::of(path, &self.ports)).transpose()?;
        start_log(if self.quiet { QUIET_LOG } else { LOG });
        descriptors()?;
        Supervisor::expect_children().map_err(|error| format!("children can't be waited for: {error}"))?;
        // In this order: the process inside must not be born with signals held back, and a signal
        // from here on must not end this one.
        let rules = self.transparent.then(|| rules::of_run(&diverted_to()));
        let inside = Inside::start(&self.command, rules.as_deref()).map_err(|error| error.to_string())?;
        // The command has the limit that it would have without egret.
        Budget::raise();
        Supervisor::hold_signals().map_err(|error| format!("signals can't be held back: {error}"))?;
        let scratch = Scratch::make().map_err(|error| {
            let parent = std::env::temp_dir();
            format!(
                "no folder in {}: {error}; have TMPDIR name a folder with room that you may write to",
                parent.display()
            )
        })?;
        let audit = self.audit.clone().unwrap_or_else(|| scratch.path().join("audit.ndjson"));
        let resolv_conf = scratch.path().join("resolv.conf");
        if self.transparent {
            std::fs::write(&resolv_conf, RESOLV_CONF)
                .map_err(|error| format!("{} can't be written: {error}", resolv_conf.display()))?;
        }
        loaded.settings.audit.file.clone_from(&audit);
        loaded.settings.state_dir = scratch.path().to_path_buf();
        if !self.quiet {
            warn_of_sockets(inside.open_sockets());
        }
        let before = std::fs::metadata(&audit).map_or(0, |meta| meta.len());
        let summary = Arc::new(Summary::default());
        let tap = Arc::<Summary>::clone(&summary);
        let mut unrouted = Unrouted::of(inside.pid());
        let ended = in_runtime(supervise(loaded, source.clone(), files, (inside, &resolv_conf), tap))?;
        let (ended, stopped) = match ended {
            Outcome::Ended(ended, stopped) => (ended, stopped),
            Outcome::NotExecuted(number) => return Ok(self.not_executed(number)),
        };
        if !self.quiet {
            self.summarise(&summary, ended, unrouted.count());
        }
        let learned = learner.map_or(Ok(()), |learner| learner.learn(&audit, before, &source));
        // What the command says is worth more than that.
        let own = stopped.and(learned);
        match own {
            Err(message) if ended.status() == 0 => Err(message),
            Err(message) => {
                complain(&message);
                Ok(ended.status())
            }
            Ok(()) => Ok(ended.status()),
        }
    }

    /// Without a configuration, `--policy` names a rule set file.
    fn check_rule_set(&self) -> Result<(), String> {
        let file = self.policy.as_ref().filter(|_| self.config.is_none());
        let opened = file.map_or(Ok(()), |file| std::fs::File::open(file).map(drop));
        opened.map_err(|error| {
            let file = file.map_or("", String::as_str);
            format!(
                "--policy {file}: {error}; it names a rule set file, or with --config FILE a policy of that file"
            )
        })
    }

    /// The audit goes to a file, which can be read again where something is to be learned.
    fn check_audit(&self) -> Result<(), String> {
        let Some(path) = &self.audit else { return Ok(()) };
        if path.as_os_str() == "-" {
            return Err("--audit -: the standard output is the command's; name a file".to_owned());
        }
        if self.learn.is_some() && std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(format!("--audit {}: --learn reads it again, so name a file", path.display()));
        }
        Ok(())
    }

    fn source(&self) -> ConfigSource {
        let rules = match &self.config {
            Some(path) => RunRules::Policy {
                path: path.clone(),
                rules: self.rules.clone(),
                policy: self.policy.clone(),
            },
            None => {
                RunRules::Own { rule_set: self.policy.as_ref().map(PathBuf::from), allow: self.allow.clone() }
            }
        };
        ConfigSource::Run(RunSource { rules, sandbox: self.sandbox.clone(), observe: self.observe })
    }

    fn not_executed(&self, number: i32) -> u8 {
        let command = self.command.first().map(OsString::as_os_str).unwrap_or_default();
        // Of a folder that it may not search, execvp(3) says no more than that.
        let nowhere = Errno::from_raw(number) == Errno::EACCES && !is_anywhere(command);
        let error = if nowhere { Errno::ENOENT } else { Errno::from_raw(number) };
        let command = command.display();
        complain(&format!("{command} can't be executed: {}", error.desc()));
        if error == Errno::ENOENT { NOT_FOUND } else { NOT_EXECUTABLE }
    }

    fn summarise(&self, summary: &Summary, ended: Ended, unrouted: u64) {
        if self.json {
            let whole = serde_json::json!({
                "sandbox": self.sandbox,
                "status": ended.status(),
                "destinations": summary.traffic(),
                "unrouted": unrouted,
            });
            tell(&format!("{whole}\n"));
        } else {
            tell(&summary.text(self.config.is_none()));
            if unrouted > 0 && !self.transparent {
                complain(PAST_THE_PROXY);
            }
        }
    }
}

/// Is there a file of this name where commands are looked for?
fn is_anywhere(command: &OsStr) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(command));
    command.as_bytes().contains(&b'/') || places.any(|place| place.exists())
}

/// What became of the command.
enum Outcome {
    /// How it ended, and whether the records are whole.
    Ended(Ended, Result<(), String>),
    /// By this error number.
    NotExecuted(i32),
}

/// Serves the command until it has ended, and what it left behind with it.
async fn supervise(
    loaded: Loaded,
    source: ConfigSource,
    files: Files,
    (mut inside, resolv_conf): (Inside, &Path),
    tap: Arc<dyn Tap>,
) -> Result<Outcome, String> {
    let doors = inside.doors();
    let listen = |(listener, door)| Ok((tokio::net::TcpListener::from_std(listener)?, door));
    let proxy = doors.listeners.into_iter().map(listen).collect::<std::io::Result<_>>();
    let proxy = proxy.map_err(|error| error.to_string())?;
    // They are in another namespace: no address that is dialled here leads to them. Those that a
    // proxy with this configuration has are kept from the command all the same.
    let own = Listeners { bound: loaded.policy.listeners.bound.clone() };
    let mut supervisor =
        Supervisor::begin(inside.pid()).map_err(|error| format!("the command can't be watched: {error}"))?;
    let proxy = Proxy::begin(
        loaded,
        source,
        files,
        Bound { proxy, datagrams: doors.datagrams, control: None, own },
        Some(tap),
    )?;
    tracing::debug!(proxy = PROXY, "serving the command");
    let number = match inside.go(resolv_conf) {
        Ok(Ok(())) => None,
        Ok(Err(number)) => Some(number),
        // A signal came first; the wait tells which.
        Err(StartError::Ended) => None,
        Err(error) => return Err(error.to_string()),
    };
    let ended = supervisor.ended().await;
    let leftovers = supervisor.leftovers().await;
    if leftovers.found > 0 {
        let found = leftovers.found;
        tracing::warn!(leftovers = found, "the command left processes behind, which were ended");
    }
    if leftovers.remain > 0 {
        let remain = leftovers.remain;
        tracing::error!(remain, "processes of the command can't be ended; they have no network");
    }
    proxy.drain(DRAIN, supervisor.hurry()).await;
    let stopped = proxy.end().await;
    Ok(number.map_or(Outcome::Ended(ended, stopped), Outcome::NotExecuted))
}

fn warn_of_sockets(open: &[String]) {
    for socket in open {
        complain(&format!(
            "warning: {socket} is open to the command, which can get around egret through it, and can't be closed here; run this as a user who may not use it"
        ));
    }
}

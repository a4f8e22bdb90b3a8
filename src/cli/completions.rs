//! `egret completions`: completions of the command line for a shell, on standard output.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, say};

#[derive(Debug, Args)]
pub(super) struct CompletionsArgs {
    /// Shell to complete for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

impl CompletionsArgs {
    pub(super) fn run(self) -> u8 {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "egret", &mut script);
        say(&String::from_utf8_lossy(&script))
    }
}

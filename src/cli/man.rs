//! `egret man`: writes the manual pages, one for the program and one for each command.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use super::{Cli, FAILED, complain, say};

#[derive(Debug, Args)]
pub(super) struct ManArgs {
    /// Folder for the pages; made where there is none
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl ManArgs {
    pub(super) fn run(self) -> u8 {
        let out = self.out.display();
        let written = std::fs::create_dir_all(&self.out)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), &self.out));
        match written {
            Ok(()) => say(&format!("wrote the manual pages to {out}; read one with: man -l {out}/egret.1\n")),
            Err(error) => {
                complain(&format!("the manual pages can't be written to {out}: {error}"));
                FAILED
            }
        }
    }
}

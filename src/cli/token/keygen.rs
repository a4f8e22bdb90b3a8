//! `egret token keygen`: a new pair of Ed25519 keys, in two PEM files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{FAILED, Failure, finish};
use crate::cli::files::{PUBLIC, SECRET, with_ending, write_new};
use crate::identity::SigningKey;

#[derive(Debug, Args)]
pub(super) struct KeygenArgs {
    /// Files to write, without their endings .key and .pub
    #[arg(long, value_name = "PATH", default_value = "certs/token")]
    out: PathBuf,
    /// Print the names of the files as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Made {
    key: PathBuf,
    public: PathBuf,
}

impl KeygenArgs {
    pub(super) fn run(self) -> u8 {
        finish(make(&self.out), self.json, |made| {
            format!(
                "{}: keep it secret; tokens are signed with it\n{}: name it in `token_keys` of [identity]",
                made.key.display(),
                made.public.display()
            )
        })
    }
}

fn make(out: &Path) -> Result<Made, Failure> {
    let made = Made { key: with_ending(out, ".key"), public: with_ending(out, ".pub") };
    let failed = |error: crate::identity::KeyError| (error.to_string(), FAILED);
    let key = SigningKey::generate().map_err(failed)?;
    let (private, public) = (key.to_pem().map_err(failed)?, key.public().map_err(failed)?.to_pem());
    write_new(&[(&made.key, &private, SECRET), (&made.public, &public, PUBLIC)])?;
    Ok(made)
}

//! `egret token keygen`: a new pair of Ed25519 keys, in two PEM files.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{FAILED, Failure, finish};
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
    let named = |ending: &str| {
        let mut name = out.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let made = Made { key: named(".key"), public: named(".pub") };
    // A key that is replaced by mistake takes all its tokens with it.
    if let Some(there) = [&made.key, &made.public].into_iter().find(|path| path.exists()) {
        return Err((format!("{} exists; move it away, or choose another --out", there.display()), FAILED));
    }
    let failed = |error: crate::identity::KeyError| (error.to_string(), FAILED);
    let key = SigningKey::generate().map_err(failed)?;
    let (private, public) = (key.to_pem().map_err(failed)?, key.public().map_err(failed)?.to_pem());
    if let Some(folder) = out.parent() {
        let created = std::fs::create_dir_all(folder);
        created.map_err(|error| (format!("{} can't be made: {error}", folder.display()), FAILED))?;
    }
    write(&made.key, &private, 0o600)?;
    write(&made.public, &public, 0o644)?;
    Ok(made)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| (format!("{} can't be written: {error}", path.display()), FAILED))
}

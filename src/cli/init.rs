//! `egret init`: writes a starter configuration with a rule set and tests that pass.
//!
//! Overwrites nothing unless told to.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::{BAD_INPUT, FAILED, complain, say};

/// What is written, by path in the folder.
const FILES: [(&str, &str); 3] = [
    ("egret.toml", include_str!("init/egret.toml")),
    ("rules/example.toml", include_str!("init/example.toml")),
    ("policy-tests.toml", include_str!("init/policy-tests.toml")),
];

#[derive(Debug, Args)]
pub(super) struct InitArgs {
    /// Folder to write to; made where there is none
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Overwrite files that exist
    #[arg(long)]
    force: bool,
}

impl InitArgs {
    pub(super) fn run(self) -> u8 {
        let there: Vec<_> = FILES.iter().map(|(name, _)| self.dir.join(name)).collect();
        let there: Vec<_> = there.iter().filter(|path| path.symlink_metadata().is_ok()).collect();
        if !self.force && !there.is_empty() {
            for path in there {
                complain(&format!("{} exists", path.display()));
            }
            complain("nothing was written; take another folder with --dir, or overwrite with --force");
            return BAD_INPUT;
        }
        for (name, text) in FILES {
            let path = self.dir.join(name);
            if let Err(error) = write(&path, text, self.force) {
                complain(&format!("{} can't be written: {error}", path.display()));
                return FAILED;
            }
        }
        say(&self.next_steps())
    }

    fn next_steps(&self) -> String {
        let mut out = String::new();
        for (name, _) in FILES {
            out.push_str(&format!("wrote {}\n", self.dir.join(name).display()));
        }
        let config = shell_word(&self.dir.join("egret.toml"));
        let tests = shell_word(&self.dir.join("policy-tests.toml"));
        out.push_str(&format!(
            "\nNext:\n  egret check --config {config}\n  egret test --config {config} {tests}\n  egret serve --config {config}\n"
        ));
        out
    }
}

fn write(path: &Path, text: &str, force: bool) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut options = File::options();
    let options = if force { options.create(true).truncate(true) } else { options.create_new(true) };
    options.write(true).open(path)?.write_all(text.as_bytes())
}

/// The path as a shell takes it for one word.
fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_single_words_of_a_shell() {
        assert_eq!(shell_word(Path::new("./egret.toml")), "./egret.toml");
        assert_eq!(shell_word(Path::new("my dir/it's")), r"'my dir/it'\''s'");
    }
}

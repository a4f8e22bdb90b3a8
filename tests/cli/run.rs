//! Runs the program in a folder made for the test.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A sandbox `s` under a policy `p`, which may reach `a.example`.
pub const CONFIG: &str = r#"
[[sandbox]]
id = "s"
source = ["10.0.0.0/8"]
policy = "p"

[[policy.p.allow]]
domains = ["a.example"]
"#;

/// What came of a run.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `egret` with the arguments in the folder.
pub fn egret(folder: &Path, args: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_egret"));
    let output = command.args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap();
    Run {
        code: output.status.code().expect("ended by a signal"),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A folder with these files.
pub fn folder(files: &[(&str, &str)]) -> TempDir {
    let dir = TempDir::with_prefix("egret-cli-").unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

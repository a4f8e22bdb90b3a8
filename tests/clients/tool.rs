//! Running somebody else's program: found, kept from this machine's settings, and ended in time.

use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than any of them takes here, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where a client is installed. Without it the test is skipped, but where `CI=true` it fails.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        missing(name);
    }
    found
}

/// Says that a client is not installed.
pub fn missing(name: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{name} is not installed");
    println!("skipped: {name} is not installed");
}

/// How a client ended and what it wrote.
pub struct Outcome {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Outcome {
    /// What a client that succeeded wrote to standard output.
    #[track_caller]
    pub fn success(self) -> Vec<u8> {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    /// A failure of the client, with this text in what it wrote to standard error.
    #[track_caller]
    pub fn fails_saying(&self, text: &str) {
        assert!(!self.status.success(), "it should have failed: {self:?}");
        assert!(self.stderr.contains(text), "no {text:?} in what it wrote: {self:?}");
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (status, text, stderr) = (self.status, self.text(), &self.stderr);
        write!(f, "{status}\n--- standard output\n{text}\n--- standard error\n{stderr}---")
    }
}

/// A command with an environment of its own: its home is `home`, and nothing else is set but the
/// search path.
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("LANG", "C.UTF-8").current_dir(home).stdin(Stdio::null());
    for name in ["PATH", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// Runs it to its end; panics when that takes longer than two minutes.
pub fn run(mut command: Command) -> Outcome {
    // Files, because a pipe that nobody reads would stop it.
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    command.stdout(File::create(place("out")).unwrap()).stderr(File::create(place("err")).unwrap());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            let said = std::fs::read(place("err")).unwrap();
            panic!("{command:?} did not end within {PATIENCE:?}:\n{}", String::from_utf8_lossy(&said));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let stderr = String::from_utf8_lossy(&std::fs::read(place("err")).unwrap()).into_owned();
    Outcome { status, stdout: std::fs::read(place("out")).unwrap(), stderr }
}

//! Who runs `egret run`, and where: a folder, an origin on the loopback, and a configuration by which
//! the command reaches it under one of two names.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::support::egret::BINARY;
use crate::support::origin::Origin;

/// An ordinary user of every system.
const NOBODY: &str = "65534";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum User {
    /// Whoever runs the test.
    Own,
    /// Somebody without privileges.
    Ordinary,
}

/// The users that this machine lets have a network namespace.
pub fn users() -> Vec<User> {
    [User::Own, User::Ordinary].into_iter().filter(|user| user.may().map_err(skipped).is_ok()).collect()
}

/// Says what is not tested; in CI nothing may be missing.
pub fn skipped(missing: String) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{missing}");
    println!("skipped: {missing}");
}

impl User {
    /// A program as this user.
    pub fn command(self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        if self == Self::Own {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).arg(program);
        command
    }

    fn may(self) -> Result<(), String> {
        let tried = self.command("unshare").args(["--user", "--net", "true"]).stdin(Stdio::null()).output();
        match tried {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!(
                "no namespaces as {self:?} user: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Err(format!("`setpriv` or `unshare` (util-linux) does not run: {error}")),
        }
    }

    /// `egret run` as this user.
    pub fn run(self, folder: &Path) -> Command {
        let mut command = self.command(binary());
        // Temporary files where the test can see what is left of them.
        command.arg("run").current_dir(folder).env("TMPDIR", folder).stdin(Stdio::null());
        command
    }
}

/// The program, where everybody may execute it.
pub fn binary() -> &'static Path {
    static PLACE: OnceLock<(PathBuf, Option<TempDir>)> = OnceLock::new();
    let (path, _) = PLACE.get_or_init(|| {
        let reached = User::Ordinary.command("test").args(["-x", BINARY]).status();
        if reached.is_ok_and(|status| status.success()) {
            return (BINARY.into(), None);
        }
        let folder = open_folder();
        let path = folder.path().join("egret");
        fs::copy(BINARY, &path).unwrap();
        (path, Some(folder))
    });
    path
}

/// A folder that everybody may write to.
pub fn open_folder() -> TempDir {
    let folder = TempDir::with_prefix("egret-test-").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// An origin, and a folder with a configuration: `ok.test` is allowed, `no.test` is not, and both are
/// the origin.
pub struct Site {
    pub origin: Origin,
    pub folder: TempDir,
}

impl Site {
    pub fn begin() -> Self {
        let origin = Origin::replying("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let folder = open_folder();
        let config = format!(
            "[dns]\nhosts = {{ \"ok.test\" = [\"127.0.0.1\"], \"no.test\" = [\"127.0.0.1\"] }}\n\n\
             [[policy.site.allow]]\ndomains = [\"ok.test\"]\nports = [{}]\naddresses = [\"127.0.0.1\"]\n",
            origin.port()
        );
        fs::write(folder.path().join("egret.toml"), config).unwrap();
        Self { origin, folder }
    }

    /// `egret run` with this configuration and further options, before the command.
    pub fn run(&self, user: User, options: &[&str]) -> Command {
        let mut command = user.run(self.folder.path());
        command.args(["--config", "egret.toml"]).args(options).arg("--");
        command
    }

    /// Runs a shell script so.
    pub fn shell(&self, user: User, options: &[&str], script: &str) -> Told {
        let script = script.replace("{port}", &self.origin.port().to_string());
        told(self.run(user, options).args(["sh", "-c", &script]).output().unwrap())
    }

    /// What a run has left in its folder for temporary files.
    pub fn leftovers(&self) -> Vec<String> {
        leftovers(self.folder.path())
    }
}

pub fn leftovers(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.contains("egret-run")).collect()
}

/// What came of a run.
#[derive(Debug)]
pub struct Told {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

pub fn told(output: Output) -> Told {
    Told {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Is a program installed?
pub fn has(program: &str, argument: &str) -> bool {
    Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
}

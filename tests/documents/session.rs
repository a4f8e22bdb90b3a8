//! A reader's session: a folder, a shell, and the program under its own name.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::alike::{PAGE, alike, expect, object};
use crate::steps::{self, Step, What};
use crate::support::egret::BINARY;
use crate::support::wait_for;

/// How documents start the program in a checkout.
const BY_CARGO: &str = "cargo run --release -- ";
/// Not run, for a reason.
const NOT_RUN: [(&str, &str); 1] = [("cargo test --workspace", "it is what runs this")];
/// What `tests/compose` types in: it has the containers.
const IN_CONTAINERS: &str = "docker compose ";

pub struct Session {
    folder: TempDir,
    servers: Vec<Child>,
    /// The request IDs that were printed.
    requests: Vec<String>,
}

impl Session {
    pub fn begin() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["bin", "home", "work"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        symlink(BINARY, folder.path().join("bin/egret")).unwrap();
        // As on a terminal.
        fs::write(folder.path().join("home/.curlrc"), "no-progress-meter\n").unwrap();
        Self { folder, servers: Vec::new(), requests: Vec::new() }
    }

    /// Does all that a document says.
    pub fn follow(mut self, document: &str) {
        for Step { line, what } in steps::of(document) {
            let place = format!("{document}:{line}");
            match what {
                What::File { name, text } => {
                    fs::write(self.folder.path().join("work").join(name), text).unwrap()
                }
                What::Command { text, output } => self.type_in(&place, &text, &output),
                What::Record(record) => self.find_record(&place, &record),
            }
        }
    }

    fn type_in(&mut self, place: &str, text: &str, expected: &[String]) {
        if text.starts_with(IN_CONTAINERS) || NOT_RUN.iter().any(|(known, _)| *known == text) {
            return;
        }
        let text = text.replace(BY_CARGO, "egret ");
        if text.starts_with("egret serve") {
            return self.serve(place, &text);
        }
        let output = self.shell(&format!("exec 2>&1; {text}")).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        expect(&format!("{place}: `{text}`"), &printed, expected, || {
            if text.starts_with("curl ") { printed == PAGE } else { output.status.success() }
        });
        let ids =
            printed.lines().filter_map(|line| object(line)?.get("request")?.as_str().map(str::to_owned));
        self.requests.extend(ids);
    }

    fn serve(&mut self, place: &str, text: &str) {
        self.servers.push(self.shell(&format!("exec {text}")).stderr(Stdio::null()).spawn().unwrap());
        let serves = || TcpStream::connect("127.0.0.1:3128").is_ok();
        wait_for(&format!("{place}: `{text}` serves"), Duration::from_secs(20), serves);
    }

    /// A record of one of the requests that were refused.
    fn find_record(&self, place: &str, record: &str) {
        let written = fs::read_to_string(self.folder.path().join("work/audit.ndjson")).unwrap();
        let own = |line: &&str| self.requests.iter().any(|id| line.contains(&format!("\"id\":\"{id}\"")));
        let found = written.lines().filter(own).any(|line| alike(record, line));
        assert!(found, "{place}: no such record of {:?} in\n{written}", self.requests);
    }

    fn shell(&self, text: &str) -> Command {
        let folder = self.folder.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", text])
            .env_clear()
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .env("HOME", folder.join("home"))
            .current_dir(folder.join("work"))
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

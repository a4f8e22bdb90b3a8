//! A reader's session: a folder, a shell, and the program under its own name.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
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
/// Where a proxy with the default configuration has its control interface.
const CONTROL: &str = "127.0.0.1:3129";
/// How long a server may take to do what it has to.
const PATIENCE: Duration = Duration::from_secs(20);

/// Programs that the documents speak of and that stand for others here.
const PROGRAMS: [(&str, &str); 2] = [
    ("sudo", "#!/bin/sh\nexec \"$@\"\n"),
    // A build that fetches this and that.
    (
        "make",
        "#!/bin/sh\nfor name in git.example a.pkgs.example example.org; do curl -sS -o /dev/null http://$name/; done\n",
    ),
];

pub struct Session {
    folder: TempDir,
    servers: Vec<Child>,
    /// Does one of them read `egret.toml`?
    configured: bool,
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
        for (name, text) in PROGRAMS {
            let path = folder.path().join("bin").join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        // As on a terminal.
        fs::write(folder.path().join("home/.curlrc"), "no-progress-meter\n").unwrap();
        fs::write(folder.path().join("variables"), "").unwrap();
        Self { folder, servers: Vec::new(), configured: false, requests: Vec::new() }
    }

    /// Has the programs believe this authority.
    pub fn believing(self, authority: &str) -> Self {
        let path = self.folder.path().join("authority.pem");
        fs::write(&path, authority).unwrap();
        let path = path.display();
        let text = format!("export SSL_CERT_FILE={path}\nexport CURL_CA_BUNDLE={path}\n");
        fs::write(self.folder.path().join("variables"), text).unwrap();
        self
    }

    /// Does all that a document says.
    pub fn follow(mut self, document: &str) {
        for Step { line, what } in steps::of(document) {
            let place = format!("{document}:{line}");
            match what {
                What::File { name, text } => self.write(&place, &name, &text),
                What::Command { text, output } => self.type_in(&place, &text, &output),
                What::Record(record) => self.find_record(&place, &record),
            }
        }
    }

    /// Writes a file, and waits for servers to take it up.
    fn write(&self, place: &str, name: &str, text: &str) {
        let path = match name.strip_prefix("~/") {
            Some(name) => self.folder.path().join("home").join(name),
            None => self.folder.path().join("work").join(name),
        };
        let before = generation();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        if self.configured {
            wait_for(&format!("{place}: {name} is taken up"), PATIENCE, || generation() > before);
        }
    }

    fn type_in(&mut self, place: &str, text: &str, expected: &[String]) {
        if text.starts_with(IN_CONTAINERS) || NOT_RUN.iter().any(|(known, _)| *known == text) {
            return;
        }
        let text = text.replace(BY_CARGO, "egret ");
        if text.trim_start_matches("sudo ").starts_with("egret serve") {
            return self.serve(place, text.trim_end_matches(" &"));
        }
        let variables = self.variables();
        let variables = variables.display();
        let whole = if sets_variables(&text) {
            format!("exec 2>&1; set -a; {text}\nexport -p > {variables}")
        } else {
            format!("exec 2>&1; {text}")
        };
        let output = self.shell(&whole).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        expect(&format!("{place}: `{text}`"), &printed, expected, || {
            if text.starts_with("curl ") { printed == PAGE } else { output.status.success() }
        });
        let ids =
            printed.lines().filter_map(|line| object(line)?.get("request")?.as_str().map(str::to_owned));
        self.requests.extend(ids);
    }

    fn serve(&mut self, place: &str, text: &str) {
        self.configured = !text.contains("--allow");
        self.servers.push(self.shell(&format!("exec {text}")).stderr(Stdio::null()).spawn().unwrap());
        let serves = || TcpStream::connect(CONTROL).is_ok();
        wait_for(&format!("{place}: `{text}` serves"), PATIENCE, serves);
    }

    /// A record of one of the requests whose IDs were printed, if any were.
    fn find_record(&self, place: &str, record: &str) {
        let written = fs::read_to_string(self.folder.path().join("work/audit.ndjson")).unwrap();
        let own = |line: &&str| {
            let is = |id: &String| line.contains(&format!("\"id\":\"{id}\""));
            self.requests.is_empty() || self.requests.iter().any(is)
        };
        let found = written.lines().filter(own).any(|line| alike(record, line));
        assert!(found, "{place}: no such record of {:?} in\n{written}", self.requests);
    }

    /// What was set so far, as a shell reads it.
    fn variables(&self) -> PathBuf {
        self.folder.path().join("variables")
    }

    fn shell(&self, text: &str) -> Command {
        let folder = self.folder.path();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!(". {}; {text}", self.variables().display())])
            .env_clear()
            .env("PATH", format!("{}:{path}", folder.join("bin").display()))
            .env("HOME", folder.join("home"))
            .current_dir(folder.join("work"))
            .stdin(Stdio::null());
        command
    }
}

/// `export A=B`, or `A=B` alone.
fn sets_variables(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    text.starts_with("export ") || is_name && name.len() < text.len()
}

/// Which load of its configuration the server is at; 0 while none answers.
fn generation() -> u64 {
    let ask = || {
        let mut stream = TcpStream::connect(CONTROL)?;
        write!(stream, "GET /readyz HTTP/1.1\r\nHost: {CONTROL}\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    let answer = ask().unwrap_or_default();
    let ready = answer.split_once("\r\n\r\n").and_then(|(_, body)| object(body));
    ready.and_then(|ready| ready.get("policy_generation")?.as_u64()).unwrap_or_default()
}

impl Drop for Session {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

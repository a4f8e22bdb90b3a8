//! Runs clients that can say what they use, as `--ask-clients` asks for: no shell, the answer in
//! bounded time and length. What they say is read in `crate::registry`.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::complain;
use crate::registry::{Client, Findings};

/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest answer that is read, in octets.
const LONGEST: u64 = 1 << 20;

/// Asks those of the clients that have nothing set, and takes what they say.
pub(super) fn ask(clients: &[Client], dir: &Path, findings: &mut Findings) {
    for client in
        clients.iter().filter(|client| !findings.complete.contains(client)).copied().collect::<Vec<_>>()
    {
        let Some(line) = client.command() else { continue };
        match answer(line, dir) {
            Ok(text) => findings.take_answer(client, &text),
            Err(error) => complain(&format!("`{}` said nothing: {error}", line.join(" "))),
        }
    }
}

fn answer(line: &[&str], dir: &Path) -> Result<String, String> {
    let (program, arguments) = line.split_first().ok_or("there is no such command")?;
    let mut command = Command::new(program);
    command.args(arguments).current_dir(dir);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let stdout = child.stdout.take().ok_or("it has no standard output")?;
    let (sender, receiver) = mpsc::channel();
    let reading = thread::Builder::new().spawn(move || {
        let mut octets = Vec::new();
        let read = stdout.take(LONGEST).read_to_end(&mut octets);
        // Nobody waits any more where the time is up.
        let _ = sender.send(read.map(|_| octets));
    });
    let octets = match reading {
        Ok(_) => receiver.recv_timeout(PATIENCE).map_err(|_| "not in time".to_owned()),
        Err(error) => Err(format!("no thread to read it: {error}; raise the limit on threads (ulimit -u)")),
    };
    if octets.is_err() {
        // It may have ended by itself just now.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let octets = octets?.map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(status.to_string());
    }
    String::from_utf8(octets).map_err(|_| "not UTF-8".to_owned())
}

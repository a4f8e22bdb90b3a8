//! The program under test: its configuration, its life, and what it writes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::client::Client;
use super::http1::Response;

/// The program as cargo built it for this test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_egret");

const START_LIMIT: Duration = Duration::from_secs(20);
const STOP_LIMIT: Duration = Duration::from_secs(20);
const LOG_SHOWN: usize = 4000;

/// Where to listen for SOCKS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocksAt {
    /// On a free port of its own.
    OwnPort,
    /// Where it proxies.
    ProxyPort,
}

/// How to start egret. Begin with `Egret::with`.
#[derive(Debug, Clone)]
pub struct Builder {
    config: String,
    listen: Option<Vec<SocketAddr>>,
    control: Option<SocketAddr>,
    tls: Option<String>,
    socks: Option<SocksAt>,
    names: Option<SocketAddr>,
    listen_lines: String,
    audit: String,
    shell: Option<String>,
    files: Vec<(String, String)>,
    control_token: Option<String>,
}

impl Builder {
    /// Has the control interface ask for this token, which `Egret::control` then sends.
    #[must_use]
    pub fn control_token(mut self, token: &str) -> Self {
        self.control_token = Some(token.to_owned());
        self.file("control-token", token)
    }

    /// Listens here instead of on a free port of the loopback; the first address is `Egret::proxy`.
    #[must_use]
    pub fn listen(mut self, proxy: &[SocketAddr], control: SocketAddr) -> Self {
        self.listen = Some(proxy.to_vec());
        self.control = Some(control);
        self
    }

    /// Listens for TLS as well, on a free port; these are the other lines about it in `[listen]`.
    #[must_use]
    pub fn tls(mut self, lines: &str) -> Self {
        self.tls = Some(lines.to_owned());
        self
    }

    /// Listens for SOCKS as well.
    #[must_use]
    pub fn socks(mut self, at: SocksAt) -> Self {
        self.socks = Some(at);
        self
    }

    /// Answers questions for names as well, here.
    #[must_use]
    pub fn names(mut self, address: SocketAddr) -> Self {
        self.names = Some(address);
        self
    }

    /// Further lines of `[listen]`.
    #[must_use]
    pub fn listen_lines(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.listen_lines);
        self
    }

    /// Replaces the `[audit]` table. `{dir}` in it stands for the folder of this run.
    #[must_use]
    pub fn audit(mut self, table: &str) -> Self {
        table.clone_into(&mut self.audit);
        self
    }

    /// Shell commands to run first, in the process that then becomes egret, such as `ulimit -n 128`.
    #[must_use]
    pub fn shell(mut self, commands: &str) -> Self {
        self.shell = Some(commands.to_owned());
        self
    }

    /// Puts a file into the folder of this run, from which relative paths are taken.
    #[must_use]
    pub fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    /// Starts egret and waits until it serves; panics with its log where it does not.
    #[must_use]
    pub fn start(self) -> Egret {
        self.try_start().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts egret and waits until it serves; the error holds its log.
    pub fn try_start(self) -> Result<Egret, String> {
        let mut error = String::new();
        for _ in 0..3 {
            match self.clone().launch() {
                // Somebody took the port between our asking for a free one and egret's binding it.
                Err(text) if self.listen.is_none() && text.to_lowercase().contains("in use") => error = text,
                result => return result,
            }
        }
        Err(error)
    }

    fn launch(self) -> Result<Egret, String> {
        let dir = TempDir::with_prefix("egret-test-").map_err(|error| error.to_string())?;
        let [proxy, control, tls, socks, own] = free_addresses();
        let listen = self.listen.clone().unwrap_or_else(|| vec![proxy]);
        let control = self.control.unwrap_or(control);
        let names = self.names.map(|at| if at.port() == 0 { own } else { at });
        let mut egret = Egret {
            names: names.unwrap_or_else(|| (Ipv4Addr::UNSPECIFIED, 0).into()),
            proxy: listen[0],
            control,
            tls,
            socks: match self.socks {
                Some(SocksAt::ProxyPort) => listen[0],
                Some(SocksAt::OwnPort) | None => socks,
            },
            builder: self,
            listen,
            dir,
            child: None,
            audit_read: Mutex::new(0),
        };
        egret.configure(&egret.builder.config.clone());
        for (name, text) in &egret.builder.files {
            fs::write(egret.dir().join(name), text).map_err(|error| error.to_string())?;
        }
        egret.spawn()?;
        egret.wait_until_serving()?;
        Ok(egret)
    }
}

/// A running egret. Dropping it kills it, and shows its log where the test has failed.
#[derive(Debug)]
pub struct Egret {
    /// Where it proxies.
    pub proxy: SocketAddr,
    /// Where its control interface is.
    pub control: SocketAddr,
    /// Where it proxies over TLS, if it does.
    pub tls: SocketAddr,
    /// Where it speaks SOCKS, if it does.
    pub socks: SocketAddr,
    /// Where it answers questions for names, if it does.
    pub names: SocketAddr,
    builder: Builder,
    listen: Vec<SocketAddr>,
    dir: TempDir,
    child: Option<Child>,
    audit_read: Mutex<u64>,
}

impl Egret {
    /// A configuration without `[listen]`, `[audit]` and `[state]`, which the builder writes.
    pub fn with(config: impl Into<String>) -> Builder {
        Builder {
            config: config.into(),
            listen: None,
            control: None,
            tls: None,
            socks: None,
            names: None,
            listen_lines: String::new(),
            audit: "file = \"{dir}/audit.ndjson\"\n".to_owned(),
            shell: None,
            files: Vec::new(),
            control_token: None,
        }
    }

    /// The folder of this run: configuration, audit file, log.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir().join("egret.toml")
    }

    /// Writes another configuration for the same listeners, in one step, and tells egret nothing.
    pub fn configure(&self, config: &str) {
        let listen: Vec<String> = self.listen.iter().map(|a| format!("{:?}", a.to_string())).collect();
        let dir = self.dir().display().to_string();
        let token = self.builder.control_token.as_ref();
        let token = token.map(|_| format!("control_token_file = \"{dir}/control-token\"\n"));
        let tls = self.builder.tls.as_ref().map(|lines| format!("tls = \"{}\"\n{lines}\n", self.tls));
        let socks = self.builder.socks.map(|_| format!("socks = \"{}\"\n", self.socks));
        let names = self.builder.names.map(|_| format!("dns = \"{}\"\n", self.names));
        let text = format!(
            "[listen]\nproxy = [{}]\ncontrol = \"{}\"\n{}\n[audit]\n{}\n[state]\ndir = \"{dir}/state\"\n\n{config}",
            listen.join(", "),
            self.control,
            [token, tls, socks, names].map(Option::unwrap_or_default).concat() + &self.builder.listen_lines,
            self.builder.audit.replace("{dir}", &dir),
        );
        let draft = self.dir().join("egret.toml.new");
        fs::write(&draft, text).unwrap();
        fs::rename(draft, self.config_file()).unwrap();
    }

    fn command(&self) -> Command {
        let file = self.config_file();
        let Some(shell) = &self.builder.shell else {
            let mut command = Command::new(BINARY);
            command.args(["serve", "--config"]).arg(file);
            return command;
        };
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}; exec \"$0\" \"$@\""), BINARY, "serve", "--config"]).arg(file);
        command
    }

    fn spawn(&mut self) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.dir().join("stderr.log"));
        let log = log.map_err(|error| error.to_string())?;
        let mut command = self.command();
        let child = command
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|error| error.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{BINARY} does not start: {error}"))?;
        self.child = Some(child);
        Ok(())
    }

    /// Starts it again with the same folder and listeners, after it has ended.
    pub fn restart(&mut self) {
        let started = self.spawn().and_then(|()| self.wait_until_serving());
        started.unwrap_or_else(|error| panic!("{error}"));
    }

    fn wait_until_serving(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.exited() {
                return Err(format!("egret ended at its start, {status}:\n{}", self.log()));
            }
            if TcpStream::connect(self.proxy).is_ok() && TcpStream::connect(self.control).is_ok() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(format!("egret did not listen within {START_LIMIT:?}:\n{}", self.log()))
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("started"))
    }

    /// How it ended, or nothing while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|child| child.try_wait().ok().flatten())
    }

    fn is_running(&self) -> bool {
        let folder = self.child.as_ref().map(|child| format!("/proc/{}/fd", child.id()));
        folder.is_some_and(|folder| fs::read_dir(folder).is_ok())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("egret runs");
    }

    /// Asks it to stop and waits for it to end; panics when it does not within 20 s.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Waits for it to end by itself; panics when it does not within 20 s.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) = self.exited() {
                return status;
            }
            assert!(Instant::now() < deadline, "egret did not end within {STOP_LIMIT:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends it as a crash would: nothing of its own runs any more.
    pub fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A request to the control interface.
    pub fn control(&self, method: &str, path: &str) -> Response {
        self.control_with(method, path, &[], "")
    }

    /// A request to the control interface with further fields and a body.
    pub fn control_with(&self, method: &str, path: &str, fields: &[&str], body: &str) -> Response {
        let mut client = Client::connect(self.control);
        let token = self.builder.control_token.as_ref();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let (host, length) = (self.control, body.len());
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}{fields}Content-Length: {length}\r\n\r\n{body}"
        ));
        client.final_response(method)
    }

    /// `POST /v1/reload`.
    pub fn reload(&self) -> Response {
        self.control("POST", "/v1/reload")
    }

    /// Files and sockets that it has open.
    pub fn open_files(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.pid().as_raw_nonzero());
        fs::read_dir(folder).expect("egret runs").count()
    }

    /// Processor time that it has used so far, in user and kernel together.
    pub fn cpu_time(&self) -> Duration {
        let stat = format!("/proc/{}/stat", self.pid().as_raw_nonzero());
        let stat = fs::read_to_string(stat).expect("egret runs");
        // Behind the name in parentheses, which may hold anything: fields 3 and following.
        let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10) // USER_HZ is 100
    }

    /// Octets of memory that it has in use.
    pub fn memory(&self) -> usize {
        let status = format!("/proc/{}/status", self.pid().as_raw_nonzero());
        let status = fs::read_to_string(status).expect("egret runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
    }

    /// Whether a shared object whose name holds this text is mapped into it.
    pub fn has_mapped(&self, text: &str) -> bool {
        let maps = format!("/proc/{}/maps", self.pid().as_raw_nonzero());
        fs::read_to_string(maps).expect("egret runs").contains(text)
    }

    /// Every audit record so far. A line that is not one JSON object fails the test.
    pub fn audit_records(&self) -> Vec<Value> {
        let running = self.is_running();
        let mut text = fs::read_to_string(self.audit_file()).unwrap_or_default();
        if running {
            // A write under way shows in parts; what stands behind the last line end is not done.
            text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        }
        text.lines()
            .map(|line| {
                serde_json::from_str(line)
                    .unwrap_or_else(|error| panic!("audit line {line:?} is no JSON: {error}"))
            })
            .collect()
    }

    /// The audit records of one kind.
    pub fn events(&self, event: &str) -> Vec<Value> {
        self.audit_records().into_iter().filter(|r| r["event"] == event).collect()
    }

    /// What was appended to the audit file since the last call, as it stands there.
    pub fn audit_news(&self) -> Vec<u8> {
        let mut read = self.audit_read.lock().unwrap();
        let mut out = Vec::new();
        if let Ok(mut file) = File::open(self.audit_file()) {
            file.seek(SeekFrom::Start(*read)).unwrap();
            file.read_to_end(&mut out).unwrap();
        }
        *read += out.len() as u64;
        out
    }

    pub fn audit_file(&self) -> PathBuf {
        self.dir().join("audit.ndjson")
    }

    /// The end of what it wrote to standard output and standard error.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir().join("stderr.log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(LOG_SHOWN)..]).into_owned()
    }
}

impl Drop for Egret {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- egret's log\n{}---", self.log());
        }
        self.kill();
    }
}

/// Held together while they are looked for, so that no two are the same.
fn free_addresses<const N: usize>() -> [SocketAddr; N] {
    let any = (IpAddr::from(Ipv4Addr::LOCALHOST), 0);
    let listeners = [(); N].map(|()| TcpListener::bind(any).expect("a free port"));
    listeners.map(|listener| listener.local_addr().unwrap())
}

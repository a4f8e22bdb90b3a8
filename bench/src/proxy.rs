//! The proxies: each with an allowlist in force and, where wanted, its log written to a file.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use tempfile::TempDir;

use crate::Failure;
use crate::load;
use crate::origin::Origin;
use crate::process::Process;

/// How long a proxy may take to let the first request through.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A name that no list holds.
const REFUSED: &str = "refused.bench.test";

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// No proxy: what the clients and the origin could do.
    Direct,
    Egret,
    Squid,
    Tinyproxy,
}

/// What a proxy is started with.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Names on its allowlist; the one that is used is the last.
    pub names: usize,
    /// Is the log written to a file, or thrown away?
    pub log: bool,
}

/// A proxy that lets the origin's name through and no other.
#[derive(Debug)]
pub struct Running {
    pub kind: Kind,
    /// Where it listens; nothing for `Direct`.
    pub address: Option<SocketAddr>,
    /// Nothing for `Direct`.
    pub process: Option<Process>,
    /// From its start until it let a request through.
    pub start: Duration,
    log: PathBuf,
    _folder: TempDir,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Direct, Self::Egret, Self::Squid, Self::Tinyproxy];

    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Egret => "egret",
            Self::Squid => "squid",
            Self::Tinyproxy => "tinyproxy",
        }
    }

    /// The name by which the origin is asked for. egret asks the DNS server here; squid is given a
    /// hosts file; tinyproxy can only ask the system, which knows this one everywhere.
    pub fn origin_name(self) -> &'static str {
        match self {
            Self::Direct | Self::Tinyproxy => "localhost",
            Self::Egret | Self::Squid => "origin.bench.test",
        }
    }

    /// Can a client send another request on the same connection? tinyproxy closes it, and does not say so.
    pub fn keeps_connections(self) -> bool {
        self != Self::Tinyproxy
    }

    /// What it says of its version, in one line; an error where it is not installed.
    pub fn version(self, egret: &Path) -> Result<String, Failure> {
        let (program, argument) = match self {
            Self::Direct => return Ok("no proxy".to_owned()),
            Self::Egret => (egret, "--version"),
            Self::Squid => (Path::new("squid"), "-v"),
            Self::Tinyproxy => (Path::new("tinyproxy"), "-v"),
        };
        let output = Command::new(program).arg(argument).output();
        let output = output.map_err(|error| format!("{} does not run: {error}", program.display()))?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    }

    /// Starts it and sees that it does what it is measured for: lets one name through, refuses others.
    pub async fn start(self, egret: &Path, origin: &Origin, setup: Setup) -> Result<Running, Failure> {
        let folder = TempDir::with_prefix("egret-bench-")?;
        // Squid gives root up and has to write here all the same.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
        let address = free_address()?;
        let place = Place { folder: folder.path(), address, setup };
        let command = self.command(egret, origin, &place)?;
        let (log, output) = (place.log(), folder.path().join("output"));
        let mut running =
            Running { kind: self, address: None, process: None, start: Duration::ZERO, log, _folder: folder };
        let Some(mut command) = command else { return Ok(running) };
        let file = File::create(&output)?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let began = Instant::now();
        let mut process = Process::start(&mut command)?;
        running.address = Some(address);
        while load::status(&running, self.origin_name(), origin).await.ok() != Some(200) {
            if process.ended() || began.elapsed() > START_LIMIT {
                let said = fs::read_to_string(&output).unwrap_or_default();
                return Err(format!("it lets nothing through after {:?}:\n{said}", began.elapsed()).into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        running.start = began.elapsed();
        running.process = Some(process);
        let refused = load::status(&running, REFUSED, origin).await?;
        if refused != 403 {
            return Err(format!("it answers {refused} to a name that it should refuse with 403").into());
        }
        Ok(running)
    }

    fn command(self, egret: &Path, origin: &Origin, place: &Place<'_>) -> Result<Option<Command>, Failure> {
        Ok(Some(match self {
            Self::Direct => return Ok(None),
            Self::Egret => egret_command(egret, origin, place)?,
            Self::Squid => squid_command(place)?,
            Self::Tinyproxy => tinyproxy_command(place)?,
        }))
    }
}

impl Running {
    /// Octets in its log.
    pub fn log_size(&self) -> u64 {
        fs::metadata(&self.log).map_or(0, |metadata| metadata.len())
    }
}

/// Where and how one proxy is to run.
struct Place<'a> {
    folder: &'a Path,
    address: SocketAddr,
    setup: Setup,
}

impl Place<'_> {
    fn log(&self) -> PathBuf {
        if self.setup.log { self.folder.join("log") } else { PathBuf::from("/dev/null") }
    }

    /// The allowlist, its used name last.
    fn names(&self, used: &str) -> Vec<String> {
        let others = (1..self.setup.names).map(|number| format!("name-{number}.list.test"));
        others.chain([used.to_owned()]).collect()
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}

fn egret_command(egret: &Path, origin: &Origin, place: &Place<'_>) -> Result<Command, Failure> {
    let names = place.names(Kind::Egret.origin_name());
    let config = format!(
        "[listen]\nproxy = \"{}\"\ncontrol = \"{}\"\n\n[dns]\nservers = [\"{}\"]\n\n\
         [audit]\nfile = {:?}\n\n[state]\ndir = {:?}\n\n\
         [[sandbox]]\nid = \"bench\"\nsource = [\"127.0.0.0/8\"]\npolicy = \"bench\"\n\n\
         [policy.bench.limits]\nrequests = \"1000000/s\"\nconnections = 100000\n\n\
         [[policy.bench.allow]]\naddresses = [\"127.0.0.1\"]\nports = {:?}\ndomains = {names:?}\n",
        place.address,
        free_address()?,
        origin.dns,
        place.log(),
        place.folder.join("state"),
        origin.ports(),
    );
    let mut command = Command::new(egret);
    command.args(["serve", "--config"]).arg(place.write("egret.toml", &config)?);
    Ok(command)
}

fn squid_command(place: &Place<'_>) -> Result<Command, Failure> {
    let name = Kind::Squid.origin_name();
    let hosts = place.write("hosts", &format!("127.0.0.1 {name}\n"))?;
    let list = place.write("list", &(place.names(name).join("\n") + "\n"))?;
    // What writes the log in its own process, as egret and tinyproxy do.
    let log = if place.setup.log { format!("stdio:{}", place.log().display()) } else { "none".to_owned() };
    let config = format!(
        "http_port {}\npid_filename none\naccess_log {log}\ncache_log {folder}/cache.log\n\
         coredump_dir {folder}\ncache deny all\nhosts_file {}\npinger_enable off\n\
         max_filedescriptors 32768\nshutdown_lifetime 0 seconds\n\
         acl allowed dstdomain \"{}\"\nhttp_access allow allowed\nhttp_access deny all\n",
        place.address,
        hosts.display(),
        list.display(),
        folder = place.folder.display(),
    );
    let mut command = Command::new("squid");
    command.args(["-N", "-f"]).arg(place.write("squid.conf", &config)?);
    Ok(command)
}

fn tinyproxy_command(place: &Place<'_>) -> Result<Command, Failure> {
    let mut list = String::new();
    for name in place.names(Kind::Tinyproxy.origin_name()) {
        writeln!(list, "^{}$", name.replace('.', "\\."))?;
    }
    let list = place.write("list", &list)?;
    let config = format!(
        "Port {}\nListen 127.0.0.1\nTimeout 600\nMaxClients 10000\nLogFile \"{}\"\nLogLevel Connect\n\
         Filter \"{}\"\nFilterDefaultDeny Yes\nFilterType ere\n",
        place.address.port(),
        place.log().display(),
        list.display(),
    );
    let mut command = Command::new("tinyproxy");
    command.args(["-d", "-c"]).arg(place.write("tinyproxy.conf", &config)?);
    Ok(command)
}

/// An address that was free a moment ago.
fn free_address() -> Result<SocketAddr, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

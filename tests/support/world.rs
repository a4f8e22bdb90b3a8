//! The closed world of a test process: its own network and mounts.
//!
//! Inside, every address of both families is local (AnyIP), so a dial to
//! anywhere ends on this machine and shows which address was asked for. Nothing
//! can leave: the only interface is the loopback. The host is never changed.
//!
//! A process can't be moved once it has threads, so a world starts with a new
//! process: `command` runs this executable again through `unshare`, and that
//! process calls `World::enter`.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the scripted DNS server listens.
pub const DNS_ADDRESS: &str = "127.0.0.53";
/// The client that most tests speak as.
pub const CLIENT: &str = "127.0.0.2";

const RESOLV_CONF: &str = "nameserver 127.0.0.53\noptions timeout:2 attempts:2\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
/// Who asks the system's resolver loads a module by this, which shows in its memory map.
const NSSWITCH_CONF: &str = "hosts: compat files dns\n";
/// Set in a process that `command` started.
const MARKER: &str = "EGRET_TEST_WORLD";

/// A command that runs this executable in namespaces of its own.
///
/// Fails with what this machine lacks, in words for a person.
pub fn command() -> Result<Command, String> {
    let flags = namespace_flags()?;
    let this = std::env::current_exe().map_err(|error| format!("no path to the test itself: {error}"))?;
    let mut command = Command::new("unshare");
    command.args(flags).arg("--").arg(this).env(MARKER, "1");
    Ok(command)
}

/// Whether `command` started this process.
pub fn inside() -> bool {
    std::env::var_os(MARKER).is_some()
}

/// Runs the test of this name in a world of its own, in which the body is what it does. Says that it
/// was skipped where there is none; with CI=true it fails instead.
pub fn in_a_world(test: &str, body: impl FnOnce()) {
    if inside() {
        return body();
    }
    let mut command = match command() {
        Ok(command) => command,
        Err(missing) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no closed world: {missing}");
            println!("skipped, for want of a closed world: {missing}");
            return;
        }
    };
    let output = command.args(["--exact", test, "--nocapture"]).output().unwrap();
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(" 1 passed;"), "{said}{log}");
}

/// As root plain namespaces do; anyone else needs to be root of a user namespace.
fn namespace_flags() -> Result<Vec<&'static str>, String> {
    let spaces = ["--net", "--mount"];
    let as_user = ["--user", "--map-root-user", "--net", "--mount"];
    let mut last = String::new();
    for flags in [&spaces[..], &as_user[..]] {
        let probe =
            "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && ip -6 route add local ::/0 dev lo";
        let tried =
            Command::new("unshare").args(flags).args(["--", "sh", "-c", probe]).stdin(Stdio::null()).output();
        match tried {
            Ok(output) if output.status.success() => return Ok(flags.to_vec()),
            Ok(output) => last = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => return Err(format!("`unshare` (util-linux) does not run: {error}")),
        }
    }
    Err(format!(
        "no network namespace with a routed loopback: {last} (needs root or user namespaces, iproute2, and IPv6)"
    ))
}

/// Proof that this process is in its own namespaces, and the files it put over `/etc`.
#[derive(Debug)]
pub struct World {
    files: PathBuf,
    own_files: bool,
}

impl World {
    /// Brings the interface up and puts our own files into `/etc`: `resolv.conf`, `hosts`, `nsswitch.conf`.
    ///
    /// `files` is an empty folder to keep them in. To be called once, in a process
    /// that `command` started.
    pub fn enter(files: &Path) -> Result<Self, String> {
        if !inside() {
            return Err("not in namespaces of its own: start this process with world::command".to_owned());
        }
        run("ip", ["link", "set", "lo", "up"])?;
        run("ip", ["route", "add", "local", "0.0.0.0/0", "dev", "lo"])?;
        run("ip", ["-6", "route", "add", "local", "::/0", "dev", "lo"])?;
        let mut world = Self { files: files.to_owned(), own_files: true };
        for (name, text) in [("resolv.conf", RESOLV_CONF), ("hosts", HOSTS), ("nsswitch.conf", NSSWITCH_CONF)]
        {
            world.write(name, text)?;
            let place = Path::new("/etc").join(name);
            let place = place.canonicalize().unwrap_or(place);
            let own = world.files.join(name);
            let bound = run("mount", [OsStr::new("--bind"), own.as_os_str(), place.as_os_str()]).is_ok();
            world.own_files &= bound || !place.exists();
        }
        Ok(world)
    }

    /// Whether the files that exist in `/etc` are ours; not every container permits it.
    pub fn owns_files(&self) -> bool {
        self.own_files
    }

    /// Changes `/etc/hosts` and `/etc/resolv.conf`: entries and search domains beside our own.
    pub fn set_name_files(&self, hosts: &[(String, String)], search: &[String]) -> Result<(), String> {
        let entries: String = hosts.iter().map(|(name, address)| format!("{address} {name}\n")).collect();
        self.write("hosts", &format!("{HOSTS}{entries}"))?;
        let list = if search.is_empty() {
            String::new()
        } else {
            format!("search {}\noptions ndots:5\n", search.join(" "))
        };
        self.write("resolv.conf", &format!("{list}{RESOLV_CONF}"))
    }

    /// Gives the interface a real address, as a host's own public one.
    pub fn add_address(&self, address: IpAddr) -> Result<(), String> {
        let bits = if address.is_ipv6() { 128 } else { 32 };
        run("ip", ["address", "replace", &format!("{address}/{bits}"), "dev", "lo"])
    }

    /// Makes dials to some addresses fail at once, until the value is dropped.
    pub fn unreachable(&self, addresses: &[IpAddr]) -> Result<Unreachable, String> {
        let mut out = Unreachable(Vec::new());
        for &address in addresses {
            route("add", address)?;
            out.0.push(address);
        }
        Ok(out)
    }

    /// Writes in place: a bind mount follows the file, not its name.
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        std::fs::write(self.files.join(name), text).map_err(|error| format!("{name}: {error}"))
    }
}

/// See `World::unreachable`.
#[derive(Debug)]
pub struct Unreachable(Vec<IpAddr>);

impl Drop for Unreachable {
    fn drop(&mut self) {
        for &address in &self.0 {
            let _ = route("del", address);
        }
    }
}

fn route(verb: &str, address: IpAddr) -> Result<(), String> {
    let family = if address.is_ipv6() { "-6" } else { "-4" };
    run("ip", [family, "route", verb, "unreachable", &address.to_string(), "table", "local"])
}

fn run<S: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = S>) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("`{program}` does not run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{program}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

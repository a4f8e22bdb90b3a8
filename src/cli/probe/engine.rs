//! Sockets of container engines: whoever may speak to one is root on the machine outside.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::check::{Outcome, Plan};
use super::environment::Environment;
use super::socket;

/// Where engines listen, below the folder for state (`/run`) or a user's own.
const PLACES: [&str; 12] = [
    "docker.sock",
    "docker/containerd/containerd.sock",
    "containerd/containerd.sock",
    "podman/podman.sock",
    "crio/crio.sock",
    "cri-dockerd.sock",
    "dockershim.sock",
    "buildkit/buildkitd.sock",
    "k3s/containerd/containerd.sock",
    "lxd/unix.socket",
    "incus/unix.socket",
    "nerdctl/nerdctl.sock",
];
/// Folders for state, as they stand below the root of some machine.
const FOLDERS: [&str; 3] = ["", "run", "var/run"];
/// What names of engines' sockets hold.
const WORDS: [&str; 9] =
    ["docker", "containerd", "podman", "crio", "buildkit", "dockershim", "nerdctl", "lxd", "incus"];
/// Variables that lead to one.
const VARIABLES: [&str; 4] = ["DOCKER_HOST", "CONTAINER_HOST", "CONTAINERD_ADDRESS", "BUILDKIT_HOST"];
/// File systems that hold no sockets, and are slow or odd to look into.
const PSEUDO: [&str; 8] = ["proc", "sysfs", "cgroup", "cgroup2", "mqueue", "devpts", "securityfs", "bpf"];

/// Adds the check: one line for all of them, or one for each that there is.
pub(super) fn plan(environment: &Environment, patience: Duration, plan: &mut Plan) {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let abstract_sockets = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut found = candidates(&mounts);
    for name in VARIABLES {
        let Some(value) = environment.get(name) else { continue };
        match value.strip_prefix("unix://").or_else(|| value.starts_with('/').then_some(value)) {
            Some(path) => drop(found.insert(PathBuf::from(path))),
            None => {
                let detail = "names a container engine; what is inside must have none";
                plan.known("engine-socket", name, Outcome::fail(detail));
            }
        }
    }
    let present: Vec<_> = found.into_iter().filter(|path| is_socket(path)).collect();
    for path in &present {
        let own = path.clone();
        plan.add("engine-socket", path.display().to_string(), async move { check(&own, patience).await });
    }
    let reachable: Vec<_> = engines_of(&abstract_sockets);
    for name in &reachable {
        let detail = "an abstract socket of an engine is in this network namespace";
        plan.known("engine-socket", name.escape_debug().to_string(), Outcome::fail(detail));
    }
    if present.is_empty() && reachable.is_empty() {
        plan.known("engine-socket", "-", Outcome::pass("none at the usual places, in any mount or by name"));
    }
}

async fn check(path: &Path, patience: Duration) -> Outcome {
    let named = is_named_so(&path.to_string_lossy());
    match socket::ask_unix(path, patience).await {
        Ok(answer) if speaks_engine(&answer) => Outcome::fail("a container engine answers"),
        Ok(_) if named => Outcome::fail("can be opened, and is named like an engine's"),
        Ok(_) => Outcome::pass("a mounted socket, but no container engine answers"),
        Err(error) if named && error.kind() == io::ErrorKind::PermissionDenied => {
            Outcome::unsupported("is here, but this user may not open it; another one in the sandbox might")
        }
        Err(error) if named => Outcome::fail(format!("is here, though nobody answers now: {error}")),
        Err(error) => Outcome::pass(format!("a mounted socket that nobody serves: {error}")),
    }
}

/// Files that may be an engine's socket.
fn candidates(mounts: &str) -> BTreeSet<PathBuf> {
    let mut out = BTreeSet::new();
    for folder in user_folders() {
        out.extend(PLACES.iter().map(|place| folder.join(place)));
    }
    for mount in mounts.lines().filter_map(Mount::read) {
        if PSEUDO.contains(&mount.kind.as_str()) {
            continue;
        }
        for folder in FOLDERS {
            let folder = mount.point.join(folder);
            out.extend(PLACES.iter().map(|place| folder.join(place)));
        }
        out.insert(mount.point);
    }
    // One name for each file, whatever links lead there.
    out.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect()
}

/// Folders of users' own engines.
fn user_folders() -> Vec<PathBuf> {
    let users = std::fs::read_dir("/run/user").into_iter().flatten().flatten().map(|entry| entry.path());
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let standing = ["/run", "/var/run"].map(PathBuf::from);
    standing.into_iter().chain(users).chain(own).collect()
}

fn is_socket(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}

fn is_named_so(name: &str) -> bool {
    WORDS.iter().any(|word| name.contains(word))
}

/// Is this an answer of the API that Docker and Podman speak?
fn speaks_engine(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    text.contains("\r\napi-version:") || text.contains("\r\nserver: docker") || text.contains("libpod-api")
}

/// The abstract sockets of engines in `/proc/net/unix`.
fn engines_of(table: &str) -> Vec<String> {
    let names = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7));
    let found: BTreeSet<_> = names.filter(|name| name.starts_with('@') && is_named_so(name)).collect();
    found.into_iter().map(str::to_owned).collect()
}

/// A line of `/proc/self/mountinfo`.
struct Mount {
    point: PathBuf,
    kind: String,
}

impl Mount {
    fn read(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?;
        let kind = after.split(' ').next()?.to_owned();
        Some(Self { point: PathBuf::from(unescape(point)), kind })
    }
}

/// Undoes the octal escapes of blanks and backslashes.
fn unescape(text: &str) -> String {
    let pairs = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    pairs.iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_looked_into_and_pseudo_ones_are_not() {
        let mounts = "22 1 0:20 / / rw - overlay overlay rw\n\
            23 22 0:21 / /proc rw - proc proc rw\n\
            24 22 0:22 / /host\\040run rw shared:1 - tmpfs tmpfs rw\n\
            25 22 0:22 /docker.sock /tmp/x rw - tmpfs tmpfs rw\nnonsense\n";
        let found = candidates(mounts);
        for path in [
            "/host run/docker.sock",
            "/host run/podman/podman.sock",
            "/tmp/x",
            "/host run/var/run/docker.sock",
        ] {
            assert!(found.contains(Path::new(path)), "{path} in {found:?}");
        }
        assert!(!found.iter().any(|path| path.starts_with("/proc")), "{found:?}");
    }

    #[test]
    fn abstract_sockets_of_engines_are_found() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 1 @/containerd-shim/x.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 2 /run/docker.sock\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 3 @/tmp/.X11-unix/X0\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 4\n";
        assert_eq!(engines_of(table), ["@/containerd-shim/x.sock"]);
    }

    #[test]
    fn an_engine_is_known_by_its_answer() {
        assert!(speaks_engine(b"HTTP/1.0 200 OK\r\nApi-Version: 1.41\r\n\r\nOK"));
        assert!(!speaks_engine(b"HTTP/1.0 200 OK\r\n\r\nOK") && !speaks_engine(b""));
    }
}

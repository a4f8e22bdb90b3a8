//! Sockets in the file system by which a command could have others work for it. The network
//! namespace does not hold them back; they are looked for, never opened.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Of container engines, which start what has a network.
const ENGINES: [&str; 6] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
];
/// Of engines that users run for themselves, in `XDG_RUNTIME_DIR`.
const OF_USERS: [&str; 3] = ["docker.sock", "podman/podman.sock", "buildkit/buildkitd.sock"];

/// The sockets of container engines that this process may write to.
#[must_use]
pub fn engine_sockets() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.iter().flat_map(|folder| OF_USERS.iter().map(|name| folder.join(name)));
    let named = std::env::var("DOCKER_HOST").ok();
    let named = named.as_deref().and_then(|host| host.strip_prefix("unix://")).map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for path in ENGINES.into_iter().map(PathBuf::from).chain(own).chain(named) {
        // /var/run is /run on most systems.
        let Ok(path) = fs::canonicalize(path) else { continue };
        if is_open_socket(&path) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

fn is_open_socket(path: &Path) -> bool {
    let is_socket = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    is_socket && access(path, Access::WRITE_OK).is_ok()
}

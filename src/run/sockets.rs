//! Sockets that the network namespace does not hold back: those in the file system by which a command
//! could have others work for it, and those among its standard input and output. They are looked for,
//! never opened or used.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType, getpeername};

/// Of container engines, which start what has a network.
const ENGINES: [&str; 13] = [
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/docker/containerd/containerd.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/cri-dockerd.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/nerdctl/nerdctl.sock",
    "/var/lib/lxd/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
];
/// Of engines that users run for themselves, in `XDG_RUNTIME_DIR`.
const OF_USERS: [&str; 3] = ["docker.sock", "podman/podman.sock", "buildkit/buildkitd.sock"];
/// Of services that look up whatever name they are asked for.
const NAME_SERVICES: [&str; 3] =
    ["/run/nscd/socket", "/var/run/nscd/socket", "/run/systemd/resolve/io.systemd.Resolve"];

/// The sockets of container engines and name services that there are.
pub(super) fn helpers() -> Vec<PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.iter().flat_map(|folder| OF_USERS.iter().map(|name| folder.join(name)));
    let named = std::env::var("DOCKER_HOST").ok();
    let named = named.as_deref().and_then(|host| host.strip_prefix("unix://")).map(PathBuf::from);
    let known = ENGINES.into_iter().chain(NAME_SERVICES).map(PathBuf::from);
    let mut found: Vec<PathBuf> = Vec::new();
    for path in known.chain(own).chain(named) {
        // /var/run is /run on most systems.
        let Ok(path) = fs::canonicalize(path) else { continue };
        let is_socket = fs::metadata(&path).is_ok_and(|meta| meta.file_type().is_socket());
        if is_socket && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// May this process write to a socket?
pub(super) fn is_open(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

/// Which of the standard input, output and error a command could use as a way out. A socket stays in
/// the namespace in which it was opened, and can be connected anew: to `AF_UNSPEC`, and then anywhere
/// (connect(2)).
#[must_use]
pub fn standard_way_out() -> Option<&'static str> {
    let (input, output, error) = (io::stdin(), io::stdout(), io::stderr());
    let standard = [
        (input.as_fd(), "standard input"),
        (output.as_fd(), "standard output"),
        (error.as_fd(), "standard error"),
    ];
    standard.into_iter().find(|(descriptor, _)| leads_out(descriptor)).map(|(_, name)| name)
}

/// Only a connected stream within this machine leads where it leads, and nowhere else.
fn leads_out(descriptor: impl AsFd) -> bool {
    let descriptor = descriptor.as_fd();
    let Ok(kind) = socket_type(descriptor) else { return false };
    let is_stream = kind == SocketType::STREAM || kind == SocketType::SEQPACKET;
    let is_local = socket_domain(descriptor).is_ok_and(|family| family == AddressFamily::UNIX);
    !(is_stream && is_local && getpeername(descriptor).is_ok())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn sockets_that_can_be_connected_anew_lead_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(leads_out(&listener));
        assert!(leads_out(UnixDatagram::unbound().unwrap()));
        let (stream, peer) = UnixStream::pair().unwrap();
        assert!(!leads_out(&stream));
        drop(peer);
        assert!(!leads_out(&stream));
        assert!(!leads_out(io::pipe().unwrap().0));
        assert!(!leads_out(fs::File::open("/dev/null").unwrap()));
    }
}

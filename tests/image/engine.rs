//! Containers of the image, on a network of their own, through the engine's command line.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::wait_for;

/// The image's name; nothing where the tests are to be skipped.
pub fn image() -> Option<String> {
    let image = std::env::var("EGRET_IMAGE").ok();
    if image.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "EGRET_IMAGE names no image");
        println!("skipped: EGRET_IMAGE names no image");
    }
    image
}

/// What `docker` prints; panics with its complaint where it fails.
#[track_caller]
pub fn docker(arguments: &[&str]) -> String {
    let output = Command::new("docker").args(arguments).output().expect("`docker` runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "docker {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A bridge with this machine on it, removed when dropped.
pub struct Network {
    name: String,
    /// This machine's address on it.
    pub gateway: IpAddr,
}

impl Network {
    pub fn create() -> Self {
        let name = unique();
        docker(&["network", "create", &name]);
        let format = "{{range .IPAM.Config}}{{.Gateway}}{{end}}";
        let gateway = docker(&["network", "inspect", "--format", format, &name]).parse().unwrap();
        Self { name, gateway }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["network", "rm", &self.name]).output();
    }
}

/// A running container with a volume of its own; both are removed when dropped.
pub struct Container {
    id: String,
    network: String,
}

impl Container {
    /// As little as an operator can give: no capabilities, no new privileges, nothing to write to
    /// but the volume. `config` is mounted over the image's own configuration.
    pub fn start(image: &str, network: &Network, config: Option<&Path>) -> Self {
        let mut arguments =
            vec!["run", "--detach", "--read-only", "--cap-drop=ALL", "--network", &network.name];
        arguments.extend(["--security-opt=no-new-privileges", "--health-interval=1s"]);
        let mount = config.map(|file| format!("{}:/etc/egret/egret.toml:ro", file.display()));
        if let Some(mount) = &mount {
            arguments.extend(["--volume", mount]);
        }
        arguments.push(image);
        Self { id: docker(&arguments), network: network.name.clone() }
    }

    pub fn inspect(&self, format: &str) -> String {
        docker(&["inspect", "--format", format, &self.id])
    }

    /// Where it proxies, once its health check says so.
    pub fn proxy(&self) -> SocketAddr {
        let health = || self.inspect("{{.State.Health.Status}}");
        wait_for("the health check", Duration::from_secs(30), || health() == "healthy");
        let format = format!("{{{{(index .NetworkSettings.Networks {:?}).IPAddress}}}}", self.network);
        SocketAddr::new(self.inspect(&format).parse().unwrap(), 3128)
    }

    /// Asks it to stop and says its exit code.
    pub fn stop(&self) -> String {
        docker(&["stop", &self.id]);
        self.inspect("{{.State.ExitCode}}")
    }

    /// A file in it, also after it has ended.
    pub fn read(&self, path: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        docker(&["cp", &format!("{}:{path}", self.id), copy.to_str().unwrap()]);
        fs::read_to_string(copy).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = Command::new("docker").args(["logs", &self.id]).output();
            println!(
                "--- the container's log\n{}---",
                logs.map_or_else(
                    |error| error.to_string(),
                    |output| String::from_utf8_lossy(&output.stderr).into_owned()
                )
            );
        }
        let _ = Command::new("docker").args(["rm", "--force", "--volumes", &self.id]).output();
    }
}

fn unique() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("egret-test-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst))
}

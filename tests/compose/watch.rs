//! Packets on an interface of this machine, by where they go to.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::project::Project;
use crate::support::wait_for;

pub struct Watch {
    child: Child,
    seen: PathBuf,
}

impl Watch {
    /// Watches the outside network, from now on.
    pub fn outside(project: &Project) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compose/watch.py");
        let seen = project.place("seen");
        let child = Command::new("python3")
            .arg(script)
            .arg(project.bridge())
            .arg(&seen)
            .spawn()
            .expect("python3 runs");
        let watch = Self { child, seen };
        wait_for("watching", Duration::from_secs(30), || !watch.lines().is_empty());
        watch
    }

    /// How many packets went to an address so far.
    pub fn packets_to(&self, address: Ipv4Addr) -> usize {
        let address = address.to_string();
        self.lines().iter().filter(|line| **line == address).count()
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.seen).unwrap_or_default().lines().map(str::to_owned).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

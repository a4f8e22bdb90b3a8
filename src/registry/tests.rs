//! Every client's formats from texts, what is wrong with them, and that no credential gets out.

mod formats;
mod laws;
mod wrong;

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// Files of a machine, below a root of their own.
struct Setup {
    _dir: TempDir,
    machine: Machine,
}

/// Paths that begin with `~` are in the home, those with `/` in the root, others in the project.
fn setup(files: &[(&str, &str)]) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let (root, home) = (dir.path().join("root"), dir.path().join("home"));
    let project = dir.path().join("work/project");
    for path in [&root, &home, &project] {
        fs::create_dir_all(path).unwrap();
    }
    let machine = Machine { root, home, project: Some(project), env: [].into() };
    let setup = Setup { _dir: dir, machine };
    for (path, text) in files {
        setup.write(path, text.as_bytes());
    }
    setup
}

impl Setup {
    fn write(&self, path: &str, text: &[u8]) {
        let path = match (path.strip_prefix("~/"), path.strip_prefix('/')) {
            (Some(path), _) => self.machine.home.join(path),
            (_, Some(path)) => self.machine.root.join(path),
            _ => self.project().join(path),
        };
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn project(&self) -> &Path {
        self.machine.project.as_deref().unwrap()
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.machine.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn read(&self, client: Client) -> Result<Findings, Vec<Fault>> {
        read(&self.machine, &[client])
    }

    /// The places that were found, with file and line of each, and whether the default is known.
    fn found(&self, client: Client) -> (Vec<String>, bool) {
        let findings = self.read(client).unwrap();
        let line = |found: &Found| {
            let Origin { file, line, setting, .. } = &found.origin;
            let line = line.map(|line| format!(":{line}")).unwrap_or_default();
            format!("{} {file}{line} {setting}", found.place.origin())
        };
        (findings.found.iter().map(line).collect(), findings.complete.contains(&client))
    }

    fn notes(&self, client: Client) -> Vec<String> {
        let findings = self.read(client).unwrap();
        findings.notes.iter().map(|note| format!("{}: {}", note.origin, note.why)).collect()
    }

    fn report(&self, clients: &[Client]) -> Report {
        Report::new(&read(&self.machine, clients).unwrap(), &Answers::default(), clients)
    }
}

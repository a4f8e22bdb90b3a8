//! What was found in the settings of clients, and where.

use std::fmt;
use std::path::Path;

use super::client::Client;
use super::machine::{Machine, Text};
use super::place::{Flaw, Place};

/// A file that can't be read or understood. Nothing of the file is in here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {what}", .line.map(|line| format!(":{line}")).unwrap_or_default())]
pub struct Fault {
    /// The file, as people write it.
    pub file: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// What is wrong.
    pub what: String,
}

/// Where a setting stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Whose it is.
    pub client: Client,
    /// The file, or what else holds it.
    pub file: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The setting's name.
    pub setting: &'static str,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map(|line| format!(":{line}")).unwrap_or_default();
        write!(f, "{}: {}{line} ({})", self.client.name(), self.file, self.setting)
    }
}

/// What a registry can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A simple repository of Python packages (PEP 503, PEP 691).
    Simple,
    /// A page with links to packages.
    Links,
    /// A sparse index of crates.
    Sparse,
    /// An npm registry; the scope, where it is for one alone.
    Npm(Option<String>),
    /// An apt repository: the path of a release file below it.
    Release(String),
    /// A list of mirrors.
    Mirrors,
    /// A registry of images.
    Images,
    /// Nothing, and what a person should know about it, if anything.
    Nothing(&'static str),
}

/// A registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where its place stands.
    pub origin: Origin,
    /// Where it is.
    pub place: Place,
    /// What it can be asked for.
    pub ask: Ask,
}

/// A setting that gave no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Where it stands.
    pub origin: Origin,
    /// Why.
    pub why: String,
}

/// All that settings say.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// Registries.
    pub found: Vec<Found>,
    /// What is to be told.
    pub notes: Vec<Note>,
    /// Clients that use no registry but those found.
    pub complete: Vec<Client>,
}

impl Findings {
    /// Is anything set for this client?
    #[must_use]
    pub fn knows(&self, client: Client) -> bool {
        let told = self.notes.iter().map(|note| &note.origin);
        let named = self.found.iter().map(|found| &found.origin).chain(told);
        self.complete.contains(&client) || named.into_iter().any(|origin| origin.client == client)
    }
}

/// Reads the settings of one client.
pub(super) struct Reader<'a> {
    client: Client,
    pub(super) machine: &'a Machine,
    findings: &'a mut Findings,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(client: Client, machine: &'a Machine, findings: &'a mut Findings) -> Self {
        Self { client, machine, findings }
    }

    /// The text at a path; `None` where there is nothing.
    pub(super) fn text(&self, path: &Path) -> Result<Option<Text>, Fault> {
        self.machine.read(path)
    }

    pub(super) fn origin(&self, file: &str, line: Option<usize>, setting: &'static str) -> Origin {
        Origin { client: self.client, file: file.to_owned(), line, setting }
    }

    /// Takes a registry's URL. Files and folders of the machine need no rule.
    pub(super) fn url(&mut self, url: &str, ask: Ask, origin: Origin) {
        match Place::parse(url) {
            Ok(place) => self.findings.found.push(Found { origin, place, ask }),
            Err(Flaw::File) => {}
            Err(flaw) => self.note(origin, flaw.to_string()),
        }
    }

    /// Tells something about a setting.
    pub(super) fn note(&mut self, origin: Origin, why: impl Into<String>) {
        self.findings.notes.push(Note { origin, why: why.into() });
    }

    /// The client uses nothing but what is set.
    pub(super) fn complete(&mut self) {
        if !self.findings.complete.contains(&self.client) {
            self.findings.complete.push(self.client);
        }
    }
}

//! Reloading: reads the whole configuration again, and puts its policy in force or keeps the old.
//!
//! Asked for by SIGHUP, by the control interface and by a change of a file. Never applies a part.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use egret_policy::Listeners;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};

use crate::audit::{Audit, Event, Reload, Text};
use crate::config::{self, ConfigSource, Settings};
use crate::egress::Egress;

/// Writers replace files in several steps; a change counts when they have been quiet this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often files are compared where the system does not tell of changes.
const POLL: Duration = Duration::from_secs(5);

/// Reloads one at a time.
pub struct Reloader {
    source: ConfigSource,
    listeners: Listeners,
    settings: Settings,
    egress: Arc<Egress>,
    audit: Audit,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    files: Vec<PathBuf>,
}

/// What a reload did.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Is the candidate in force now?
    pub ok: bool,
    /// The generation in force.
    pub generation: u64,
    /// Why the candidate was refused: one problem each, with its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Sections of the file whose changes need a restart.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs_restart: Vec<&'static str>,
}

impl Reloader {
    /// A reloader for a process that runs with these settings at generation 1.
    #[must_use]
    pub fn new(
        source: ConfigSource,
        listeners: Listeners,
        settings: Settings,
        files: Vec<PathBuf>,
        egress: Arc<Egress>,
        audit: Audit,
    ) -> Self {
        let state = Mutex::new(State { generation: 1, files });
        Self { source, listeners, settings, egress, audit, state }
    }

    /// Loads the configuration again.
    pub async fn reload(&self) -> Report {
        let mut state = self.state.lock().await;
        let next = state.generation + 1;
        let (source, listeners) = (self.source.clone(), self.listeners.clone());
        let loading = tokio::task::spawn_blocking(move || config::load(&source, next, Some(&listeners)));
        let report = match loading.await {
            Ok(Ok(loaded)) => {
                state.generation = next;
                state.files = loaded.files;
                self.egress.replace_policy(loaded.policy, loaded.token_keys);
                let needs_restart = config::needs_restart(&self.settings, &loaded.settings);
                Report { ok: true, generation: next, errors: Vec::new(), needs_restart }
            }
            Ok(Err(problems)) => {
                let errors = problems.iter().map(ToString::to_string).collect();
                Report { ok: false, generation: state.generation, errors, needs_restart: Vec::new() }
            }
            Err(error) => {
                let errors = vec![format!("loading broke off: {error}")];
                Report { ok: false, generation: state.generation, errors, needs_restart: Vec::new() }
            }
        };
        self.tell(&report);
        report
    }

    fn tell(&self, report: &Report) {
        self.egress.metrics().reloaded(report.ok, report.generation);
        let error = (!report.ok).then(|| Text::from(report.errors.join("; ")));
        let Report { ok, generation, .. } = *report;
        self.audit.event(&Event::Reload(Reload { ok, generation, policy_digest: None, error }));
        if report.ok {
            tracing::info!(generation, "the configuration was reloaded");
        }
        for error in &report.errors {
            tracing::error!(generation, "the configuration was not reloaded: {error}");
        }
        for section in &report.needs_restart {
            tracing::warn!("[{section}] has changed; that needs a restart");
        }
    }

    /// Reloads whenever a file of the configuration changes. Never returns.
    pub async fn watch(&self) {
        let (changed, mut changes) = mpsc::channel(1);
        let mut watcher = watcher(changed);
        let mut seen = Fingerprint::of(&self.state.lock().await.files);
        loop {
            let files = self.state.lock().await.files.clone();
            watch_directories(watcher.as_mut(), &files);
            tokio::select! {
                _ = changes.recv() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            while tokio::time::timeout(QUIET, changes.recv()).await.is_ok_and(|change| change.is_some()) {}
            let now = Fingerprint::of(&files);
            if now != seen {
                self.reload().await;
                seen = Fingerprint::of(&self.state.lock().await.files);
            }
        }
    }
}

fn watcher(changed: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let watcher = notify::recommended_watcher(move |_| {
        // One waiting word is enough.
        let _ = changed.try_send(());
    });
    watcher
        .inspect_err(|error| tracing::warn!(%error, "file changes are looked for every {POLL:?} only"))
        .ok()
}

/// Watches the directories: editors and orchestrators replace files by renaming.
fn watch_directories(watcher: Option<&mut RecommendedWatcher>, files: &[PathBuf]) {
    let Some(watcher) = watcher else { return };
    let directories: BTreeSet<PathBuf> = files
        .iter()
        .filter_map(|file| file.parent())
        .map(|dir| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_path_buf() })
        .collect();
    for directory in directories {
        if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
            tracing::debug!(%error, directory = %directory.display(), "a directory can't be watched");
        }
    }
}

/// What tells whether files have changed.
#[derive(Debug, PartialEq, Eq)]
struct Fingerprint(Vec<Option<(std::time::SystemTime, u64, u64)>>);

impl Fingerprint {
    fn of(files: &[PathBuf]) -> Self {
        use std::os::unix::fs::MetadataExt;
        let each = files.iter().map(|file| {
            let meta = std::fs::metadata(file).ok()?;
            Some((meta.modified().ok()?, meta.len(), meta.ino()))
        });
        Self(each.collect())
    }
}

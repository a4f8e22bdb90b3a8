//! Reloading: reads the whole configuration again, and puts its policy in force or keeps the old.
//!
//! Asked for by SIGHUP, by the control interface and by a change of a file. Never applies a part.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use egret_policy::Listeners;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use serde::Serialize;
use tokio::sync::{Mutex, mpsc};

use crate::audit::{Audit, Event, Reload, Text};
use crate::config::{self, ConfigSource, Files, Settings};
use crate::egress::Egress;

/// Writers replace files in several steps; a change counts when they have been quiet this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often a change in between is waited out.
const MOST_CHANGES: usize = 10;
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
    files: Files,
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
        files: Files,
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
        let loading = tokio::task::spawn_blocking(move || {
            let mut files = Files::default();
            let loaded = config::load_noting(&source, next, Some(&listeners), &mut files);
            (loaded, files)
        });
        let loaded = loading.await.map(|(loaded, files)| {
            // Also where it failed: mending a file that is named for the first time must count.
            state.files = files;
            loaded
        });
        let report = match loaded {
            Ok(Ok(loaded)) => {
                state.generation = next;
                self.egress.replace_policy(loaded.policy);
                let needs_restart = config::needs_restart(&self.settings, &loaded.settings);
                Report { ok: true, generation: next, errors: Vec::new(), needs_restart }
            }
            Ok(Err(problems)) => {
                let errors = problems.iter().map(ToString::to_string).collect();
                Report { ok: false, generation: state.generation, errors, needs_restart: Vec::new() }
            }
            Err(error) => {
                // Tried again when something changes, not for ever.
                state.files = state.files.now();
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
        loop {
            let seen = self.state.lock().await.files.clone();
            watch_directories(watcher.as_mut(), &seen);
            tokio::select! {
                _ = changes.recv() => {}
                () = tokio::time::sleep(POLL) => {}
            }
            // Compared with what was read, not with what was there when it had been read.
            if seen.now() != seen {
                settle(&seen).await;
                self.reload().await;
            } else {
                // Other files of the directory, such as the audit's, may change all the time.
                tokio::time::sleep(QUIET).await;
            }
        }
    }
}

/// Waits until the files have been left alone for a moment, but not for ever.
async fn settle(files: &Files) {
    let mut last = files.now();
    for _ in 0..MOST_CHANGES {
        tokio::time::sleep(QUIET).await;
        let now = files.now();
        if now == last {
            return;
        }
        last = now;
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
fn watch_directories(watcher: Option<&mut RecommendedWatcher>, files: &Files) {
    let Some(watcher) = watcher else { return };
    let directories: BTreeSet<PathBuf> = files
        .paths()
        .filter_map(Path::parent)
        .map(|dir| if dir.as_os_str().is_empty() { PathBuf::from(".") } else { dir.to_path_buf() })
        .collect();
    for directory in directories {
        if let Err(error) = watcher.watch(&directory, RecursiveMode::NonRecursive) {
            tracing::debug!(%error, directory = %directory.display(), "a directory can't be watched");
        }
    }
}

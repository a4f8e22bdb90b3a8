//! Reloading: reads the whole configuration again, and puts its policy in force or keeps the old.
//!
//! Asked for by SIGHUP, by the control interface and by a change of a file. Never applies a part.

use std::sync::Arc;
use std::time::Duration;

use egret_policy::Listeners;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::audit::{Audit, Event, Reload, Text};
use crate::config::{self, ConfigSource, Files, Loaded, Settings};
use crate::egress::Egress;

/// Writers replace files in several steps; a change counts when they have been quiet this long.
const QUIET: Duration = Duration::from_millis(200);
/// How often a change in between is waited out.
const MOST_CHANGES: usize = 10;
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
                let Loaded { settings, policy, chain, token_keys, client_tls, .. } = loaded;
                self.egress.replace_policy(policy, chain, token_keys, client_tls);
                let needs_restart = config::needs_restart(&self.settings, &settings);
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
    ///
    /// Looks at the files themselves: notices of the system come for every write to their
    /// directory, the audit file's included, and not at all from some file systems.
    pub async fn watch(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // Compared with what was read, not with what was there when it had been read.
            let seen = self.state.lock().await.files.clone();
            if current(&seen).await != seen {
                settle(&seen).await;
                self.reload().await;
            }
        }
    }
}

/// The files as they are now. A file system that hangs must not hold up anything else.
async fn current(files: &Files) -> Files {
    let asked = files.clone();
    tokio::task::spawn_blocking(move || asked.now()).await.unwrap_or_else(|_| files.clone())
}

/// Waits until the files have been left alone for a moment, but not for ever.
async fn settle(files: &Files) {
    let mut last = current(files).await;
    for _ in 0..MOST_CHANGES {
        tokio::time::sleep(QUIET).await;
        let now = current(files).await;
        if now == last {
            return;
        }
        last = now;
    }
}

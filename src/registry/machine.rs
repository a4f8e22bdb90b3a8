//! The machine whose settings are read: this one, or a tree of files of another.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::finding::Fault;
use super::text::plain;

/// Longest file of settings, in octets.
const LONGEST: u64 = 1 << 20;
/// Most files that are taken from one folder.
const MOST_FILES: usize = 1000;

/// Where settings are looked for.
#[derive(Clone, Debug)]
pub struct Machine {
    /// What `/` is.
    pub root: PathBuf,
    /// The user's home.
    pub home: PathBuf,
    /// The project's folder, if there is one.
    pub project: Option<PathBuf>,
    /// The environment.
    pub env: BTreeMap<String, String>,
}

/// A file of settings.
#[derive(Debug)]
pub(super) struct Text {
    /// Its name for people.
    pub(super) name: String,
    pub(super) text: String,
}

impl Text {
    pub(super) fn fault(&self, line: Option<usize>, what: &str) -> Fault {
        Fault { file: self.name.clone(), line, what: what.to_owned() }
    }
}

impl Machine {
    /// A path from the root.
    pub(super) fn system(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A variable that is set to something.
    pub(super) fn env(&self, name: &str) -> Option<&str> {
        self.env.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// A path that a variable names, as the process that reads it would take it.
    pub(super) fn env_path(&self, name: &str) -> Option<PathBuf> {
        let path = Path::new(self.env(name)?);
        Some(if path.is_absolute() {
            path.to_path_buf()
        } else {
            self.project.as_deref().unwrap_or(&self.home).join(path)
        })
    }

    /// Where programs keep a user's settings (XDG Base Directory Specification).
    pub(super) fn user_config(&self) -> PathBuf {
        self.env_path("XDG_CONFIG_HOME").unwrap_or_else(|| self.home.join(".config"))
    }

    /// Where programs keep settings for all users.
    pub(super) fn system_configs(&self) -> Vec<PathBuf> {
        match self.env("XDG_CONFIG_DIRS") {
            Some(list) => list.split(':').filter(|dir| !dir.is_empty()).map(PathBuf::from).collect(),
            None => vec![self.system("/etc/xdg")],
        }
    }

    /// The project's folder and those above it, the nearest first.
    pub(super) fn upwards(&self) -> Vec<PathBuf> {
        self.project.iter().flat_map(|dir| dir.ancestors()).map(Path::to_path_buf).collect()
    }

    /// The text of a file; `None` where there is none.
    pub(super) fn read(&self, path: &Path) -> Result<Option<Text>, Fault> {
        let name = self.show(path);
        let fault = |what: String| Fault { file: name.clone(), line: None, what };
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(fault(format!("can't be read: {error}"))),
        };
        // A device or a pipe is no file of settings: PIP_CONFIG_FILE=/dev/null says that there is none.
        if !meta.is_file() {
            return Ok(None);
        }
        let mut octets = Vec::new();
        File::open(path)
            .and_then(|file| file.take(LONGEST + 1).read_to_end(&mut octets))
            .map_err(|error| fault(format!("can't be read: {error}")))?;
        if octets.len() as u64 > LONGEST {
            return Err(fault("longer than 1 MiB".to_owned()));
        }
        match String::from_utf8(octets) {
            Ok(text) => {
                let text = text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text);
                Ok(Some(Text { name, text }))
            }
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let before = error.as_bytes().get(..valid).unwrap_or_default();
                let line = before.iter().filter(|&&octet| octet == b'\n').count() + 1;
                Err(Fault { file: name, line: Some(line), what: "not UTF-8".to_owned() })
            }
        }
    }

    /// The files in a folder whose names end so, in order; none where there is no folder.
    pub(super) fn list(&self, dir: &Path, endings: &[&str]) -> Result<Vec<PathBuf>, Fault> {
        let fault = |what: String| Fault { file: self.show(dir), line: None, what };
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            Err(error) => return Err(fault(format!("can't be read: {error}"))),
        };
        let paths = entries.flatten().map(|entry| entry.path());
        let fits = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            !name.starts_with('.') && endings.iter().any(|ending| name.ends_with(ending))
        };
        let mut paths: Vec<_> = paths.filter(fits).take(MOST_FILES + 1).collect();
        if paths.len() > MOST_FILES {
            return Err(fault(format!("more than {MOST_FILES} files")));
        }
        paths.sort();
        Ok(paths)
    }

    /// The path as people write it: the home is `~`, and what stands for the root is left out.
    pub(super) fn show(&self, path: &Path) -> String {
        let shown = match (path.strip_prefix(&self.home), path.strip_prefix(&self.root)) {
            (Ok(inside), _) => format!("~/{}", inside.display()),
            (_, Ok(inside)) => format!("/{}", inside.display()),
            _ => path.display().to_string(),
        };
        plain(&shown)
    }
}

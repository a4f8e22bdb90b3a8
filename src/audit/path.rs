//! Request paths in the audit file: a keyed hash, or the path itself where the operator wants it.
//! A query string or fragment never gets in.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use serde::Serialize;

use super::Text;

const KEY_LENGTH: usize = 32;
const KEY_FILE: &str = "audit-path.key";

/// The key of path hashes could not be used.
#[derive(Debug, thiserror::Error)]
pub enum PathKeyError {
    /// The file can't be read or made.
    #[error("audit path key {}: {source}; make the state directory readable and writable for egret", file.display())]
    Io {
        /// The key file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not a key.
    #[error(
        "audit path key {} has {length} bytes, not {KEY_LENGTH}; restore it, or delete it to begin a new series of hashes",
        file.display()
    )]
    Length {
        /// The key file.
        file: PathBuf,
        /// Its size as far as it was read.
        length: usize,
    },
    /// The system gave no random bytes.
    #[error("audit path key {}: no random bytes from the system to make it", file.display())]
    Random {
        /// The key file.
        file: PathBuf,
    },
}

/// A path as a record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum PathRecord {
    /// The first 64 bits of its HMAC-SHA256, as 16 hexadecimal digits.
    #[serde(rename = "path_hash")]
    Hash(String),
    /// The path as the client sent it, without query.
    #[serde(rename = "path")]
    Plain(Text),
}

/// How paths are recorded.
#[derive(Debug)]
pub enum PathRecorder {
    /// As hashes (the default).
    Hashed(PathKey),
    /// As they are (`audit.paths = true`).
    Plain,
}

impl PathRecorder {
    /// Records the path of a request target; what follows `?` or `#` is left out first.
    #[must_use]
    pub fn record(&self, target: &[u8]) -> PathRecord {
        let path = target.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        match self {
            Self::Hashed(key) => PathRecord::Hash(key.path_hash(path)),
            Self::Plain => PathRecord::Plain(Text::new(path)),
        }
    }
}

/// The secret of one deployment under which equal paths have equal hashes.
///
/// Without it a path can't be guessed from its hash by trying likely ones.
pub struct PathKey(Box<hmac::Key>);

impl std::fmt::Debug for PathKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PathKey")
    }
}

impl PathKey {
    /// Reads the key from the state directory, or makes it there (mode 0600) if there is none.
    ///
    /// # Errors
    /// The file can't be read or written, or is not 32 bytes long. It is never replaced then:
    /// a new key would make old and new records incomparable without anybody noticing.
    pub fn load_or_create(state_dir: &Path) -> Result<Self, PathKeyError> {
        let file = state_dir.join(KEY_FILE);
        match read_key(&file) {
            Err(PathKeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                create_key(state_dir, &file)?;
                read_key(&file)
            }
            result => result,
        }
    }

    /// The hash of a path, 16 hexadecimal digits. The caller leaves the query out.
    #[must_use]
    pub fn path_hash(&self, path: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let tag = hmac::sign(&self.0, path);
        tag.as_ref()
            .iter()
            .take(8)
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|digit| DIGITS.get(usize::from(digit)).copied().map(char::from))
            .collect()
    }
}

fn read_key(file: &Path) -> Result<PathKey, PathKeyError> {
    let failed = |source| PathKeyError::Io { file: file.to_owned(), source };
    let mut bytes = Vec::with_capacity(KEY_LENGTH);
    // One byte more than a key is enough to see that a file is too long.
    let limit = KEY_LENGTH as u64 + 1;
    File::open(file).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() != KEY_LENGTH {
        return Err(PathKeyError::Length { file: file.to_owned(), length: bytes.len() });
    }
    Ok(PathKey(Box::new(hmac::Key::new(hmac::HMAC_SHA256, &bytes))))
}

/// Writes a whole key beside the file and links it into place, so that nobody sees half a key
/// and the first of two processes wins.
fn create_key(state_dir: &Path, file: &Path) -> Result<(), PathKeyError> {
    let failed = |source| PathKeyError::Io { file: file.to_owned(), source };
    let mut key = [0; KEY_LENGTH];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| PathKeyError::Random { file: file.to_owned() })?;
    let draft = state_dir.join(format!("{KEY_FILE}.{}.new", std::process::id()));
    let result = write_draft(&draft, &key).and_then(|()| match fs::hard_link(&draft, file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    });
    // A draft that stays behind does no harm and is replaced next time.
    let _ = fs::remove_file(&draft);
    result.map_err(failed)
}

fn write_draft(draft: &Path, key: &[u8]) -> io::Result<()> {
    match fs::remove_file(draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(key)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn known_hash() {
        // RFC 4231 test case 2.
        let key = PathKey(Box::new(hmac::Key::new(hmac::HMAC_SHA256, b"Jefe")));
        assert_eq!(key.path_hash(b"what do ya want for nothing?"), "5bdcc146bf60754e");
    }

    #[test]
    fn a_key_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let first = PathKey::load_or_create(dir.path()).unwrap();
        let again = PathKey::load_or_create(dir.path()).unwrap();
        assert_eq!(first.path_hash(b"/a"), again.path_hash(b"/a"));
        assert_ne!(first.path_hash(b"/a"), first.path_hash(b"/b"));
        let mode = fs::metadata(dir.path().join(KEY_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn deployments_differ() {
        let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, two] = [one, two].map(|dir| PathKey::load_or_create(dir.path()).unwrap());
        assert_ne!(one.path_hash(b"/"), two.path_hash(b"/"));
    }

    #[test]
    fn a_damaged_key_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        for content in [&[][..], &[1; 31], &[1; 33]] {
            fs::write(dir.path().join(KEY_FILE), content).unwrap();
            let error = PathKey::load_or_create(dir.path()).unwrap_err();
            assert!(matches!(error, PathKeyError::Length { length, .. } if length == content.len()));
        }
        let missing = PathKey::load_or_create(&dir.path().join("absent")).unwrap_err();
        assert!(matches!(missing, PathKeyError::Io { .. }), "{missing}");
    }

    #[test]
    fn queries_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let hashed = PathRecorder::Hashed(PathKey::load_or_create(dir.path()).unwrap());
        assert_eq!(hashed.record(b"/a?token=1"), hashed.record(b"/a#x?y"));
        assert_eq!(PathRecorder::Plain.record(b"/a?token=1"), PathRecord::Plain("/a".into()));
    }
}

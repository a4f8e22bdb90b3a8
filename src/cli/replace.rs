//! Replaces a text file in one step: whoever reads it sees the old one or the new one, whole.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::Path;

/// Writes the text beside the file and gives it the file's name, with the file's owner and
/// permissions: whoever could read it still can. A symbolic link stays one.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let (path, present) = match fs::metadata(path) {
        Ok(meta) => (path.canonicalize()?, Some(meta)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (path.to_path_buf(), None),
        Err(error) => return Err(error),
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::other("this is no file name"))?;
    // Begins with a dot, so that nobody takes it for a rule set.
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(format!(".{}", std::process::id()));
    let draft = folder.join(draft);
    let file = File::options().write(true).create_new(true).open(&draft)?;
    let written = write(file, text, present.as_ref()).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        // There is nothing more that could be done about it.
        let _ = fs::remove_file(&draft);
        return written;
    }
    File::open(folder)?.sync_all()
}

fn write(mut file: File, text: &str, present: Option<&Metadata>) -> io::Result<()> {
    if let Some(present) = present {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (present.uid(), present.gid()) {
            fchown(&file, Some(present.uid()), Some(present.gid()))?;
        }
        file.set_permissions(present.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn permissions_and_links_stay_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a.toml"), dir.path().join("link.toml"));
        replace(&file, "one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("a.toml", &link).unwrap();
        replace(&link, "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(replace(&dir.path().join("none/a.toml"), "x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}

//! A file that is written beside the one that it replaces: what was there stays until the new text is
//! whole, so that a daemon that is away, or a full disk, costs no backup.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Permissions of a new file, before the umask.
const NEW_FILE: u32 = 0o666;

/// A text on its way to a file.
#[derive(Debug)]
pub(super) struct Draft {
    /// Where it is written; the file itself, if it cannot be replaced.
    beside: Option<PathBuf>,
    file: PathBuf,
}

impl Draft {
    /// Begins a text for `path`. Devices and pipes get it as it comes, and so does a file in a directory
    /// where nothing can be made.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub(super) fn begin(path: &str) -> io::Result<(Self, File)> {
        let path = Path::new(path);
        let (file, mode) = match fs::metadata(path) {
            // The end of a symbolic link is what is replaced.
            Ok(there) if there.is_file() => (path.canonicalize()?, there.permissions().mode()),
            Ok(_) => return Self::in_place(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (path.to_owned(), NEW_FILE),
            Err(e) => return Err(e),
        };
        let beside = beside(&file);
        match OpenOptions::new().write(true).create_new(true).mode(mode & 0o777).open(&beside) {
            Ok(open) => Ok((Self { beside: Some(beside), file }, open)),
            Err(_) if file.exists() => Self::in_place(&file),
            Err(e) => Err(e),
        }
    }

    fn in_place(path: &Path) -> io::Result<(Self, File)> {
        let open = File::create(path)?;
        Ok((Self { beside: None, file: path.to_owned() }, open))
    }

    /// The text is whole: it takes the place of the file.
    ///
    /// # Errors
    /// It cannot; the file is what it was.
    pub(super) fn keep(self) -> io::Result<()> {
        let Some(beside) = self.beside else { return Ok(()) };
        // On the disk first: a crash leaves one of the two texts.
        let kept = File::open(&beside).and_then(|file| file.sync_all());
        let kept = kept.and_then(|()| fs::rename(&beside, self.file));
        kept.inspect_err(|_| _ = fs::remove_file(&beside))
    }

    /// The text is not whole. Says whether the file is what it was.
    pub(super) fn discard(self) -> bool {
        self.beside.is_some_and(|beside| fs::remove_file(beside).is_ok())
    }
}

/// A name that no other export writes to; what is there already is never touched.
pub(super) fn beside(file: &Path) -> PathBuf {
    let mut beside = file.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    beside.into()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn text_of(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn a_file_keeps_its_text_and_its_permissions_until_the_draft_is_kept() {
        let path = fresh::path("draft");
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let name = path.to_str().unwrap();
        let (draft, mut file) = Draft::begin(name).unwrap();
        file.write_all(b"half").unwrap();
        assert!(draft.discard());
        assert_eq!(text_of(&path), "before");
        let (draft, mut file) = Draft::begin(name).unwrap();
        file.write_all(b"after").unwrap();
        assert_eq!(text_of(&path), "before");
        draft.keep().unwrap();
        assert_eq!(text_of(&path), "after");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_has_the_name_of_the_draft_is_neither_removed_nor_followed() {
        let (path, other) = (fresh::path("draft-link"), fresh::path("draft-other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, beside(&path)).unwrap();
        let refused = Draft::begin(path.to_str().unwrap()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert!(beside(&path).is_symlink() && !path.exists());
        // Where there is a file already, it is written itself.
        fs::write(&path, "before").unwrap();
        let (draft, mut file) = Draft::begin(path.to_str().unwrap()).unwrap();
        file.write_all(b"new").unwrap();
        draft.keep().unwrap();
        assert_eq!((text_of(&path), text_of(&other)), ("new".to_owned(), "other".to_owned()));
        for file in [beside(&path), path, other] {
            fs::remove_file(file).unwrap();
        }
    }
}

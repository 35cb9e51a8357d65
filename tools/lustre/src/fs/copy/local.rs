//! Files of this machine in a copy: names are made relative to a directory that is held open, and no
//! symbolic link is followed on the way, so that nothing a server says leads out of the destination.

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{self, AtFlags, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use crate::fs::label::Label;

/// Zeros are looked for in blocks of so many bytes.
const BLOCK: usize = 64 << 10;
/// Files of copies that were killed in a directory, before a further one is refused.
const LEFT_MAX: u32 = 10_000;

/// A directory that is held open.
#[derive(Debug)]
pub(super) struct Dir(OwnedFd, Label);

/// A file on its way: it has its name when it is whole, and is gone if it never is.
#[derive(Debug)]
pub(super) struct New<'a> {
    dir: &'a Dir,
    name: Vec<u8>,
    temporary: String,
    pub(super) file: File,
    /// Where it ends, as far as it was written.
    end: Cell<u64>,
    done: bool,
}

impl Dir {
    /// The directory at a path of the user's, whose links are followed.
    pub(super) fn open(path: &std::path::Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = fs::open(path, flags, Mode::empty())?;
        Ok(Self(opened, Label::new(path.as_os_str().as_bytes())))
    }

    /// Where it is, to be shown.
    pub(super) const fn path(&self) -> &Label {
        &self.1
    }

    /// A directory in this one, made if there is none.
    pub(super) fn enter(&self, name: &[u8]) -> Result<Self, Errno> {
        let path = self.1.join(name);
        let name = OsStr::from_bytes(name);
        match fs::mkdirat(&self.0, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(&self.0, name, flags, Mode::empty()).map(|opened| Self(opened, path))
    }

    /// Size and time of a regular file of this name, if there is one.
    pub(super) fn there(&self, name: &[u8]) -> Option<(u64, i64)> {
        let stat = fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let regular = fs::FileType::from_raw_mode(stat.st_mode) == fs::FileType::RegularFile;
        regular.then_some((u64::try_from(stat.st_size).ok()?, stat.st_mtime))
    }

    /// Opens a regular file of this name for reading.
    pub(super) fn read(&self, name: &[u8]) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        fs::openat(&self.0, OsStr::from_bytes(name), flags, Mode::empty()).map(File::from)
    }

    /// What has this name may be replaced: nothing, a regular file, and a symbolic link by another one. All else is
    /// left as it is: a device or a pipe was hardly meant, and what a link leads to is not always in the
    /// destination.
    ///
    /// # Errors
    /// What else it is.
    pub(super) fn free(&self, name: &[u8], for_link: bool) -> io::Result<()> {
        let there = match fs::statat(&self.0, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            there => there?,
        };
        let kind = fs::FileType::from_raw_mode(there.st_mode);
        match kind {
            fs::FileType::RegularFile => Ok(()),
            fs::FileType::Symlink if for_link => Ok(()),
            fs::FileType::Directory => Err(Errno::ISDIR.into()),
            kind => Err(not_replaced(kind)),
        }
    }

    /// Begins a file of this name; `unique` is one number for each of this process.
    pub(super) fn make(&self, name: &[u8], unique: u64) -> Result<New<'_>, Errno> {
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let mut further = 0;
        loop {
            // In containers many a process has the same number, also one that was killed and has left files.
            let temporary = format!(".ulnet-{}-{unique}-{further}", std::process::id());
            match fs::openat(&self.0, temporary.as_str(), flags, mode) {
                Ok(file) => {
                    let (name, file) = (name.to_vec(), File::from(file));
                    let end = Cell::new(0);
                    return Ok(New { dir: self, name, temporary, file, end, done: false });
                }
                Err(Errno::EXIST) if further < LEFT_MAX => further += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Makes a symbolic link in place of the link or file of this name.
    pub(super) fn symlink(&self, name: &[u8], text: &[u8]) -> Result<(), Errno> {
        let (name, text) = (OsStr::from_bytes(name), OsStr::from_bytes(text));
        match fs::symlinkat(text, &self.0, name) {
            Err(Errno::EXIST) => {
                fs::unlinkat(&self.0, name, AtFlags::empty())?;
                fs::symlinkat(text, &self.0, name)
            }
            end => end,
        }
    }

    /// Gives a link of this name to another owner and group.
    pub(super) fn own(&self, name: &[u8], uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
        fs::chownat(&self.0, OsStr::from_bytes(name), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Sets the times of a link of this name.
    pub(super) fn date(&self, name: &[u8], atime: i64, mtime: i64) -> Result<(), Errno> {
        let (name, times) = (OsStr::from_bytes(name), times(atime, mtime));
        fs::utimensat(&self.0, name, &times, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Gives a file in another directory one more name here.
    pub(super) fn link(&self, name: &[u8], dir: &Self, other: &[u8]) -> Result<(), Errno> {
        let (name, other) = (OsStr::from_bytes(name), OsStr::from_bytes(other));
        let link = || fs::linkat(&dir.0, other, &self.0, name, AtFlags::empty());
        match link() {
            Err(Errno::EXIST) => {
                fs::unlinkat(&self.0, name, AtFlags::empty())?;
                link()
            }
            end => end,
        }
    }

    /// Permissions and times of the directory itself.
    pub(super) fn finish(&self, mode: u32, atime: i64, mtime: i64) -> Result<(), Errno> {
        fs::fchmod(&self.0, Mode::from_raw_mode(mode & 0o1777))?;
        fs::futimens(&self.0, &times(atime, mtime))
    }

    pub(super) fn again(&self) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 0).map(|fd| Self(fd, self.1.clone()))
    }
}

/// What is neither replaced nor written through.
pub(super) fn not_replaced(kind: fs::FileType) -> io::Error {
    let what = match kind {
        fs::FileType::Symlink => "a symbolic link",
        fs::FileType::Fifo => "a pipe",
        fs::FileType::Socket => "a socket",
        _ => "a device",
    };
    io::Error::new(ErrorKind::AlreadyExists, format!("{what} has this name: not replaced"))
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn times(atime: i64, mtime: i64) -> Timestamps {
    let at = |tv_sec| Timespec { tv_sec, tv_nsec: 0 };
    Timestamps { last_access: at(atime), last_modification: at(mtime) }
}

/// Gives a file its permissions and times. Bits that make a program run as another user are not taken from a server.
pub(super) fn dress(file: &File, mode: u32, (atime, mtime): (i64, i64)) -> io::Result<()> {
    fs::fchmod(file, Mode::from_raw_mode(mode & 0o777))?;
    Ok(fs::futimens(file, &times(atime, mtime))?)
}

impl New<'_> {
    /// Writes bytes; blocks of zeros become holes.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let border = BLOCK - usize::try_from(at % BLOCK as u64).unwrap_or(0);
            let (here, behind) = rest.split_at(border.min(rest.len()));
            if here.iter().any(|byte| *byte != 0) {
                self.file.write_all_at(here, at)?;
                self.end.set(self.end.get().max(at + here.len() as u64));
            }
            at += here.len() as u64;
            rest = behind;
        }
        Ok(())
    }

    /// The file is whole: it gets its size, permissions, times and name.
    pub(super) fn finish(mut self, size: u64, mode: u32, dated: (i64, i64)) -> io::Result<()> {
        if self.end.get() != size {
            self.file.set_len(size)?;
        }
        dress(&self.file, mode, dated)?;
        let (from, to) = (self.temporary.as_str(), OsStr::from_bytes(&self.name));
        fs::renameat(&self.dir.0, from, &self.dir.0, to)?;
        self.done = true;
        Ok(())
    }
}

impl Drop for New<'_> {
    fn drop(&mut self) {
        if !self.done {
            // One that is gone already is what is wanted.
            let _ = fs::unlinkat(&self.dir.0, self.temporary.as_str(), AtFlags::empty());
        }
    }
}

/// The parts of a file that are no holes. One that takes as much room as it has bytes is not looked through.
pub(super) fn data_of(file: &File, meta: &Metadata) -> Vec<(u64, u64)> {
    let size = meta.size();
    if size > 0 && meta.blocks().saturating_mul(512) >= size {
        return vec![(0, size)];
    }
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // A storage that knows no holes.
            Err(_) => {
                parts.push((at, size));
                break;
            }
        };
        let end = fs::seek(file, SeekFrom::Hole(start)).unwrap_or(size).min(size);
        if start >= end {
            break;
        }
        parts.push((start, end));
        at = end;
    }
    parts
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = fresh::path(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn links_in_a_destination_lead_nowhere() {
        let path = scratch("links");
        let outside = scratch("outside");
        let dir = Dir::open(&path).unwrap();
        dir.symlink(b"a", outside.as_os_str().as_bytes()).unwrap();
        // A server that has a link and a directory of one name.
        let e = dir.enter(b"a").unwrap_err();
        assert!(e == Errno::NOTDIR || e == Errno::LOOP, "{e}");
        // One that has a link and a file of one name, also where the link is made after it was looked at.
        symlink(outside.join("victim"), path.join("b")).unwrap();
        let e = dir.free(b"b", false).unwrap_err().to_string();
        assert_eq!(e, "a symbolic link has this name: not replaced");
        dir.free(b"b", true).unwrap();
        let new = dir.make(b"b", 1).unwrap();
        new.write(0, b"x").unwrap();
        new.finish(1, 0o4755, (0, 7)).unwrap();
        assert!(!outside.join("victim").exists());
        let made = std::fs::symlink_metadata(path.join("b")).unwrap();
        assert!(made.is_file());
        assert_eq!((made.mode() & 0o7777, made.mtime()), (0o755, 7));
        assert!(dir.read(b"a").is_err());
    }

    #[test]
    fn devices_pipes_and_directories_keep_their_names() {
        let path = scratch("kept");
        let dir = Dir::open(&path).unwrap();
        std::fs::write(path.join("file"), "x").unwrap();
        std::fs::create_dir(path.join("dir")).unwrap();
        let mode = Mode::RUSR;
        fs::mknodat(fs::CWD, path.join("pipe"), fs::FileType::Fifo, mode, 0).unwrap();
        dir.free(b"none", false).unwrap();
        dir.free(b"file", false).unwrap();
        dir.free(b"file", true).unwrap();
        for for_link in [false, true] {
            let e = dir.free(b"pipe", for_link).unwrap_err().to_string();
            assert_eq!(e, "a pipe has this name: not replaced");
            assert!(dir.free(b"dir", for_link).is_err());
        }
        let null = Dir::open(std::path::Path::new("/dev")).unwrap();
        let e = null.free(b"null", false).unwrap_err().to_string();
        assert_eq!(e, "a device has this name: not replaced");
    }

    #[test]
    fn a_file_that_is_not_whole_leaves_nothing_behind() {
        let path = scratch("whole");
        let dir = Dir::open(&path).unwrap();
        let new = dir.make(b"a", 1).unwrap();
        new.write(0, &[1; 100]).unwrap();
        drop(new);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    }

    #[test]
    fn name_that_a_killed_copy_has_left_behind_is_no_failure_of_the_next() {
        let path = scratch("left");
        let dir = Dir::open(&path).unwrap();
        // One of the same process number, as in another container.
        std::mem::forget(dir.make(b"a", 1).unwrap());
        let new = dir.make(b"a", 1).unwrap();
        new.write(0, b"x").unwrap();
        new.finish(1, 0o600, (0, 0)).unwrap();
        assert_eq!(std::fs::read(path.join("a")).unwrap(), b"x");
    }

    #[test]
    fn zeros_become_holes_and_holes_are_found_again() {
        let path = scratch("holes");
        let dir = Dir::open(&path).unwrap();
        let new = dir.make(b"a", 1).unwrap();
        let mut bytes = vec![0; 3 << 20];
        bytes[(2 << 20) + 5] = 1;
        new.write(0, &bytes).unwrap();
        new.finish(4 << 20, 0o600, (0, 0)).unwrap();
        let file = File::open(path.join("a")).unwrap();
        let parts = data_of(&file, &file.metadata().unwrap());
        let inside = |at: u64| parts.iter().any(|(start, end)| (*start..*end).contains(&at));
        assert!(inside((2 << 20) + 5), "{parts:?}");
        assert_eq!(std::fs::read(path.join("a")).unwrap()[..3 << 20], bytes);
        assert_eq!(file.metadata().unwrap().len(), 4 << 20);
        let dense = dir.make(b"b", 2).unwrap();
        dense.write(0, &[1; 5000]).unwrap();
        dense.finish(5000, 0o600, (0, 0)).unwrap();
        let file = File::open(path.join("b")).unwrap();
        assert_eq!(data_of(&file, &file.metadata().unwrap()), [(0, 5000)]);
    }
}

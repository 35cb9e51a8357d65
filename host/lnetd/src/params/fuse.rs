//! The directory of parameter files: a file system in user space. It holds no state but the texts
//! of open files; everything else is asked for when it is read. `cat` and `echo` work, refused
//! values come back as the errno of the write.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use lnet_admin::{AdminError, ParamInfo};

use crate::control::Control;
use crate::params;

/// Where the directory is unless it is said otherwise.
pub(crate) const DEFAULT_DIR: &str = "/run/ulnet/parameters";

/// How long the kernel may cache names and attributes: they never change.
const TTL: Duration = Duration::from_secs(60);
/// The longest value that a parameter takes.
const VALUE_MAX: usize = 4096;
/// Files that are open for reading at a time.
const OPEN_MAX: usize = 1024;

/// The directory, until this is dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    session: Option<BackgroundSession>,
    dir: PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.session.take().map(BackgroundSession::umount_and_join) {
            tracing::warn!("parameters {}: {e}", self.dir.display());
        }
    }
}

/// Mounts the directory at `dir`, which is made if it is not there.
pub(crate) fn mount(control: &Arc<Control>, dir: &Path) -> anyhow::Result<Mounted> {
    let at = || format!("parameters {}", dir.display());
    leave_stale(dir);
    std::fs::create_dir_all(dir).with_context(at)?;
    if std::fs::read_dir(dir).with_context(at)?.next().is_some() {
        bail!("{}: the directory is not empty", at());
    }
    if !Path::new("/dev/fuse").exists() {
        bail!("{}: this system has no /dev/fuse, which the directory needs", at());
    }
    let fs = Files { control: Arc::clone(control), tree: Tree::new(), open: Mutex::default() };
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("ulnet".to_owned()), MountOption::DefaultPermissions];
    let session = fuser::spawn_mount(fs, dir, &config).with_context(at)?;
    Ok(Mounted { session: Some(session), dir: dir.to_owned() })
}

/// A daemon that was killed leaves a mount behind without a server.
fn leave_stale(dir: &Path) {
    let stale = matches!(std::fs::metadata(dir), Err(e) if e.raw_os_error() == Some(lnet_types::Errno::ENOTCONN.0));
    if stale {
        let flags = rustix::mount::UnmountFlags::DETACH;
        if let Err(e) = rustix::mount::unmount(dir, flags) {
            tracing::warn!("parameters {}: left by another daemon: {e}", dir.display());
        }
    }
}

/// Names and numbers of files. The root has number 1; files and directories follow.
struct Tree {
    nodes: BTreeMap<u64, Entry>,
}

struct Entry {
    parent: u64,
    name: String,
    /// The parameter; a directory has none.
    param: Option<ParamInfo>,
}

impl Tree {
    fn new() -> Self {
        let root = INodeNo::ROOT.0;
        let mut nodes =
            BTreeMap::from([(root, Entry { parent: root, name: String::new(), param: None })]);
        for param in params::list() {
            let (parent, name) = match param.name.split_once('/') {
                None => (root, param.name.clone()),
                Some((dir, name)) => {
                    let known = nodes
                        .iter()
                        .find(|(_, e)| e.param.is_none() && e.name == dir)
                        .map(|(ino, _)| *ino);
                    let ino = known.unwrap_or_else(|| {
                        let ino = root + nodes.len() as u64;
                        nodes
                            .insert(ino, Entry { parent: root, name: dir.to_owned(), param: None });
                        ino
                    });
                    (ino, name.to_owned())
                }
            };
            let ino = root + nodes.len() as u64;
            nodes.insert(ino, Entry { parent, name, param: Some(param) });
        }
        Self { nodes }
    }

    fn children(&self, dir: u64) -> impl Iterator<Item = (u64, &Entry)> {
        let root = INodeNo::ROOT.0;
        self.nodes
            .iter()
            .filter(move |(ino, e)| e.parent == dir && **ino != root)
            .map(|(i, e)| (*i, e))
    }
}

struct Files {
    control: Arc<Control>,
    tree: Tree,
    /// The text of each open file, as it was at the time of opening.
    open: Mutex<BTreeMap<u64, Arc<str>>>,
}

impl Files {
    fn attr(&self, ino: u64) -> Option<FileAttr> {
        let entry = self.tree.nodes.get(&ino)?;
        let (kind, perm) = match &entry.param {
            None => (FileType::Directory, 0o555),
            Some(p) if p.writable => (FileType::RegularFile, 0o644),
            Some(_) => (FileType::RegularFile, 0o444),
        };
        Some(FileAttr {
            ino: INodeNo(ino),
            // As sysfs has it: how long it really is, reading shows.
            size: if kind == FileType::Directory { 0 } else { 4096 },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn param(&self, ino: INodeNo) -> Result<&ParamInfo, Errno> {
        let entry = self.tree.nodes.get(&ino.0).ok_or(Errno::ENOENT)?;
        entry.param.as_ref().ok_or(Errno::EISDIR)
    }

    fn texts(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<str>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handle for reading, or 0 for one that is only written to.
    fn opened(&self, ino: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let param = self.param(ino)?;
        if flags.acc_mode() == OpenAccMode::O_WRONLY {
            return Ok(0);
        }
        let text = params::get(&self.control, &param.name).map_err(|e| errno(&e))?;
        let mut open = self.texts();
        if open.len() >= OPEN_MAX {
            return Err(Errno::EMFILE);
        }
        let handle = open.last_key_value().map_or(1, |(last, _)| last + 1);
        open.insert(handle, text.into());
        Ok(handle)
    }

    fn written(&self, ino: INodeNo, data: &[u8]) -> Result<u32, Errno> {
        let param = self.param(ino)?;
        let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
        if text.len() > VALUE_MAX {
            return Err(Errno::E2BIG);
        }
        params::set(&self.control, &param.name, text).map_err(|e| errno(&e))?;
        // As sysfs does, everything was taken.
        u32::try_from(data.len()).map_err(|_| Errno::E2BIG)
    }
}

fn errno(error: &AdminError) -> Errno {
    Errno::from_i32(error.errno.0)
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.children(parent.0).find(|(_, e)| OsStr::new(&e.name) == name);
        match found.and_then(|(ino, _)| self.attr(ino)) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// `>` truncates before it writes. Nothing else about a parameter can be changed.
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<std::time::SystemTime>,
        _: Option<FileHandle>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<std::time::SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attr(ino.0) {
            None => reply.error(Errno::ENOENT),
            Some(_) if mode.is_some() || uid.is_some() || gid.is_some() => {
                reply.error(Errno::EPERM);
            }
            Some(attr) => reply.attr(&TTL, &attr),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.opened(ino, flags) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(e) => reply.error(e),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let text = self.texts().get(&fh.0).cloned();
        let Some(text) = text else { return reply.error(Errno::EBADF) };
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let to = from.saturating_add(size as usize).min(text.len());
        reply.data(text.as_bytes().get(from..to).unwrap_or_default());
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.written(ino, data) {
            Ok(len) => reply.written(len),
            Err(e) => reply.error(e),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.texts().remove(&fh.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(dir) = self.tree.nodes.get(&ino.0).filter(|e| e.param.is_none()) else {
            return reply.error(Errno::ENOTDIR);
        };
        let dots = [(ino.0, FileType::Directory, "."), (dir.parent, FileType::Directory, "..")];
        let files = self.tree.children(ino.0).map(|(i, e)| {
            let kind = if e.param.is_some() { FileType::RegularFile } else { FileType::Directory };
            (i, kind, e.name.as_str())
        });
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (i, (ino, kind, name)) in dots.into_iter().chain(files).enumerate().skip(from) {
            if reply.add(INodeNo(ino), i as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use clap::Parser as _;

    use super::*;
    use crate::Options;

    /// As `echo VALUE > FILE` does.
    fn echo(file: &Path, value: &str) -> std::io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(file)?;
        file.write_all(value.as_bytes())
    }

    #[test]
    fn parameters_are_read_with_cat_and_set_with_echo_and_refused_with_an_errno() {
        let mount_is_possible =
            fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").map(|_| ());
        if let Err(why) = mount_is_possible {
            return netns::skipped("parameter files", format_args!("/dev/fuse: {why}"));
        }
        let dir = fresh::path("parameters");
        let options = Options::parse_from(["lnetd", "--profile", "kernel"]);
        let control =
            Arc::new(Control::new(&options, lnet_config::ModuleParameters::default()).unwrap());
        let mounted = match mount(&control, &dir) {
            Ok(mounted) => mounted,
            Err(why) => return netns::skipped("parameter files", format_args!("{why:#}")),
        };
        let file = |name: &str| dir.join(name);
        let cat = |name: &str| fs::read_to_string(file(name));
        assert_eq!(cat("lnet_retry_count").unwrap(), "2\n");
        assert_eq!(cat("ksocklnd/sock_timeout").unwrap(), "50\n");
        echo(&file("lnet_transaction_timeout"), "60\n").unwrap();
        assert_eq!(cat("lnet_transaction_timeout").unwrap(), "60\n");
        assert_eq!(cat("lnet_lnd_timeout").unwrap(), "19\n");
        let errno = |r: std::io::Result<()>| r.unwrap_err().raw_os_error();
        assert_eq!(errno(echo(&file("lnet_transaction_timeout"), "foo\n")), Some(22));
        assert_eq!(errno(echo(&file("lnet_health_sensitivity"), "1001")), Some(22));
        assert_eq!(errno(echo(&file("lnet_lnd_timeout"), "1\n")), Some(13));
        // `stats` is there only while LNet is configured.
        assert_eq!(cat("stats").unwrap_err().raw_os_error(), Some(100));
        control.answer(lnet_admin::Request::LnetConfigure { all: false, large: false }).unwrap();
        assert_eq!(cat("stats").unwrap(), "0 0 0 0 0 0 0 0 0 0 0\n");
        echo(&file("stats"), "0\n").unwrap();
        // Nothing can be made, removed or changed but values.
        assert!(fs::write(file("other"), "1").is_err());
        assert!(fs::remove_file(file("stats")).is_err());
        assert!(cat("other").is_err());
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let flat = params::list().into_iter().filter(|p| !p.name.contains('/')).count();
        let drivers = ["ksocklnd", "ko2iblnd"];
        assert_eq!(names.len(), flat + drivers.len());
        assert!(drivers.iter().all(|driver| names.contains(&(*driver).to_owned())));
        for name in &names {
            let path = file(name);
            if path.is_file() {
                assert!(fs::read_to_string(&path).unwrap().ends_with('\n'), "{name}");
            }
        }
        drop(mounted);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0, "nothing stays behind");
        fs::remove_dir(&dir).unwrap();
        control.stop(Duration::ZERO);
    }
}

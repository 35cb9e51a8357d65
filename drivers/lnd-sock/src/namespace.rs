//! Network namespaces: what a caller of another one hands over, and calls made inside of it. Sockets
//! belong for ever to the namespace that they were made in, so that only their making happens there: on
//! a thread of its own, which ends with it.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;

/// A network namespace of this machine, kept alive by this value.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
    /// Device and number of its file: equal for the same namespace.
    id: (u64, u64),
}

impl PartialEq for Namespace {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Namespace {}

impl Namespace {
    /// The one that this thread is in.
    ///
    /// # Errors
    /// Those of a file of `/proc`.
    pub fn current() -> io::Result<Self> {
        Self::from_file(File::open("/proc/thread-self/ns/net")?)
    }

    /// The one that a descriptor of `/proc/PID/ns/net` stands for.
    ///
    /// # Errors
    /// `InvalidInput`: it stands for something else.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
        if !link.to_string_lossy().starts_with("net:[") {
            let what = format!("{}: must be a network namespace", link.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Self::from_file(File::from(fd))
    }

    fn from_file(file: File) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { id: (meta.dev(), meta.ino()), file: Arc::new(file) })
    }

    /// Calls `f` inside of it.
    ///
    /// # Errors
    /// No thread; `PermissionDenied`: this process may not go there (`CAP_SYS_ADMIN`).
    pub fn within<R: Send>(&self, f: impl FnOnce() -> R + Send) -> io::Result<R> {
        thread::scope(|scope| {
            let inside =
                thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, || {
                    sys::enter(self.file.as_raw_fd())?;
                    Ok(f())
                })?;
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// The one system call.
#[allow(unsafe_code)]
mod sys {
    use std::io;
    use std::os::fd::RawFd;

    /// Moves this thread into a network namespace.
    pub(super) fn enter(fd: RawFd) -> io::Result<()> {
        // SAFETY: the call takes two numbers and no memory; `fd` is an open file of the caller.
        let result = unsafe { libc::setns(fd, libc::CLONE_NEWNET) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_known_by_its_file_and_nothing_else_is_one() {
        let here = Namespace::current().expect("a namespace");
        let again = File::open("/proc/self/ns/net").expect("a file");
        assert_eq!(Namespace::from_fd(again.into()).expect("a namespace"), here);
        for other in ["/proc/self/ns/mnt", "/dev/null"] {
            let fd = File::open(other).expect("a file").into();
            let error = Namespace::from_fd(fd).expect_err(other);
            assert!(error.to_string().ends_with("must be a network namespace"), "{error}");
        }
    }
}

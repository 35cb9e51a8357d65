//! The control socket: permissions, clients, frames. What a request does is in `control.rs`.
//!
//! Each client has a thread. A client may hang, send garbage or vanish: it costs one thread, one
//! bounded buffer, and at most [`STALL`] of patience once it has begun a frame.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lnet_admin::{Access, AdminError, FrameDecoder, REQUEST_MAX, decode_request, encode_reply};
use lnet_types::Errno;
use rustix::fs::{Gid, chown};

use crate::control::Control;
use crate::credentials::{Caller, Guard};

/// Clients at a time. A tool uses one connection for a moment; this is far above what people do.
const CLIENTS_MAX: usize = 64;
/// How long a client may take over one frame, sent or received.
const STALL: Duration = Duration::from_secs(10);
/// How long a client may be silent between requests.
const IDLE: Duration = Duration::from_secs(600);
/// How often waiting threads look whether the daemon ends.
const GLANCE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 16 << 10;

/// A bound control socket, not yet served.
#[derive(Debug)]
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    guard: Guard,
}

/// A control socket that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    path: PathBuf,
    ending: Arc<AtomicBool>,
}

impl Server {
    /// Binds `path`. The file lets in its owner, and the group if there is one; if there are two,
    /// everybody, for a file has one group only, and `guard` alone decides.
    pub(crate) fn bind(path: &Path, guard: Guard) -> anyhow::Result<Self> {
        let shown = path.display();
        if let Some(dir) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
            fs::create_dir_all(dir).with_context(|| format!("control socket {shown}"))?;
        }
        remove_stale(path)?;
        let (gid, mode) = match (&guard.admin, &guard.read) {
            (None, None) => (None, 0o600),
            (Some(one), None) | (None, Some(one)) => (Some(one.gid), 0o660),
            (Some(admin), Some(read)) if admin.gid == read.gid => (Some(admin.gid), 0o660),
            (Some(admin), Some(_)) => (Some(admin.gid), 0o666),
        };
        // The socket is private from its first moment on: it is made under a tight umask.
        let old = rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o177));
        let listener = UnixListener::bind(path);
        rustix::process::umask(old);
        let listener = listener.with_context(|| format!("control socket {shown}"))?;
        if let Some(gid) = gid {
            chown(path, None, Some(Gid::from_raw(gid)))
                .with_context(|| format!("control socket {shown}: group {gid}"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: path.to_owned(), guard })
    }

    /// Serves clients on threads of their own.
    pub(crate) fn run(self, control: Arc<Control>) -> io::Result<Serving> {
        let ending = Arc::new(AtomicBool::new(false));
        let serving = Serving { path: self.path.clone(), ending: Arc::clone(&ending) };
        let clients = Arc::new(AtomicUsize::new(0));
        let guard = Arc::new(self.guard);
        thread::Builder::new().name("lnetd-accept".to_owned()).spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                match self.listener.accept() {
                    Ok((stream, _)) => greet(stream, &control, &guard, &clients, &ending),
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        wait_readable(&self.listener)
                    }
                    Err(e) => {
                        tracing::warn!("control socket: {e}");
                        thread::sleep(GLANCE);
                    }
                }
            }
        })?;
        Ok(serving)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        // Somebody may have removed it already; there is nothing else to be done about it.
        let _ = fs::remove_file(&self.path);
    }
}

fn wait_readable(listener: &UnixListener) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::new(listener, PollFlags::IN)];
    let glance = Timespec { tv_sec: 0, tv_nsec: GLANCE.as_nanos() as i64 };
    let _ = poll(&mut fds, Some(&glance));
}

/// Removes a socket that a daemon left behind; refuses if one is alive or the file is no socket.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).with_context(|| format!("control socket {}", path.display())),
        Ok(meta) if !meta.file_type().is_socket() => {
            bail!(
                "control socket {}: there is a file of that name that is no socket",
                path.display()
            )
        }
        Ok(_) => {
            if UnixStream::connect(path).is_ok() {
                bail!("control socket {}: another daemon is listening there", path.display());
            }
            fs::remove_file(path).with_context(|| format!("control socket {}", path.display()))
        }
    }
}

fn greet(
    mut stream: UnixStream,
    control: &Arc<Control>,
    guard: &Arc<Guard>,
    clients: &Arc<AtomicUsize>,
    ending: &Arc<AtomicBool>,
) {
    // Whom the system does not vouch for is nobody.
    let who = match Caller::of(&stream) {
        Ok(who) => who,
        Err(e) => return tracing::warn!("control client of unknown identity turned away: {e}"),
    };
    if guard.rights(&who).is_none() {
        control.count_refused();
        tracing::warn!("control client turned away: {who}");
        let refusal = guard.refusal(&who, "connect", Access::Read);
        let _ = stream.set_write_timeout(Some(GLANCE));
        let _ = stream.write_all(&encode_reply(0, &Err(refusal)));
        return;
    }
    if clients.fetch_add(1, Ordering::Relaxed) >= CLIENTS_MAX {
        clients.fetch_sub(1, Ordering::Relaxed);
        let busy = AdminError::errno(Errno::EBUSY)
            .because(format_args!("{CLIENTS_MAX} clients are connected, the most at a time"));
        let _ = stream.set_write_timeout(Some(GLANCE));
        let _ = stream.write_all(&encode_reply(0, &Err(busy)));
        return;
    }
    let (control, ending, count) = (Arc::clone(control), Arc::clone(ending), Arc::clone(clients));
    let guard = Arc::clone(guard);
    let thread = thread::Builder::new().name("lnetd-client".to_owned()).spawn(move || {
        if let Err(e) = serve(stream, &control, &guard, &who, &ending) {
            tracing::debug!("control client: {e}");
        }
        count.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(e) = thread {
        clients.fetch_sub(1, Ordering::Relaxed);
        tracing::warn!("control client: no thread: {e}");
    }
}

/// Answers one client until it leaves, is silent for too long, or stops making sense.
fn serve(
    mut stream: UnixStream,
    control: &Control,
    guard: &Guard,
    who: &Caller,
    ending: &AtomicBool,
) -> io::Result<()> {
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(STALL))?;
    let mut decoder = FrameDecoder::new(REQUEST_MAX);
    let mut buf = vec![0; READ_BYTES];
    let mut since = Instant::now();
    loop {
        loop {
            let frame = match decoder.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(e) => {
                    let refusal = AdminError::errno(e.errno()).because(e);
                    return stream.write_all(&encode_reply(0, &Err(refusal)));
                }
            };
            let (id, answer) = match decode_request(&frame) {
                Ok((id, request)) => match guard.check(who, &request) {
                    Ok(()) => (id, control.answer(request)),
                    Err(refusal) => {
                        control.count_refused();
                        tracing::warn!("control client {who}: '{}' refused", request.name());
                        (id, Err(refusal))
                    }
                },
                Err((id, e)) => (id, Err(AdminError::errno(e.errno()).because(e))),
            };
            stream.write_all(&encode_reply(id, &answer))?;
            since = Instant::now();
        }
        let patience = if decoder.is_partial() { STALL } else { IDLE };
        match stream.read(&mut buf) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                if !decoder.is_partial() {
                    since = Instant::now();
                }
                decoder.push(buf.get(..n).unwrap_or_default());
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                if ending.load(Ordering::Relaxed) || since.elapsed() > patience {
                    return Ok(());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

//! The control socket: permissions, clients, frames. What a request does is in `control/`.
//!
//! Each client has a thread. A client may hang, send garbage or vanish: it costs one thread, one
//! bounded buffer, and at most [`STALL`] of patience once it has begun a frame.

use std::fs;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use lnet_admin::{
    Access, AdminError, FrameDecoder, REQUEST_MAX, decode_request, encode_reply, receive_with,
};
use lnet_rt::Namespace;
use lnet_types::Errno;
use rustix::fs::{Gid, chown};

use crate::clients::{Client, Clients};
use crate::control::Control;
use crate::credentials::{Caller, Guard};

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
    /// all users, for a file has one group only, and `guard` alone decides.
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
        let shared = Arc::new(Shared {
            control,
            clients: Clients::new(self.guard.own),
            guard: self.guard,
            begun: Instant::now(),
        });
        thread::Builder::new().name("lnetd-accept".to_owned()).spawn(move || {
            while !ending.load(Ordering::Relaxed) {
                match self.listener.accept() {
                    Ok((stream, _)) => greet(stream, &shared, &ending),
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
        // It may be removed already; there is nothing else to be done about it.
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

/// What all connections have in common.
struct Shared {
    control: Arc<Control>,
    guard: Guard,
    clients: Clients,
    /// Instant zero of the daemon's clock.
    begun: Instant,
}

impl Shared {
    /// A line of the log about a refusal of `who`, at most one a minute for each uid.
    fn log_refusal(&self, who: &Caller, what: impl core::fmt::Display) {
        if let Some(count) = self.clients.refused(who.uid, self.begun.elapsed()) {
            tracing::warn!(count, "control client {who}: {what}");
        }
    }
}

/// Sends a refusal to a client that is not admitted. One that does not read misses it.
fn turn_away(mut stream: UnixStream, refusal: AdminError) {
    let _ = stream.set_write_timeout(Some(GLANCE));
    let _ = stream.write_all(&encode_reply(0, &Err(refusal)));
}

fn greet(stream: UnixStream, shared: &Arc<Shared>, ending: &Arc<AtomicBool>) {
    // A client that the system does not vouch for has no rights.
    let who = match Caller::of(&stream) {
        Ok(who) => who,
        Err(e) => return tracing::warn!("control client of unknown identity turned away: {e}"),
    };
    if shared.guard.rights(&who).is_none() {
        shared.control.count_refused();
        shared.log_refusal(&who, "turned away: no rights");
        return turn_away(stream, shared.guard.refusal(&who, "connect", Access::Read));
    }
    let client = match shared.clients.admit(who.uid, shared.begun.elapsed()) {
        Ok(client) => client,
        Err(refusal) => {
            shared.control.count_refused();
            if let Some(count) = refusal.log {
                tracing::warn!(count, "control client {who} turned away: {}", refusal.why);
            }
            return turn_away(stream, AdminError::errno(Errno::EBUSY).because(refusal.why));
        }
    };
    let (all, ending, own) = (Arc::clone(shared), Arc::clone(ending), Arc::clone(&client));
    let thread = thread::Builder::new().name("lnetd-client".to_owned()).spawn(move || {
        if let Err(e) = serve(stream, &all, &who, &own, &ending) {
            tracing::debug!("control client: {e}");
        }
        all.clients.leave(&own);
    });
    if let Err(e) = thread {
        shared.clients.leave(&client);
        tracing::warn!("control client: no thread: {e}");
    }
}

/// Answers one client until it leaves, is silent for too long, or stops making sense.
fn serve(
    mut stream: UnixStream,
    shared: &Shared,
    who: &Caller,
    client: &Client,
    ending: &AtomicBool,
) -> io::Result<()> {
    let Shared { control, guard, .. } = shared;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(STALL))?;
    let mut decoder = FrameDecoder::new(REQUEST_MAX);
    let mut buf = vec![0; READ_BYTES];
    let mut since = Instant::now();
    let mut namespace = None;
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
            client.busy();
            let (id, answer) = match decode_request(&frame) {
                Ok((id, request)) => match guard.check(who, &request) {
                    Ok(()) => (id, control.answer_in(request, namespace.as_ref())),
                    Err(refusal) => {
                        control.count_refused();
                        shared.log_refusal(who, format_args!("'{}' refused", request.name()));
                        (id, Err(refusal))
                    }
                },
                Err((id, e)) => (id, Err(AdminError::errno(e.errno()).because(e))),
            };
            stream.write_all(&encode_reply(id, &answer))?;
            since = Instant::now();
            client.idle(shared.begun.elapsed());
        }
        let patience = if decoder.is_partial() { STALL } else { IDLE };
        match receive_with(&stream, &mut buf) {
            Ok((0, _)) => return Ok(()),
            Ok((n, file)) => {
                if let Some(file) = file {
                    namespace = namespace_of(file, who);
                }
                if !decoder.is_partial() {
                    since = Instant::now();
                }
                decoder.push(buf.get(..n).unwrap_or_default());
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                let over = ending.load(Ordering::Relaxed) || client.is_closed();
                if over || since.elapsed() > patience {
                    return Ok(());
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

/// The network namespace that a client handed over, unless it is the daemon's own.
fn namespace_of(file: OwnedFd, who: &Caller) -> Option<Namespace> {
    let theirs = Namespace::from_fd(file);
    let theirs = theirs.inspect_err(|e| tracing::warn!("control client {who}: its namespace: {e}"));
    theirs.ok().filter(|theirs| Namespace::current().is_ok_and(|own| own != *theirs))
}

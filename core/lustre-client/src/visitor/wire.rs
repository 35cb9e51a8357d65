//! What a visit stands on: calls to targets. A host makes them over a node, a test plays a recording.

use core::fmt;
use core::future::Future;
use core::time::Duration;

use lnet_types::{Errno, Nid};
use lustre_wire::ConnectData;
use ptlrpc::{Call, CallError, CallId, ImportConfig, Reply};

use super::SiteTimes;

/// A server that is away at the end of a visit is waited for so long. It has this client on record: each of
/// its restarts would wait for it, and hold up others for minutes (P-146).
pub const LEAVE_MAX: Duration = Duration::from_secs(30);

/// Bulk data of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Moved {
    /// None.
    #[default]
    Nothing,
    /// At most so many bytes come.
    Read(u32),
    /// These bytes go.
    Write(Vec<u8>),
}

/// A node that may serve a target, as far as a visit has tried it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The node.
    pub nid: Nid,
    /// How often it was tried.
    pub attempts: u32,
    /// Why the last attempt has failed; `None`: it has not, or has not ended.
    pub failure: Option<CallError>,
}

impl Tried {
    /// Whether the node has said that it does not serve the target.
    pub(super) fn does_not_serve(&self) -> bool {
        self.failure == Some(CallError::Refused(Errno::ENODEV))
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nid = self.nid;
        match self.failure {
            _ if self.attempts == 0 => write!(f, "{nid} was not tried"),
            None | Some(CallError::TimedOut(_) | CallError::LimitPassed) => {
                write!(f, "{nid} has not answered")
            }
            Some(CallError::Refused(Errno::ENODEV)) => {
                write!(f, "{nid} does not serve it ({})", Errno::ENODEV.negative())
            }
            Some(CallError::Refused(errno)) => {
                write!(f, "{nid} has refused: {errno} ({})", errno.negative())
            }
            Some(error) => write!(f, "{nid}: {error}"),
        }
    }
}

/// The end of a call.
#[derive(Clone, Debug)]
pub struct End {
    /// The reply, or why there is none.
    pub result: Result<Reply, CallError>,
    /// What was read, with room behind it; what was written, unless it is lost with its node.
    pub bytes: Vec<u8>,
    /// The name of the call, by which another one [ends](Call::ends) it.
    pub call: Option<CallId>,
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        Self { result: Err(error), bytes: Vec::new(), call: None }
    }
}

/// Calls to targets. Its futures are polled by whatever runs the visit; none of them waits on a thread.
pub trait Wire: Sync {
    /// A connection.
    type Link: Send + Sync;

    /// The site has times of its own, for connections that are made from now on. A host without time-outs, or
    /// with those of a play, follows none.
    fn follow(&self, times: &SiteTimes) {
        let _ = times;
    }

    /// A connection to a target, which connects with its first call, or with [`Wire::connect`].
    ///
    /// # Errors
    /// A uuid that is empty or too long, no NID, a node that has stopped.
    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError>;

    /// Connects to a target that is to be called soon: its first call waits for less then. What becomes of
    /// it, that call says.
    fn connect(&self, link: &Self::Link);

    /// A call, and its bulk data. It ends within a bound that the host knows, with
    /// [`CallError::LimitPassed`] if it is not answered. One that [keeps](Call::keep) an open file is
    /// repeated to a server that has lost it, in the form of [`Opens`](super::Opens).
    fn call(&self, link: &Self::Link, call: Call, moved: Moved)
    -> impl Future<Output = End> + Send;

    /// Memory for so many bytes of data; what is in it does not matter.
    fn buffer(&self, len: usize) -> Vec<u8> {
        vec![0; len]
    }

    /// Takes memory of data that is not needed any more.
    fn recycle(&self, bytes: Vec<u8>) {
        drop(bytes);
    }

    /// The handle of an open file: of this one, or of its repetition (C-257). `None`: it is the first
    /// one, or the host sees to it that a call which ends an open names the present one ([`Opens::end`]).
    ///
    /// [`Opens::end`]: super::Opens::end
    fn handle(&self, link: &Self::Link, open: CallId) -> impl Future<Output = Option<u64>> + Send;

    /// What the target has granted; nothing before it has answered a call.
    fn terms(&self, link: &Self::Link) -> impl Future<Output = ConnectData> + Send;

    /// How often the target was connected so far; one that never says so is not tried again once it was not
    /// reached.
    fn connections(&self, _link: &Self::Link) -> u32 {
        0
    }

    /// Whether the target is connected now: one that is, and does not answer a call in its time, is slow, or
    /// waits for a lock of another client. A host that does not know says no.
    fn is_connected(&self, _link: &Self::Link) -> bool {
        false
    }

    /// What was tried to reach the target. A host that does not know says nothing.
    fn tried(&self, link: &Self::Link) -> impl Future<Output = Vec<Tried>> + Send {
        let _ = link;
        core::future::ready(Vec::new())
    }

    /// Whether the target has answered changes of which it is not known that they are committed. A host that
    /// repeats none does not know.
    fn uncommitted(&self, link: &Self::Link) -> impl Future<Output = bool> + Send {
        let _ = link;
        core::future::ready(false)
    }

    /// How many changes that the target had answered it may have lost so far, because it has evicted this
    /// client before they were known to be committed. It counts what was lost before the last call was
    /// answered.
    fn losses(&self, _link: &Self::Link) -> u64 {
        0
    }

    /// How often the target has evicted this client, as far as that was known when the last call was answered.
    fn evictions(&self, _link: &Self::Link) -> u64 {
        0
    }

    /// Ends a connection, if it was connected; over another one, if it is lost, within [`LEAVE_MAX`].
    fn close(&self, link: &Self::Link) -> impl Future<Output = ()> + Send;

    /// Waits so many seconds.
    fn pause(&self, seconds: u32) -> impl Future<Output = ()> + Send;

    /// Seconds since 1970.
    fn now(&self) -> i64;
}

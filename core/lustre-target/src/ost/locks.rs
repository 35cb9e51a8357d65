//! What an object target asks of the lock manager (L-49, L-50).

use lustre_wire::fid::ObjectId;
use ptlrpc::ExportId;

/// Data that a request reads or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The client.
    pub export: ExportId,
    /// The object, as the request names it.
    pub object: ObjectId,
    /// The first byte.
    pub start: u64,
    /// Behind the last byte.
    pub end: u64,
    /// Whether it is changed.
    pub write: bool,
    /// The lock that the request names, 0 for none.
    pub handle: u64,
}

/// What locks a client has over some data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// None: the client has lost it. The request is refused with `ESTALE`.
    None,
    /// Some.
    Held,
    /// One that others wait for: its timer has been moved.
    CalledBack,
}

/// The locks of a target's objects.
pub trait LockTable: Send {
    /// A client reads or changes data: timers of its locks there, if they run, are moved (L-49).
    fn touch(&mut self, touch: &Touch) -> Touched;
}

/// No client has a lock: each request says that the server takes one, and none conflicts.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLocks;

impl LockTable for NoLocks {
    fn touch(&mut self, _: &Touch) -> Touched {
        Touched::None
    }
}

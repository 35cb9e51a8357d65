//! What the request layer says to the program above it. Polled.

use core::fmt;
use core::time::Duration;

use lnet_types::{Errno, Nid};
use lustre_wire::{Body, Msg, Opcode, WireError};

use crate::client::{ImportState, LogLine};
use crate::error::CallError;
use crate::server::{RecoveryChange, Release};
use crate::table::{CallId, ExportId, ImportId, ServedId, ServiceId, TargetId};

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Zero, or a positive number whose meaning depends on the operation. Negative, with a call that
    /// wants the [reply to an error](crate::Call::error_reply): the number of the error.
    pub status: i32,
    /// Transaction of the operation, 0 for none.
    pub transno: u64,
    /// The whole message.
    pub message: Vec<u8>,
}

impl Reply {
    /// The message, to be read.
    ///
    /// # Errors
    /// None: it was read before.
    pub fn msg(&self) -> Result<Msg<'_>, WireError> {
        Msg::parse(&self.message)
    }
}

/// Why a client was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EvictReason {
    /// It was silent for too long.
    Silent,
    /// An administrator or a program wanted it.
    Ordered,
    /// It did not come back, or did not finish, while the target recovered (P-148).
    NotRecovered,
    /// What it repeated does not fit to what the target has (P-152).
    VersionMismatch,
    /// It asked for a replay of a target that does not recover (P-106).
    ReplayOutOfTime,
    /// It did not give a lock back in time (L-52).
    LockTimeout,
    /// It did not answer the callback of a lock, or refused it (L-55).
    LockCallback,
    /// It connected as a new client, without memory of its connection (P-129.5).
    Replaced,
}

impl fmt::Display for EvictReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "silent for too long",
            Self::Ordered => "ordered",
            Self::NotRecovered => "did not finish its recovery",
            Self::VersionMismatch => "replayed what does not fit the versions of the target",
            Self::ReplayOutOfTime => "replayed to a target that does not recover",
            Self::LockTimeout => "did not give a lock back in time",
            Self::LockCallback => "did not answer the callback of a lock",
            Self::Replaced => "connected as a new client",
        })
    }
}

/// A request for a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The name to answer it by, once.
    pub id: ServedId,
    /// The service that it came to.
    pub service: ServiceId,
    /// The target that it is for.
    pub target: TargetId,
    /// The client's export.
    pub export: ExportId,
    /// The import over which its server calls back: it is no client's request, and has no target.
    pub import: Option<ImportId>,
    /// Where it came from.
    pub from: Nid,
    /// Operation.
    pub opcode: Opcode,
    /// Number of the request, the same in each copy.
    pub xid: u64,
    /// The body.
    pub body: Body,
    /// The whole message.
    pub message: Vec<u8>,
    /// Its client had an answer once, and the target may have lost what it did: it is executed
    /// again.
    pub replay: Option<Replay>,
}

/// What a request that is executed again is to bring back (P-70).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Its transaction, as the client knows it. If it is at or below the last that is committed,
    /// its effect is there, and only what lives in memory (an open file) is to be made again.
    pub transno: u64,
    /// Versions that the objects had before it; 0 is not checked. The answer is
    /// [`Errno::EOVERFLOW`] if they differ (P-152).
    pub pre_versions: [u64; 4],
}

impl Served {
    /// The message, to be read.
    ///
    /// # Errors
    /// None: it was read at intake.
    pub fn msg(&self) -> Result<Msg<'_>, WireError> {
        Msg::parse(&self.message)
    }
}

/// A service that is not able to keep up (PA-156). Its text is the line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The service.
    pub service: ServiceId,
    /// Its name.
    pub name: String,
    /// Uuid of the client of the request.
    pub client: String,
    /// Operation of the request.
    pub opcode: Opcode,
    /// Number of the request.
    pub xid: u64,
    /// How long ago it arrived.
    pub waited: Duration,
    /// How long ago its deadline passed.
    pub late: Duration,
    /// Requests of the service that were dropped for this reason, this one included, since the last
    /// such event.
    pub dropped: u64,
}

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, client, opcode, xid, waited, late, dropped, .. } = self;
        let (waited, late) = (waited.as_secs(), late.as_secs());
        write!(
            f,
            "{name}: This server is not able to keep up with request traffic (cpu-bound). {opcode} \
             x{xid} of {client} waits for {waited} s, its deadline passed {late} s ago, {dropped} \
             dropped; raise at_early_margin or the slots of the service"
        )
    }
}

/// A request that is served for far longer than its service is estimated to take (P-127). Its text
/// is the line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The service.
    pub service: ServiceId,
    /// Its name.
    pub name: String,
    /// Uuid of the client of the request.
    pub client: String,
    /// Operation of the request.
    pub opcode: Opcode,
    /// Number of the request.
    pub xid: u64,
    /// How long it is being served.
    pub served: Duration,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, client, opcode, xid, served, .. } = self;
        let served = served.as_secs();
        write!(f, "service {name}: {opcode} x{xid} of {client} is served for {served} s")
    }
}

/// Something that the program is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A call has ended. Its bulk memory is the program's again.
    Ended {
        /// Which one.
        call: CallId,
        /// How.
        result: Result<Reply, CallError>,
    },
    /// A callback was not answered in its time and has gone again (L-51).
    CalledAgain {
        /// Which one.
        call: CallId,
    },
    /// An import has changed its state.
    Import {
        /// Which one.
        import: ImportId,
        /// What it is now.
        state: ImportState,
    },
    /// Something that an operator is to know of an import.
    Log {
        /// Which one.
        import: ImportId,
        /// What.
        line: LogLine,
    },
    /// The server has evicted this client: what was cached is worthless.
    Invalidated {
        /// The import to that server.
        import: ImportId,
        /// Changes that it has answered, and had not committed as far as this client knows: they may be
        /// lost, as an evicted client repeats nothing.
        lost: u32,
    },
    /// A call with [`Call::keep`](crate::Call::keep), or a write with
    /// [`Call::retains_bulk`](crate::Call::retains_bulk), was repeated to a server that had lost its effect
    /// (P-70). What the program [amends](crate::Rpc::amend) or [forgets](crate::Rpc::forget) before
    /// it returns to the host counts for the replay that follows.
    Replayed {
        /// The import.
        import: ImportId,
        /// The call.
        call: CallId,
        /// The answer of this time: it names what the first answer named by another number.
        result: Result<Reply, CallError>,
    },
    /// A write with [`Call::retains_bulk`](crate::Call::retains_bulk) that was answered and not committed is
    /// repeated no more. Its memory is the program's again. It does not come when its import is closed, or
    /// after [`Rpc::forget`](crate::Rpc::forget).
    Unretained {
        /// The import.
        import: ImportId,
        /// The call.
        call: CallId,
        /// It is committed; otherwise an eviction has made it void.
        committed: bool,
    },
    /// Locks are to be replayed now, each by [`Rpc::replay_lock`](crate::Rpc::replay_lock); recovery
    /// waits for [`Rpc::locks_replayed`](crate::Rpc::locks_replayed). It comes once more if the
    /// connection breaks meanwhile. Only for imports with
    /// [`Rpc::replays_locks`](crate::Rpc::replays_locks) (P-57, P-69).
    ReplayLocks {
        /// The import.
        import: ImportId,
    },
    /// A request waits for its turn, in a service that wants to hear of that
    /// ([`ServiceConfig::hears_of_waiting`](crate::ServiceConfig)): if others wait for what it does,
    /// [`Rpc::raise`](crate::Rpc::raise) lets it go before the regular ones (P-114).
    /// [`Ptlrpc::waiting_as`](crate::Ptlrpc::waiting_as) shows it.
    Waits {
        /// Which request.
        served: ServedId,
        /// The client's export.
        export: ExportId,
    },
    /// A request to be answered.
    Served(Box<Served>),
    /// The bulk data of a request have moved, or did not. If they did not, the request is over: it
    /// gets no reply, the client sends it again (P-53).
    BulkDone {
        /// Which request.
        served: ServedId,
        /// Whether they moved.
        result: Result<(), Errno>,
    },
    /// What a request has locked may go: the hold of its reply has ended (P-144).
    Released {
        /// Which request.
        served: ServedId,
        /// Why.
        why: Release,
    },
    /// The time of a request was over before its turn, or before an early reply could ask for more. At
    /// most one such event in ten seconds for each service.
    Behind(Box<Behind>),
    /// A request is served for too long. Once for each request.
    Stuck(Box<Stuck>),
    /// A client has connected, or connected again.
    Connected {
        /// Its export.
        export: ExportId,
        /// Its uuid.
        client: String,
        /// Where it is.
        from: Nid,
        /// Whether it was connected before.
        again: bool,
    },
    /// A new client of a target that keeps records: [`Rpc::admit`](crate::Rpc::admit) connects it
    /// when its record is stored (P-131).
    Joining {
        /// Its export to be.
        export: ExportId,
        /// The target.
        target: TargetId,
        /// Its uuid.
        client: String,
        /// Tells this admission of the client from others: a part of its record
        /// ([`ClientRecord::admission`](crate::ClientRecord::admission)).
        admission: u32,
    },
    /// A client disconnects: its record goes. If its target keeps records, it has its answer with
    /// [`Rpc::left`](crate::Rpc::left).
    Disconnected {
        /// What was its export.
        export: ExportId,
        /// The target.
        target: TargetId,
        /// Its uuid.
        client: String,
    },
    /// A client was evicted: its record goes.
    Evicted {
        /// What was its export.
        export: ExportId,
        /// The target.
        target: TargetId,
        /// Its uuid.
        client: String,
        /// Why.
        reason: EvictReason,
    },
    /// A step of the recovery of a target. Its text is the line for the log.
    Recovery {
        /// The target.
        target: TargetId,
        /// What has happened.
        change: RecoveryChange,
    },
}

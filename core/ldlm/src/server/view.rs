//! What can be seen of the locks of a server.

use lnet_types::{Instant, Nid};
use lustre_wire::ldlm::{LockDesc, ResourceName};
use ptlrpc::{ExportId, Rpc};

use super::{LockServer, export};
use crate::Cookie;
use crate::space::{LockView, State};

/// What the locks of a server count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Requests for locks.
    pub enqueues: u64,
    /// Those that were granted in their reply.
    pub granted: u64,
    /// Those whose reply said that they wait.
    pub waited: u64,
    /// Those that were refused.
    pub refused: u64,
    /// Those that found their lock: it was asked for before.
    pub resent: u64,
    /// Locks that were given back.
    pub cancels: u64,
    /// Locks that gave parts of themselves back.
    pub converts: u64,
    /// Glimpses.
    pub glimpses: u64,
    /// Blocking callbacks.
    pub blocking: u64,
    /// Completion callbacks.
    pub completions: u64,
    /// Callbacks that went again.
    pub again: u64,
    /// Reads and writes that have moved a timer.
    pub touches: u64,
    /// Clients evicted for a lock that they kept.
    pub expired: u64,
    /// Clients evicted for a callback without a proper answer.
    pub failed: u64,
}

/// A lock, to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockLine {
    /// Its name on the server.
    pub lock: Cookie,
    /// The export of its client.
    pub export: ExportId,
    /// Uuid of its client; "target" for a lock of the server itself.
    pub client: String,
    /// Where the client is.
    pub from: Nid,
    /// Whether it waits.
    pub waits: bool,
    /// Kind, resource, modes, policy.
    pub desc: LockDesc,
    /// Its fencing number; 0 if it has none, or was given it by an earlier start.
    pub fence: u64,
    /// Since when it is granted, or waits.
    pub since: Instant,
    /// The client was called back, or will be with the grant.
    pub called_back: bool,
    /// When its client is evicted for it.
    pub expires: Option<Instant>,
}

impl LockServer {
    /// What was counted.
    pub const fn stats(&self) -> LockStats {
        self.stats
    }

    fn line(&self, view: &LockView, rpc: &Rpc<'_, '_>) -> LockLine {
        let export = export(view.holder);
        let own = if super::local::is_local(view.holder) { "target" } else { "" };
        let (client, from) = rpc.client(export).unwrap_or((own, Nid::ANY));
        LockLine {
            lock: view.lock,
            export,
            client: client.to_owned(),
            from,
            waits: view.state == State::Waiting,
            desc: view.desc,
            fence: self.values.fence(view.lock),
            since: view.since,
            called_back: view.called_back,
            expires: view.expires,
        }
    }

    /// The locks of a resource, granted ones first, waiting ones in their order.
    pub fn locks_on(&self, resource: &ResourceName, rpc: &Rpc<'_, '_>) -> Vec<LockLine> {
        self.space.locks_on(resource).iter().map(|view| self.line(view, rpc)).collect()
    }

    /// The locks that a lock waits for, at most so many.
    pub fn blockers(&self, lock: Cookie, limit: usize, rpc: &Rpc<'_, '_>) -> Vec<LockLine> {
        self.space.blockers(lock, limit).iter().map(|view| self.line(view, rpc)).collect()
    }

    /// A lock.
    pub fn lock(&self, lock: Cookie, rpc: &Rpc<'_, '_>) -> Option<LockLine> {
        self.space.lock(lock).map(|view| self.line(&view, rpc))
    }
}

//! The lock target: a namespace and nothing else. Programs lock names; each grant of an exclusive or
//! write lock has a fencing number, which whatever the lock protects can compare: a holder that was
//! evicted and does not know it yet has a lower one. `wire.rs` has names and numbers as they are on the
//! wire; the locks themselves are `ldlm`'s.
//!
//! Nothing is stored but clients: they replay their locks when the target starts again, and the number
//! of the start is part of each fencing number.

#[cfg(test)]
mod tests;
pub mod wire;

use std::collections::BTreeMap;

use ldlm::server::{LockServer, Request, Values};
use ldlm::space::{Io, Touched};
use lnet_types::{Errno, Instant};
use lustre_wire::Opcode;
use lustre_wire::connect::{ConnectData, ConnectFlags, ConnectFlags2};
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{ExportId, Rpc, Served, ServedId};

use crate::journal::Cx;
use crate::lock_server;
use crate::store::{Outcome, StoreError};
use crate::targets::{Beginning, CallbackFact, Kind, plain_offer};

/// Names of resources without locks are dropped when there are so many more than resources.
const SLACK: usize = 1024;

/// The lock target.
#[derive(Debug)]
pub struct Lock {
    locks: LockServer,
    /// Names of the resources that have locks, and of some that have none any more.
    names: BTreeMap<[u64; 4], Box<str>>,
    #[cfg(feature = "sabotage")]
    rule: Option<ldlm::Sabotage>,
}

impl Default for Lock {
    fn default() -> Self {
        let locks = lock_server::idle(Values::fences(0));
        Self {
            locks,
            names: BTreeMap::new(),
            #[cfg(feature = "sabotage")]
            rule: None,
        }
    }
}

impl Lock {
    /// A target that has not begun.
    pub fn new() -> Self {
        Self::default()
    }

    /// A client uses what a range of a resource protects: as [`LockServer::touch`]. For targets that
    /// serve more than locks.
    pub fn touch(&mut self, served: &Served, io: &Io, rpc: &mut Rpc<'_, '_>) -> Touched {
        self.locks.touch(served.id, served.export, io, rpc)
    }

    /// Breaks a rule when the target begins.
    #[cfg(feature = "sabotage")]
    #[must_use]
    pub fn sabotaged(mut self, rule: Option<ldlm::Sabotage>) -> Self {
        self.rule = rule;
        self
    }

    /// Takes down the name that an enqueue is for, if it has one.
    ///
    /// # Errors
    /// `EPROTO` for a name that is none or belongs to another resource, `EEXIST` if another name has
    /// its words.
    fn name(&mut self, request: &Request<'_>) -> Result<(), Errno> {
        let resource = request.resource();
        let Some(name) = request.beside().filter(|name| !name.is_empty()) else { return Ok(()) };
        let name = core::str::from_utf8(name).map_err(|_| Errno::EPROTO)?;
        if wire::resource_of(name) != Some(resource) {
            return Err(Errno::EPROTO);
        }
        let kept = self.names.entry(resource.words).or_insert_with(|| name.into());
        if **kept != *name {
            return Err(Errno::EEXIST);
        }
        let space = self.locks.space();
        if self.names.len() > 2 * space.view().resources + SLACK {
            self.names.retain(|words, _| {
                *words == resource.words
                    || !space.locks_on(&ResourceName { words: *words }).is_empty()
            });
        }
        Ok(())
    }
}

impl Kind for Lock {
    fn name(&self) -> &'static str {
        "lock"
    }

    fn offer(&self) -> ConnectData {
        let plain = plain_offer();
        let flags = ConnectFlags::LVB_TYPE | ConnectFlags::CANCELSET | ConnectFlags::LRU_RESIZE;
        let flags2 = plain.flags2 | ConnectFlags2::LOCK_CONVERT;
        ConnectData { flags: plain.flags | flags, flags2, ..plain }
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        let values = Values::fences(beginning.starts);
        self.locks = lock_server::begun(values, beginning.recovers, rpc);
        #[cfg(feature = "sabotage")]
        if let Some(rule) = self.rule {
            self.locks.sabotage(rule);
        }
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        let id = served.id;
        if !LockServer::serves(served.opcode) {
            return cx.rpc.refuse(id, Errno::EOPNOTSUPP);
        }
        let request = match LockServer::read(&served) {
            Ok(request) => request,
            Err(errno) => return cx.rpc.refuse(id, errno),
        };
        if served.opcode == Opcode::LDLM_ENQUEUE
            && let Err(errno) = self.name(&request)
        {
            return cx.rpc.refuse(id, errno);
        }
        self.locks.serve_read(&served, &request, Ok(None), cx.rpc);
    }

    fn bulk_done(&mut self, _: ServedId, _: Result<(), Errno>, _: &mut Cx<'_, '_, '_>) -> bool {
        false
    }

    fn stored(&mut self, _: u64, _: Result<Outcome, StoreError>, _: &mut Cx<'_, '_, '_>) {}

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.locks.recovered(cx.rpc);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.locks.left(export, cx.rpc);
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        lock_server::report(&mut self.locks, fact, cx.rpc)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.locks.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        // No request but cancels needs a lock here, and those are served at once.
        self.locks.handle_timeout(cx.rpc, |_, _, _| false);
    }

    fn locks(&self) -> Option<&LockServer> {
        Some(&self.locks)
    }

    fn resource_name(&self, resource: &ResourceName) -> Option<&str> {
        self.names.get(&resource.words).map(|name| &**name)
    }
}

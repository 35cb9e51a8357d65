//! Locks of a server, its clients and what gets lost between them, in virtual time (L-22 … L-56).

mod bench;
mod callbacks;
mod grants;
mod hostile;
mod restarts;
mod storms;

use ldlm::server::LockServer;
use ldlm::space::{Io, Touched};
use lnet_types::{Errno, Instant};
use lustre_wire::Opcode;
use lustre_wire::connect::ConnectData;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{Answer, ExportId, Rpc, Served, ServedId};

use super::Lock;
use crate::store::{Outcome, StoreError};
use crate::{Beginning, CallbackFact, Cx, Kind};

/// Reads under a lock: the first range of a resource, which the request names.
const READ: Opcode = Opcode(20_490);

/// A lock target with something to read.
#[derive(Debug, Default)]
struct Touching(Lock);

impl Touching {
    fn read(&mut self, served: &Served, rpc: &mut Rpc<'_, '_>) {
        let words: [u64; 4] = served.msg().unwrap().get(1).unwrap();
        let resource = ResourceName { words };
        let io = Io { resource, start: 0, end: 4095, read: true, lock: None };
        match self.0.locks.touch(served.id, served.export, &io, rpc) {
            Touched::NoLock => rpc.refuse(served.id, Errno::ESTALE),
            _ => rpc.reply(served.id, Answer::default()),
        }
    }
}

impl Kind for Touching {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn offer(&self) -> ConnectData {
        self.0.offer()
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        self.0.begin(beginning, rpc);
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        if served.opcode == READ {
            return self.read(&served, cx.rpc);
        }
        self.0.serve(served, cx);
    }

    fn bulk_done(&mut self, _: ServedId, _: Result<(), Errno>, _: &mut Cx<'_, '_, '_>) -> bool {
        false
    }

    fn stored(&mut self, _: u64, _: Result<Outcome, StoreError>, _: &mut Cx<'_, '_, '_>) {}

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.0.recovered(cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.0.left(export, cx);
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.0.callback(fact, cx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.0.handle_timeout(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        self.0.locks()
    }

    fn resource_name(&self, resource: &ResourceName) -> Option<&str> {
        self.0.resource_name(resource)
    }
}

//! Locks of a server, its clients and what gets lost between them, in virtual time (L-22 … L-56).

mod bench;
mod callbacks;
mod grants;
mod hostile;
mod restarts;
mod storms;

use ldlm::space::{Io, Touched};
use lnet_types::Errno;
use lustre_wire::Opcode;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{Answer, Served};

use super::Lock;
use crate::{Cx, Intercepted, Kind};

/// Reads under a lock: the first range of a resource, which the request names.
const READ: Opcode = Opcode(20_490);

fn read(lock: &mut Lock, served: Served, cx: &mut Cx<'_, '_, '_>) -> Option<Served> {
    if served.opcode != READ {
        return Some(served);
    }
    let words: [u64; 4] = served.msg().unwrap().get(1).unwrap();
    let resource = ResourceName { words };
    let io = Io { resource, start: 0, end: 4095, read: true, lock: None };
    match lock.touch(&served, &io, cx.rpc) {
        Touched::NoLock => cx.rpc.refuse(served.id, Errno::ESTALE),
        _ => cx.rpc.reply(served.id, Answer::default()),
    }
    None
}

/// A lock target with something to read.
fn touching() -> Box<dyn Kind> {
    Box::new(Intercepted::new(Lock::new(), read))
}

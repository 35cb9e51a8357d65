//! A lock target with something that its locks protect: I/O of a range of a name is carried out for a
//! client that has a lock on it, and moves the timers of locks that were called back (L-49).

use ldlm::space::{Io, Touched};
use lnet_types::Errno;
use lustre_target::{Cx, Intercepted, Kind, Lock};
use lustre_wire::Buffers;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{Answer, Served};

use super::super::IO;

/// The request of an I/O: the words of its name, first and last byte, whether it only reads.
pub(super) fn request(io: &Io) -> Buffers {
    let ([a, b, c, d], read) = (io.resource.words, u64::from(io.read));
    Buffers::new().layout(&[a, b, c, d, io.start, io.end, read])
}

fn read(served: &Served) -> Option<Io> {
    let msg = served.msg().ok()?;
    let (words, rest) = msg.buffer(1)?.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let mut next = || words.next();
    let resource = ResourceName { words: [next()?, next()?, next()?, next()?] };
    let (start, end, read) = (next()?, next()?, next()? != 0);
    rest.is_empty().then_some(Io { resource, start, end, read, lock: None })
}

fn serve(lock: &mut Lock, served: Served, cx: &mut Cx<'_, '_, '_>) -> Option<Served> {
    if served.opcode != IO {
        return Some(served);
    }
    match read(&served).map(|io| lock.touch(&served, &io, cx.rpc)) {
        None => cx.rpc.refuse(served.id, Errno::EPROTO),
        Some(Touched::NoLock) => cx.rpc.refuse(served.id, Errno::ESTALE),
        Some(Touched::Held | Touched::CalledBack) => cx.rpc.reply(served.id, Answer::default()),
    }
    None
}

/// The target of these locks.
pub(in crate::rpc) fn guard(lock: Lock) -> Box<dyn Kind> {
    Box::new(Intercepted::new(lock, serve))
}

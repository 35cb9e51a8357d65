//! A lock target with something that its locks protect: I/O of a range of a name is carried out for a
//! client that has a lock on it, and moves the timers of locks that were called back (L-49).

use ldlm::server::LockServer;
use ldlm::space::{Io, Touched};
use lnet_types::{Errno, Instant};
use lustre_target::store::{Outcome, StoreError};
use lustre_target::{Beginning, CallbackFact, Cx, Kind, Lock};
use lustre_wire::connect::ConnectData;
use lustre_wire::ldlm::ResourceName;
use ptlrpc::{Answer, ExportId, Rpc, Served, ServedId};

use super::super::IO;

/// See the module's head.
#[derive(Debug, Default)]
pub(in crate::rpc) struct Guard {
    lock: Lock,
    /// The rule that its locks break.
    #[cfg(feature = "sabotage")]
    rule: Option<ldlm::Sabotage>,
}

/// The request of an I/O: the words of its name, first and last byte, whether it only reads.
pub(super) fn request(io: &Io) -> Vec<Vec<u8>> {
    let words = io.resource.words.into_iter().chain([io.start, io.end, u64::from(io.read)]);
    vec![words.flat_map(u64::to_le_bytes).collect()]
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

impl Guard {
    #[cfg(feature = "sabotage")]
    pub(in crate::rpc) fn new(rule: Option<ldlm::Sabotage>) -> Self {
        Self { lock: Lock::new(), rule }
    }

    #[cfg(not(feature = "sabotage"))]
    pub(in crate::rpc) fn new() -> Self {
        Self::default()
    }

    fn io(&mut self, served: &Served, rpc: &mut Rpc<'_, '_>) {
        let Some(io) = read(served) else { return rpc.refuse(served.id, Errno::EPROTO) };
        match self.lock.touch(served, &io, rpc) {
            Touched::NoLock => rpc.refuse(served.id, Errno::ESTALE),
            Touched::Held | Touched::CalledBack => rpc.reply(served.id, Answer::default()),
        }
    }
}

impl Kind for Guard {
    fn name(&self) -> &'static str {
        self.lock.name()
    }

    fn offer(&self) -> ConnectData {
        self.lock.offer()
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        self.lock.begin(beginning, rpc);
        #[cfg(feature = "sabotage")]
        if let Some(rule) = self.rule {
            self.lock.sabotage(rule);
        }
    }

    fn serve(&mut self, served: Served, cx: &mut Cx<'_, '_, '_>) {
        match served.opcode {
            IO => self.io(&served, cx.rpc),
            _ => self.lock.serve(served, cx),
        }
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        self.lock.bulk_done(served, result, cx)
    }

    fn stored(
        &mut self,
        token: u64,
        outcome: Result<Outcome, StoreError>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        self.lock.stored(token, outcome, cx);
    }

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.lock.recovered(cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.lock.left(export, cx);
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.lock.callback(fact, cx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.lock.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.lock.handle_timeout(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        self.lock.locks()
    }

    fn resource_name(&self, resource: &ResourceName) -> Option<&str> {
        self.lock.resource_name(resource)
    }
}

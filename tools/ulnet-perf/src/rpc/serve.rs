//! The server's side: a target whose calls do nothing, or move bulk data to and from one buffer.

use core::time::Duration;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_rt::{Buffer, Stack};
use lnet_types::{Errno, Instant, IoVec, iovec_slice};
use lustre_rt::{Answer, Direction, ImportKind, Portal, ServiceConfig, TargetConfig};
use ptlrpc::{Config, Event, Ptlrpc, Served};

use super::{CALL, READ, TARGET, WRITE, granted};

/// Puts a request layer with the target on a stack.
pub(in super::super) fn stand(stack: &mut Stack) -> anyhow::Result<()> {
    let lent = stack.lend(Buffer::zeroed(super::BULK_MAX as usize)).map_err(|e| e.error)?;
    let memory = stack.region(lent);
    let tunables = ptlrpc::Tunables::default();
    let ptlrpc =
        Ptlrpc::new(Config { seed: 1, wall: Duration::from_secs(1_700_000_000), tunables });
    let server = Server { ptlrpc, memory };
    let id = stack.add_upper(Box::new(server)).ok_or_else(|| anyhow::anyhow!("no upper"))?;
    let begun = stack.with_upper(id, Server::begin);
    Ok(begun.unwrap_or(Err(Errno::ENODEV))?)
}

struct Server {
    ptlrpc: Ptlrpc,
    /// Where bulk data go and come from, those of all calls alike.
    memory: IoVec,
}

impl Server {
    fn begin(&mut self, below: &mut Below<'_>) -> Result<(), Errno> {
        let (request, reply) = ImportKind::Osc.portals();
        let mut rpc = self.ptlrpc.rpc(below);
        let uuid = TARGET.to_owned();
        let past = Default::default();
        rpc.add_target(TargetConfig { uuid, offer: granted(), replayable: false, past })?;
        let service = ServiceConfig::new(TARGET, request.0, reply.0, Portal::OST_BULK.0);
        rpc.serve(ServiceConfig { slots: 1024, ..service })?;
        Ok(())
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                Event::Served(served) => self.serve(&served, below),
                // What did not move is over already: the client sends it again.
                Event::BulkDone { served, result: Ok(()) } => {
                    self.ptlrpc.rpc(below).reply(served, Answer::default());
                }
                _ => {}
            }
        }
    }

    fn serve(&mut self, served: &Served, below: &mut Below<'_>) {
        let mut rpc = self.ptlrpc.rpc(below);
        let direction = match served.opcode {
            CALL => return rpc.reply(served.id, Answer::default()),
            WRITE => Direction::Write,
            READ => Direction::Read,
            _ => return rpc.refuse(served.id, Errno::EOPNOTSUPP),
        };
        let asked = served.msg().ok().and_then(|msg| msg.get::<u64>(1).ok());
        let len = asked.filter(|len| (1..=u64::from(super::BULK_MAX)).contains(len));
        let Some(len) = len else { return rpc.refuse(served.id, Errno::EINVAL) };
        if let Err(errno) = rpc.bulk(served.id, direction, &iovec_slice(&self.memory, 0, len)) {
            rpc.refuse(served.id, errno);
        }
    }
}

impl Upper for Server {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

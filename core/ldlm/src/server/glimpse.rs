//! Glimpses: the size of an object, from the clients that may know it better (L-34, L-35).

use lnet_types::Errno;
use lustre_wire::ldlm::{LockReply, Lvb, ResourceName};
use lustre_wire::{Buffers, Opcode};
use ptlrpc::{Answer, CallError, Reply, Rpc, Served, ServedId};

use super::callback::Calling;
use super::{LockServer, Round, holder};
use crate::space::{Ask, Glimpse, Value};

/// Status of an enqueue that leaves no lock (L-21).
const ABORTED: i32 = 301;

/// A glimpse whose reply waits for the clients that are asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glimpsing {
    /// The resource, kept until the reply: its value is the answer, although its last lock may go.
    resource: ResourceName,
    open: usize,
    short: bool,
}

impl LockServer {
    pub(super) fn glimpse(
        &mut self,
        served: &Served,
        ask: &Ask,
        value: Option<Value>,
        short: bool,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let resource = ask.desc.resource;
        self.stats.glimpses += 1;
        if let Some(value) = &value
            && self.space.value(&resource).is_none()
        {
            self.space.set_value(&resource, value.clone());
        }
        match self.space.glimpse(rpc.now(), holder(served.export), ask) {
            Err(refusal) => self.refused(served, refusal, rpc),
            Ok(Glimpse::Granted(made)) => {
                if made.wants_value
                    && let Some(value) = value
                {
                    self.space.set_value(&resource, value);
                }
                let round =
                    Round { served: served.id, open: 0, replay: false, glimpse: true, short };
                self.begin_round(made.lock, round, rpc);
            }
            Ok(Glimpse::Destroyed) => {
                let errno = Some(Errno::ENOENT);
                self.aborted(served.id, &resource, short, errno, rpc);
            }
            Ok(Glimpse::Aborted(callbacks)) => {
                let mut open = 0;
                for callback in callbacks {
                    let lock = callback.lock;
                    if let Ok(call) =
                        self.call(Opcode::LDLM_GL_CALLBACK, &callback, None, false, rpc)
                    {
                        self.calls.insert(call, Calling::Glimpse { lock, served: served.id });
                        open += 1;
                    }
                }
                if open == 0 {
                    return self.aborted(served.id, &resource, short, None, rpc);
                }
                self.space.pin(&resource);
                self.glimpses.insert(served.id, Glimpsing { resource, open, short });
            }
        }
    }

    /// A client has said what it knows of an object, or does not answer any more.
    pub(super) fn glimpsed(
        &mut self,
        served: ServedId,
        result: &Result<Reply, CallError>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let Some(glimpsing) = self.glimpses.get_mut(&served) else { return };
        glimpsing.open = glimpsing.open.saturating_sub(1);
        let Glimpsing { resource, open, short } = *glimpsing;
        if let Ok(reply) = result
            && reply.status == 0
            && let Ok(msg) = reply.msg()
            && let Some(bytes) = msg.buffer(1)
            && let Ok(seen) = Lvb::parse_either(msg.order, bytes)
        {
            self.space.grow_value(&resource, &seen);
        }
        if open == 0 {
            self.glimpses.remove(&served);
            self.aborted(served, &resource, short, None, rpc);
            self.space.unpin(&resource);
        }
    }

    /// The reply of a glimpse that leaves no lock: its description is empty, as recorded servers send it.
    fn aborted(
        &self,
        served: ServedId,
        resource: &ResourceName,
        short: bool,
        errno: Option<Errno>,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let reply = LockReply {
            policy_res1: errno.map_or(0, |errno| i64::from(errno.negative()) as u64),
            ..LockReply::default()
        };
        let value = match self.space.value(resource) {
            Some(Value::Object(lvb)) => super::value::lvb_bytes(lvb, short),
            Some(Value::Bytes(bytes)) => bytes.to_vec(),
            None => Vec::new(),
        };
        let buffers = Buffers::new().layout(&reply).bytes(value);
        rpc.reply(served, Answer { status: ABORTED, buffers, ..Answer::default() });
    }
}

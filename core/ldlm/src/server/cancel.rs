//! Cancels and conversions (L-42, L-45).

use lnet_types::Errno;
use lustre_wire::ldlm::{InodeBits, LockDesc, LockFlags, LockKind, LockReply, LockRequest, Policy};
use lustre_wire::{BodyFlags, Buffers};
use ptlrpc::{Answer, Bounds, ExportId, Rpc, Served};

use super::request::{cancelled, handle};
use super::{LockServer, callback_time, holder};
use crate::space::ConvertRefusal;
use crate::{Cookie, Mode};

/// Status of a cancel that found no lock (L-21).
const ESTALE: i32 = 116;

impl LockServer {
    pub(super) fn cancel(&mut self, served: &Served, request: &LockRequest, rpc: &mut Rpc<'_, '_>) {
        let replay = served.body.flags.contains(BodyFlags::REPLAY);
        let locks = if replay { Vec::new() } else { cancelled(request) };
        let found = self.take_back(served.export, &locks, true, rpc);
        self.stats.cancels += found as u64;
        // Those who wait for the locks hear of it first.
        self.work(rpc);
        let status = if found == 0 && !replay { ESTALE } else { 0 };
        rpc.reply(served.id, Answer { status, ..Answer::default() });
    }

    /// Locks that a client gives back; how many of them it had.
    pub(super) fn take_back(
        &mut self,
        client: ExportId,
        locks: &[Cookie],
        measure: bool,
        rpc: &mut Rpc<'_, '_>,
    ) -> usize {
        if locks.is_empty() {
            return 0;
        }
        let now = rpc.now();
        let done = self.space.cancel(now, holder(client), locks);
        for lock in locks {
            // Its callback was heard, whether its answer comes or not (L-55.2).
            if self.space.lock(*lock).is_none()
                && let Some(call) = self.called.get(lock)
            {
                rpc.cancel(*call);
            }
        }
        let tunables = rpc.tunables();
        if measure
            && let Some(estimate) = self.holders.get_mut(&client)
            && !done.delays.is_empty()
        {
            let (min, max) = (tunables.at_min, tunables.at_max);
            let bounds = Bounds { min, max, history: tunables.at_history };
            done.delays.iter().for_each(|delay| estimate.measure(now, *delay, &bounds));
            self.space.set_estimate(holder(client), callback_time(estimate, tunables));
        }
        done.found
    }

    pub(super) fn convert(
        &mut self,
        served: &Served,
        request: &LockRequest,
        rpc: &mut Rpc<'_, '_>,
    ) {
        let lock = Cookie(handle(request, 0));
        let desc = request.desc;
        // Recorded clients name no kind: the bits stand where those of inode bits do.
        let bare = desc.kind == LockKind(0);
        let keep = match desc.policy() {
            Some(Policy::Ibits { bits, .. }) => Some(bits),
            _ if bare => Some(InodeBits::from_bits_retain(desc.policy.start)),
            _ => None,
        };
        let named = self.space.lock(lock).map_or(0, |lock| lock.client_cookie);
        let converted = match (keep, Mode::of(desc.requested)) {
            (Some(keep), Some(mode)) => {
                self.space.convert(rpc.now(), holder(served.export), lock, mode, keep)
            }
            _ => Err(ConvertRefusal::Differs),
        };
        let (status, bits) = match converted {
            Ok(bits) => (0, bits),
            Err(why) => (why.status(), InodeBits::empty()),
        };
        self.stats.converts += u64::from(status == 0);
        self.work(rpc);
        if status < 0 {
            return rpc.refuse(served.id, Errno(status.saturating_neg()));
        }
        let mut desc = match bare {
            true => LockDesc::default(),
            false => self.space.lock(lock).map_or(desc, |lock| lock.desc),
        };
        desc.policy.start = bits.bits();
        let (flags, handle) = (LockFlags::empty(), if bare { named } else { lock.0 });
        let reply = LockReply { flags, desc, handle, ..LockReply::default() };
        let buffers = Buffers::new().layout(&reply);
        rpc.reply(served.id, Answer { status, buffers, ..Answer::default() });
    }
}

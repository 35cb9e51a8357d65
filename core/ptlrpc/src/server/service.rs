//! A service: a portal, buffers posted on it, a queue, and slots for what is being served.

use std::collections::VecDeque;

use lnet::{MatchEntry, MdOptions};
use lnet_types::{Errno, Instant, IoVec, MdId, Nid, ProcessId};
use lustre_wire::Body;

use super::Server;
use super::recover::is_replay;
use crate::common::{Cx, Post, errno, spec};
use crate::estimate::Estimate;
use crate::event::{Event, Replay, Served};
use crate::table::{ExportId, ServedId, ServiceId, TargetId};
use crate::timers::Timer;

/// A service (P-33, P-36, P-37).
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Name in views.
    pub name: String,
    /// Portal of requests.
    pub portal: u32,
    /// Portal of replies.
    pub reply_portal: u32,
    /// Portal of bulk data.
    pub bulk_portal: u32,
    /// The largest request, bytes; at most 256 KiB.
    pub request_max: u32,
    /// Request buffers that are posted.
    pub buffers: u32,
    /// Requests that are being served at a time; the others wait.
    pub slots: usize,
}

impl ServiceConfig {
    /// A service with the sizes of an OST's (P-37).
    pub fn new(name: impl Into<String>, portal: u32, reply_portal: u32, bulk_portal: u32) -> Self {
        Self {
            name: name.into(),
            portal,
            reply_portal,
            bulk_portal,
            request_max: 16 << 10,
            buffers: 64,
            slots: 64,
        }
    }
}

/// The longest request that a service may ask for.
const REQUEST_MAX: u32 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: ServiceConfig,
    pub(crate) estimate: Estimate,
    pub(crate) queue: VecDeque<ServedId>,
    /// Being served.
    pub(crate) busy: usize,
    pub(crate) posted: u32,
}

/// Where a request came from, and what its answers need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) service: ServiceId,
    pub(crate) from: ProcessId,
    /// The client's primary NID, whichever it has sent from.
    pub(crate) peer: Nid,
    /// The NID of ours that it was sent to.
    pub(crate) to: Nid,
    pub(crate) xid: u64,
    pub(crate) reply_bits: u64,
    /// Early replies are understood, and the real one stands behind them.
    pub(crate) adaptive: bool,
    pub(crate) arrival: Instant,
    pub(crate) deadline: Instant,
}

/// A request that waits or is being served.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) origin: Origin,
    pub(crate) export: ExportId,
    pub(crate) target: TargetId,
    pub(crate) body: Body,
    /// Gone when the program has it.
    pub(crate) message: Vec<u8>,
    /// The program has it.
    pub(crate) serving: bool,
    /// Its transaction, 0 before it has one.
    pub(crate) transno: u64,
    /// Its slot was used again: no record of it is kept (P-111).
    pub(crate) obsolete: bool,
    pub(crate) early: u32,
    pub(crate) bulk: Option<Moving>,
}

/// Bulk data under way.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) mds: Vec<MdId>,
    /// Descriptors whose last event has not come.
    pub(crate) open: u32,
    pub(crate) failed: Option<Errno>,
    /// When it began (P-51).
    pub(crate) began: Instant,
}

impl Server {
    /// Starts a service.
    pub(crate) fn serve(
        &mut self,
        cx: &mut Cx<'_, '_>,
        config: ServiceConfig,
    ) -> Result<ServiceId, Errno> {
        if config.request_max == 0 || config.request_max > REQUEST_MAX || config.slots == 0 {
            return Err(Errno::EINVAL);
        }
        if self.services.iter().any(|(_, s)| s.config.portal == config.portal) {
            return Err(Errno::EADDRINUSE);
        }
        cx.below.set_lazy(config.portal, true).map_err(|e| e.errno())?;
        let first = core::time::Duration::from_secs(10);
        let id = self.services.insert(Service {
            estimate: Estimate::new(first),
            queue: VecDeque::new(),
            busy: 0,
            posted: 0,
            config,
        });
        self.post(cx, id)?;
        Ok(id)
    }

    /// Posts request buffers, as many as there should be.
    pub(crate) fn post(&mut self, cx: &mut Cx<'_, '_>, id: ServiceId) -> Result<(), Errno> {
        let Some(service) = self.services.get_mut(id) else { return Ok(()) };
        while service.posted < service.config.buffers {
            // Several requests in each, one behind the other.
            let size = service.config.request_max.saturating_mul(4).max(64 << 10);
            let span = cx.below.alloc(size).ok_or(Errno::ENOMEM)?;
            let post = cx.common.posts.insert(Post::RequestBuffer { service: id, span });
            let options = MdOptions::OP_PUT | MdOptions::MAX_SIZE;
            let mut buffer = spec(IoVec::from([span]), post, options, None);
            buffer.max_size = service.config.request_max;
            buffer.unlink = lnet::Unlink::Auto;
            let entry = MatchEntry { ignore_bits: u64::MAX, ..MatchEntry::bits(0) };
            if let Err(e) = cx.below.attach(service.config.portal, entry, buffer) {
                cx.common.posts.remove(post);
                cx.below.free(span);
                return Err(errno(e));
            }
            service.posted += 1;
        }
        Ok(())
    }

    /// Gives the program what it has slots for.
    pub(crate) fn dispatch(&mut self, cx: &mut Cx<'_, '_>, id: ServiceId) {
        let now = cx.below.now();
        while let Some(service) = self.services.get_mut(id) {
            if service.busy >= service.config.slots {
                return;
            }
            let Some(next) = service.queue.pop_front() else { return };
            let Some(work) = self.work.get_mut(next) else { continue };
            // P-107: its client has given it up, or is gone.
            let late = work.origin.deadline <= now;
            if late || self.exports.get(work.export).is_none() {
                self.stats.late += u64::from(late);
                self.forget(cx, next);
                continue;
            }
            work.serving = true;
            service.busy += 1;
            let served = Served {
                id: next,
                service: id,
                target: work.target,
                export: work.export,
                import: self.exports.get(work.export).and_then(|e| e.import),
                from: work.origin.peer,
                opcode: work.body.opcode,
                xid: work.origin.xid,
                body: work.body,
                message: core::mem::take(&mut work.message),
                replay: is_replay(&work.body).then_some(Replay {
                    transno: work.body.transno,
                    pre_versions: work.body.pre_versions,
                }),
            };
            self.stats.served += 1;
            cx.common.events.push_back(Event::Served(Box::new(served)));
        }
    }

    /// A request waits for a slot.
    pub(super) fn enqueue(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) {
        let Some(service) = self.work.get(id).map(|work| work.origin.service) else { return };
        if let Some(service) = self.services.get_mut(service) {
            service.queue.push_back(id);
        }
        self.dispatch(cx, service);
    }

    /// A request is over without an answer.
    pub(crate) fn forget(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) -> Option<Work> {
        let work = self.take_out(cx, id)?;
        self.replay_lost(cx, id, work.target);
        Some(work)
    }

    /// A request is over.
    pub(super) fn take_out(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) -> Option<Work> {
        let work = self.work.remove(id)?;
        cx.common.timers.stop(Timer::Early(id));
        cx.common.timers.stop(Timer::Bulk(id));
        if let Some(export) = self.exports.get_mut(work.export) {
            export.in_work.remove(&work.origin.xid);
        }
        if let Some(service) = self.services.get_mut(work.origin.service) {
            service.busy -= usize::from(work.serving);
        }
        Some(work)
    }
}

//! A service: a portal, buffers posted on it, requests that wait in its heads, and slots for what is
//! being served.

use lnet::{MatchEntry, MdOptions, Position};
use lnet_types::{Errno, Instant, IoVec, MdId, Nid, ProcessId};
use lustre_wire::{Body, Opcode};

use super::Server;
use super::early::Behindness;
use super::heads::Heads;
use super::nrs::{NrsError, Place};
use super::recover::is_replay;
use crate::common::{Cx, Post, Word, errno, spec};
use crate::cut::Cut;
use crate::estimate::Estimate;
use crate::event::{Event, Replay, Served};
use crate::histogram::Histogram;
use crate::piece::MovedPieces;
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
    /// Regular requests that are being served at a time; the others wait. One of high priority is
    /// served beside them. No client takes a slot when it has as many as are free.
    pub slots: usize,
    /// Whether high-priority requests have a head of their own (P-113).
    pub high_priority: bool,
    /// Whether each request that finds no slot is announced, with
    /// [`Event::Waits`]: the program knows what others wait for (P-114).
    pub hears_of_waiting: bool,
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
            high_priority: true,
            hears_of_waiting: false,
        }
    }
}

/// The longest request that a service may ask for.
const REQUEST_MAX: u32 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: ServiceConfig,
    pub(crate) estimate: Estimate,
    pub(crate) heads: Heads,
    /// Since when requests wait and none was taken (P-127).
    pub(crate) stuck: Option<Instant>,
    /// What was said last of requests whose time was over.
    pub(crate) behind: Behindness,
    /// How long requests have waited before the program got them.
    pub(crate) waited: Histogram,
    /// How long the program had them.
    pub(crate) served: Histogram,
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
    /// Bytes of the message.
    pub(crate) bytes: usize,
    /// How its bulk data are cut.
    pub(crate) cut: Cut,
    /// Of high priority.
    pub(crate) high: bool,
    /// Where it waits in the heads of its service.
    pub(crate) place: Option<Place>,
    /// It has a slot.
    pub(crate) slot: bool,
    /// When the program got it.
    pub(crate) began: Option<Instant>,
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
    /// Those of them whose data have moved.
    pub(crate) moved: MovedPieces,
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
            heads: Heads::new(config.slots, config.high_priority),
            stuck: None,
            behind: Behindness::default(),
            waited: Histogram::default(),
            served: Histogram::default(),
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
            let mut buffer = spec(IoVec::from([span]), Word::Post(post), options, None);
            buffer.max_size = service.config.request_max;
            buffer.unlink = lnet::Unlink::Auto;
            // Before the others: the memory that was used last is filled again first, and stays in the
            // cache; those behind are for bursts.
            let position = Position::Before;
            let entry = MatchEntry { ignore_bits: u64::MAX, position, ..MatchEntry::bits(0) };
            if let Err(e) = cx.below.attach(service.config.portal, entry, buffer) {
                cx.common.posts.remove(post);
                cx.below.free(span);
                return Err(errno(e));
            }
            service.posted += 1;
        }
        Ok(())
    }

    /// A request waits for its turn. One that arrives at this moment has been `checked` (P-106).
    pub(crate) fn enqueue(&mut self, cx: &mut Cx<'_, '_>, id: ServedId, checked: bool) {
        let now = cx.below.now();
        let Some(work) = self.work.get_mut(id) else { return };
        let (to, from) = (work.origin.service, work.origin.peer);
        let Some(service) = self.services.get_mut(to) else { return };
        work.high &= service.heads.high.is_some();
        if service.heads.admit(now, from, work.high) {
            return self.begin(cx, to, id, checked);
        }
        work.place = Some(service.heads.enqueue(now, id, from, work.high));
        service.stuck.get_or_insert(now);
        let hears = service.config.hears_of_waiting;
        self.dispatch(cx, to);
        if hears
            && let Some(work) = self.work.get(id).filter(|work| work.place.is_some() && !work.high)
        {
            cx.common.events.push_back(Event::Waits { served: id, export: work.export });
        }
    }

    /// Moves a request that waits to the high-priority head (P-116). `false`: it does not wait, or its
    /// service has no such head.
    pub(crate) fn raise(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) -> bool {
        let Some(work) = self.work.get_mut(id) else { return false };
        let Some(service) = self.services.get_mut(work.origin.service) else { return false };
        if work.high || service.heads.high.is_none() {
            return work.high && work.place.is_some();
        }
        let Some(place) = work.place.take() else { return false };
        service.heads.remove(place, false);
        work.high = true;
        self.enqueue(cx, id, false);
        true
    }

    /// Sets a parameter of the policies of a service.
    pub(crate) fn set_parameter(
        &mut self,
        cx: &mut Cx<'_, '_>,
        id: ServiceId,
        name: &str,
        value: &str,
    ) -> Result<(), NrsError> {
        let service = self.services.get_mut(id).ok_or(NrsError::NoService)?;
        for (moved, place) in service.heads.set(name, value, &mut cx.common.prng)? {
            if let Some(work) = self.work.get_mut(moved) {
                work.place = Some(place);
            }
        }
        self.dispatch(cx, id);
        Ok(())
    }

    /// What a parameter of the policies of a service is set to.
    pub(crate) fn parameter(&self, id: ServiceId, name: &str) -> Result<String, NrsError> {
        self.services.get(id).ok_or(NrsError::NoService)?.heads.get(name)
    }

    /// Gives the program what it has slots for.
    pub(crate) fn dispatch(&mut self, cx: &mut Cx<'_, '_>, id: ServiceId) {
        let now = cx.below.now();
        while let Some(service) = self.services.get_mut(id) {
            let Some((next, high)) = service.heads.next(now) else { break };
            service.stuck = (service.heads.waiting() != (0, 0)).then_some(now);
            if self.work.get(next.id).is_none() {
                service.heads.release(next.from, high);
            }
            self.begin(cx, id, next.id, false);
        }
        // Requests that are held back have a time of their own (P-119).
        let due = self.services.get(id).and_then(|service| service.heads.due());
        if let Some(at) = due.filter(|at| *at > now) {
            cx.common.timers.set(Timer::Service(id), at);
        }
    }

    /// A request has its slot: the program gets it, unless it is over meanwhile.
    fn begin(&mut self, cx: &mut Cx<'_, '_>, service: ServiceId, next: ServedId, checked: bool) {
        let now = cx.below.now();
        let Some(work) = self.work.get_mut(next) else { return };
        (work.place, work.slot) = (None, true);
        let late = work.origin.deadline <= now && work.body.opcode != Opcode::LDLM_CANCEL;
        // P-107: much may have happened since it arrived.
        if !checked {
            let (origin, export, body) = (work.origin, work.export, work.body);
            if !self.passes(cx, &origin, export, &body) {
                self.forget(cx, next);
                return;
            }
        }
        // Its client has given it up; a cancel is done all the same.
        if late {
            self.stats.late += 1;
            self.behind(cx, next, true);
            self.forget(cx, next);
            return;
        }
        self.guard(cx, next);
        let Some(work) = self.work.get_mut(next) else { return };
        let served = Served {
            id: next,
            service,
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

    /// A request is over without an answer.
    pub(crate) fn forget(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) -> Option<Work> {
        let work = self.take_out(cx, id)?;
        self.replay_lost(cx, id, work.target);
        Some(work)
    }

    /// A request is over.
    pub(super) fn take_out(&mut self, cx: &mut Cx<'_, '_>, id: ServedId) -> Option<Work> {
        let taken = self.work.remove(id);
        let work = taken.as_ref()?;
        cx.common.timers.stop(Timer::Early(id));
        cx.common.timers.stop(Timer::Bulk(id));
        cx.common.timers.stop(Timer::Watchdog(id));
        if let Some(export) = self.exports.get_mut(work.export) {
            export.in_work.remove(work.origin.xid);
            export.in_work_bytes -= work.bytes;
        }
        self.queued.change(work.origin.peer, |queued| *queued = queued.saturating_sub(work.bytes));
        if let Some(service) = self.services.get_mut(work.origin.service) {
            if let Some(place) = work.place {
                service.heads.remove(place, work.high);
            } else if work.slot {
                service.heads.release(work.origin.peer, work.high);
            }
            if let Some(began) = work.began {
                service.served.add(cx.below.now().saturating_since(began));
            }
            if service.heads.waiting() == (0, 0) {
                service.stuck = None;
            }
        }
        taken
    }
}

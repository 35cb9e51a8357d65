//! The server's side: services that take requests, targets that they are for, exports of the clients
//! that are connected.
//!
//! ```text
//!  LNet ─► service.rs  request buffers ─► intake.rs  who, in order, a copy? ─► queue ─► Event::Served
//!                                          │ connect.rs  connects, pings              │
//!          early.rs  "it takes longer" ◄───┤          heads.rs, nrs/  whose turn      ▼
//!  LNet ◄── reply.rs ◄─────────────────────┴──────────── reply, refuse, decline, bulk.rs
//! ```
//!
//! `target.rs` says what a target remembers, `records.rs` keeps answers for copies. After a start with
//! clients of an earlier life requests pass `recovery/`, a pure machine, whose orders `recover.rs`
//! carries out.

mod bulk;
mod by_node;
mod check;
mod connect;
mod difficult;
mod early;
mod evictor;
mod export;
mod heads;
mod intake;
mod leave;
mod nrs;
mod records;
mod recover;
mod recovery;
mod reply;
mod reverse;
mod service;
mod target;
mod view;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{Errno, Nid};
use lustre_wire::Body;

use crate::common::Cx;
use crate::event::{Event, EvictReason};
use crate::table::{ExportId, ImportId, ServedId, ServiceId, Table, TargetId};

pub use difficult::{Hold, Release};
pub use nrs::{NrsError, PolicyKind};
pub use recovery::{RecoveryChange, RecoveryOutcome, RecoveryStage};
pub use reply::Answer;
pub use service::ServiceConfig;
pub use target::{ClientRecord, Past, ReplyRecord, TargetConfig};
pub use view::{ExportView, RecoveryView, ServerStats, ServiceView, TargetView, Waiting};

use by_node::ByNode;
use check::{Check, Standing, check};
use difficult::Difficult;
use evictor::Watch;
use export::Export;
use service::{Origin, Service, Work};
use target::Target;

/// Most exports of one node.
pub const EXPORTS_MAX: usize = 200_000;
/// Most requests of one client that wait or are being served.
pub const QUEUED_PER_EXPORT_MAX: usize = 1024;
/// Most bytes of the requests of one client that wait or are being served.
pub const QUEUED_BYTES_PER_EXPORT_MAX: usize = 8 << 20;
/// The same of all clients on one node.
pub(crate) const QUEUED_BYTES_PER_NODE_MAX: usize = 64 << 20;
/// Most bytes of the answers that are kept for one client; it may be one answer more.
pub const RECORD_BYTES_PER_EXPORT_MAX: usize = 4 << 20;
/// Most replies on their way to one node.
pub const REPLIES_PER_PEER_MAX: u32 = 8192;
/// Most replies that are kept for one client, in case that it asks again.
pub const RECORDS_PER_EXPORT_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Server {
    services: Table<ServiceId, Service>,
    targets: Table<TargetId, Target>,
    exports: Table<ExportId, Export>,
    by_cookie: BTreeMap<u64, ExportId>,
    by_client: BTreeMap<(TargetId, String), ExportId>,
    work: Table<ServedId, Work>,
    /// Replies whose locks are held.
    difficult: BTreeMap<ServedId, Difficult>,
    /// Exports by the node that their clients are on.
    exports_of: BTreeMap<Nid, u32>,
    /// Bytes of requests that wait or are being served, by the node that they came from.
    queued: ByNode<usize>,
    /// Replies on their way, by the node that they are for.
    replies: ByNode<u32>,
    /// Exports that stand for imports of this node over which its servers have called back.
    called: BTreeMap<ImportId, ExportId>,
    /// Clients that must be heard of, by target.
    watches: BTreeMap<TargetId, Watch>,
    stats: ServerStats,
}

impl Server {
    /// A new target; clients may connect from now on.
    pub(crate) fn add_target(
        &mut self,
        cx: &mut Cx<'_, '_>,
        mut config: TargetConfig,
    ) -> Result<TargetId, Errno> {
        let taken = self.targets.iter().any(|(_, t)| t.config.uuid == config.uuid);
        if taken {
            return Err(Errno::EEXIST);
        }
        let past = core::mem::take(&mut config.past);
        let uuids: BTreeSet<_> = past.clients.iter().map(|c| c.uuid.as_str()).collect();
        if uuids.len() < past.clients.len() || !(config.replayable || past.clients.is_empty()) {
            return Err(Errno::EINVAL);
        }
        if self.exports.len() + past.clients.len() > EXPORTS_MAX {
            return Err(Errno::ENOSPC);
        }
        let committed = past.last_transno;
        let last = target::next_epoch(committed);
        let lock_volume = (0, 0);
        let config = Target { config, committed, last, recovery: None, lock_volume, failed: false };
        let id = self.targets.insert(config);
        let mut members = Vec::new();
        for client in past.clients {
            let member = self.new_export(cx, id, client.uuid, client.admission);
            if let Some(export) = self.exports.get_mut(member) {
                export.committed = client.committed.map_or(committed, |own| own.min(committed));
                client.replies.into_iter().for_each(|record| export.records.keep(record));
            }
            members.push(member);
        }
        if !members.is_empty() {
            self.begin_recovery(cx, id, &members);
        }
        Ok(id)
    }

    /// An export that is not connected yet. The lower half of its cookie is the admission of its
    /// client, and so it is in each life of the target.
    fn new_export(
        &mut self,
        cx: &mut Cx<'_, '_>,
        target: TargetId,
        client: String,
        admission: Option<u32>,
    ) -> ExportId {
        let lower = u64::from(u32::MAX);
        let mut cookie = 0;
        while cookie & !lower == 0 || self.by_cookie.contains_key(&cookie) {
            cookie = cx.common.prng.next_u64();
            if let Some(admission) = admission {
                cookie = cookie & !lower | u64::from(admission);
            }
        }
        let mut export = Export::new(target, cookie, client.clone(), cx.below.now());
        export.admission = admission;
        let id = self.exports.insert(export);
        self.by_cookie.insert(cookie, id);
        self.by_client.insert((target, client), id);
        id
    }

    /// The client of an export is on this node.
    fn settles(&mut self, id: ExportId, node: Nid) {
        let Some(export) = self.exports.get_mut(id) else { return };
        let before = core::mem::replace(&mut export.from, node);
        self.leaves(before);
        if node != Nid::ANY {
            *self.exports_of.entry(node).or_default() += 1;
        }
    }

    /// An export has no client on this node any more.
    fn leaves(&mut self, node: Nid) {
        if let Some(exports) = self.exports_of.get_mut(&node) {
            *exports -= 1;
            if *exports == 0 {
                self.exports_of.remove(&node);
            }
        }
    }

    /// The transaction of a request: the next of its target, or its own if it is executed again
    /// (P-138, P-70). Always the same for one request; 0 if that is over, or its client gone.
    pub(crate) fn transno(&mut self, id: ServedId) -> u64 {
        let Some(work) = self.work.get_mut(id) else { return 0 };
        // Nothing of a client that was evicted is to be done after that.
        if self.exports.get(work.export).is_none() {
            return 0;
        }
        if work.transno == 0
            && let Some(target) = self.targets.get_mut(work.target)
        {
            target.last += 1;
            work.transno = target.last;
        }
        work.transno
    }

    /// What is to be stored with the effect of a request, so that a copy of it is answered and not
    /// executed (P-141): the client's uuid and the record.
    pub(crate) fn record(&self, id: ServedId, answer: &Answer) -> Option<(String, ReplyRecord)> {
        let work = self.work.get(id)?;
        let export = self.exports.get(work.export)?;
        let kept = self.targets.get(work.target)?.config.replayable && !work.obsolete;
        let record = answer.record(work.origin.xid, export.slot(&work.body))?;
        kept.then(|| (export.client.clone(), record))
    }

    /// What the record of an export's client says: its uuid and its admission.
    pub(crate) fn admission_of(&self, export: ExportId) -> Option<(&str, u32)> {
        // The lower half of the cookie.
        self.exports.get(export).map(|export| (export.client.as_str(), export.cookie as u32))
    }

    /// The uuid of an export's client.
    pub(crate) fn client_of(&self, export: ExportId) -> Option<&str> {
        self.exports.get(export).map(|export| export.client.as_str())
    }

    /// Another node is about to serve the target, or this one serves it after all.
    pub(crate) fn fail_over(&mut self, target: TargetId, failed: bool) {
        if let Some(target) = self.targets.get_mut(target) {
            target.failed = failed;
        }
    }

    /// Takes a target out. Its clients are not evicted: its store keeps their records, for the next
    /// start. What they have here is refused with `ENODEV`, and so are their next connects.
    pub(crate) fn remove_target(&mut self, cx: &mut Cx<'_, '_>, target: TargetId) -> bool {
        // Without its recovery no client that goes moves it on.
        if self.targets.remove(target).is_none() {
            return false;
        }
        let its = self.exports.iter().filter(|(_, export)| export.target == target);
        let its: Vec<ExportId> = its.map(|(id, _)| id).collect();
        let mut services = BTreeSet::new();
        for id in its {
            let export = self.exports.get(id);
            let work: Vec<ServedId> =
                export.map_or_else(Vec::new, |export| export.in_work.values().copied().collect());
            for work in work {
                self.end_bulk(cx, work, Errno::ENODEV);
                if let Some(work) = self.forget(cx, work) {
                    services.insert(work.origin.service);
                    self.refuse_origin(cx, &work.origin, None, &work.body, Errno::ENODEV);
                }
            }
            self.drop_export(cx, id);
        }
        // Requests of other targets may have waited for its slots.
        services.into_iter().for_each(|service| self.dispatch(cx, service));
        self.watches.remove(&target);
        true
    }

    /// P-106 for a request of an export; its end is here unless it passes.
    fn passes(&mut self, cx: &mut Cx<'_, '_>, origin: &Origin, id: ExportId, body: &Body) -> bool {
        let Some(export) = self.exports.get(id) else { return false };
        let failed = self.targets.get(export.target).is_some_and(|target| target.failed);
        let recovers = self.recovers(export.target);
        let standing = Standing { conn_cnt: export.conn_cnt, failed, recovers };
        match check(standing, body) {
            Check::Pass => return true,
            Check::Drop => self.stats.stale += 1,
            Check::Refuse(errno) => self.refuse_origin(cx, origin, Some(id), body, errno),
            Check::Evict(errno) => {
                self.refuse_origin(cx, origin, Some(id), body, errno);
                self.evict(cx, id, EvictReason::ReplayOutOfTime);
            }
        }
        false
    }

    /// What replies of a target say about caches of locks.
    pub(crate) fn set_lock_volume(&mut self, target: TargetId, slv: u64, limit: u32) {
        if let Some(target) = self.targets.get_mut(target) {
            target.lock_volume = (slv, limit);
        }
    }

    /// Everything up to this transaction survives a crash.
    pub(crate) fn committed(&mut self, target: TargetId, transno: u64) {
        if let Some(target) = self.targets.get_mut(target) {
            target.committed = target.committed.max(transno);
        }
    }

    /// Drops a client (P-132). It finds out with its next request.
    pub(crate) fn evict(&mut self, cx: &mut Cx<'_, '_>, id: ExportId, reason: EvictReason) {
        let Some((target, client)) = self.drop_export(cx, id) else { return };
        self.stats.evictions += 1;
        cx.common.events.push_back(Event::Evicted { export: id, target, client, reason });
    }

    /// Takes an export out of all tables. What waits for it is refused; what is being served goes on,
    /// and gets no reply. Returns target and client; `None` for the export of a server that calls back,
    /// which gets a new one with its next call.
    fn drop_export(&mut self, cx: &mut Cx<'_, '_>, id: ExportId) -> Option<(TargetId, String)> {
        let mut export = self.exports.remove(id)?;
        self.unwatch(id, &mut export);
        self.leaves(export.from);
        self.by_cookie.remove(&export.cookie);
        self.by_client.remove(&(export.target, export.client.clone()));
        cx.common.reversed.push(id);
        self.release_client(cx, id);
        for work in export.in_work.values() {
            self.end_bulk(cx, *work, Errno::ENOTCONN);
            // What waits is not executed any more (P-132).
            if self.work.get(*work).is_some_and(|work| work.place.is_some())
                && let Some(work) = self.forget(cx, *work)
            {
                self.refuse_origin(cx, &work.origin, None, &work.body, Errno::ENOTCONN);
            }
        }
        self.client_leaves(cx, export.target, id);
        if let Some(joining) = export.joining {
            self.connect_refused(cx, &joining.origin, &joining.body, Errno::ENODEV);
        }
        if let Some(import) = export.import {
            self.called.remove(&import);
            return None;
        }
        Some((export.target, export.client))
    }
}

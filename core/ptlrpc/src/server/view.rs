//! What the server's side shows of itself.

use core::time::Duration;
use std::collections::BTreeMap;

use lnet_types::{Instant, Nid};
use lustre_wire::{Body, ConnectData};

use super::Server;
use super::nrs::{Head, PolicyKind};
use super::recovery::RecoveryStage;
use super::target::uncommitted;
use crate::estimate::Estimate;
use crate::histogram::Histogram;
use crate::table::{ExportId, ServedId, ServiceId, TargetId};
use crate::tunables::Tunables;

/// What the server's side counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Requests that were given to the program.
    pub served: u64,
    /// Copies of requests that were being worked on.
    pub folded: u64,
    /// Copies of requests that had been answered: the answer was given again.
    pub answered_again: u64,
    /// Copies among these that did not say that they are copies (P-110, P-141).
    pub unmarked: u64,
    /// Early replies.
    pub early: u64,
    /// Looks at clients that might have been silent for too long, and were not.
    pub evictor_looks: u64,
    /// Clients that were dropped.
    pub evictions: u64,
    /// Connects that were refused.
    pub connects_refused: u64,
    /// Messages that were no requests.
    pub malformed: u64,
    /// Requests of an earlier connection of their client.
    pub stale: u64,
    /// Requests with a number that was answered before.
    pub bad_xid: u64,
    /// Requests beyond what one client may have waiting.
    pub too_many: u64,
    /// Requests of a node that has not taken the replies to many others.
    pub not_taken: u64,
    /// Requests whose time was over before their turn.
    pub late: u64,
    /// Bulk data that did not move.
    pub bulk_failed: u64,
    /// Answers that were too long for a message.
    pub too_long: u64,
    /// Answers that were not sent for want of memory or descriptors.
    pub no_memory: u64,
    /// Requests of servers to this node.
    pub callbacks: u64,
    /// Times that no request buffer could be posted.
    pub no_buffer: u64,
    /// Requests that were served for too long (P-127).
    pub stuck: u64,
}

/// A target, to be looked at.
#[derive(Clone, Debug)]
pub struct TargetView {
    /// Its name.
    pub id: TargetId,
    /// Its uuid.
    pub uuid: String,
    /// How often it was started.
    pub instance: u32,
    /// Whether another node serves it: each request is refused.
    pub failed_over: bool,
    /// Clients that it has.
    pub clients: usize,
    /// Highest transaction.
    pub last_transno: u64,
    /// Highest transaction that is committed.
    pub committed: u64,
    /// Transactions of this start of the target that are not committed.
    pub uncommitted: u64,
    /// Its recovery; `None` if it had nothing to recover.
    pub recovery: Option<RecoveryView>,
}

/// A client's connection, to be looked at.
#[derive(Clone, Debug)]
pub struct ExportView {
    /// Its name.
    pub id: ExportId,
    /// Uuid of the target.
    pub target: String,
    /// Uuid of the client.
    pub client: String,
    /// What it was granted.
    pub granted: ConnectData,
    /// Where the client is.
    pub from: Nid,
    /// The client's count of connections.
    pub conn_cnt: u32,
    /// When a request came last.
    pub heard: Instant,
    /// Silent until then, it is evicted; `None` if it need not ping.
    pub deadline: Option<Instant>,
    /// Highest transaction of this client that is committed.
    pub committed: u64,
    /// Requests that wait or are being served.
    pub in_work: usize,
    /// Answers that are kept for it.
    pub records: usize,
}

/// The recovery of a target, to be looked at.
#[derive(Clone, Debug)]
pub struct RecoveryView {
    /// Where it stands.
    pub stage: RecoveryStage,
    /// Clients that were known at the start.
    pub clients: usize,
    /// Those of them that are connected.
    pub connected: usize,
    /// Those of them that are gone.
    pub evicted: usize,
    /// Uuids of those that have not come back, at most [`RecoveryView::MISSING_MAX`].
    pub missing: Vec<String>,
    /// What is left of the window; `None` before the first client is back, and afterwards.
    pub left: Option<Duration>,
    /// How long ago the first client came back; zero before.
    pub since: Duration,
}

impl RecoveryView {
    /// Most names in [`RecoveryView::missing`].
    pub const MISSING_MAX: usize = 100;
}

/// A service, to be looked at.
#[derive(Clone, Debug)]
pub struct ServiceView {
    /// Its name.
    pub id: ServiceId,
    /// Its name in the configuration.
    pub name: String,
    /// Portal of its requests.
    pub portal: u32,
    /// Requests that wait.
    pub queued: usize,
    /// High-priority ones among them.
    pub queued_high: usize,
    /// The policies of the regular head and of the high-priority one, if there is one.
    pub policies: (PolicyKind, Option<PolicyKind>),
    /// When the service counts as unhealthy: it has requests that wait, and has taken none, for
    /// at_max × at_unhealthy_factor (P-127).
    pub unhealthy_at: Option<Instant>,
    /// Requests that are being served.
    pub busy: usize,
    /// Request buffers that are posted.
    pub posted: u32,
    /// How long it takes, as clients hear it.
    pub estimate: Duration,
    /// What that was learnt from (P-89).
    pub history: Estimate,
    /// Request buffers that should be posted.
    pub buffers: u32,
    /// How long requests have waited before the program got them.
    pub waited: Histogram,
    /// How long the program had them.
    pub served: Histogram,
    /// When it was last not able to keep up: the time of a request was over before its turn, or before
    /// its early reply.
    pub behind_at: Option<Instant>,
}

/// A request that waits, to be looked at.
#[derive(Clone, Copy, Debug)]
pub struct Waiting<'a> {
    /// The name that it is served by.
    pub id: ServedId,
    /// Whether it is of high priority.
    pub high: bool,
    /// The body.
    pub body: &'a Body,
    /// The whole message.
    pub message: &'a [u8],
}

impl Server {
    /// Uuids of the client and of the target of an export.
    pub(crate) fn ends(&self, id: ExportId) -> Option<(String, String)> {
        let export = self.exports.get(id)?;
        let target = self.targets.get(export.target)?;
        Some((export.client.clone(), target.config.uuid.clone()))
    }

    /// The portal of a service.
    pub(crate) fn portal(&self, service: ServiceId) -> Option<u32> {
        Some(self.services.get(service)?.config.portal)
    }

    pub(crate) fn waiting(&self, export: ExportId) -> Vec<Waiting<'_>> {
        let ids = self.exports.get(export).into_iter().flat_map(|e| e.in_work.values());
        ids.filter_map(|id| self.waiting_as(*id)).collect()
    }

    pub(crate) fn waiting_as(&self, id: ServedId) -> Option<Waiting<'_>> {
        let work = self.work.get(id).filter(|work| work.place.is_some())?;
        Some(Waiting { id, high: work.high, body: &work.body, message: &work.message })
    }

    /// Uuid of a client and where it is.
    pub(crate) fn client(&self, export: ExportId) -> Option<(&str, Nid)> {
        self.exports.get(export).map(|export| (export.client.as_str(), export.from))
    }

    pub(crate) fn stats(&self) -> ServerStats {
        self.stats
    }

    pub(crate) fn export_count(&self) -> usize {
        self.exports.len()
    }

    pub(crate) fn target_views(&self, now: Instant) -> Vec<TargetView> {
        let mut clients: BTreeMap<TargetId, usize> = BTreeMap::new();
        for (_, export) in self.exports.iter().filter(|(_, e)| e.import.is_none()) {
            *clients.entry(export.target).or_default() += 1;
        }
        let view = |(id, t): (TargetId, &super::Target)| TargetView {
            id,
            uuid: t.config.uuid.clone(),
            instance: t.config.offer.instance,
            failed_over: t.failed,
            clients: clients.get(&id).copied().unwrap_or_default(),
            last_transno: t.last,
            committed: t.committed,
            uncommitted: uncommitted(t.last, t.committed),
            recovery: self.recovery_view(id, now),
        };
        self.targets.iter().map(view).collect()
    }

    pub(crate) fn export_views(&self) -> Vec<ExportView> {
        self.clients().map(|(id, e)| self.export_view(id, e)).collect()
    }

    /// At most so many, those with most requests in work first.
    pub(crate) fn busiest(&self, limit: usize) -> Vec<ExportView> {
        let mut all: Vec<_> = self.clients().map(|(id, e)| (e.in_work.len(), id)).collect();
        all.sort_by_key(|(in_work, _)| core::cmp::Reverse(*in_work));
        let first = all.into_iter().take(limit);
        first.filter_map(|(_, id)| Some(self.export_view(id, self.exports.get(id)?))).collect()
    }

    /// The exports of clients: what stands for servers that call back is none.
    fn clients(&self) -> impl Iterator<Item = (ExportId, &super::Export)> {
        self.exports.iter().filter(|(_, e)| e.import.is_none())
    }

    fn export_view(&self, id: ExportId, e: &super::Export) -> ExportView {
        ExportView {
            id,
            target: self.targets.get(e.target).map(|t| t.config.uuid.clone()).unwrap_or_default(),
            client: e.client.clone(),
            granted: e.granted,
            from: e.from,
            conn_cnt: e.conn_cnt,
            heard: e.heard,
            deadline: e.deadline.map(|deadline| deadline.at()),
            committed: e.committed,
            in_work: e.in_work.len(),
            records: e.records.len(),
        }
    }

    pub(crate) fn recovery_view(&self, target: TargetId, now: Instant) -> Option<RecoveryView> {
        let recovery = self.targets.get(target)?.recovery.as_ref()?;
        let (clients, connected, evicted) = recovery.clients();
        let names = recovery.missing().filter_map(|id| Some(self.exports.get(id)?.client.clone()));
        let missing = names.take(RecoveryView::MISSING_MAX).collect();
        let (stage, left) = (recovery.stage(), recovery.left(now));
        let since = recovery.since(now);
        Some(RecoveryView { stage, clients, connected, evicted, missing, left, since })
    }

    pub(crate) fn service_views(&self, tunables: &Tunables) -> Vec<ServiceView> {
        let view = |(id, s): (ServiceId, &super::Service)| ServiceView {
            id,
            name: s.config.name.clone(),
            portal: s.config.portal,
            queued: s.heads.waiting().0 + s.heads.waiting().1,
            queued_high: s.heads.waiting().1,
            policies: (s.heads.regular.policy(), s.heads.high.as_ref().map(Head::policy)),
            unhealthy_at: s.stuck.map(|since| since + tunables.unhealthy_after()),
            busy: s.heads.busy(),
            posted: s.posted,
            estimate: s.estimate.get(&tunables.bounds()),
            history: s.estimate.clone(),
            buffers: s.config.buffers,
            waited: s.waited,
            served: s.served,
            behind_at: s.behind.last(),
        };
        self.services.iter().map(view).collect()
    }
}

//! The server's side: services that take requests, targets that they are for, exports of the clients
//! that are connected.
//!
//! ```text
//!  LNet ─► service.rs  request buffers ─► intake.rs  who, in order, a copy? ─► queue ─► Event::Served
//!                                          │ connect.rs  connects, pings              │
//!          early.rs  "it takes longer" ◄───┤                                          ▼
//!  LNet ◄── reply.rs ◄─────────────────────┴──────────── reply, refuse, decline, bulk.rs
//! ```

mod bulk;
mod connect;
mod early;
mod export;
mod intake;
mod reply;
mod service;
mod view;

use std::collections::BTreeMap;

use lnet_types::Errno;

use crate::common::Cx;
use crate::event::{Event, EvictReason};
use crate::table::{ExportId, ServedId, ServiceId, Table, TargetId};
use crate::timers::Timer;

pub use export::TargetConfig;
pub use reply::Answer;
pub use service::ServiceConfig;
pub use view::{ExportView, ServerStats, ServiceView};

use export::{Export, Target};
use service::{Service, Work};

/// Most exports of one node.
pub const EXPORTS_MAX: usize = 200_000;
/// Most requests of one client that wait or are being served.
pub const QUEUED_PER_EXPORT_MAX: usize = 1024;
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
    stats: ServerStats,
}

impl Server {
    /// A new target; clients may connect from now on.
    pub(crate) fn add_target(&mut self, config: TargetConfig) -> Result<TargetId, Errno> {
        let taken = self.targets.iter().any(|(_, t)| t.config.uuid == config.uuid);
        if taken {
            return Err(Errno::EEXIST);
        }
        Ok(self.targets.insert(Target { config, committed: 0 }))
    }

    /// Everything up to this transaction survives a crash.
    pub(crate) fn committed(&mut self, target: TargetId, transno: u64) {
        if let Some(target) = self.targets.get_mut(target) {
            target.committed = target.committed.max(transno);
        }
    }

    /// Drops a client (P-132). It finds out with its next request.
    pub(crate) fn evict(&mut self, cx: &mut Cx<'_, '_>, id: ExportId, reason: EvictReason) {
        let Some(client) = self.exports.get(id).map(|e| e.client.clone()) else { return };
        self.drop_export(cx, id);
        self.stats.evictions += 1;
        cx.common.events.push_back(Event::Evicted { export: id, client, reason });
    }

    /// Takes an export out of all tables. What is being served for it goes on, and gets no reply.
    fn drop_export(&mut self, cx: &mut Cx<'_, '_>, id: ExportId) {
        let Some(export) = self.exports.remove(id) else { return };
        self.by_cookie.remove(&export.cookie);
        self.by_client.remove(&(export.target, export.client));
        cx.common.timers.stop(Timer::Export(id));
        for work in export.in_work.values() {
            self.end_bulk(cx, *work, Errno::ENOTCONN);
        }
    }

    /// A client was silent up to now, or has been heard of since (DEC-20, DEC-42).
    pub(crate) fn export_due(&mut self, cx: &mut Cx<'_, '_>, id: ExportId) {
        let now = cx.below.now();
        let Some(export) = self.exports.get(id) else { return };
        let at = export.heard + cx.common.tunables.evict_after();
        if at > now {
            cx.common.timers.set(Timer::Export(id), at);
        } else if export.in_work.is_empty() {
            self.evict(cx, id, EvictReason::Silent);
        } else {
            // It waits for us, and not we for it.
            let again = now + cx.common.tunables.ping_interval;
            cx.common.timers.set(Timer::Export(id), again);
        }
    }
}

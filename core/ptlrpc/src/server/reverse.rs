//! Callbacks: requests of a server to its client, on both ends of them (P-130). A server's
//! calls go over imports that the client's side has; what arrives at a client is served like any
//! other request, by an export that stands for the import that it belongs to.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::{Body, BodyFlags};

use super::Server;
use super::export::Export;
use super::service::Origin;
use crate::client::Reverse;
use crate::common::Cx;
use crate::table::{ExportId, TargetId};

impl Server {
    /// The way to a client; `None` if it is not connected.
    pub(crate) fn reverse(&self, export: ExportId) -> Option<Reverse> {
        let export = self.exports.get(export)?;
        let connected = export.import.is_none() && export.client_handle != 0;
        connected.then_some(Reverse {
            peer: export.from,
            handle: export.client_handle,
            granted: export.granted,
        })
    }

    /// The export that stands for an import of this node, if `handle` is that import's.
    pub(super) fn caller(&mut self, cx: &mut Cx<'_, '_>, handle: u64) -> Option<ExportId> {
        let caller = cx.common.callers.get_mut(&handle)?;
        let id = match caller.export {
            Some(id) => id,
            None => {
                // No target has this name: tables never have so many rows.
                let target = TargetId::from(u64::MAX);
                let mut export = Export::new(target, handle, String::new(), cx.below.now());
                export.import = Some(caller.import);
                *caller.export.insert(self.exports.insert(export))
            }
        };
        let granted = &mut self.exports.get_mut(id)?.granted;
        (granted.flags, granted.flags2) = caller.granted;
        Some(id)
    }

    /// What callbacks to a client say of the way to it: a term of silence counts it (P-134).
    pub(crate) fn callback_took(&mut self, id: ExportId, net: Duration) {
        if let Some(export) = self.exports.get_mut(id) {
            export.net = net;
        }
    }

    /// The import of a caller is closed.
    pub(crate) fn caller_gone(&mut self, cx: &mut Cx<'_, '_>, id: ExportId) {
        self.drop_export(cx, id);
    }

    /// A request of a server. Nothing of what a target checks is for it, but for copies.
    pub(super) fn called_back(
        &mut self,
        cx: &mut Cx<'_, '_>,
        origin: Origin,
        id: ExportId,
        body: Body,
        bytes: Vec<u8>,
    ) {
        self.stats.callbacks += 1;
        let replays = BodyFlags::REPLAY | BodyFlags::REQ_REPLAY_DONE | BodyFlags::LOCK_REPLAY_DONE;
        if body.opcode.is_disconnect() || body.flags.intersects(replays) || body.transno != 0 {
            return self.refuse_origin(cx, &origin, Some(id), &body, Errno::EINVAL);
        }
        self.take(cx, origin, id, body, bytes);
    }
}

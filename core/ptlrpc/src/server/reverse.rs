//! Callbacks: requests of a server to its client, on both ends of them (P-130). A server's
//! calls go over imports that the client's side has; what arrives at a client is served like any
//! other request, by an export that stands for the import that it belongs to.

use core::time::Duration;

use lnet_types::Errno;
use lustre_wire::{Body, BodyFlags};

use super::Server;
use super::export::Export;
use super::service::Origin;
use crate::client::{Client, Reverse};
use crate::common::Cx;
use crate::table::{ExportId, ImportId, TargetId};

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
    pub(super) fn caller(
        &mut self,
        cx: &Cx<'_, '_>,
        client: &Client,
        handle: u64,
    ) -> Option<ExportId> {
        let caller = client.caller(handle)?;
        let id = match self.called.get(&caller.import) {
            Some(id) => *id,
            None => {
                // No target has this name: tables never have so many rows.
                let target = TargetId::from(u64::MAX);
                let mut export = Export::new(target, handle, String::new(), cx.below.now());
                export.import = Some(caller.import);
                let id = self.exports.insert(export);
                self.called.insert(caller.import, id);
                id
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

    /// An import of this node is closed.
    pub(crate) fn caller_gone(&mut self, cx: &mut Cx<'_, '_>, import: ImportId) {
        if let Some(&id) = self.called.get(&import) {
            self.drop_export(cx, id);
        }
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

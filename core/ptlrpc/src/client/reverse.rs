//! A server's imports to its clients, over which it calls back (P-130). One is made with the first
//! callback to an export, has its connection from the connects of the client, and never recovers
//! itself.

use lnet_types::Nid;
use lustre_wire::{ConnectData, ConnectFlags, ConnectFlags2, ImportKind};

use super::connections::Connection;
use super::import::{Import, ImportConfig};
use super::request::{Phase, Purpose};
use super::state::ImportState;
use super::{Call, Client, Next, Terms};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::{CallId, ExportId, ImportId};

/// An import over which its server calls back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) import: ImportId,
    /// What the server granted: it decides on the match bits of replies.
    pub(crate) granted: (ConnectFlags, ConnectFlags2),
}

/// What the server's side knows of the way to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reverse {
    /// Where its last connect came from.
    pub(crate) peer: Nid,
    /// Its cookie.
    pub(crate) handle: u64,
    /// What it was granted.
    pub(crate) granted: ConnectData,
}

impl Client {
    /// The import whose cookie a server calls back by. Those to clients have none.
    pub(crate) fn caller(&self, handle: u64) -> Option<Caller> {
        // The lower half is its place.
        let (import, im) = self.imports.at(handle as u32)?;
        let Terms { data, .. } = im.terms;
        let granted = (data.flags, data.flags2);
        (im.own_handle == handle && im.callback.is_none()).then_some(Caller { import, granted })
    }

    /// Calls a client. It goes again until it is answered, or until its limit (DEC-39).
    pub(crate) fn callback(
        &mut self,
        cx: &mut Cx<'_, '_>,
        export: ExportId,
        reverse: Reverse,
        mut call: Call,
    ) -> Result<CallId, CallError> {
        let import = match self.reverse.get(&export) {
            Some(import) => *import,
            None => {
                let config = ImportConfig {
                    kind: ImportKind::Callback,
                    target: String::new(),
                    client: String::new(),
                    nids: vec![reverse.peer],
                    wanted: reverse.granted,
                };
                let wanted = self.wants(config.wanted);
                let mut im = Import::new(config, wanted, 0, &cx.common.tunables);
                im.callback = Some(export);
                im.state = ImportState::Full;
                im.set_reverse(reverse);
                let import = self.imports.insert(Box::new(im));
                self.reverse.insert(export, import);
                import
            }
        };
        call.resend &= cx.common.tunables.ast_resend;
        self.call(cx, import, call)
    }

    /// The client has connected again (P-129.13): what it has not answered goes to where it is now.
    pub(crate) fn rebuilt(&mut self, cx: &mut Cx<'_, '_>, export: ExportId, reverse: Reverse) {
        let Some(&import) = self.reverse.get(&export) else { return };
        let Some(im) = self.imports.get_mut(import) else { return };
        im.set_reverse(reverse);
        for id in self.calls_of(import) {
            let Some(r) = self.calls.get_mut(id) else { continue };
            if matches!(r.phase, Phase::Sent | Phase::Bulk(_)) && r.purpose == Purpose::Call {
                r.resent = true;
                let end = (!r.resend).then_some(CallError::TimedOut(reverse.peer));
                self.release(cx, id, end.map_or(Next::Again, |e| Next::End(Err(e))));
            }
        }
    }

    /// The client is gone: callbacks to it end.
    pub(crate) fn unreversed(&mut self, cx: &mut Cx<'_, '_>, export: ExportId) {
        if let Some(import) = self.reverse.remove(&export) {
            self.close(cx, import);
        }
    }

    /// The import to a client, if it was called back.
    pub(crate) fn reverse_import(&self, export: ExportId) -> Option<ImportId> {
        self.reverse.get(&export).copied()
    }
}

impl Import {
    fn set_reverse(&mut self, reverse: Reverse) {
        let Reverse { peer, handle, granted } = reverse;
        self.connections = vec![Connection::new(peer)];
        self.current = 0;
        self.handle = handle;
        self.terms.data = granted;
        self.adaptive = granted.flags.contains(ConnectFlags::AT);
    }
}

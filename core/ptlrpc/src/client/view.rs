//! What an import shows of itself.

use core::time::Duration;

use lnet_types::{Instant, Nid};
use lustre_wire::ConnectData;

use super::connections::Connection;
use super::{Client, ImportState};
use crate::error::CallError;
use crate::table::ImportId;
use crate::tunables::Tunables;

/// An import, to be looked at.
#[derive(Clone, Debug)]
pub struct ImportView {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of this client.
    pub client: String,
    /// State.
    pub state: ImportState,
    /// The last changes of state, oldest first.
    pub history: Vec<(Instant, ImportState)>,
    /// The node in use, or tried last.
    pub nid: Nid,
    /// The nodes that may serve the target, the one that did last first.
    pub connections: Vec<Connection>,
    /// How often a connection was made, or tried.
    pub conn_cnt: u32,
    /// Why the last connect failed; `None` after one that did not.
    pub refusal: Option<CallError>,
    /// What the server granted.
    pub granted: ConnectData,
    /// Whether the server keeps transactions.
    pub replayable: bool,
    /// Calls that have not ended.
    pub calls: usize,
    /// Finished requests that the server may still lose.
    pub retained: usize,
    /// Highest transaction that is committed.
    pub committed: u64,
    /// Estimate of the net's part of a deadline.
    pub net: Duration,
    /// Estimates of the services, by request portal.
    pub services: Vec<(u32, Duration)>,
}

impl Client {
    pub(crate) fn view(&self, id: ImportId, tunables: &Tunables) -> Option<ImportView> {
        let im = self.imports.get(id)?;
        let bounds = tunables.bounds();
        Some(ImportView {
            target: im.config.target.clone(),
            client: im.config.client.clone(),
            state: im.state,
            history: im.history.iter().copied().collect(),
            nid: im.nid(),
            connections: im.connections.clone(),
            conn_cnt: im.conn_cnt,
            refusal: im.refusal,
            granted: im.granted,
            replayable: im.replayable,
            calls: im.calls.len(),
            retained: im.retained.len(),
            committed: im.committed,
            net: im.net.get(&bounds),
            services: im.services.iter().map(|(portal, e)| (*portal, e.get(&bounds))).collect(),
        })
    }
}

//! What an import shows of itself.

use core::time::Duration;

use lnet_types::{Instant, Nid};
use lustre_wire::{ConnectData, ImportKind};

use super::connections::{ChoiceReason, Connection, choose};
use super::import::Import;
use super::outcome::Terms;
use super::request::Phase;
use super::{Client, ImportState};
use crate::error::CallError;
use crate::estimate::Estimate;
use crate::table::{CallId, ExportId, ImportId};
use crate::tunables::Tunables;

/// What the client's side counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClientStats {
    /// Calls of the program.
    pub calls: u64,
    /// Requests sent, pings and connects and all copies among them.
    pub sent: u64,
    /// Copies of requests.
    pub resent: u64,
    /// Finished requests that were sent again because a server had lost them (P-70).
    pub replayed: u64,
    /// Replies.
    pub replies: u64,
    /// Early replies.
    pub early: u64,
    /// Requests that LNet could not deliver, or whose bulk data it lost.
    pub net_failed: u64,
    /// Requests whose deadline passed, or that LNet could not deliver.
    pub expired: u64,
    /// Connects.
    pub connects: u64,
    /// Connects that failed.
    pub connects_failed: u64,
    /// Connections in use that failed.
    pub lost: u64,
    /// Evictions by servers.
    pub evictions: u64,
    /// Disconnects for want of use.
    pub idle: u64,
}

/// An import, to be looked at.
#[derive(Clone, Debug)]
pub struct ImportView {
    /// Its name.
    pub id: ImportId,
    /// What it connects.
    pub kind: ImportKind,
    /// The export of the client, if it is a server's way to its client: target is the client then, and
    /// client the target.
    pub callback: Option<ExportId>,
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
    /// Why the node in use was chosen, and the others were not (P-60).
    pub choice: Vec<(Nid, ChoiceReason)>,
    /// Which node would be next, and why, if the connection broke now.
    pub next: Vec<(Nid, ChoiceReason)>,
    /// How often what was under way has become void.
    pub generation: u32,
    /// Calls of the time before an eviction are ending.
    pub invalidating: bool,
    /// When a reply came last, to anything but a ping.
    pub last_reply: Option<Instant>,
    /// Requests that were not answered in time.
    pub expired: u64,
    /// Replies that were longer than the room for them (P-41).
    pub truncated: u64,
    /// How long the others took in all, and how many they were.
    pub answered: (Duration, u64),
    /// Calls whose memory is still in use after their end.
    pub unlinking: usize,
    /// Highest transaction that was replayed.
    pub last_replayed: u64,
    /// What the server granted.
    pub granted: ConnectData,
    /// What that settled.
    pub terms: Terms,
    /// The server has refused this client for good.
    pub deactivated: bool,
    /// Reads, writes and changes that have slots, and calls that wait for one.
    pub slots: ([usize; 3], usize),
    /// Whether the server keeps transactions.
    pub replayable: bool,
    /// Calls that have not ended.
    pub calls: usize,
    /// Finished requests that are repeated to a server that has lost what they did.
    pub retained: usize,
    /// Those of them that are not known to be committed.
    pub uncommitted: usize,
    /// Highest transaction that is committed.
    pub committed: u64,
    /// Estimate of the net's part of a deadline.
    pub net: Duration,
    /// What that was learnt from.
    pub net_history: Estimate,
    /// Estimates of the services, by request portal.
    pub services: Vec<(u32, Duration)>,
    /// What those were learnt from, in the same order.
    pub service_histories: Vec<Estimate>,
}

impl Client {
    pub(crate) fn stats(&self) -> ClientStats {
        self.stats
    }

    /// What the server of an import has granted.
    pub(crate) fn terms(&self, id: ImportId) -> Option<ConnectData> {
        self.imports.get(id).map(|im| im.terms.data)
    }

    /// The highest transaction that its target has committed.
    pub(crate) fn committed_of(&self, id: ImportId) -> Option<u64> {
        self.imports.get(id).map(|im| im.committed)
    }

    pub(crate) fn import_count(&self) -> usize {
        self.imports.len()
    }

    pub(crate) fn states(&self) -> impl Iterator<Item = ImportState> {
        self.imports.iter().map(|(_, im)| im.state)
    }

    /// At most so many imports, those that are not in use first.
    pub(crate) fn worst(&self, limit: usize) -> Vec<ImportId> {
        let well = |im: &Import| matches!(im.state, ImportState::Full | ImportState::Idle);
        let of = |used: bool| {
            let meant = self.imports.iter().filter(move |(_, im)| well(im) == used);
            meant.map(|(id, _)| id)
        };
        of(false).chain(of(true)).take(limit).collect()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = ImportId> {
        self.imports.iter().map(|(id, _)| id)
    }

    /// The export that a server's way to its client belongs to.
    pub(crate) fn callback_of(&self, id: ImportId) -> Option<ExportId> {
        self.imports.get(id)?.callback
    }

    pub(crate) fn view(&self, id: ImportId, tunables: &Tunables) -> Option<ImportView> {
        let im = self.imports.get(id)?;
        let bounds = tunables.bounds();
        Some(ImportView {
            id,
            kind: im.config.kind,
            callback: im.callback,
            target: im.config.target.to_string(),
            client: im.config.client.to_string(),
            state: im.state,
            history: im.history.clone(),
            nid: im.nid(),
            connections: im.connections.clone(),
            conn_cnt: im.conn_cnt,
            refusal: im.refusal.as_deref().copied(),
            choice: im.connections.iter().filter_map(|c| Some((c.nid, c.reason?))).collect(),
            next: {
                let keep = im.force_reconnect.then_some(im.current);
                let rule = tunables.reconnect;
                let next = choose(&im.connections, im.last_success, keep, rule);
                let reasons = next.map(|next| next.reasons).unwrap_or_default();
                im.connections.iter().map(|c| c.nid).zip(reasons).collect()
            },
            generation: im.generation,
            invalidating: im.invalidating,
            last_reply: im.last_reply,
            expired: im.expired,
            truncated: im.truncated,
            answered: im.answered,
            unlinking: {
                let unlinking = |id: &CallId| {
                    self.calls.get(*id).is_some_and(|r| matches!(r.phase, Phase::Unlinking(_)))
                };
                im.calls.iter().filter(unlinking).count()
            },
            last_replayed: im.last_replayed,
            granted: im.terms.data,
            terms: im.terms,
            deactivated: im.deactivated,
            slots: (im.slots.used(), im.slots.waiting_len()),
            replayable: im.replayable,
            calls: im.calls.len() + im.slots.waiting_len(),
            retained: im.retained.len(),
            uncommitted: im.retained.uncommitted(),
            committed: im.committed,
            net: im.net.get(&bounds),
            net_history: im.net.clone(),
            services: im.services.iter().map(|(portal, e)| (*portal, e.get(&bounds))).collect(),
            service_histories: im.services.iter().map(|(_, e)| e.clone()).collect(),
        })
    }
}

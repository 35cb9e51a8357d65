//! An import: the client's end of a connection to a target (P-55, P-56). Its states are in
//! `state.rs`.

use std::sync::Arc;

use core::time::Duration;

use lnet_types::{Instant, Nid};
use lustre_wire::{ConnectData, ConnectFlags, ImportKind};

use super::connections::Connection;
use super::outcome::Terms;
use super::retain::Retention;
use super::slots::{Limits, Slots};
use super::state::{Change, ImportState, next};
use crate::error::CallError;
use crate::estimate::Estimate;
use crate::numbered::Numbered;
use crate::table::{CallId, ExportId};
use crate::tunables::Tunables;

/// How many changes of state are kept (P-55).
const HISTORY: usize = 16;

/// A connection to be made.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// What it connects; decides on portals and the opcode of the connect.
    pub kind: ImportKind,
    /// Uuid of the target, at most 38 bytes.
    pub target: String,
    /// Uuid of this client, at most 38 bytes; no other client has it.
    pub client: String,
    /// The nodes that may serve the target, preferred first.
    pub nids: Vec<Nid>,
    /// What is asked for.
    pub wanted: ConnectData,
}

/// What may be set for one import while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportTunables {
    /// Requests of a class under way at a time: reads, writes (P-88).
    pub max_rpcs_in_flight: u16,
    /// Modifying requests under way at a time, if the server grants as many (P-82).
    pub max_mod_rpcs_in_flight: u16,
    /// An import without calls for so long disconnects until the next call; zero: never (P-103).
    pub idle_timeout: Duration,
}

impl ImportTunables {
    /// Those of the node. No import falls idle by itself: who holds locks is not known here.
    pub(crate) fn of(tunables: &Tunables) -> Self {
        Self {
            max_rpcs_in_flight: tunables.max_rpcs_in_flight,
            max_mod_rpcs_in_flight: tunables.max_mod_rpcs_in_flight,
            idle_timeout: Duration::ZERO,
        }
    }
}

/// What a disconnect under way is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// The end of the import (P-104).
    Close,
    /// Want of use (P-103).
    Idle,
}

/// How far the program is with the replay of its locks (P-57, P-69).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LockStage {
    /// The stage has not begun.
    #[default]
    Ahead,
    /// The program knows.
    Begun,
    /// The program has nothing more to replay.
    Over,
}

/// Whose connection it is, of an [`ImportConfig`].
#[derive(Debug)]
pub(crate) struct Ends {
    pub(crate) kind: ImportKind,
    pub(crate) target: Box<str>,
    pub(crate) client: Box<str>,
}

/// Calls by xid; nothing where there are none, as idle imports are many.
#[derive(Debug, Default)]
pub(crate) struct Calls(Option<Box<Numbered<CallId>>>);

impl Calls {
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |calls| calls.len())
    }

    pub(crate) fn insert(&mut self, xid: u64, call: CallId) {
        self.0.get_or_insert_default().insert(xid, call);
    }

    pub(crate) fn remove(&mut self, xid: u64) {
        let Some(calls) = &mut self.0 else { return };
        calls.remove(xid);
        if calls.is_empty() {
            self.0 = None;
        }
    }

    /// The lowest xid.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.as_ref()?.first()
    }

    /// All calls, in the order of their xids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CallId> + '_ {
        self.0.iter().flat_map(|calls| calls.values().copied())
    }
}

/// A node may have a hundred thousand, nearly all of them idle: what only those in use need is in boxes
/// and lists that are empty without it.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) config: Ends,
    /// What is asked for; imports that ask for the same share it.
    pub(crate) wanted: Arc<ConnectData>,
    pub(crate) connections: Vec<Connection>,
    /// The connection in use, or tried last.
    pub(crate) current: usize,
    pub(crate) last_success: Option<Instant>,
    pub(crate) state: ImportState,
    pub(crate) history: Vec<(Instant, ImportState)>,
    /// Where a reconnect to a recovering server goes on.
    pub(crate) replay_stage: ImportState,
    pub(crate) conn_cnt: u32,
    /// The server's cookie of its export, 0 before the first connect.
    pub(crate) handle: u64,
    /// Our cookie.
    pub(crate) own_handle: u64,
    /// Requests of an older generation are void.
    pub(crate) generation: u32,
    /// What the last connect has settled.
    pub(crate) terms: Terms,
    pub(crate) tunables: ImportTunables,
    /// The server keeps transactions.
    pub(crate) replayable: bool,
    /// No requests but connects.
    pub(crate) invalid: bool,
    /// The next connection is tried without a pause.
    pub(crate) force_verify: bool,
    /// The same connection again.
    pub(crate) force_reconnect: bool,
    /// When the pinger, which has made the last attempt to connect, looks again (P-101).
    pub(crate) look_again: Option<Instant>,
    /// Nothing of the server's state is with us: to be dropped by it costs nothing (P-66).
    pub(crate) no_cached_data: bool,
    /// A version did not agree in replay (P-71).
    pub(crate) version_failed: bool,
    /// What is replayed was sent to this incarnation before.
    pub(crate) resend_replay: bool,
    /// Adaptive time-outs were granted.
    pub(crate) adaptive: bool,
    /// No more requests: it is being closed.
    pub(crate) closing: bool,
    /// A disconnect is under way.
    pub(crate) leaving: Option<Leaving>,
    /// Calls of the time before an eviction are ending (P-76).
    pub(crate) invalidating: bool,
    /// The server has refused this client for good, or an administrator has (`DEACTIVE`).
    pub(crate) deactivated: bool,
    /// The generation whose first call has woken the import (P-81).
    pub(crate) woken: Option<u32>,
    /// The program has something of the server's that goes with the connection, such as locks: the
    /// import does not fall idle (P-103).
    pub(crate) held: bool,
    /// When a reply came last, to anything but a ping (P-40).
    pub(crate) last_reply: Option<Instant>,
    /// How often it has asked whether its server is still the same since a call was answered (DEC-48).
    pub(crate) probes: u8,
    /// The export of the client that this import of a server is to (P-130).
    pub(crate) callback: Option<ExportId>,
    /// The connect under way.
    pub(crate) connecting: Option<CallId>,
    /// The replay or final ping under way.
    pub(crate) recovering: Option<CallId>,
    /// The net's part of deadlines (P-94).
    pub(crate) net: Estimate,
    /// The server's part by request portal, in the order of portals, of which most servers have one.
    pub(crate) services: Vec<(u32, Estimate)>,
    /// Calls that have an xid and have not ended, by xid.
    pub(crate) calls: Calls,
    /// Slots, and the calls that wait for one.
    pub(crate) slots: Slots,
    /// Answered requests that are repeated after a crash of the server.
    pub(crate) retained: Retention,
    /// How many of them an eviction under way has made void, at most this many: it fits between other fields.
    pub(crate) lost: u32,
    /// The program replays locks over this import.
    pub(crate) replays_locks: bool,
    pub(crate) lock_stage: LockStage,
    /// Replays of locks under way.
    pub(crate) lock_replays: u32,
    pub(crate) committed: u64,
    pub(crate) last_replayed: u64,
    /// Highest xid that was answered.
    pub(crate) replied: u64,
    /// Why the last connect failed; `None` after one that did not.
    pub(crate) refusal: Option<Box<CallError>>,
    /// Requests that were not answered in time.
    pub(crate) expired: u64,
    /// Replies that were longer than the room for them (P-41).
    pub(crate) truncated: u64,
    /// How long the others took in all, and how many they were.
    pub(crate) answered: (Duration, u64),
}

impl Import {
    pub(crate) fn new(
        config: ImportConfig,
        wanted: Arc<ConnectData>,
        own_handle: u64,
        tunables: &Tunables,
    ) -> Self {
        let ImportConfig { kind, target, client, nids, .. } = config;
        Self {
            connections: nids.into_iter().map(Connection::new).collect(),
            callback: None,
            terms: Terms::default(),
            tunables: ImportTunables::of(tunables),
            config: Ends { kind, target: target.into(), client: client.into() },
            wanted,
            current: 0,
            last_success: None,
            state: ImportState::New,
            history: Vec::new(),
            replay_stage: ImportState::Replay,
            conn_cnt: 0,
            handle: 0,
            own_handle,
            generation: 0,
            replayable: false,
            invalid: false,
            force_verify: false,
            force_reconnect: false,
            look_again: None,
            no_cached_data: true,
            version_failed: false,
            resend_replay: false,
            adaptive: false,
            closing: false,
            leaving: None,
            invalidating: false,
            deactivated: false,
            woken: None,
            held: false,
            last_reply: None,
            probes: 0,
            connecting: None,
            recovering: None,
            net: Estimate::new(Duration::ZERO),
            services: Vec::new(),
            calls: Calls::default(),
            slots: Slots::default(),
            retained: Retention::default(),
            lost: 0,
            replays_locks: false,
            lock_stage: LockStage::default(),
            lock_replays: 0,
            committed: 0,
            last_replayed: 0,
            replied: 0,
            refusal: None,
            expired: 0,
            truncated: 0,
            answered: (Duration::ZERO, 0),
        }
    }

    /// The node in use. An import is made with at least one.
    pub(crate) fn nid(&self) -> Nid {
        self.connections.get(self.current).map_or(Nid::ANY, |c| c.nid)
    }

    /// Changes the state (P-57); `None` if the change is not for the present one.
    pub(crate) fn change(&mut self, now: Instant, change: Change) -> Option<ImportState> {
        let state = next(self.state, change)?;
        match state {
            ImportState::Replay => {
                self.replay_stage = ImportState::Replay;
                self.retained.begin_replay(self.last_replayed);
            }
            ImportState::ReplayLocks => self.lock_stage = LockStage::Ahead,
            ImportState::ReplayWait => self.replay_stage = ImportState::ReplayLocks,
            _ => {}
        }
        self.state = state;
        if self.history.len() == HISTORY {
            self.history.remove(0);
        }
        // An idle import has had two changes.
        self.history.reserve_exact(1);
        self.history.push((now, state));
        Some(state)
    }

    /// A call with an xid has ended.
    pub(crate) fn call_ended(&mut self, xid: u64) {
        self.calls.remove(xid);
    }

    /// Calls that have not ended, those included that wait for a slot.
    pub(crate) fn under_way(&self) -> usize {
        self.calls.len() + self.slots.waiting_len()
    }

    /// How many requests of each class may be under way.
    pub(crate) fn limits(&self) -> Limits {
        let mod_rpcs = self.tunables.max_mod_rpcs_in_flight.min(self.terms.mod_rpcs);
        Limits { rpcs: self.tunables.max_rpcs_in_flight, mod_rpcs }
    }

    /// Whether requests to this server have tags.
    pub(crate) fn tags(&self) -> bool {
        self.terms.data.flags.contains(ConnectFlags::MULTIMODRPCS)
    }

    /// The estimate of a service.
    pub(crate) fn service(&mut self, portal: u32, tunables: &Tunables) -> &mut Estimate {
        let services = &mut self.services;
        let index = services.binary_search_by_key(&portal, |(known, _)| *known);
        let index = index.unwrap_or_else(|index| {
            // Not the four that a first one makes room for: an idle import is small.
            services.reserve_exact(1);
            let first = Estimate::without_history(tunables.initial_connect());
            services.insert(index, (portal, first));
            index
        });
        &mut services[index].1
    }

    /// The server's part of the time of a request (P-95).
    pub(crate) fn server_time(&mut self, portal: u32, tunables: &Tunables) -> Duration {
        if tunables.at_max.is_zero() {
            let half = u32::from(self.callback.is_some()) + 1;
            return tunables.obd_timeout / half;
        }
        tunables.server_part(self.service(portal, tunables).get(&tunables.bounds()))
    }

    /// The net's part (P-95).
    pub(crate) fn net_time(&self, tunables: &Tunables) -> Duration {
        if tunables.at_max.is_zero() {
            return Duration::ZERO;
        }
        self.net.get(&tunables.bounds())
    }

    /// The highest xid up to which all have been answered (P-45).
    pub(crate) fn known_replied(&self, but: u64) -> u64 {
        let waiting = self.calls.first();
        // What is still to be replayed is unanswered again; in other states only calls are.
        let replays = self.state == ImportState::Replay;
        let replayed = self.retained.lowest_left().filter(|_| replays);
        waiting.into_iter().chain(replayed).min().unwrap_or(but).saturating_sub(1)
    }
}

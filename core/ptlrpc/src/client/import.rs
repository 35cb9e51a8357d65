//! An import: the client's end of a connection to a target (P-55, P-56).

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use lnet_types::{Instant, Nid};
use lustre_wire::{Body, ConnectData, Header, ImportKind};

use super::connections::Connection;
use crate::error::CallError;
use crate::estimate::{Estimate, timeout_of};
use crate::table::CallId;
use crate::tunables::Tunables;

/// How many changes of state are kept (P-55).
const HISTORY: usize = 16;

/// The states of an import; their numbers are those that tools print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ImportState {
    /// For good.
    Closed = 1,
    /// Never connected.
    New = 2,
    /// The connection is lost; the next attempt waits for its time.
    Disconnected = 3,
    /// A connect is under way.
    Connecting = 4,
    /// What the server lost is repeated.
    Replay = 5,
    /// Locks are repeated.
    ReplayLocks = 6,
    /// The server recovers, with or without our part.
    ReplayWait = 7,
    /// What was not answered is sent again.
    Recover = 8,
    /// In use.
    Full = 9,
    /// The server has dropped this client.
    Evicted = 10,
}

impl ImportState {
    /// The name that tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::New => "NEW",
            Self::Disconnected => "DISCONN",
            Self::Connecting => "CONNECTING",
            Self::Replay => "REPLAY",
            Self::ReplayLocks => "REPLAY_LOCKS",
            Self::ReplayWait => "REPLAY_WAIT",
            Self::Recover => "RECOVER",
            Self::Full => "FULL",
            Self::Evicted => "EVICTED",
        }
    }

    /// Whether the target takes what repeats its past, and nothing else.
    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayLocks | Self::ReplayWait)
    }
}

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

/// A finished request that the server may still lose (P-74).
#[derive(Debug)]
pub(crate) struct Retained {
    pub(crate) header: Header,
    pub(crate) body: Body,
    pub(crate) message: Vec<u8>,
    pub(crate) portals: (u32, u32),
    pub(crate) reply_len: u32,
}

#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) config: ImportConfig,
    pub(crate) connections: Vec<Connection>,
    /// The connection in use, or tried last.
    pub(crate) current: usize,
    pub(crate) last_success: Option<Instant>,
    pub(crate) state: ImportState,
    pub(crate) history: VecDeque<(Instant, ImportState)>,
    /// Where a reconnect to a recovering server goes on.
    pub(crate) replay_stage: ImportState,
    pub(crate) conn_cnt: u32,
    /// The server's cookie of its export, 0 before the first connect.
    pub(crate) handle: u64,
    /// Our cookie.
    pub(crate) own_handle: u64,
    /// Requests of an older generation are void.
    pub(crate) generation: u32,
    pub(crate) granted: ConnectData,
    /// The server keeps transactions.
    pub(crate) replayable: bool,
    /// No requests but connects.
    pub(crate) invalid: bool,
    /// The next connection is tried without a pause.
    pub(crate) force_verify: bool,
    /// The same connection again.
    pub(crate) force_reconnect: bool,
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
    /// The connect under way.
    pub(crate) connecting: Option<CallId>,
    /// The replay or final ping under way.
    pub(crate) recovering: Option<CallId>,
    /// The net's part of deadlines (P-94).
    pub(crate) net: Estimate,
    /// The server's part by request portal.
    pub(crate) services: BTreeMap<u32, Estimate>,
    /// Calls that have not ended, by xid.
    pub(crate) calls: BTreeMap<u64, CallId>,
    pub(crate) retained: BTreeMap<(u64, u64), Retained>,
    pub(crate) committed: u64,
    pub(crate) last_replayed: u64,
    /// Highest xid that was answered.
    pub(crate) replied: u64,
    /// Why the last connect failed; `None` after one that did not.
    pub(crate) refusal: Option<CallError>,
}

impl Import {
    pub(crate) fn new(config: ImportConfig, own_handle: u64) -> Self {
        Self {
            connections: config.nids.iter().copied().map(Connection::new).collect(),
            granted: ConnectData::default(),
            config,
            current: 0,
            last_success: None,
            state: ImportState::New,
            history: VecDeque::new(),
            replay_stage: ImportState::Replay,
            conn_cnt: 0,
            handle: 0,
            own_handle,
            generation: 0,
            replayable: false,
            invalid: false,
            force_verify: false,
            force_reconnect: false,
            no_cached_data: true,
            version_failed: false,
            resend_replay: false,
            adaptive: false,
            closing: false,
            connecting: None,
            recovering: None,
            net: Estimate::new(Duration::ZERO),
            services: BTreeMap::new(),
            calls: BTreeMap::new(),
            retained: BTreeMap::new(),
            committed: 0,
            last_replayed: 0,
            replied: 0,
            refusal: None,
        }
    }

    /// The node in use. An import is made with at least one.
    pub(crate) fn nid(&self) -> Nid {
        self.connections.get(self.current).map_or(Nid::ANY, |c| c.nid)
    }

    /// Changes the state; `false` if it is closed, or the same.
    pub(crate) fn enter(&mut self, now: Instant, state: ImportState) -> bool {
        if self.state == ImportState::Closed || self.state == state {
            return false;
        }
        match state {
            ImportState::Replay => self.replay_stage = ImportState::Replay,
            ImportState::ReplayWait => self.replay_stage = ImportState::ReplayLocks,
            _ => {}
        }
        self.state = state;
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((now, state));
        true
    }

    /// The estimate of a service.
    pub(crate) fn service(&mut self, portal: u32, tunables: &Tunables) -> &mut Estimate {
        let first = tunables.initial_connect();
        self.services.entry(portal).or_insert_with(|| Estimate::without_history(first))
    }

    /// The server's part of the time of a request (P-95).
    pub(crate) fn server_time(&mut self, portal: u32, tunables: &Tunables) -> Duration {
        if tunables.at_max.is_zero() {
            return tunables.obd_timeout;
        }
        timeout_of(self.service(portal, tunables).get(&tunables.bounds()))
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
        let waiting = self.calls.first_key_value().map(|(xid, _)| *xid);
        // What is replayed is unanswered again; in other states only calls are.
        let replayed = if self.state.is_replay() {
            self.retained.keys().map(|(_, xid)| *xid).min()
        } else {
            None
        };
        waiting.into_iter().chain(replayed).min().unwrap_or(but).saturating_sub(1)
    }
}

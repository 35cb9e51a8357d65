//! Every call that changes a node, as a value. One list: the recorder writes it, `apply.rs`
//! does it again.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};

use lnet_types::{
    CptTable, Errno, Fault, Instant, MdId, MsgId, Net, NiId, Nid, ProcessId, RegionId, RxId,
};
use lnet_wire::Hdr;

use crate::{
    DelayRule, Doubt, DropRule, Get, InDoubt, Link, MatchEntry, MdSpec, NiSpec, NidMatch, Put,
    Reset, RouteSpec, RouterMemory, Rule, Rx,
};

/// The calls whose arguments are values, for the macro `$then`: as variants here, as calls in
/// `apply.rs`.
macro_rules! calls {
    ($then:ident) => {
        $then! {
            Put = put(now: Instant, put: Put);
            Get = get(now: Instant, get: Get);
            TxDone = tx_done(now: Instant, msg: MsgId, outcome: Result<(), Fault>);
            TxRefused = tx_refused(now: Instant, msg: MsgId, fault: Fault);
            RxAsked = rx_asked(now: Instant, msg: MsgId);
            TxRecalled = tx_recalled(now: Instant, msg: MsgId);
            TxBegun = tx_begun(now: Instant, msg: MsgId);
            WrittenLost = written_lost(now: Instant, ni: NiId, nid: Nid);
            TxInDoubt = tx_in_doubt(now: Instant, messages: Vec<InDoubt>);
            RxGone = rx_gone(now: Instant, ni: NiId, rx: RxId);
            HandleTimeout = handle_timeout(now: Instant);
            Attach = attach(now: Instant, portal: u32, me: MatchEntry, md: MdSpec);
            Bind = bind(md: MdSpec);
            Unlink = unlink(now: Instant, md: MdId);
            UnlinkAtOnce = unlink_at_once(now: Instant, md: MdId);
            SetLazy = set_lazy(now: Instant, portal: u32, lazy: bool);
            Ping = ping(now: Instant, target: ProcessId, src: Option<Nid>, timeout: Duration);
            Discover = discover(now: Instant, nid: Nid, force: bool);
            LeaveNi = leave_ni(now: Instant, id: NiId);
            DelNi = del_ni(now: Instant, id: NiId);
            LinkChanged = link_changed(now: Instant, ni: NiId, link: Link);
            RailChanged = rail_changed(now: Instant, ni: NiId, nid: Nid, doubt: Doubt);
            PeerDown = peer_down(now: Instant, ni: NiId, nid: Nid, last_alive: Instant);
            Notify = notify(now: Instant, nid: Nid, up: bool, when: Instant);
            SetLndTimeout = set_lnd_timeout(ni: NiId, timeout: Option<Duration>);
            SetNiHealth = set_ni_health(now: Instant, nid: Option<Nid>, health: u32);
            SetPeerNiHealth = set_peer_ni_health(now: Instant, nid: Option<Nid>, health: u32);
            SetPeerState = set_peer_state(nid: Nid, state: u32);
            ResetCounters = reset_counters(what: Reset, failures: bool);
            ResetNiMinima = reset_ni_minima();
            ResetPeerMinima = reset_peer_minima();
            AddRoute = add_route(now: Instant, spec: RouteSpec);
            DelRoute = del_route(now: Instant, net: Option<Net>, gateway: Option<Nid>);
            DisableRouting = disable_routing(now: Instant);
            UdspDel = udsp_del(now: Instant, index: usize);
            UdspClear = udsp_clear(now: Instant);
            SetNumaDistances = set_numa_distances(distances: Vec<Vec<u32>>);
            SetNumaHome = set_numa_home(numa_node: Option<u32>);
            SetRegionNumaNode = set_region_numa_node(region: RegionId, numa_node: Option<u32>);
            SetNiNumaNode = set_ni_numa_node(ni: NiId, numa_node: Option<u32>);
            SetCpts = set_cpts(cpts: CptTable);
            SetNiCpts = set_ni_cpts(ni: NiId, cpts: Option<BTreeSet<u32>>);
            DelDropRules = del_drop_rules(now: Instant, src: NidMatch, dst: NidMatch);
            ResetDropRules = reset_drop_rules(now: Instant);
            DelDelayRules = del_delay_rules(now: Instant, src: NidMatch, dst: NidMatch);
            ResetDelayRules = reset_delay_rules(now: Instant);
            FailPeer = fail_peer(now: Instant, who: NidMatch, times: Option<NonZeroU32>);
            MendPeer = mend_peer(now: Instant, who: NidMatch);
            SimulateLink = simulate_link(now: Instant, nid: Nid, link: Link);
            Shutdown = shutdown(now: Instant);
        }
    };
}

pub(super) use calls;

/// Declares the calls; those with references, and those whose large arguments must not make every
/// recorded call large, are written out.
macro_rules! inputs {
    ($($variant:ident = $call:ident ($($arg:ident: $ty:ty),*);)*) => {
        /// One call of a node that changed it, with its arguments.
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "each variant is the method of `Node` that has its name")]
        pub enum Input {
            $($variant { $($arg: $ty),* },)*
            RxHeader { now: Instant, rx: Rx, hdr: Hdr },
            RxDone { now: Instant, msg: MsgId, outcome: Result<Vec<u8>, Fault> },
            SetTunables { now: Instant, changes: Vec<(String, i64)> },
            PeerAdd { now: Instant, primary: Nid, nids: Vec<Nid>, multi_rail: bool, lock_primary: bool },
            PeerDel { now: Instant, primary: Nid, nids: Vec<Nid>, force: bool },
            AddNi { now: Instant, spec: Box<NiSpec> },
            UdspAdd { now: Instant, rule: Box<Rule>, index: Option<usize> },
            AddDropRule { now: Instant, rule: Box<DropRule> },
            AddDelayRule { now: Instant, rule: Box<DelayRule> },
            EnableRouting { now: Instant, lent: Lent },
            FitRouterBuffers { now: Instant, lent: Lent },
        }
    };
}

calls!(inputs);

/// The memory that a router was lent in one call; lends the same again.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Lent(VecDeque<Result<RegionId, Errno>>);

impl RouterMemory for Lent {
    fn register(&mut self, _len: u32) -> Result<RegionId, Errno> {
        // A replay that asks for more than there was differs, which its state will show.
        self.0.pop_front().unwrap_or(Err(Errno::ENOMEM))
    }
}

/// Passes requests for memory on, and remembers the answers.
pub(crate) struct Remembering<'a> {
    pub(crate) memory: &'a mut dyn RouterMemory,
    pub(crate) lent: Lent,
}

impl RouterMemory for Remembering<'_> {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        let answer = self.memory.register(len);
        self.lent.0.push_back(answer);
        answer
    }
}

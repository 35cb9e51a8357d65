//! What a client may ask.

use lnet_config::{
    NetAdd, NetCpts, NetDel, NetRules, PeerAdd, PeerDel, RouteAdd, RouteDel, Setting, Step,
    UdspAdd, UdspDel, text,
};
use lnet_types::{Net, Nid};
use serde::{Deserialize, Serialize};

use crate::{DriverList, FaultDel, FaultKind, FaultRule, RpcDelay, RpcFaultDel, RpcLose};

/// A server ends a page of peers with the peer that brings it to this many peer NIs, so that a page
/// stays well below [`crate::REPLY_MAX`] (about 1.5 KiB for a peer NI, 4096 NIs in the largest peer).
pub const PEER_NIS_PER_PAGE: usize = 1024;

/// Most NIDs in one [`Request::PeersAdd`]: some 40 bytes each, far below [`crate::REQUEST_MAX`].
pub const PEER_NIDS_PER_REQUEST: usize = 4096;

/// Most steps in one [`Request::Trial`], each below [`crate::REQUEST_MAX`] divided by it but for peers of
/// many NIDs, which are counted by [`PEER_NIDS_PER_REQUEST`].
pub const TRIAL_STEPS_PER_REQUEST: usize = 512;

/// Most routes on a page (about 150 bytes each).
pub const ROUTES_PER_PAGE: usize = 4096;

/// Most timers in an answer (about 100 bytes each).
pub const TIMERS_MAX: usize = 4096;

/// One request. What it answers with is named in brackets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// Who is there. [`Reply::Status`](crate::Reply::Status)
    Status,
    /// Starts LNet; nothing happens if it runs (C-lnet-1). [`Reply::Done`](crate::Reply::Done)
    LnetConfigure {
        /// Also apply the node's own configuration: nets, routes, forwarding.
        all: bool,
        /// Prefer large addresses for NIs that this creates.
        large: bool,
    },
    /// Stops LNet and forgets everything but the tunables (C-lnet-2, C-lnet-4). `Done`
    LnetUnconfigure,
    /// Adds NIs (C-netadd-1). `Done`
    NetAdd(NetAdd),
    /// Adds, or removes, the NIs that rules choose on this machine (I-10, N-13). No rule matches: EINVAL,
    /// or ENOENT for legacy rules. `Done`
    NetRules {
        /// The rules.
        rules: NetRules,
        /// Whether to add; else to remove.
        add: bool,
    },
    /// Removes NIs (C-netdel-1). `Done`
    NetDel(NetDel),
    /// The local nets in order of creation, loopback first (S-net-1). `Nets`
    NetShow {
        /// Only this one. No such net: ESRCH `Network is down` (C-netshow-2).
        #[serde(default, with = "text::net_option")]
        net: Option<Net>,
        /// Whether `NiSnapshot::detail` is wanted.
        detail: bool,
    },
    /// Sets what is given, on every NI meant. An unknown NID: ENOENT. `Done`
    NetSet {
        /// Which NIs.
        target: NiTarget,
        /// Health value, 0 to 1000.
        #[serde(default)]
        health: Option<u16>,
        /// Connections per peer for new peers, 0 to 127.
        #[serde(default)]
        conns_per_peer: Option<u8>,
    },
    /// Ties NIs that are there to CPU partitions (MR-cfg-030). No such NI: ENOENT or ENODEV, no such
    /// partition: ERANGE. `Done`
    NetCptsSet(NetCpts),
    /// Sets which peers may connect to a network from now on; what others have opened is closed. What is no pattern, or one about
    /// another network: EINVAL, and the text says which. `Done`
    AcceptFromSet {
        /// The network.
        #[serde(with = "text::net")]
        net: Net,
        /// Patterns of networks or NIDs, as in selection rules, separated by commas; `any`:
        /// every peer may; absent: the list that the daemon was started with.
        list: Option<String>,
    },
    /// Sets the time-out that all nets of one driver use (C-netset-2). `Done`
    LndTimeoutSet {
        /// A net of that driver; its number does not matter.
        #[serde(with = "text::net")]
        net: Net,
        /// Seconds; 0 follows the global `lnd_timeout`.
        seconds: u32,
    },
    /// Creates a peer or attaches NIDs (C-peer-2). `Done`
    PeerAdd(PeerAdd),
    /// Creates several peers, in order, up to the first that is refused; that one alone is then refused
    /// when it is tried by itself. `Done`
    PeersAdd(Vec<PeerAdd>),
    /// Removes a peer or NIDs of it (C-peer-3). `Done`
    PeerDel(PeerDel),
    /// One page of peers in order of creation. `Peers`
    PeerShow {
        /// Only the peer that owns this NID. No such peer: ENOENT.
        #[serde(default, with = "text::nid_option")]
        nid: Option<Nid>,
        /// Whether `PeerNiSnapshot::detail` is wanted.
        detail: bool,
        /// `PeerPage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Sets what is given, on every peer NI meant. An unknown NID: ENOENT. `Done`
    PeerSet {
        /// Which peer NIs.
        target: NiTarget,
        /// Health value, 0 to 1000.
        #[serde(default)]
        health: Option<u16>,
        /// Flag word of the peer (S-peer-3), for debugging.
        #[serde(default)]
        state: Option<u32>,
    },
    /// Adds a route (C-route-1, C-route-5). `Done`
    RouteAdd(RouteAdd),
    /// Removes a route. No route to that network: ENOENT; another gateway: nothing happens. `Done`
    RouteDel(RouteDel),
    /// One page of routes, by network. [`Reply::Routes`](crate::Reply::Routes)
    RouteShow {
        /// `RoutePage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Makes the node a router, or ends that (C-set-6). Just being stopped, or started: EBUSY. `Done`
    RoutingSet {
        /// Whether it is to forward.
        on: bool,
    },
    /// Where forwarding stands, and the buffers. [`Reply::Routing`](crate::Reply::Routing)
    RoutingShow,
    /// Pings each NID (C-ping-1). `Contacted`
    Ping(Ping),
    /// Discovers each NID (C-ping-1). `Contacted`
    Discover(Discover),
    /// All tunables (S-global-1). Answered also while LNet is not configured. `Global`
    GlobalShow,
    /// Sets several tunables at once: judged by the state that they lead to, all or nothing. The
    /// `detail` of a refusal names the rule. `Done`
    Set {
        /// What is to change.
        settings: Vec<Setting>,
    },
    /// Tries steps on a copy of the node, after those of the parts before; nothing changes. Another trial
    /// has begun since the first part: EAGAIN. [`Reply::Trial`](crate::Reply::Trial)
    Trial(TrialPart),
    /// The counters of the node (S-stats-1). `Stats`
    StatsShow,
    /// Zeroes the counters of the node, its NIs and peer NIs (C-stats-1). `Done`
    StatsReset,
    /// Zeroes some counters: of one NI, ours or a peer's, or of the node alone. No such NI: ENOENT.
    /// `Done`
    CountersReset {
        /// The NI; absent: the node's own counters.
        #[serde(default, with = "text::nid_option")]
        nid: Option<Nid>,
        /// Also its failures, which otherwise stay as they do in the kernel (T-50).
        failures: bool,
    },
    /// Adds a rule of the selection policy, or changes the numbers of the one about the same
    /// (C-udsp-1, C-udsp-2). EINVAL: the rule means nothing, and the text says why. `Done`
    UdspAdd(UdspAdd),
    /// Removes rules of the selection policy. No such rule: ENOENT (C-udsp-3). `Done`
    UdspDel(UdspDel),
    /// The selection policy. [`Reply::Udsp`](crate::Reply::Udsp)
    UdspShow,
    /// Adds a fault rule before the others of its list (C-fault-1). `Done`
    FaultAdd(FaultRule),
    /// Removes fault rules. None is meant: ENOENT (C-fault-3). `Done`
    FaultDel(FaultDel),
    /// The fault rules of a list, newest first. [`Reply::Faults`](crate::Reply::Faults)
    FaultShow(FaultKind),
    /// Zeroes the counters of a list of fault rules (C-fault-4). `Done`
    FaultReset(FaultKind),
    /// Makes messages from and to a peer fail (F-40). `Done`
    PeerFail {
        /// The peer; [`Nid::ANY`] is every peer.
        #[serde(with = "text::nid")]
        nid: Nid,
        /// So many messages; all if absent; 0 takes it back.
        #[serde(default)]
        times: Option<u32>,
    },
    /// Makes an interface of ours play dead, or ends that. No such NI: ENOENT. `Done`
    LinkSimulate {
        /// Which.
        #[serde(with = "text::nid")]
        nid: Nid,
        /// Whether it is to be what its driver says.
        up: bool,
    },
    /// Writes all that is known of the peer that owns a NID to the daemon's log. No such peer: ENOENT.
    /// `Done`
    PeerDump {
        /// The NID.
        #[serde(with = "text::nid")]
        nid: Nid,
    },
    /// Which CPU partition works for each NID. [`Reply::Cpts`](crate::Reply::Cpts)
    CptOfNid {
        /// Which.
        #[serde(with = "text::nids")]
        nids: Vec<Nid>,
    },
    /// How far each NID is. [`Reply::Distances`](crate::Reply::Distances)
    Distance {
        /// Which.
        #[serde(with = "text::nids")]
        nids: Vec<Nid>,
    },
    /// A page of the records of the driver of TCP networks. [`Reply::Driver`](crate::Reply::Driver)
    DriverShow {
        /// Of what.
        list: DriverList,
        /// `DriverPage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Closes the connections of the driver of a TCP network. No peer matches: ENOENT if one was
    /// named, else nothing happens. `Done`
    DriverDisconnect {
        /// The network.
        #[serde(with = "text::net")]
        net: Net,
        /// Only those to this peer; all if absent.
        #[serde(default, with = "text::nid_option")]
        nid: Option<Nid>,
        /// Whether to drop also what the driver keeps of the peers: attempts to connect, and messages
        /// that wait for one.
        forget: bool,
    },
    /// A monitor of the fabric saw a NID up or down. A NID of no peer, and a
    /// report older than the last one, change nothing. `Done`
    PeerNotify {
        /// The NID, of a gateway as a rule.
        #[serde(with = "text::nid")]
        nid: Nid,
        /// How it was seen.
        up: bool,
        /// How long ago, seconds.
        #[serde(default)]
        ago_s: u64,
    },
    /// The parameter files. [`Reply::Params`](crate::Reply::Params)
    ParamList,
    /// Writes a line to the daemon's log, so that what happens can be found there. `Done`
    Mark {
        /// The line.
        text: String,
    },
    /// The content of one. No such: ENOENT. `Texts`: one
    ParamGet {
        /// Its name.
        name: String,
    },
    /// Writes one. No such: ENOENT; not to be written: EACCES; not such a value: EINVAL. `Done`
    ParamSet {
        /// Its name.
        name: String,
        /// What is written.
        value: String,
    },
    /// Which way a message would go now, and why. [`Reply::Texts`](crate::Reply::Texts): one table
    Explain {
        /// Its target.
        #[serde(with = "text::nid")]
        target: Nid,
        /// The source that it is to have.
        #[serde(default, with = "text::nid_option")]
        source: Option<Nid>,
        /// Bytes of payload.
        size: u64,
    },
    /// Why the last messages went where they went, oldest first, at most so many; the tunable
    /// `explain_last` says how many are kept. `Texts`: a table for each
    ExplainLast {
        /// At most so many.
        count: u32,
    },
    /// A command for the console of LNet selftest. [`Reply::Selftest`](crate::Reply::Selftest)
    Selftest {
        /// The key of the session: only who holds it commands it (L-2).
        key: u32,
        /// What is asked.
        command: lnet_selftest::Command,
    },
    /// The rails that drivers suspect (DEC-31). `Texts`: one table
    SuspicionShow,
    /// The same rails as numbers. [`Reply::Rails`](crate::Reply::Rails)
    RailsShow,
    /// Why the last messages that were sent again went where they went, oldest first, at most so
    /// many of those that are kept whatever `explain_last` says. `Texts`: a table for each
    ExplainResends {
        /// At most so many.
        count: u32,
    },
    /// A part of the flight recorder's last calls. Part 0 takes the recording; the parts that follow
    /// are of the same one, which is kept until its last part is fetched or another is taken.
    /// [`Reply::Recording`](crate::Reply::Recording)
    Recording {
        /// Which part, from 0.
        part: u32,
        /// The number that part 0 came with; nothing for part 0.
        #[serde(default)]
        number: u64,
    },
    /// The NIs in recovery (C-debug-1). [`Reply::Nids`](crate::Reply::Nids)
    RecoveryShow {
        /// Those of peers; else the local ones.
        peers: bool,
    },
    /// The timers of the node in the order in which they are due, [`TIMERS_MAX`] of them at most.
    /// [`Reply::Timers`](crate::Reply::Timers)
    TimersShow,
    /// Serves a target. Not well formed: EINVAL; there is one of this name: EEXIST; its directory is
    /// in use: EBUSY; what is stored there can't be used: EIO. `Done`
    TargetAdd {
        /// `NAME=KIND:DIR`, with an absolute path.
        target: String,
    },
    /// Takes a target out of service when what was applied is committed. No such: ENOENT. `Done`
    TargetDel {
        /// Its name.
        name: String,
    },
    /// The targets, by name. [`Reply::Targets`](crate::Reply::Targets)
    TargetShow,
    /// A page of imports. [`Reply::Imports`](crate::Reply::Imports)
    ImportShow {
        /// `ImportPage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Where imports would connect now, and why: those whose target or client has this uuid, at most
    /// [`EXPLAINED_MAX`](crate::EXPLAINED_MAX). No such: ENOENT.
    /// [`Reply::ImportExplanations`](crate::Reply::ImportExplanations)
    ImportExplain {
        /// The uuid.
        name: String,
    },
    /// A page of exports, and the last evictions. [`Reply::Exports`](crate::Reply::Exports)
    ExportShow {
        /// `ExportPage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Evicts a client from all targets, by one of both names. No such: ENOENT. `Done`
    ExportEvict {
        /// Its uuid.
        #[serde(default)]
        uuid: Option<String>,
        /// The node that it is on: all clients there.
        #[serde(default, with = "text::nid_option")]
        nid: Option<Nid>,
    },
    /// A page of the locks of this node's targets. [`Reply::Locks`](crate::Reply::Locks)
    LockShow {
        /// Which.
        which: crate::LockSelection,
        /// `LockPage::next` of the page before; the first page if absent.
        #[serde(default)]
        from: Option<u64>,
    },
    /// Evicts the client that has a lock, or waits for it. No such lock: ENOENT. `Done`
    LockBreak {
        /// Its name on this server.
        lock: u64,
    },
    /// The locks of each target, counted. [`Reply::Namespaces`](crate::Reply::Namespaces)
    NamespaceShow,
    /// The services. [`Reply::Services`](crate::Reply::Services)
    ServiceShow,
    /// Loses messages of the request layer. An unknown operation, or none to lose: EINVAL; too many
    /// rules: ENOSPC. `Done`
    RpcLose(RpcLose),
    /// Delays requests of a service (P-120). No such service: ENODEV; not such a value: EINVAL.
    /// `Done`
    RpcDelay(RpcDelay),
    /// Ends faults of the request layer. None is meant: ENOENT. `Done`
    RpcFaultDel(RpcFaultDel),
    /// The faults of the request layer. [`Reply::RpcFaults`](crate::Reply::RpcFaults)
    RpcFaultShow,
}

impl From<Step> for Request {
    fn from(step: Step) -> Self {
        match step {
            Step::NetAdd(net) => Self::NetAdd(net),
            Step::NetDel(net) => Self::NetDel(net),
            Step::NetCpts(set) => Self::NetCptsSet(set),
            Step::AcceptFrom { net, list } => {
                Self::AcceptFromSet { net, list: list.map(|l| l.join(",")) }
            }
            Step::NetRulesAdd(rules) => Self::NetRules { rules, add: true },
            Step::NetRulesDel(rules) => Self::NetRules { rules, add: false },
            Step::PeerAdd(peer) => Self::PeerAdd(peer),
            Step::PeerDel(peer) => Self::PeerDel(peer),
            Step::RouteAdd(route) => Self::RouteAdd(route),
            Step::RouteDel(route) => Self::RouteDel(route),
            Step::Routing(on) => Self::RoutingSet { on },
            Step::UdspAdd(add) => Self::UdspAdd(add),
            Step::UdspDel(del) => Self::UdspDel(del),
            Step::Set(settings) => Self::Set { settings },
        }
    }
}

/// Steps in batches: neighbours that create peers together, up to [`PEER_NIDS_PER_REQUEST`], the others
/// alone.
pub fn batches<P>(steps: Vec<(P, Step)>) -> Vec<Vec<(P, Step)>> {
    let mut all: Vec<Vec<(P, Step)>> = Vec::new();
    let mut room = 0;
    for (place, step) in steps {
        let nids = match &step {
            Step::PeerAdd(peer) => 1 + peer.nids.len(),
            _ => 0,
        };
        match all.last_mut() {
            Some(batch) if nids != 0 && nids <= room => {
                room -= nids;
                batch.push((place, step));
            }
            _ => {
                room = if nids == 0 { 0 } else { PEER_NIDS_PER_REQUEST.saturating_sub(nids) };
                all.push(vec![(place, step)]);
            }
        }
    }
    all
}

/// The request for a batch of several peers. If it is refused, the steps are to be tried one by one, to
/// learn which it is: creating a peer that is there changes nothing.
pub fn peers_of<P>(batch: &[(P, Step)]) -> Option<Request> {
    let peer = |(_, step): &(P, Step)| match step {
        Step::PeerAdd(peer) => Some(peer.clone()),
        _ => None,
    };
    if batch.len() < 2 {
        None
    } else {
        batch.iter().map(peer).collect::<Option<_>>().map(Request::PeersAdd)
    }
}

/// A part of the steps of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialPart {
    /// What the answer to the first part said; 0 in that one.
    pub number: u64,
    /// Whether a trial begins with it.
    pub first: bool,
    /// Whether the trial ends with it.
    pub last: bool,
    /// What an import asks for, in order: not more than [`TRIAL_STEPS_PER_REQUEST`].
    pub steps: Vec<Request>,
}

/// Which NIs or peer NIs a change is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NiTarget {
    /// All of them.
    All,
    /// The one with that NID.
    Nid(#[serde(with = "text::nid")] Nid),
}

/// Pings. They may go out together; the answers come in the order of the NIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// The targets.
    #[serde(with = "text::nids")]
    pub nids: Vec<Nid>,
    /// Limit on each, milliseconds; the node's own if absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The local NID to send from.
    #[serde(default, with = "text::nid_option")]
    pub source: Option<Nid>,
}

/// Discoveries. They may run together; the answers come in the order of the NIDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discover {
    /// The targets.
    #[serde(with = "text::nids")]
    pub nids: Vec<Nid>,
    /// Whether to ask even a peer that is up to date.
    pub force: bool,
}

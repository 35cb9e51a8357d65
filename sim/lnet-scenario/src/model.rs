//! What a scenario is, once it has been read: every reference leads somewhere, every number is in
//! its bounds. Times are durations since the world's beginning, which is so much before the
//! scenario's as its warm-up takes.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use lnet::{NetTunables, Profile, RouteSpec, Rule, TunableError, Tunables};
use lnet_types::{Net, Nid};

use crate::fidelity::{ByteSettings, Fidelity};
use crate::place::Place;
use crate::rpc::{RpcLoss, RpcWorld};
use crate::selftest::SelftestLoad;
use crate::units::Share;

/// A world, what happens in it, and what must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// What it is about, in prose; may be empty.
    pub description: String,
    /// Seed of everything that is drawn.
    pub seed: u64,
    /// How long the world runs before the scenario begins: nodes find each other, and nothing is asked
    /// of them.
    pub warm_up: Duration,
    /// How long it is played, warm-up included.
    pub duration: Duration,
    /// Profile of nodes that name none.
    pub profile: Profile,
    /// How closely it is played.
    pub fidelity: Fidelity,
    /// Settings of drivers, where they are real.
    pub bytes: ByteSettings,
    /// Networks and nodes.
    pub world: World,
    /// What nodes do.
    pub workload: Vec<Workload>,
    /// Targets, clients and their calls, above LNet.
    pub rpc: RpcWorld,
    /// What LNet selftest does.
    pub selftests: Vec<SelftestLoad>,
    /// What befalls them, in order of the text.
    pub faults: Vec<Fault>,
    /// What must hold at the end.
    pub bars: Bars,
}

/// Networks and nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// Networks, each once.
    pub nets: Vec<NetSpec>,
    /// Tables of nodes in order of the text: identical nodes stand in one.
    pub groups: Vec<Group>,
    /// All nodes, group after group.
    pub nodes: Vec<NodeSpec>,
}

/// An LNet network and the links that its rails stand on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetSpec {
    /// Which one.
    pub net: Net,
    /// Time from interface to interface, one way.
    pub latency: Duration,
    /// Up to so much is added to it, at random.
    pub jitter: Duration,
    /// Bytes per second of each interface in each direction; `None`: without a limit.
    pub bandwidth: Option<u64>,
    /// Bytes that an interface passes at once after a pause, as a shaper with a bucket does; then as
    /// many as the bandwidth allows.
    pub burst: u32,
    /// Packets lost at random, all the time.
    pub loss: Share,
    /// What lies under LNet.
    pub transport: Transport,
    /// Clocks of its drivers.
    pub clocks: Clocks,
    /// Tunables of the network on every node.
    pub tunables: NetTunables,
}

/// What lies under LNet: whether the transport repeats what the fabric loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streams, as TCP: lost, damaged, doubled and overtaking packets cost time only. A peer that
    /// does not answer at all becomes a time-out.
    #[default]
    Stream,
    /// Datagrams: what befalls a packet befalls the message.
    Datagram,
    /// RDMA, as InfiniBand and RoCE: adapters send again what is lost, and give a queue pair up after
    /// seconds.
    Rdma,
    /// Streams over a fabric that is suspended while its routes change, as Aries and Gemini: nothing is
    /// sent in a quiesce (PA-094), and nodes get reports of others that die.
    Gni,
}

/// Clocks of the drivers of a network, as module parameters of ko2iblnd, ksocklnd and kgnilnd set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Time of one transmission; `None`: by the rule of LNet.
    pub timeout: Option<Duration>,
    /// An idle connection is probed after so long, and closed if there is no answer within the time of
    /// a transmission (PA-143); `None`: it is not.
    pub keepalive: Option<Duration>,
    /// Nodes connect to their gateways as soon as a quiesce is over (PA-097). Of gni alone.
    pub fast_reconnect: bool,
    /// All nodes of the network get a report of a node that dies, so long after its death (PA-091,
    /// PA-092); `None`: none does. Of gni alone.
    pub node_events: Option<Duration>,
}

/// Nodes of one table of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name. Its nodes are called `name-1`, `name-2`, …, or `name` if it is a single one.
    pub name: String,
    /// The index of its first node in [`World::nodes`].
    pub first: u32,
    /// How many there are.
    pub count: u32,
    /// Whether `count` was given, and so nodes have numbers.
    pub numbered: bool,
    /// The profile of these nodes.
    pub profile: Profile,
    /// Whether they name it themselves.
    pub own_profile: bool,
    /// Tunables that differ from the profile's, by name; checked against each other.
    pub tunables: Vec<(&'static str, i64)>,
    /// Rows of the conduct table that differ from the profile's, by name; each has that value.
    pub conduct: Vec<(&'static str, &'static str)>,
    /// Whether these nodes forward.
    pub router: bool,
    /// Routes of each of them.
    pub routes: Arc<[RouteSpec]>,
    /// Networks, by index, whose tunables are others on these nodes.
    pub nets: Vec<(u16, NetTunables)>,
    /// Peers that the operator of each has configured.
    pub peers: Arc<[PeerSpec]>,
    /// Rules of the selection policy of each, first to last.
    pub rules: Arc<[Rule]>,
    /// The number before that of their first ping data.
    pub ping_seq: u32,
    /// Line of the text, from 1.
    pub line: u32,
}

/// A peer that an operator has configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// Its NIDs, the primary one first; at least that.
    pub nids: Vec<Nid>,
    /// Whether it is Multi-Rail.
    pub multi_rail: bool,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Index of its group.
    pub group: u32,
    /// Its interfaces; at least one.
    pub rails: Vec<Rail>,
}

/// An interface of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rail {
    /// Its NID.
    pub nid: Nid,
    /// Index of its network in [`World::nets`].
    pub net: u16,
}

/// Index of a node in [`World::nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A rail of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RailRef {
    /// The node.
    pub node: NodeId,
    /// Index in [`NodeSpec::rails`].
    pub rail: u16,
}

impl Scenario {
    /// Another profile for all nodes that do not name their own.
    ///
    /// # Errors
    /// The tunables of some node contradict each other under that profile; nothing is changed.
    pub fn set_profile(&mut self, profile: Profile) -> Result<(), TunableError> {
        for g in self.world.groups.iter().filter(|g| !g.own_profile) {
            Tunables::new(profile).set_all(&g.tunables)?;
        }
        self.profile = profile;
        for g in self.world.groups.iter_mut().filter(|g| !g.own_profile) {
            g.profile = profile;
        }
        Ok(())
    }
}

impl Group {
    /// What these nodes begin with: profile, conduct and tunables.
    pub fn settings(&self) -> Tunables {
        let mut settings = Tunables::new(self.profile);
        // Both were checked when the scenario was read.
        let _ = settings.set_all(&self.tunables);
        for (row, value) in &self.conduct {
            let _ = settings.conduct.set(row, value);
        }
        settings
    }
}

impl World {
    /// The node `id`, if there is one.
    pub fn node(&self, id: NodeId) -> Option<&NodeSpec> {
        self.nodes.get(id.0 as usize)
    }

    /// The group of node `id`.
    pub fn group_of(&self, id: NodeId) -> Option<&Group> {
        self.groups.get(self.node(id)?.group as usize)
    }

    /// Tunables of the network with index `net` on node `id`.
    pub fn net_tunables(&self, id: NodeId, net: u16) -> NetTunables {
        let own = self.group_of(id).and_then(|g| g.nets.iter().find(|(n, _)| *n == net));
        let common = || self.nets.get(usize::from(net)).map_or(NetTunables::SOCK, |n| n.tunables);
        own.map_or_else(common, |(_, tunables)| *tunables)
    }

    /// What node `id` is called.
    pub fn name(&self, id: NodeId) -> String {
        match self.group_of(id) {
            Some(g) if g.numbered => format!("{}-{}", g.name, id.0 - g.first + 1),
            Some(g) => g.name.clone(),
            None => format!("#{}", id.0),
        }
    }

    /// The node that is called `name`. Looks at every group.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        if let Some(g) = self.groups.iter().find(|g| !g.numbered && g.name == name) {
            return Some(NodeId(g.first));
        }
        let (group, number) = name.rsplit_once('-')?;
        let g = self.groups.iter().find(|g| g.numbered && g.name == group)?;
        let number: u32 = number.parse().ok().filter(|n| (1..=g.count).contains(n))?;
        Some(NodeId(g.first + number - 1))
    }

    /// The rail with this NID. Looks at every node.
    pub fn rail_of(&self, nid: Nid) -> Option<RailRef> {
        self.nodes.iter().zip(0..).find_map(|(n, node)| {
            let rail = n.rails.iter().position(|r| r.nid == nid)?;
            Some(RailRef { node: NodeId(node), rail: rail as u16 })
        })
    }

    /// The rail, if there is one.
    pub fn rail(&self, at: RailRef) -> Option<&Rail> {
        self.node(at.node)?.rails.get(usize::from(at.rail))
    }
}

/// Something that some nodes do to others, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Who begins.
    pub from: Place,
    /// Its peers. Messages go to the first NID of a node, or to that of the rail that is named.
    pub to: Place,
    /// Which pairs exchange messages.
    pub pairing: Pairing,
    /// What is exchanged.
    pub exchange: Exchange,
    /// Payload of the request, bytes; of a GET what is fetched.
    pub size: u32,
    /// When the next one begins.
    pub pace: Pace,
    /// Most exchanges that each pair has under way; one that is due beyond that waits for an end.
    pub window: u32,
    /// Whether every byte is checked.
    pub verify: bool,
    /// How long the one who began waits for the end, before he tries again or calls it an error.
    pub timeout: Duration,
    /// How often he tries again, as the layers above LNet do.
    pub retries: u32,
    /// When it begins.
    pub start: Duration,
    /// When nothing new is begun any more.
    pub end: Duration,
    /// Line of the text, from 1.
    pub line: u32,
}

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A PUT into a buffer of the other.
    Put {
        /// Whether it is over with the ACK, rather than with the transmission.
        ack: bool,
    },
    /// A GET from a buffer of the other.
    Get,
    /// A PUT, answered by the program at the other end with a PUT of so many bytes.
    Request {
        /// Bytes of the answer.
        reply: u32,
        /// Whether both PUTs ask for an ACK; then it is over with the ACK of the first as well.
        ack: bool,
    },
    /// An RPC with bulk, as LNet selftest and Lustre have them: a request by PUT, bulk that the other end
    /// moves, and a reply by PUT.
    Rpc {
        /// Whether the other end fetches the bulk with a GET; otherwise it brings it with a PUT.
        write: bool,
    },
    /// An LNet ping.
    Ping,
}

/// When the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So often, whatever became of the last.
    Every(Duration),
    /// So that as many bytes per second are begun.
    Rate(u64),
    /// As soon as one ends, so many being under way.
    Window {
        /// How many.
        window: u32,
        /// Pause between an answer and the next request.
        think: Duration,
    },
}

/// Which node of `from` meets which of `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// The first the first, the second the second, and round again: each meets one.
    Spread,
    /// Each meets all, each pair at the pace given.
    All,
    /// A random peer each time.
    Random,
}

/// Links that a fault is about: from and to the rails `on`, and if `peer` is given only those to
/// and from its rails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Links {
    /// One end.
    pub on: Place,
    /// The other; any peer if not given.
    pub peer: Option<Place>,
    /// Which way, seen from `on`.
    pub direction: Direction,
}

/// Which way, seen from the rails that are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Both.
    #[default]
    Both,
    /// What comes to them.
    In,
    /// What leaves them.
    Out,
}

/// Something that goes wrong, or changes, at a known time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at: Duration,
    /// When it is over; `None`: never, or it is done at once.
    pub until: Option<Duration>,
    /// What it is.
    pub kind: FaultKind,
    /// Line of the text, from 1.
    pub line: u32,
}

/// What goes wrong. How it shows depends on the [`Transport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing passes, without a report: a black hole.
    Cut(Links),
    /// Nothing passes between the sides; within each all is well.
    Partition(Vec<Place>),
    /// Nothing moves on the networks with these indices; what is under way goes on afterwards.
    Quiesce(Vec<u16>),
    /// A link of a gni fabric fails: some nodes are out of reach until its coordinator has installed
    /// other routes, for which the fabric stands still (PA-080).
    LinkEvent(LinkEvent),
    /// The interfaces have no carrier, and their nodes get a report. A router's far interface is
    /// such a place; all rails of a node together cut off the node.
    Carrier {
        /// The interfaces.
        on: Place,
        /// How long the report takes.
        known_after: Duration,
    },
    /// The carrier comes and goes, beginning without.
    Flap {
        /// The interfaces.
        on: Place,
        /// How long it stays away.
        down: Duration,
        /// How long it stays.
        up: Duration,
        /// How long the node does not know yet that it went.
        known_after: Duration,
    },
    /// Connections are refused, and those that stand are closed.
    Refuse(Links),
    /// Connections are reset, once.
    Reset(Links),
    /// Packets are lost.
    Loss {
        /// Where.
        links: Links,
        /// How many.
        share: Share,
    },
    /// Packets are damaged.
    Corrupt {
        /// Where.
        links: Links,
        /// How many.
        share: Share,
        /// Of how many the transport does not notice it, so that the bytes reach the driver. These
        /// are besides `share`.
        unnoticed: Share,
    },
    /// Packets arrive twice.
    Duplicate {
        /// Where.
        links: Links,
        /// How many.
        share: Share,
    },
    /// Packets are overtaken.
    Reorder {
        /// Where.
        links: Links,
        /// How many.
        share: Share,
        /// By how much they are late.
        by: Duration,
    },
    /// Messages, not packets, are lost, whatever the transport.
    Drop {
        /// Where.
        links: Links,
        /// How many.
        share: Share,
        /// Whether they are lost before they are sent, with a report to the sender; otherwise they
        /// are reported as sent.
        reported: bool,
    },
    /// Packets take longer.
    Delay {
        /// Where.
        links: Links,
        /// By how much.
        by: Duration,
        /// And up to so much more, at random.
        jitter: Duration,
    },
    /// Links are slower: bytes per second.
    Slow {
        /// Where.
        links: Links,
        /// What is left.
        bandwidth: u64,
    },
    /// The nodes die without a word. With an end they come back, as new incarnations.
    Kill {
        /// Which ones.
        nodes: Place,
        /// Whether only the process dies: its host resets its connections and refuses new ones.
        process: bool,
        /// The NIDs with which the one node comes back, rail by rail, if they are others.
        nids: Option<Vec<Nid>>,
    },
    /// The nodes stand still and don't know it (a virtual machine that is stopped).
    Pause(Place),
    /// The clocks of the nodes run fast, or slow if negative, by so many millionths.
    Drift {
        /// Which ones.
        nodes: Place,
        /// Millionths.
        ppm: i32,
    },
    /// The nodes have no memory for what comes in, nor for what they would send.
    Memory(Place),
    /// The nodes get another interface on a network.
    NiAdd {
        /// Which ones.
        nodes: Place,
        /// Index of the network.
        net: u16,
        /// The new NID of each, in order.
        nids: Vec<Nid>,
    },
    /// The RDMA devices under interfaces are in an error: their queue pairs fail, and their nodes get a
    /// report.
    Device(Place),
    /// The links of RDMA interfaces are slower, and their nodes get a report.
    Degraded {
        /// The interfaces.
        on: Place,
        /// What is left, bytes per second.
        bandwidth: u64,
    },
    /// Completions of RDMA adapters are lost.
    Completions {
        /// The interfaces.
        on: Place,
        /// How many.
        share: Share,
    },
    /// Messages of RDMA interfaces return no credits.
    Credits(Place),
    /// Interfaces are taken away.
    NiDel(Place),
    /// Operators delete peers, whole, as far as the nodes know them.
    PeerDel {
        /// On which nodes.
        nodes: Place,
        /// The peers.
        peers: Place,
    },
    /// Tunables are set on the nodes.
    Tune {
        /// Which ones.
        nodes: Place,
        /// Names and values, checked.
        tunables: Vec<(&'static str, i64)>,
    },
    /// Requests take longer at targets before they are carried out.
    HandlerDelay {
        /// Indices in [`RpcWorld::targets`].
        targets: Vec<usize>,
        /// By how much.
        by: Duration,
        /// And up to so much more, at random.
        jitter: Duration,
    },
    /// What targets change does not become safe against crashes: indices in [`RpcWorld::targets`].
    CommitStall(Vec<usize>),
    /// The nodes die, and their targets go to the other node that may serve them. With an end the
    /// nodes come back, without those targets.
    Failover {
        /// Which nodes.
        nodes: Place,
        /// How long after their death the others take over.
        after: Duration,
    },
    /// Messages of requests get lost at the nodes.
    RpcLose {
        /// Where: what these nodes send and what they receive.
        nodes: Place,
        /// Which ones.
        loss: RpcLoss,
    },
    /// Stores of targets have no space left: indices in [`RpcWorld::targets`].
    StoreFull(Vec<usize>),
    /// Stores of targets can't read or write.
    StoreError {
        /// Indices in [`RpcWorld::targets`].
        targets: Vec<usize>,
        /// Part of the orders that fail.
        share: Share,
    },
    /// Programs on the nodes keep the locks that they hold, and do nothing under them.
    Hang(Place),
    /// Targets drop clients.
    Evict {
        /// Indices in [`RpcWorld::targets`].
        targets: Vec<usize>,
        /// The clients.
        clients: Place,
    },
}

/// A failed link of a fabric, and how its coordinator recovers from it, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEvent {
    /// Index of the network.
    pub net: u16,
    /// Nodes that are out of reach until routes without the link are installed.
    pub on: Place,
    /// Time until a blade's daemon has reported the failure (PA-079).
    pub detect: Duration,
    /// Time in which the coordinator computes routes.
    pub compute: Duration,
    /// How long the fabric stands still; zero: routes are changed while packets move (PA-081).
    pub quiesce: Duration,
    /// Time in which routes are installed, blade after blade: the last part of the quiesce.
    pub install: Duration,
}

impl LinkEvent {
    /// From the failure to the end of the last step.
    pub fn lasts(&self) -> Duration {
        self.detect + self.compute + self.quiesce.max(self.install)
    }
}

impl FaultKind {
    /// The word by which the text calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Cut(_) => "cut",
            Self::Partition(_) => "partition",
            Self::Quiesce(_) => "quiesce",
            Self::LinkEvent(_) => "link_event",
            Self::Carrier { .. } => "carrier",
            Self::Flap { .. } => "flap",
            Self::Refuse(_) => "refuse",
            Self::Reset(_) => "reset",
            Self::Loss { .. } => "loss",
            Self::Corrupt { .. } => "corrupt",
            Self::Duplicate { .. } => "duplicate",
            Self::Reorder { .. } => "reorder",
            Self::Drop { .. } => "drop",
            Self::Delay { .. } => "delay",
            Self::Slow { .. } => "slow",
            Self::Kill { .. } => "kill",
            Self::Pause(_) => "pause",
            Self::Drift { .. } => "drift",
            Self::Memory(_) => "memory",
            Self::NiAdd { .. } => "ni_add",
            Self::Device(_) => "device",
            Self::Degraded { .. } => "degraded",
            Self::Completions { .. } => "completions",
            Self::Credits(_) => "credits",
            Self::NiDel(_) => "ni_del",
            Self::PeerDel { .. } => "peer_del",
            Self::Tune { .. } => "tune",
            Self::HandlerDelay { .. } => "handler_delay",
            Self::CommitStall(_) => "commit_stall",
            Self::Failover { .. } => "failover",
            Self::RpcLose { .. } => "rpc_lose",
            Self::StoreFull(_) => "store_full",
            Self::StoreError { .. } => "store_error",
            Self::Hang(_) => "hang",
            Self::Evict { .. } => "evict",
        }
    }
}

/// What must hold at the end. What is not named is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bars {
    /// Most exchanges that ended in an error.
    pub errors: Option<u64>,
    /// Most messages that reached a program more than once.
    pub duplicates: Option<u64>,
    /// Fewest exchanges that ended well.
    pub completed: Option<u64>,
    /// Longest that an exchange took from its beginning to its good end.
    pub stall_max: Option<Duration>,
    /// The same for 99 of 100.
    pub stall_p99: Option<Duration>,
    /// Longest time in which a pair of nodes with something under way finished nothing.
    pub gap_max: Option<Duration>,
    /// Longest time from the beginning of a fault until a node that used the place had noticed:
    /// health lowered, route down or message sent again.
    pub detection_max: Option<Duration>,
    /// Longest time from the end of the last fault until all health is full again.
    pub recovery_max: Option<Duration>,
    /// Most messages that were sent again.
    pub resends: Option<u64>,
    /// Most exchanges that programs began once more.
    pub retries: Option<u64>,
    /// Largest part of control traffic (pings, pushes and their answers) in all messages.
    pub control_share: Option<Share>,
    /// Most control messages that any node sent within one second.
    pub control_rate: Option<u64>,
    /// Most calls that were carried out more than once.
    pub executed_twice: Option<u64>,
    /// Most calls whose effect was answered, and is gone.
    pub lost_writes: Option<u64>,
    /// Most evictions that a living client found out about.
    pub evictions: Option<u64>,
    /// Longest that a call took until its end, good or bad.
    pub rpc_longest_max: Option<Duration>,
    /// What must hold on real sockets besides, where time is real and nodes are in a hurry.
    pub sockets: SocketBars,
}

/// Bars of a run over real sockets, `[bars.sockets]`. The simulator does not ask for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketBars {
    /// Longest from when a request was due until its reply, from the first fault on.
    pub stall_max: Option<Duration>,
    /// Time in a minute of faults in which requests waited, from the third change of a flapping
    /// carrier on.
    pub stall_per_minute: Option<Duration>,
    /// Median of such times from a second after the first fault to its end, in hundredths of that
    /// before it.
    pub p50_percent: Option<u32>,
    /// The same of what 99 of 100 do not exceed.
    pub p99_percent: Option<u32>,
    /// Longest from the end of the last fault to the first reply.
    pub back_max: Option<Duration>,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

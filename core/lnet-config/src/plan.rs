//! From a configuration to steps: what an import has to do, and what leads from one configuration
//! to another.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{Net, Nid};

use crate::config::{Block, Config, NetBlock, NiBlock, PeerBlock};
use crate::yaml::Pos;
use crate::{
    BUFFER_KEYS, NetAdd, NetCpts, NetDel, NetRules, PeerAdd, PeerDel, RouteAdd, RouteDel, Setting,
    UdspAdd, UdspDel, UdspRule, settled_pattern, settled_tunable,
};

/// One change of a node. Steps are applied in order; the first that fails ends an import (I-18).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add NIs.
    NetAdd(NetAdd),
    /// Remove NIs or a net.
    NetDel(NetDel),
    /// Tie NIs that are there to other CPTs.
    NetCpts(NetCpts),
    /// Say which peers may connect to a net.
    AcceptFrom {
        /// The net.
        net: Net,
        /// Patterns, or `any`; `None`: as when the node was started.
        list: Option<Vec<String>>,
    },
    /// Add the NIs that rules choose on this machine.
    NetRulesAdd(NetRules),
    /// Remove them.
    NetRulesDel(NetRules),
    /// Create a peer.
    PeerAdd(PeerAdd),
    /// Remove a peer.
    PeerDel(PeerDel),
    /// Add a route.
    RouteAdd(RouteAdd),
    /// Remove a route.
    RouteDel(RouteDel),
    /// Begin or end forwarding.
    Routing(bool),
    /// Add a rule of the selection policy.
    UdspAdd(UdspAdd),
    /// Remove rules of the selection policy.
    UdspDel(UdspDel),
    /// Set tunables, together.
    Set(Vec<Setting>),
}

impl fmt::Display for Step {
    /// What it does to what, in the words of the commands.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NetAdd(add) => write!(f, "net add {}", add.net),
            Self::NetDel(del) => write!(f, "net del {}", del.net),
            Self::NetCpts(set) => {
                let cpts = set.cpts.as_deref().map_or_else(|| "[*]".to_owned(), crate::cpts_text);
                write!(f, "net set {} --cpt {cpts}", set.net)
            }
            Self::AcceptFrom { net, list } => {
                let list = list.as_ref().map_or_else(|| "default".to_owned(), |l| l.join(","));
                write!(f, "net set --net {net} --accept-from {list}")
            }
            Self::NetRulesAdd(_) => f.write_str("net add by ip2nets"),
            Self::NetRulesDel(_) => f.write_str("net del by ip2nets"),
            Self::PeerAdd(add) => write!(f, "peer add {}", add.primary),
            Self::PeerDel(del) => write!(f, "peer del {}", del.primary),
            Self::RouteAdd(route) => write!(f, "route add {} {}", route.net, route.gateway),
            Self::RouteDel(route) => write!(f, "route del {} {}", route.net, route.gateway),
            Self::Routing(on) => write!(f, "set routing {}", u8::from(*on)),
            Self::UdspAdd(_) => f.write_str("udsp add"),
            Self::UdspDel(_) => f.write_str("udsp del"),
            Self::Set(settings) => {
                f.write_str("set")?;
                settings.iter().try_for_each(|s| write!(f, " {} {}", s.name, s.value))
            }
        }
    }
}

impl Step {
    /// Whether a node with this configuration (all values known) is already as the step would leave it:
    /// what it adds is there with the values that it names, or what it deletes is not.
    pub fn is_done_in(&self, node: &Config) -> bool {
        let has = State::of(node);
        let nis = |net: Net| has.nets.iter().find(|(n, _)| *n == net).map_or(&[][..], |n| &n.1);
        match self {
            Self::NetAdd(add) => {
                let NetAdd { net, interfaces, nid, cpts, tunables, lnd } = add.clone();
                let ni = NiBlock { interfaces, nid, tunables, lnd, cpts };
                let mut wants = State::default();
                wants.net(&NetBlock { net, nis: vec![ni], accept_from: None });
                let is_there = |want: &NiBlock| {
                    nis(net).iter().any(|have| {
                        Unnamed::Stays.is_same(have, want)
                            && !Unnamed::Stays.net_differs(net, have, want)
                            && !Unnamed::Stays.ni_differs(net, have, want)
                            && !Unnamed::Stays.cpts_differ(have, want)
                    })
                };
                wants.nets.iter().flat_map(|(_, nis)| nis).all(is_there)
            }
            Self::NetDel(NetDel { net, interfaces, nid: None }) if interfaces.is_empty() => {
                nis(*net).is_empty()
            }
            Self::NetDel(NetDel { net, interfaces, nid }) => !nis(*net).iter().any(|ni| {
                let named = ni.interfaces.first().is_some_and(|i| interfaces.contains(&i.name));
                named || (nid.is_some() && ni.nid == *nid)
            }),
            Self::PeerAdd(PeerAdd { primary, nids, multi_rail, lock_primary }) => {
                let (nids, multi_rail, lock_primary) = (nids.clone(), *multi_rail, *lock_primary);
                let wanted = PeerBlock {
                    primary: *primary,
                    nids,
                    multi_rail,
                    lock_primary,
                    secondary_only: false,
                };
                has.peers.get(primary) == Some(&PeerState::of(&wanted))
            }
            Self::PeerDel(del) => del.nids.is_empty() && !has.peers.contains_key(&del.primary),
            Self::RouteAdd(route) => {
                let RouteAdd { net, gateway, .. } = *route;
                has.routes.get(&RouteDel { net, gateway }) == Some(route)
            }
            Self::RouteDel(route) => !has.routes.contains_key(route),
            _ => false,
        }
    }
}

/// What `import --del` sets tunables back to (I-15); the others stay as they are.
const RESET: [(&str, i64); 3] = [("numa_range", 0), ("max_interfaces", 0), ("discovery", 1)];

/// Tunables that limit how many interfaces and peers a configuration may have, and their defaults, the
/// same in all profiles.
pub const LIMITS: [(&str, i64); 2] = [("max_interfaces", 4096), ("peers_max", 1 << 18)];

impl Config {
    /// This configuration, with the `default` of each tunable that `applied` names and this does not.
    #[must_use]
    pub fn with_defaults_of(&self, applied: &Self, default: impl Fn(&str) -> Option<i64>) -> Self {
        let (has, wants) = (State::of(applied), State::of(self));
        let gone = has.settings.keys().filter(|name| !wants.settings.contains_key(*name));
        let back: Vec<_> =
            gone.filter_map(|name| Some(Setting::new(*name, default(name)?))).collect();
        let mut whole = self.clone();
        if !back.is_empty() {
            // First: what the file sets must agree with them.
            whole.blocks.insert(0, (Pos::default(), Block::Settings(back)));
        }
        whole
    }

    /// The steps that create what the blocks name, in their order.
    pub fn add_steps(&self) -> Vec<Step> {
        self.add_steps_placed().into_iter().map(|(_, step)| step).collect()
    }

    /// The same, each with the place of its block. Limits above their defaults are raised first: what
    /// they make room for may stand before them in the text. Where peers are gateways, peers
    /// go before routes: exporters print them behind, and the peer of a gateway in use can't be configured
    /// any more.
    pub fn add_steps_placed(&self) -> Vec<(Pos, Step)> {
        let raised = self.blocks.iter().flat_map(|(pos, block)| {
            let settings = match block {
                Block::Settings(settings) | Block::Own(settings) => settings.as_slice(),
                _ => &[],
            };
            let raises = |s: &&Setting| LIMITS.iter().any(|(n, d)| *n == s.name && s.value > *d);
            settings.iter().filter(raises).map(|s| (*pos, Step::Set(vec![s.clone()])))
        });
        let mut through: Vec<Nid> = self
            .blocks
            .iter()
            .filter_map(|(_, b)| if let Block::Route(r) = b { Some(r.gateway) } else { None })
            .collect();
        through.sort_unstable();
        let is_gateway = |nid: &Nid| through.binary_search(nid).is_ok();
        let first_route = self.blocks.iter().position(|(_, b)| matches!(b, Block::Route(_)));
        let (before, rest) = self.blocks.split_at(first_route.unwrap_or(self.blocks.len()));
        let is_configured_gateway = rest.iter().any(|(_, block)| {
            matches!(block, Block::Peer(p) if is_gateway(&p.primary) || p.nids.iter().any(is_gateway))
        });
        // All peers together, so that they keep their order.
        let (peers, rest): (Vec<_>, Vec<_>) = rest
            .iter()
            .partition(|(_, block)| is_configured_gateway && matches!(block, Block::Peer(_)));
        let steps = before
            .iter()
            .chain(peers)
            .chain(rest)
            .flat_map(|(pos, block)| block.add_steps().into_iter().map(|step| (*pos, step)));
        raised.chain(steps).collect()
    }

    /// The steps that remove what the blocks name, last block first: peers go before the nets that
    /// they are reached by, which would take them along (I-9). Routes go before everything: a peer
    /// that is a gateway stays.
    pub fn del_steps(&self) -> Vec<Step> {
        self.del_steps_placed().into_iter().map(|(_, step)| step).collect()
    }

    /// The same, each with the place of its block.
    pub fn del_steps_placed(&self) -> Vec<(Pos, Step)> {
        let (routes, others): (Vec<_>, Vec<_>) =
            self.blocks.iter().rev().partition(|(_, block)| matches!(block, Block::Route(_)));
        routes
            .into_iter()
            .chain(others)
            .flat_map(|(pos, block)| block.del_steps().into_iter().map(|step| (*pos, step)))
            .collect()
    }
}

impl Block {
    fn add_steps(&self) -> Vec<Step> {
        match self {
            Self::Net(net) => {
                // Before the first connection can arrive.
                let list = net.accept_from.clone();
                let accept = list.map(|l| Step::AcceptFrom { net: net.net, list: Some(l) });
                let adds = net.nis.iter().map(|ni| Step::NetAdd(net_add(net.net, ni)));
                accept.into_iter().chain(adds).collect()
            }
            Self::NetRules(rules) => vec![Step::NetRulesAdd(rules.clone())],
            Self::Peer(peer) => vec![Step::PeerAdd(peer_add(peer))],
            Self::Udsp(add) => vec![Step::UdspAdd(add.clone())],
            Self::Settings(settings) | Self::Own(settings) | Self::Buffers(settings) => {
                vec![Step::Set(settings.clone())]
            }
            Self::Route(route) => vec![Step::RouteAdd(*route)],
            Self::Routing(on) => vec![Step::Routing(*on)],
            Self::Ping(_) | Self::Discover(_) => Vec::new(),
        }
    }

    fn del_steps(&self) -> Vec<Step> {
        match self {
            Self::Net(net) => {
                let dels = net.nis.iter().rev().map(|ni| Step::NetDel(net_del(net.net, ni)));
                let accept = net.accept_from.as_ref();
                let accept = accept.map(|_| Step::AcceptFrom { net: net.net, list: None });
                dels.chain(accept).collect()
            }
            Self::NetRules(rules) => vec![Step::NetRulesDel(rules.clone())],
            Self::Peer(peer) if peer.secondary_only => {
                let (primary, nids) = (peer.primary, peer.nids.clone());
                vec![Step::PeerDel(PeerDel { primary, nids, force: false })]
            }
            Self::Peer(peer) => vec![Step::PeerDel(peer_del(peer.primary))],
            // By what it is about: its place may be another one by now.
            Self::Udsp(add) => vec![Step::UdspDel(UdspDel::About(add.rule.clone()))],
            Self::Settings(settings) => {
                let back = RESET
                    .iter()
                    .filter(|(name, _)| settings.iter().any(|setting| setting.name == *name));
                let back: Vec<_> = back.map(|(name, v)| Setting::new(*name, *v)).collect();
                if back.is_empty() { Vec::new() } else { vec![Step::Set(back)] }
            }
            Self::Buffers(_) => {
                let back = BUFFER_KEYS.iter().map(|(_, name)| Setting::new(*name, 0));
                vec![Step::Set(back.collect())]
            }
            // The original enables it even here (I-13).
            Self::Routing(_) => vec![Step::Routing(false)],
            Self::Route(RouteAdd { net, gateway, .. }) => {
                vec![Step::RouteDel(RouteDel { net: *net, gateway: *gateway })]
            }
            Self::Own(_) | Self::Ping(_) | Self::Discover(_) => Vec::new(),
        }
    }
}

/// The steps from `current` (all values known, as exported) to `wanted`. Nets, NIs, peers and
/// routes that `wanted` does not have are deleted. Tunables that it does not name, values that it
/// leaves to the default, and forwarding if it does not mention it, stay. Rules of the selection
/// policy are made anew if anything about them differs, since their order counts; their patterns
/// are compared as nodes write them, and values by what nodes make of them. No steps: nothing to do.
///
/// Nets that rules choose by address are not compared: they are no part of what a node exports.
///
/// The tunables of a net come from its first NI (C-netadd-6), so a net is made anew when they
/// differ; a single NI when only its own settings do. The last NI of a net takes the routes over it and
/// its peers along, and a peer that is a gateway can't change: such routes and peers are removed before
/// and made anew after it, although nothing about them differs.
pub fn diff(current: &Config, wanted: &Config) -> Vec<Step> {
    steps_between(current, wanted, Unnamed::Stays)
}

/// The steps from `applied` to `wanted`, two texts for the same node: as [`diff`], but values that
/// `wanted` does not name get their defaults, as after a new start. Tunables are its exception:
/// [`Config::with_defaults_of`] names them.
pub fn diff_of_files(applied: &Config, wanted: &Config) -> Vec<Step> {
    steps_between(applied, wanted, Unnamed::GetsDefault)
}

/// What happens to a value that the wanted configuration does not name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unnamed {
    /// It stays as it is.
    Stays,
    /// It gets its default.
    GetsDefault,
}

impl Unnamed {
    /// Whether `want` asks for something else than there is.
    fn overrides<T: PartialEq>(self, have: Option<T>, want: Option<T>) -> bool {
        (want.is_some() || self == Self::GetsDefault) && have != want
    }

    /// Whether a tunable is to be set.
    fn sets(self, name: &str, have: Option<i64>, want: i64) -> bool {
        match self {
            Self::Stays => settled_tunable(name, want).is_some_and(|want| {
                have.and_then(|have| settled_tunable(name, have)) != Some(want)
            }),
            Self::GetsDefault => have != Some(want),
        }
    }

    /// Whether the NI is the wanted one: it has the NID that is named, else it is on the interface. One
    /// that is wanted on the first usable interface is there as soon as the net is.
    fn is_same(self, have: &NiBlock, want: &NiBlock) -> bool {
        match want.nid {
            Some(nid) => have.nid == Some(nid),
            None if want.interfaces.is_empty() => true,
            // Between two texts, a NID that is no longer named leaves the choice to the node.
            None => {
                let is_named_alike = self == Self::Stays || have.nid.is_none();
                is_named_alike && interface(have) == interface(want)
            }
        }
    }

    /// The wanted values as they are compared: two texts as they stand.
    fn settled(self, net: Net, have: &NiBlock, want: &NiBlock) -> NiBlock {
        match self {
            Self::Stays => want.settled(net, have),
            Self::GetsDefault => want.clone(),
        }
    }

    /// Whether the tunables of the net are to be others.
    fn net_differs(self, net: Net, have: &NiBlock, want: &NiBlock) -> bool {
        let (a, b) = (&have.tunables, &self.settled(net, have, want).tunables);
        self.overrides(a.peer_timeout_s, b.peer_timeout_s)
            || self.overrides(a.peer_credits, b.peer_credits)
            || self.overrides(a.peer_buffer_credits, b.peer_buffer_credits)
            || self.overrides(a.credits, b.credits)
    }

    /// Whether the driver's tunables of the NI are to be others.
    fn ni_differs(self, net: Net, have: &NiBlock, want: &NiBlock) -> bool {
        let (a, b) = (&have.lnd, &self.settled(net, have, want).lnd);
        self.overrides(a.conns_per_peer, b.conns_per_peer)
            || self.overrides(a.tos, b.tos)
            || self.overrides(a.peercredits_hiw, b.peercredits_hiw)
            || self.overrides(a.concurrent_sends, b.concurrent_sends)
    }

    /// Whether the NI is to be tied to other CPTs.
    fn cpts_differ(self, have: &NiBlock, want: &NiBlock) -> bool {
        self.overrides(cpts_of(have), cpts_of(want))
    }
}

fn steps_between(current: &Config, wanted: &Config, unnamed: Unnamed) -> Vec<Step> {
    let (has, wants) = (State::of(current), State::of(wanted));
    let (mut del, mut add) = (Vec::new(), Vec::new());
    for (net, nis) in &has.nets {
        match wants.nets.iter().find(|(n, _)| n == net) {
            None => del.push(Step::NetDel(whole_net(*net))),
            Some((_, wanted)) => diff_net((*net, nis, wanted), unnamed, &mut del, &mut add),
        }
    }
    for (net, nis) in &wants.nets {
        if !has.nets.iter().any(|(n, _)| n == net) {
            add.extend(nis.iter().map(|ni| Step::NetAdd(net_add(*net, ni))));
        }
    }
    let emptied: Vec<Net> =
        has.nets.iter().filter(|net| is_emptied(net, &del)).map(|n| n.0).collect();
    let peers = PeerSteps::between(&has, &wants, &emptied);
    let settings: Vec<Setting> = wants
        .settings
        .iter()
        .filter(|(name, value)| unnamed.sets(name, has.settings.get(*name).copied(), **value))
        .map(|(name, value)| Setting::new(*name, *value))
        .collect();
    let set = (!settings.is_empty()).then_some(Step::Set(settings));
    let stays = |key: &RouteDel| {
        let same = has.routes.contains_key(key) && has.routes.get(key) == wants.routes.get(key);
        same && !emptied.contains(&key.gateway.net()) && !peers.touched.contains(&key.gateway)
    };
    let go = has.routes.keys().filter(|key| !stays(key));
    let routes_del: Vec<Step> = go.map(|key| Step::RouteDel(*key)).collect();
    let come = wants.routes.iter().filter(|(key, _)| !stays(key));
    let routes_add: Vec<Step> = come.map(|(_, route)| Step::RouteAdd(*route)).collect();
    let routing = match unnamed {
        Unnamed::Stays => wants.routing,
        Unnamed::GetsDefault => Some(wants.routing.unwrap_or(false)),
    };
    let routing = routing.filter(|on| *on != has.routing.unwrap_or(false)).map(Step::Routing);
    let mut rules = Vec::new();
    let settled = |state: &State<'_>| state.rules.iter().map(|r| r.settled()).collect::<Vec<_>>();
    if settled(&has) != settled(&wants) {
        if !has.rules.is_empty() {
            rules.push(Step::UdspDel(UdspDel::All));
        }
        let add = |rule: &&UdspRule| UdspAdd { rule: (*rule).clone(), index: None };
        rules.extend(wants.rules.iter().map(add).map(Step::UdspAdd));
    }
    let mut accept = Vec::new();
    for net in has.accept.keys().filter(|net| !wants.accept.contains_key(net)) {
        accept.push(Step::AcceptFrom { net: *net, list: None });
    }
    let settled = |list: &Vec<String>| list.iter().map(|p| settled_pattern(p)).collect::<Vec<_>>();
    let accepts_so = |net: &Net, list: &Vec<String>| {
        has.accept.get(net).is_some_and(|has| settled(has) == settled(list))
    };
    for (net, list) in wants.accept.iter().filter(|(net, list)| !accepts_so(net, list)) {
        accept.push(Step::AcceptFrom { net: *net, list: Some((*list).clone()) });
    }
    // Routes go before the nets that they lead over, and peers with them; they come after. A peer
    // that is a gateway comes before its routes.
    let is_gateway = |step: &Step| match step {
        Step::PeerAdd(add) => wants
            .routes
            .keys()
            .any(|key| add.primary == key.gateway || add.nids.contains(&key.gateway)),
        _ => false,
    };
    let (gateways, others): (Vec<_>, Vec<_>) = peers.add.into_iter().partition(is_gateway);
    let dels = routes_del.into_iter().chain(peers.del).chain(del);
    let adds = add.into_iter().chain(gateways).chain(routes_add).chain(others);
    dels.chain(set).chain(accept).chain(adds).chain(rules).chain(routing).collect()
}

/// Whether these steps leave no NI of a net.
fn is_emptied((net, nis): &(Net, Vec<NiBlock>), del: &[Step]) -> bool {
    let dels: Vec<&NetDel> = del
        .iter()
        .filter_map(|step| if let Step::NetDel(del) = step { Some(del) } else { None })
        .filter(|del| del.net == *net)
        .collect();
    let is_whole = |del: &&NetDel| del.interfaces.is_empty() && del.nid.is_none();
    dels.iter().any(is_whole) || dels.len() >= nis.len()
}

/// What happens to peers.
struct PeerSteps {
    del: Vec<Step>,
    add: Vec<Step>,
    /// The NIDs of peers that go or come.
    touched: BTreeSet<Nid>,
}

impl PeerSteps {
    /// `emptied`: the nets that lose all NIs, although they may get others.
    fn between(has: &State<'_>, wants: &State<'_>, emptied: &[Net]) -> Self {
        let mut steps = Self { del: Vec::new(), add: Vec::new(), touched: BTreeSet::new() };
        let all_nids = |primary: Nid, peer: &PeerState| {
            core::iter::once(primary).chain(peer.nids.clone()).collect::<Vec<_>>()
        };
        let stays = |primary: &Nid| {
            let peer = has.peers.get(primary).filter(|has| wants.peers.get(primary) == Some(has));
            peer.is_some_and(|peer| {
                !all_nids(*primary, peer).iter().any(|nid| emptied.contains(&nid.net()))
            })
        };
        for (primary, peer) in has.peers.iter().filter(|(primary, _)| !stays(primary)) {
            steps.touched.extend(all_nids(*primary, peer));
            // The configuration decides, also about a peer whose primary NID is locked (O-37).
            steps.del.push(Step::PeerDel(PeerDel { force: true, ..peer_del(*primary) }));
        }
        for (primary, peer) in wants.peers.iter().filter(|(primary, _)| !stays(primary)) {
            steps.touched.extend(all_nids(*primary, peer));
            let PeerState { nids, multi_rail, lock_primary } = peer.clone();
            let add = PeerAdd { primary: *primary, nids, multi_rail, lock_primary };
            steps.add.push(Step::PeerAdd(add));
        }
        steps
    }
}

/// A peer without its primary NID.
#[derive(Clone, PartialEq, Eq)]
struct PeerState {
    /// Further NIDs, sorted.
    nids: Vec<Nid>,
    multi_rail: bool,
    lock_primary: bool,
}

impl PeerState {
    fn of(peer: &PeerBlock) -> Self {
        let mut nids = peer.nids.clone();
        nids.sort_unstable();
        nids.dedup();
        Self { nids, multi_rail: peer.multi_rail, lock_primary: peer.lock_primary }
    }
}

impl PeerBlock {
    /// Whether both make the same peer.
    pub fn is_equal_to(&self, other: &Self) -> bool {
        self.primary == other.primary && PeerState::of(self) == PeerState::of(other)
    }
}

/// A configuration without its order: single NIs by net, peers by primary NID.
#[derive(Default)]
struct State<'a> {
    nets: Vec<(Net, Vec<NiBlock>)>,
    /// Who may connect, of the nets of which that is said.
    accept: BTreeMap<Net, &'a Vec<String>>,
    /// By primary NID.
    peers: BTreeMap<Nid, PeerState>,
    settings: BTreeMap<&'a str, i64>,
    routes: BTreeMap<RouteDel, RouteAdd>,
    /// Whether it forwards; `None`: nothing is said.
    routing: Option<bool>,
    /// In their order.
    rules: Vec<&'a UdspRule>,
}

impl<'a> State<'a> {
    fn of(config: &'a Config) -> Self {
        let mut state = Self::default();
        for (_, block) in &config.blocks {
            match block {
                Block::Net(block) => {
                    state.net(block);
                    state.accept.extend(block.accept_from.iter().map(|list| (block.net, list)));
                }
                Block::Peer(peer) => {
                    state.peers.insert(peer.primary, PeerState::of(peer));
                }
                Block::Route(route) => {
                    let RouteAdd { net, gateway, .. } = *route;
                    state.routes.insert(RouteDel { net, gateway }, *route);
                }
                Block::Routing(on) => state.routing = Some(*on),
                Block::Settings(settings) | Block::Own(settings) | Block::Buffers(settings) => {
                    state.settings.extend(settings.iter().map(|s| (s.name.as_str(), s.value)));
                }
                Block::Udsp(UdspAdd { rule, index }) => {
                    let at = index.and_then(|i| usize::try_from(i).ok());
                    let at = at.unwrap_or(usize::MAX).min(state.rules.len());
                    state.rules.insert(at, rule);
                }
                Block::NetRules(_) | Block::Ping(_) | Block::Discover(_) => {}
            }
        }
        state
    }

    fn net(&mut self, block: &NetBlock) {
        let singles = block.nis.iter().flat_map(|ni| {
            let of = |interfaces| NiBlock { interfaces, ..ni.clone() };
            match ni.interfaces.as_slice() {
                [] => vec![of(Vec::new())],
                all => all.iter().map(|interface| of(vec![interface.clone()])).collect(),
            }
        });
        match self.nets.iter_mut().find(|(net, _)| *net == block.net) {
            Some((_, nis)) => nis.extend(singles),
            None => self.nets.push((block.net, singles.collect())),
        }
    }
}

fn diff_net(
    (net, has, wants): (Net, &[NiBlock], &[NiBlock]),
    unnamed: Unnamed,
    del: &mut Vec<Step>,
    add: &mut Vec<Step>,
) {
    // The first one has said it for all (C-netadd-6).
    let firsts = has.first().zip(wants.first());
    let tunables_differ = firsts.is_some_and(|(a, b)| unnamed.net_differs(net, a, b));
    if tunables_differ {
        del.push(Step::NetDel(whole_net(net)));
        add.extend(wants.iter().map(|ni| Step::NetAdd(net_add(net, ni))));
        return;
    }
    for have in has {
        match wants.iter().find(|want| unnamed.is_same(have, want)) {
            Some(want) if unnamed.ni_differs(net, have, want) => {
                del.push(Step::NetDel(net_del(net, have)));
                add.push(Step::NetAdd(net_add(net, want)));
            }
            // The one thing that can change while it works.
            Some(want) if unnamed.cpts_differ(have, want) => {
                let NetDel { net, interfaces, nid } = net_del(net, have);
                let cpts = cpts_of(want).cloned();
                add.push(Step::NetCpts(NetCpts { net, interfaces, nid, cpts }));
            }
            Some(_) => {}
            None => del.push(Step::NetDel(net_del(net, have))),
        }
    }
    for want in wants {
        if !has.iter().any(|have| unnamed.is_same(have, want)) {
            add.push(Step::NetAdd(net_add(net, want)));
        }
    }
}

/// The interface that the NI is named by.
fn interface(ni: &NiBlock) -> Option<&str> {
    ni.interfaces.first().map(|i| i.name.as_str())
}

fn cpts_of(ni: &NiBlock) -> Option<&Vec<u32>> {
    ni.interfaces.first().and_then(|interface| interface.cpts.as_ref()).or(ni.cpts.as_ref())
}

fn net_add(net: Net, ni: &NiBlock) -> NetAdd {
    NetAdd {
        net,
        interfaces: ni.interfaces.clone(),
        nid: ni.nid,
        cpts: ni.cpts.clone(),
        tunables: ni.tunables,
        lnd: ni.lnd,
    }
}

fn net_del(net: Net, ni: &NiBlock) -> NetDel {
    let interfaces: Vec<String> = ni.interfaces.iter().map(|i| i.name.clone()).collect();
    let nid = ni.nid.filter(|_| interfaces.is_empty());
    NetDel { net, interfaces, nid }
}

const fn whole_net(net: Net) -> NetDel {
    NetDel { net, interfaces: Vec::new(), nid: None }
}

fn peer_add(peer: &PeerBlock) -> PeerAdd {
    PeerAdd {
        primary: peer.primary,
        nids: peer.nids.clone(),
        multi_rail: peer.multi_rail,
        lock_primary: peer.lock_primary,
    }
}

const fn peer_del(primary: Nid) -> PeerDel {
    PeerDel { primary, nids: Vec::new(), force: false }
}

#[cfg(test)]
#[path = "plan/tests.rs"]
mod tests;

//! The condition of the fabric between any two rails: what networks are like, and what faults make
//! of them. Both fidelities ask here and nowhere else whether something passes.

use core::time::Duration;

use lnet_scenario::{Clocks, Direction, Links as Ends, NetSpec, Share, Transport, World};

use crate::directory::{Directory, RailIx};

/// What a rule does to what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing passes.
    Cut,
    /// Nothing passes, and who asks for a connection is refused.
    Refuse,
    /// Packets are lost.
    Loss(Share),
    /// Packets are damaged.
    Corrupt(Share),
    /// Packets are damaged and the transport does not notice.
    Unnoticed(Share),
    /// Packets come twice.
    Duplicate(Share),
    /// Packets are late by so much.
    Reorder(Share, Duration),
    /// Messages are lost; with a report to the sender, or without.
    Drop(Share, bool),
    /// Packets take longer, and up to so much more.
    Delay(Duration, Duration),
    /// So many bytes per second.
    Slow(u64),
}

/// What an interface passes in one direction.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Bytes per second; `None`: no limit.
    pub bandwidth: Option<u64>,
    /// Bytes that pass at once after a pause.
    pub burst: u32,
}

/// The way from one rail to another, as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// Nothing passes.
    pub blocked: bool,
    /// Connections are refused.
    pub refused: bool,
    /// Packets lost.
    pub loss: Share,
    /// Packets damaged.
    pub corrupt: Share,
    /// Packets damaged where the transport does not notice.
    pub unnoticed: Share,
    /// Packets doubled.
    pub duplicate: Share,
    /// Packets late, and by how much.
    pub reorder: (Share, Duration),
    /// Messages lost with a report to the sender.
    pub drop_reported: Share,
    /// Messages lost without a report.
    pub drop_silent: Share,
    /// Time on the way.
    pub latency: Duration,
    /// Up to so much more.
    pub jitter: Duration,
    /// What the interface at each end passes, the sender's first.
    pub paces: [Pace; 2],
    /// What lies under LNet.
    pub transport: Transport,
}

/// Names a rule, to take it away again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RuleId(u64);

#[derive(Debug)]
struct Rule {
    id: RuleId,
    on: RailSet,
    /// The other end; any rail if `None`.
    peer: Option<RailSet>,
    direction: Direction,
    effect: Effect,
}

/// Rails by number, one bit each.
#[derive(Clone, Debug, Default)]
pub(crate) struct RailSet(Vec<u64>);

impl RailSet {
    pub(crate) fn insert(&mut self, ix: RailIx) {
        let word = ix.0 as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (ix.0 % 64);
    }

    pub(crate) fn contains(&self, ix: RailIx) -> bool {
        self.0.get(ix.0 as usize / 64).is_some_and(|w| w & (1 << (ix.0 % 64)) != 0)
    }
}

impl FromIterator<RailIx> for RailSet {
    fn from_iter<I: IntoIterator<Item = RailIx>>(rails: I) -> Self {
        let mut set = Self::default();
        for ix in rails {
            set.insert(ix);
        }
        set
    }
}

/// The condition of all links.
#[derive(Debug)]
pub struct Links {
    /// Ways on each network when nothing is wrong.
    calm: Vec<Way>,
    /// Clocks of their drivers.
    clocks: Vec<Clocks>,
    rules: Vec<Rule>,
    next: u64,
    /// Reasons why a rail has no carrier, or its host can't be heard, by rail.
    no_carrier: Vec<u16>,
    any_no_carrier: u32,
    /// How many faults say that a network stands still, by network; and all of them.
    quiet: Vec<u32>,
    any_quiet: u32,
}

impl Links {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            calm: world.nets.iter().map(Way::calm).collect(),
            clocks: world.nets.iter().map(|net| net.clocks).collect(),
            rules: Vec::new(),
            next: 0,
            no_carrier: Vec::new(),
            any_no_carrier: 0,
            quiet: vec![0; world.nets.len()],
            any_quiet: 0,
        }
    }

    /// A rule begins.
    pub(crate) fn begin(
        &mut self,
        on: RailSet,
        peer: Option<RailSet>,
        direction: Direction,
        effect: Effect,
    ) -> RuleId {
        self.next += 1;
        let id = RuleId(self.next);
        self.rules.push(Rule { id, on, peer, direction, effect });
        id
    }

    /// A rule ends.
    pub(crate) fn end(&mut self, id: RuleId) {
        self.rules.retain(|r| r.id != id);
    }

    /// One more reason, or one less, why nothing passes at a rail.
    pub(crate) fn cut_carrier(&mut self, ix: RailIx, cut: bool) {
        let at = ix.0 as usize;
        if self.no_carrier.len() <= at {
            self.no_carrier.resize(at + 1, 0);
        }
        if cut {
            self.no_carrier[at] += 1;
            self.any_no_carrier += 1;
        } else if self.no_carrier[at] > 0 {
            self.no_carrier[at] -= 1;
            self.any_no_carrier -= 1;
        }
    }

    /// Networks stand still, or go on.
    pub(crate) fn quiesce(&mut self, nets: &[u16], quiet: bool) {
        for net in nets {
            let Some(count) = self.quiet.get_mut(usize::from(*net)) else { continue };
            if quiet {
                *count += 1;
                self.any_quiet += 1;
            } else if *count > 0 {
                *count -= 1;
                self.any_quiet -= 1;
            }
        }
    }

    /// Whether the network with this index stands still.
    pub fn is_quiet(&self, net: u16) -> bool {
        self.quiet.get(usize::from(net)).is_some_and(|count| *count > 0)
    }

    /// Clocks of the drivers of the network with this index.
    pub fn clocks(&self, net: u16) -> Clocks {
        self.clocks.get(usize::from(net)).copied().unwrap_or_default()
    }

    fn lacks_carrier(&self, ix: RailIx) -> bool {
        self.no_carrier.get(ix.0 as usize).is_some_and(|n| *n > 0)
    }

    /// The way from one rail to another.
    pub fn way(&self, from: RailIx, to: RailIx, directory: &Directory) -> Way {
        let net = directory.rail(from).net;
        let mut way = self.calm[usize::from(net)];
        way.blocked = (self.any_quiet > 0 && self.is_quiet(net))
            || !directory.is_present(to)
            || (self.any_no_carrier > 0 && (self.lacks_carrier(from) || self.lacks_carrier(to)));
        for rule in &self.rules {
            let on = rule.place(from, to);
            if on.contains(&true) {
                way.suffer(rule.effect, on);
            }
        }
        // Nor is it for ever that everything is lost: what repeats is to see the end of it.
        way.blocked |= way.loss.max(way.corrupt) == Share::ALL;
        way
    }

    /// What lies under LNet on the network with this index.
    pub fn transport(&self, net: usize) -> Transport {
        self.calm.get(net).map_or_else(Transport::default, |way| way.transport)
    }

    /// Whether anything at all may be wrong with the fabric now.
    pub fn is_disturbed(&self) -> bool {
        self.any_quiet > 0 || self.any_no_carrier > 0 || !self.rules.is_empty()
    }
}

impl Rule {
    /// Which ends of a way are where the rule is: neither, if it is not about that way. Of one between two
    /// places both are.
    fn place(&self, from: RailIx, to: RailIx) -> [bool; 2] {
        let ends = |on: RailIx, peer: RailIx| {
            self.on.contains(on) && self.peer.as_ref().is_none_or(|p| p.contains(peer))
        };
        let out = self.direction != Direction::In && ends(from, to);
        let inward = self.direction != Direction::Out && ends(to, from);
        if self.peer.is_some() { [out || inward; 2] } else { [out, inward] }
    }
}

impl Way {
    /// A way on this network, with nothing wrong.
    fn calm(net: &NetSpec) -> Self {
        Self {
            blocked: false,
            refused: false,
            loss: net.loss,
            corrupt: Share::NONE,
            unnoticed: Share::NONE,
            duplicate: Share::NONE,
            reorder: (Share::NONE, Duration::ZERO),
            drop_reported: Share::NONE,
            drop_silent: Share::NONE,
            latency: net.latency,
            jitter: net.jitter,
            paces: [Pace { bandwidth: net.bandwidth, burst: net.burst }; 2],
            transport: net.transport,
        }
    }

    /// An effect at these ends.
    fn suffer(&mut self, effect: Effect, on: [bool; 2]) {
        match effect {
            Effect::Cut => self.blocked = true,
            Effect::Refuse => self.refused = true,
            Effect::Loss(s) => self.loss = self.loss.max(s),
            Effect::Corrupt(s) => self.corrupt = self.corrupt.max(s),
            Effect::Unnoticed(s) => self.unnoticed = self.unnoticed.max(s),
            Effect::Duplicate(s) => self.duplicate = self.duplicate.max(s),
            Effect::Reorder(s, by) => self.reorder = self.reorder.max((s, by)),
            Effect::Drop(s, true) => self.drop_reported = self.drop_reported.max(s),
            Effect::Drop(s, false) => self.drop_silent = self.drop_silent.max(s),
            Effect::Delay(by, jitter) => {
                self.latency += by;
                self.jitter += jitter;
            }
            Effect::Slow(left) => {
                for (pace, _) in self.paces.iter_mut().zip(on).filter(|(_, on)| *on) {
                    pace.bandwidth = Some(pace.bandwidth.map_or(left, |b| b.min(left)));
                    // A slow link has nothing to give at once.
                    pace.burst = 0;
                }
            }
        }
    }
}

/// The rails of both ends of a fault.
pub(crate) fn ends(
    links: &Ends,
    rails: impl Fn(&lnet_scenario::Place) -> RailSet,
) -> (RailSet, Option<RailSet>, Direction) {
    (rails(&links.on), links.peer.as_ref().map(rails), links.direction)
}

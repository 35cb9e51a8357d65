//! The user-defined selection policy (UDSP, behaviour.md 8): one ordered list of rules, and what it
//! says of each network and interface, worked out when rules or objects change so that selection
//! reads fields only.
//!
//! What an object's fields hold is a function of the rules, the object's NID, the local NIDs and the
//! gateways, and nothing else: a deleted rule leaves no trace, and the rules that remain have their
//! full effect at once. (In the kernel they get it back with the next rule that is added, U-27, and
//! pair rules miss what comes after them, U-26.)
//!
//! `rule.rs` has rules and patterns, `turn.rs` the sharing by numbers of messages. The fields are read
//! in `send/select.rs`, and by gateway selection ([`Mapping::routers`]).

mod admin;
pub(crate) mod rule;
pub(crate) mod turn;

use core::num::NonZeroU32;

use lnet_types::{Net, Nid};

use rule::{Pattern, Rule, RuleKind};
use turn::{Grade, Turn};

/// The most rules that a policy holds.
pub const RULES_MAX: usize = 4096;

/// The rules, and what they are matched against.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Policy {
    rules: Vec<Rule>,
    /// Own NIDs in order of creation, loopback excluded.
    locals: Vec<Nid>,
    /// Primary NIDs of the gateways of routes.
    gateways: Vec<Nid>,
    /// As in the kernel: pair and router rules with a priority, and those whose src or rte is a
    /// network, have no effect (U-4, U-26).
    strict: bool,
    /// Whether any rule has a number of messages.
    counted: bool,
    /// Whether any pair rule has an effect.
    paired: bool,
}

/// What pair and router rules say of a peer's interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Mapping {
    /// Own NIDs that it is to be reached from.
    pub(crate) preferred: Vec<Preferred>,
    /// Pathways that no rule prefers now, with turns that are not forgotten while rules count.
    rested: Vec<Preferred>,
    /// Primary NIDs of routers that it is to be reached through (S-55.1).
    pub(crate) routers: Vec<Nid>,
}

/// One pathway of a pair rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Preferred {
    pub(crate) nid: Nid,
    pub(crate) messages: Option<NonZeroU32>,
    pub(crate) turn: Turn,
}

impl Mapping {
    pub(crate) fn path(&self, local: Nid) -> Option<&Preferred> {
        self.preferred.iter().find(|p| p.nid == local)
    }
}

impl Policy {
    pub(crate) fn new(strict: bool) -> Self {
        Self { strict, ..Self::default() }
    }

    /// Whether rules count messages: only then are turns taken.
    pub(crate) const fn counts(&self) -> bool {
        self.counted
    }

    /// Whether local interfaces may be excluded by pair rules.
    pub(crate) const fn pairs(&self) -> bool {
        self.paired
    }

    fn index_changed(&mut self) {
        self.counted = self.rules.iter().any(|r| r.messages().is_some());
        let paired = self.of(RuleKind::Pair).any(|r| self.has_effect(r));
        self.paired = paired;
    }

    fn of(&self, kind: RuleKind) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |r| r.kind() == kind)
    }

    /// The first rule that matches decides (U-20).
    fn grade<'a>(
        &'a self,
        kind: RuleKind,
        pattern: impl Fn(&'a Rule) -> Option<&'a Pattern>,
        matches: impl Fn(&Pattern) -> bool,
    ) -> Grade {
        self.of(kind)
            .find(|r| pattern(r).is_some_and(&matches))
            .map(|r| Grade { priority: r.priority().unwrap_or(0), messages: r.messages() })
            .unwrap_or_default()
    }

    pub(crate) fn net(&self, net: Net) -> Grade {
        self.grade(RuleKind::Local, Rule::src, |p| p.matches_net(net))
    }

    pub(crate) fn ni(&self, nid: Nid) -> Grade {
        self.grade(RuleKind::Local, Rule::src, |p| p.matches_nid(nid))
    }

    pub(crate) fn peer_net(&self, net: Net) -> Grade {
        self.grade(RuleKind::Remote, Rule::dst, |p| p.matches_net(net))
    }

    pub(crate) fn peer_ni(&self, nid: Nid) -> Grade {
        self.grade(RuleKind::Remote, Rule::dst, |p| p.matches_nid(nid))
    }

    fn has_effect(&self, rule: &Rule) -> bool {
        let by_net = [rule.src(), rule.rte()].into_iter().flatten().any(Pattern::is_net);
        !(self.strict && (rule.priority().is_some() || by_net))
    }

    /// Rules of `kind` about `nid` with an effect: by priority, those without one first, then by
    /// index (DEC-27).
    fn about(&self, kind: RuleKind, nid: Nid) -> Vec<&Rule> {
        let mut rules: Vec<_> = self
            .of(kind)
            .filter(|r| self.has_effect(r) && r.dst().is_some_and(|p| p.covers(nid)))
            .collect();
        rules.sort_by_key(|r| r.priority());
        rules
    }

    /// What pair and router rules say of the peer's interface `nid` (U-23, U-25). Turns of pathways
    /// that were there before go on.
    pub(crate) fn mapping(&self, nid: Nid, before: Option<&Mapping>) -> Option<Box<Mapping>> {
        let meant = |among: &[Nid], pattern: Option<&Pattern>| -> Vec<Nid> {
            let covered = |nid: &&Nid| pattern.is_some_and(|p| p.covers(**nid));
            among.iter().filter(covered).copied().collect()
        };
        let before: &[&[Preferred]] = match before {
            Some(m) if self.counted => &[&m.preferred, &m.rested],
            _ => &[],
        };
        let mut before: Vec<Preferred> = before.concat();
        let mut map = Mapping::default();
        let mut winner: Option<&Rule> = None;
        for rule in self.about(RuleKind::Pair, nid) {
            // The first rule that matches an interface of ours is the only one; but rules that count
            // messages share, if they are of one priority.
            let shares = |w: &Rule| {
                w.messages().is_some()
                    && rule.messages().is_some()
                    && w.priority() == rule.priority()
            };
            if winner.is_some_and(|w| !shares(w)) {
                continue;
            }
            for nid in meant(&self.locals, rule.src()) {
                winner = winner.or(Some(rule));
                if map.path(nid).is_none() {
                    let known = before.iter().position(|p| p.nid == nid);
                    let turn = known.map(|i| before.swap_remove(i).turn).unwrap_or_default();
                    map.preferred.push(Preferred { nid, messages: rule.messages(), turn });
                }
            }
        }
        before.retain(|p| p.turn != Turn::default());
        before.iter_mut().for_each(|p| p.messages = None);
        before.sort_by_key(|p| p.nid);
        map.rested = before;
        let routers = self.about(RuleKind::Router, nid).into_iter();
        map.routers = routers
            .map(|r| meant(&self.gateways, r.rte()))
            .find(|nids| !nids.is_empty())
            .unwrap_or_default();
        (map != Mapping::default()).then(|| Box::new(map))
    }
}

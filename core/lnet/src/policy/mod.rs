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

pub(crate) mod rule;
pub(crate) mod turn;

use core::num::NonZeroU32;

use lnet_types::{Instant, Net, Nid};

use crate::Node;
use crate::record::Input;
use rule::{Pattern, Rule, RuleError, RuleKind};
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

impl Node {
    /// The rules of the selection policy, in order.
    pub fn udsp_rules(&self) -> &[Rule] {
        &self.peers.policy.rules
    }

    /// Adds a rule at `index`, or at the end if that is `None` or beyond it (U-10), and applies the
    /// policy to everything. A rule about the same as one that is there changes the numbers of that
    /// one, at its place (U-11). Returns the index of the rule.
    ///
    /// # Errors
    /// It would change nothing, or the policy is full.
    pub fn udsp_add(
        &mut self,
        now: Instant,
        rule: Rule,
        index: Option<usize>,
    ) -> Result<usize, RuleError> {
        self.note(|| Input::UdspAdd { now, rule: Box::new(rule.clone()), index });
        let _ = self.clock(now);
        let rules = &mut self.peers.policy.rules;
        let at = match rules.iter().position(|r| r.about_the_same(&rule)) {
            Some(i) => {
                if !rules[i].update(&rule) {
                    return Err(RuleError::Exists(i));
                }
                i
            }
            None if rules.len() >= RULES_MAX => return Err(RuleError::NoSpace(RULES_MAX)),
            None => {
                let at = index.unwrap_or(usize::MAX).min(rules.len());
                if rule.kind() == RuleKind::Idle {
                    tracing::warn!(%rule, "a rule about rte alone has no effect");
                }
                rules.insert(at, rule);
                at
            }
        };
        self.apply_policy();
        Ok(at)
    }

    /// Removes the rule at `index`; those behind it move up (U-12). What remains is applied anew.
    ///
    /// # Errors
    /// There is none.
    pub fn udsp_del(&mut self, now: Instant, index: usize) -> Result<(), RuleError> {
        self.note(|| Input::UdspDel { now, index });
        let _ = self.clock(now);
        if index >= self.peers.policy.rules.len() {
            return Err(RuleError::NoRule(index));
        }
        self.peers.policy.rules.remove(index);
        self.apply_policy();
        Ok(())
    }

    /// Removes all rules.
    pub fn udsp_clear(&mut self, now: Instant) {
        self.note(|| Input::UdspClear { now });
        let _ = self.clock(now);
        self.peers.policy.rules.clear();
        self.apply_policy();
    }

    /// Own interfaces have come or gone (U-21).
    pub(crate) fn policy_nis_changed(&mut self) {
        let nis = self.nets.iter().flat_map(|n| &n.nis).filter_map(|id| self.nis.get(*id));
        self.peers.policy.locals = nis.filter(|ni| !ni.is_loopback()).map(|ni| ni.nid).collect();
        if !self.peers.policy.rules.is_empty() {
            self.apply_policy();
        }
    }

    /// The primary NIDs of all gateways, after routes or those NIDs have changed (U-25).
    pub(crate) fn policy_gateways_changed(&mut self, gateways: Vec<Nid>) {
        if self.peers.policy.gateways != gateways {
            self.peers.policy.gateways = gateways;
            if !self.peers.policy.rules.is_empty() {
                self.apply_policy();
            }
        }
    }

    /// Works out anew what the rules say of everything (U-20).
    fn apply_policy(&mut self) {
        self.peers.policy.index_changed();
        let policy = &self.peers.policy;
        let forget = !policy.counted;
        for net in &mut self.nets {
            net.grade = policy.net(net.net);
            if forget {
                (net.turn, net.floor) = (Turn::default(), 0);
            }
        }
        for ni in self.nis.values_mut() {
            ni.port.grade = policy.ni(ni.nid);
            if forget {
                ni.port.turn = Turn::default();
            }
        }
        if forget {
            self.net_floor = 0;
        }
        self.peers.apply_policy();
    }

    /// The message that goes from `own` to `to` takes the turn of every rule that led it there.
    pub(crate) fn take_turns(&mut self, own: Nid, to: Nid) {
        let seq = self.seq;
        if let Some(net) = self.nets.iter_mut().find(|n| n.net == own.net()) {
            net.turn.take(net.grade.messages, &mut self.net_floor, seq);
            let ni = net.nis.iter().find(|id| self.nis.get(**id).is_some_and(|ni| ni.nid == own));
            if let Some(ni) = ni.and_then(|id| self.nis.get_mut(*id)) {
                ni.port.turn.take(ni.port.grade.messages, &mut net.floor, seq);
            }
        }
        self.peers.take_turns(own, to, seq);
    }
}

//! Faults on purpose: messages lost, failed and held back by rule, peers that do not answer, and
//! interfaces that play dead (behaviour.md 10; HL-dbg-005 … 035).
//!
//! ```text
//!   arriving   rx_header ─► failing peer, drop rules ─► … ─► delay rules ─► dispatch
//!   leaving    credits ─► delay rules ─► drop rules with errors ─► driver
//! ```
//!
//! A message that is held keeps its credits; [`crate::Node::poll_timeout`] says when it goes on. An arriving
//! one is deferred, so that its connection waits too. `rule.rs` has the rules, `window.rs` the
//! question when one acts, `admin.rs` their upkeep; `hold.rs` and `release.rs` have what they do to messages.

mod admin;
mod hold;
mod release;
pub(crate) mod rule;
mod window;

use core::num::NonZeroU32;
use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Instant, MsgId, Nid, Prng};
use lnet_wire::{Hdr, MsgType};

use crate::{KindCounts, Rx};
use rule::{DelayRule, DropRule, NidMatch, Traffic, When};
use window::Window;

/// The most drop rules, and the most delay rules, of a node.
pub const FAULT_RULES_MAX: usize = 4096;

/// What a rule has done (F-12, F-23).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FaultStats {
    /// Messages that matched; counted by rules with a rate or an interval only.
    pub matched: u32,
    /// Messages dropped or delayed.
    pub acted: u32,
    /// The same by kind.
    pub kinds: KindCounts,
}

/// One rule in force.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Active<R> {
    rule: R,
    id: u64,
    window: Window,
    stats: FaultStats,
}

impl<R> Active<R> {
    /// A message matches: whether the rule acts on it now.
    fn acts(
        &mut self,
        now: Instant,
        when: Option<When>,
        times: Option<NonZeroU32>,
        kind: MsgType,
        rng: &mut Prng,
    ) -> bool {
        if times.is_some_and(|n| self.stats.acted >= n.get()) {
            return false;
        }
        let hit = match when {
            // All.
            None => true,
            Some(When::Random(_)) => self.window.hits(now, rng),
            Some(When::Rate(_) | When::Interval(_)) => {
                self.stats.matched = self.stats.matched.wrapping_add(1);
                self.window.hits(now, rng)
            }
        };
        if hit {
            self.stats.acted = self.stats.acted.wrapping_add(1);
            self.stats.kinds.bump(kind);
        }
        hit
    }
}

/// A message that is held back.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) enum Held {
    /// Ready for its driver.
    Leaving(MsgId),
    /// Arrived, and accepted but for this.
    Arriving(Rx, Hdr),
}

/// All rules of a node, and what they hold.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Faults {
    rng: Prng,
    ids: u64,
    /// Newest first.
    drops: VecDeque<Active<DropRule>>,
    /// Newest first.
    delays: VecDeque<Active<DelayRule>>,
    /// By number, each with the rule that holds it. Its timer says when it goes on.
    held: BTreeMap<u64, (u64, Held)>,
    failing: Vec<(NidMatch, Option<u32>)>,
}

impl Faults {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            // Another stream than those that are made from the seed elsewhere.
            rng: Prng::new(seed ^ 0x6661_756c_7473),
            ids: 0,
            drops: VecDeque::new(),
            delays: VecDeque::new(),
            held: BTreeMap::new(),
            failing: Vec::new(),
        }
    }

    fn new_id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(crate) fn has_drops(&self) -> bool {
        !self.drops.is_empty()
    }

    pub(crate) fn has_delays(&self) -> bool {
        !self.delays.is_empty()
    }

    /// The first drop rule that acts on a message. `own` as in [`Traffic::matches`].
    fn drop(
        &mut self,
        now: Instant,
        hdr: &Hdr,
        own: Option<Nid>,
        leaves: bool,
    ) -> Option<&DropRule> {
        let kind = hdr.kind.msg_type();
        // F-6
        let here = |r: &DropRule| r.all || r.errors.is_empty() != leaves;
        let rng = &mut self.rng;
        self.drops
            .iter_mut()
            .filter(|a| here(&a.rule) && a.rule.traffic.matches(hdr, own))
            .find_map(|a| {
                let when = (!a.rule.all).then_some(a.rule.when);
                a.acts(now, when, a.rule.times, kind, rng).then_some(&a.rule)
            })
    }

    /// The first delay rule that acts on a message, and until when it holds it.
    pub(crate) fn delay(
        &mut self,
        now: Instant,
        hdr: &Hdr,
        own: Option<Nid>,
    ) -> Option<(u64, Instant)> {
        let kind = hdr.kind.msg_type();
        let rng = &mut self.rng;
        self.delays.iter_mut().filter(|a| a.rule.traffic.matches(hdr, own)).find_map(|a| {
            let DelayRule { when, latency, times, .. } = a.rule;
            a.acts(now, Some(when), times, kind, rng).then_some((a.id, now + latency))
        })
    }

    /// What is held under a number.
    pub(crate) fn held(&self, token: u64) -> Option<&Held> {
        self.held.get(&token).map(|(_, held)| held)
    }

    /// All that is held, by number.
    pub(crate) fn all_held(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.held.iter().map(|(token, (_, held))| (*token, held))
    }

    /// F-40: whether an operation with `nid` fails; takes one off the count.
    pub(crate) fn fails(&mut self, nid: Nid) -> bool {
        let Some(i) = self.failing.iter().position(|(who, _)| who.matches(nid)) else {
            return false;
        };
        match &mut self.failing[i].1 {
            None => {}
            Some(1) => {
                self.failing.remove(i);
            }
            Some(n) => *n -= 1,
        }
        true
    }
}

fn is_selected(traffic: &Traffic, src: NidMatch, dst: NidMatch) -> bool {
    src.selects(traffic.src) && dst.selects(traffic.dst)
}

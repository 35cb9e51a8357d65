//! Fault rules: their upkeep by the administrator. What they do to messages is in `fault/`.

use core::num::NonZeroU32;

use lnet_types::Instant;

use crate::Node;
use crate::fault::FaultStats;
use crate::fault::rule::{DelayRule, DropRule, FaultRuleError, NidMatch};
use crate::record::Input;

impl Node {
    /// Adds a drop rule before the others (F-1 … F-14).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub fn add_drop_rule(&mut self, now: Instant, rule: DropRule) -> Result<(), FaultRuleError> {
        self.note(|| Input::AddDropRule { now, rule: Box::new(rule) });
        let now = self.clock(now);
        self.faults.add_drop(now, rule)
    }

    /// Removes the drop rules about exactly `src` and `dst`, where `Any` stands for every rule
    /// (F-13). Returns how many there were.
    pub fn del_drop_rules(&mut self, now: Instant, src: NidMatch, dst: NidMatch) -> usize {
        self.note(|| Input::DelDropRules { now, src, dst });
        let _ = self.clock(now);
        self.faults.del_drops(src, dst)
    }

    /// Zeroes the counters of the drop rules and begins their windows anew (F-13).
    pub fn reset_drop_rules(&mut self, now: Instant) {
        self.note(|| Input::ResetDropRules { now });
        let now = self.clock(now);
        self.faults.reset_drops(now);
    }

    /// The drop rules in the order in which they are tried, newest first, and what each has done.
    pub fn drop_rules(&self) -> impl ExactSizeIterator<Item = (&DropRule, FaultStats)> {
        self.faults.drops()
    }

    /// Adds a delay rule before the others (F-20 … F-24).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub fn add_delay_rule(&mut self, now: Instant, rule: DelayRule) -> Result<(), FaultRuleError> {
        self.note(|| Input::AddDelayRule { now, rule: Box::new(rule) });
        let now = self.clock(now);
        self.faults.add_delay(now, rule)
    }

    /// Removes the delay rules about exactly `src` and `dst`, where `Any` stands for every rule, and
    /// lets go at once what they hold (F-24). Returns how many there were.
    pub fn del_delay_rules(&mut self, now: Instant, src: NidMatch, dst: NidMatch) -> usize {
        self.note(|| Input::DelDelayRules { now, src, dst });
        let now = self.clock(now);
        let (removed, free) = self.faults.del_delays(&self.timers, src, dst);
        for token in free {
            self.release(now, token);
        }
        self.settle(now);
        removed
    }

    /// Zeroes the counters of the delay rules and begins their windows anew.
    pub fn reset_delay_rules(&mut self, now: Instant) {
        self.note(|| Input::ResetDelayRules { now });
        let now = self.clock(now);
        self.faults.reset_delays(now);
    }

    /// The delay rules in the order in which they are tried, newest first, and what each has done.
    pub fn delay_rules(&self) -> impl ExactSizeIterator<Item = (&DelayRule, FaultStats)> {
        self.faults.delays()
    }

    /// Makes the next `times` operations with `who` fail, or all if that is `None`: PUTs and GETs to it
    /// are refused, messages that it originates are dropped (F-40).
    ///
    /// # Errors
    /// There are too many such orders.
    pub fn fail_peer(
        &mut self,
        now: Instant,
        who: NidMatch,
        times: Option<NonZeroU32>,
    ) -> Result<(), FaultRuleError> {
        self.note(|| Input::FailPeer { now, who, times });
        let _ = self.clock(now);
        self.faults.fail(who, times)
    }

    /// Takes back what [`Node::fail_peer`] ordered for `who`; all of it for `Any`.
    pub fn mend_peer(&mut self, now: Instant, who: NidMatch) {
        self.note(|| Input::MendPeer { now, who });
        let _ = self.clock(now);
        self.faults.mend(who);
    }
}

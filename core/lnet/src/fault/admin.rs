//! Upkeep of fault rules: adding, removing and resetting them.

use core::num::NonZeroU32;

use lnet_types::Instant;

use super::rule::{DelayRule, DropRule, FaultRuleError, NidMatch, When};
use super::window::Window;
use super::{Active, FAULT_RULES_MAX, FaultStats, Faults, is_selected};
use crate::timers::{Timer, Timers};

impl Faults {
    /// Adds a drop rule before the others (F-1 … F-14).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub(crate) fn add_drop(&mut self, now: Instant, rule: DropRule) -> Result<(), FaultRuleError> {
        let rule = DropRule { traffic: rule.traffic.checked()?, ..rule };
        if self.drops.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        let window = Window::new(rule.when, true, now, &mut self.rng);
        let (id, stats) = (self.new_id(), FaultStats::default());
        self.drops.push_front(Active { rule, id, window, stats });
        Ok(())
    }

    /// Removes the drop rules about exactly `src` and `dst` (F-13). Returns how many there were.
    pub(crate) fn del_drops(&mut self, src: NidMatch, dst: NidMatch) -> usize {
        let before = self.drops.len();
        self.drops.retain(|a| !is_selected(&a.rule.traffic, src, dst));
        before - self.drops.len()
    }

    /// Zeroes the counters of the drop rules and begins their windows anew (F-13).
    pub(crate) fn reset_drops(&mut self, now: Instant) {
        for a in &mut self.drops {
            a.stats = FaultStats::default();
            a.window = Window::new(a.rule.when, true, now, &mut self.rng);
        }
    }

    /// The drop rules, newest first, and what each has done.
    pub(crate) fn drops(&self) -> impl ExactSizeIterator<Item = (&DropRule, FaultStats)> {
        self.drops.iter().map(|a| (&a.rule, a.stats))
    }

    /// Adds a delay rule before the others (F-20 … F-24).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub(crate) fn add_delay(
        &mut self,
        now: Instant,
        rule: DelayRule,
    ) -> Result<(), FaultRuleError> {
        let rule = DelayRule { traffic: rule.traffic.checked()?, ..rule };
        if rule.latency.is_zero() {
            return Err(FaultRuleError::NoLatency);
        }
        if matches!(rule.when, When::Random(_)) {
            return Err(FaultRuleError::RandomDelay);
        }
        if self.delays.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        let window = Window::new(rule.when, false, now, &mut self.rng);
        let (id, stats) = (self.new_id(), FaultStats::default());
        self.delays.push_front(Active { rule, id, window, stats });
        Ok(())
    }

    /// Removes the delay rules about exactly `src` and `dst` (F-24). Returns how many there were, and the
    /// numbers under which messages are held for no rule any more, in the order in which they are due.
    pub(crate) fn del_delays(
        &mut self,
        timers: &Timers,
        src: NidMatch,
        dst: NidMatch,
    ) -> (usize, Vec<u64>) {
        let before = self.delays.len();
        self.delays.retain(|a| !is_selected(&a.rule.traffic, src, dst));
        let removed = before - self.delays.len();
        let in_force = |rule: u64| self.delays.iter().any(|a| a.id == rule);
        let free =
            self.held.iter().filter(|(_, (rule, _))| !in_force(*rule)).map(|(token, _)| *token);
        let mut free: Vec<_> = free.map(|t| (timers.at(Timer::Delay(t)), t)).collect();
        free.sort_unstable();
        (removed, free.into_iter().map(|(_, token)| token).collect())
    }

    /// Zeroes the counters of the delay rules and begins their windows anew.
    pub(crate) fn reset_delays(&mut self, now: Instant) {
        for a in &mut self.delays {
            a.stats = FaultStats::default();
            a.window = Window::new(a.rule.when, false, now, &mut self.rng);
        }
    }

    /// The delay rules, newest first, and what each has done.
    pub(crate) fn delays(&self) -> impl ExactSizeIterator<Item = (&DelayRule, FaultStats)> {
        self.delays.iter().map(|a| (&a.rule, a.stats))
    }

    /// Makes the next `times` operations with `who` fail, or all if that is `None` (F-40).
    ///
    /// # Errors
    /// There are too many such orders.
    pub(crate) fn fail(
        &mut self,
        who: NidMatch,
        times: Option<NonZeroU32>,
    ) -> Result<(), FaultRuleError> {
        if self.failing.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        self.failing.push((who, times.map(NonZeroU32::get)));
        Ok(())
    }

    /// Takes back what was ordered for `who`; all of it for `Any`.
    pub(crate) fn mend(&mut self, who: NidMatch) {
        self.failing.retain(|(other, _)| !who.selects(*other));
    }
}

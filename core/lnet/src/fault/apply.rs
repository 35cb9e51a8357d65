//! Fault rules at work: what the node does with them on the way of a message, and their upkeep by the
//! administrator. The rules and what they hold are in `mod.rs`.

use core::num::NonZeroU32;

use lnet_types::{Errno, Fault, Instant, MsgId, NiId, Nid, RxId};
use lnet_wire::Hdr;

use super::rule::{DelayRule, DropRule, FaultRuleError, NidMatch, When};
use super::window::Window;
use super::{Active, FAULT_RULES_MAX, FaultStats, Held};
use crate::check::live;
use crate::fault::is_selected;
use crate::msg::Stage;
use crate::output::Output;
use crate::record::Input;
use crate::timers::Timer;
use crate::{DropReason, Link, Node, Rx, Verdict};

impl Node {
    /// Adds a drop rule before the others (F-1 … F-14).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub fn add_drop_rule(&mut self, now: Instant, rule: DropRule) -> Result<(), FaultRuleError> {
        self.note(|| Input::AddDropRule { now, rule: Box::new(rule) });
        let now = self.clock(now);
        let rule = DropRule { traffic: rule.traffic.checked()?, ..rule };
        let f = &mut self.faults;
        if f.drops.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        let window = Window::new(rule.when, true, now, &mut f.rng);
        let (id, stats) = (f.new_id(), FaultStats::default());
        f.drops.push_front(Active { rule, id, window, stats });
        Ok(())
    }

    /// Removes the drop rules about exactly `src` and `dst`, where `Any` stands for every rule
    /// (F-13). Returns how many there were.
    pub fn del_drop_rules(&mut self, now: Instant, src: NidMatch, dst: NidMatch) -> usize {
        self.note(|| Input::DelDropRules { now, src, dst });
        let _ = self.clock(now);
        let before = self.faults.drops.len();
        self.faults.drops.retain(|a| !is_selected(&a.rule.traffic, src, dst));
        before - self.faults.drops.len()
    }

    /// Zeroes the counters of the drop rules and begins their windows anew (F-13).
    pub fn reset_drop_rules(&mut self, now: Instant) {
        self.note(|| Input::ResetDropRules { now });
        let now = self.clock(now);
        let f = &mut self.faults;
        for a in &mut f.drops {
            a.stats = FaultStats::default();
            a.window = Window::new(a.rule.when, true, now, &mut f.rng);
        }
    }

    /// The drop rules in the order in which they are tried, newest first, and what each has done.
    pub fn drop_rules(&self) -> impl ExactSizeIterator<Item = (&DropRule, FaultStats)> {
        self.faults.drops.iter().map(|a| (&a.rule, a.stats))
    }

    /// Adds a delay rule before the others (F-20 … F-24).
    ///
    /// # Errors
    /// It means nothing, or there are too many.
    pub fn add_delay_rule(&mut self, now: Instant, rule: DelayRule) -> Result<(), FaultRuleError> {
        self.note(|| Input::AddDelayRule { now, rule: Box::new(rule) });
        let now = self.clock(now);
        let rule = DelayRule { traffic: rule.traffic.checked()?, ..rule };
        if rule.latency.is_zero() {
            return Err(FaultRuleError::NoLatency);
        }
        if matches!(rule.when, When::Random(_)) {
            return Err(FaultRuleError::RandomDelay);
        }
        let f = &mut self.faults;
        if f.delays.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        let window = Window::new(rule.when, false, now, &mut f.rng);
        let (id, stats) = (f.new_id(), FaultStats::default());
        f.delays.push_front(Active { rule, id, window, stats });
        Ok(())
    }

    /// Removes the delay rules about exactly `src` and `dst`, where `Any` stands for every rule, and
    /// lets go at once what they hold (F-24). Returns how many there were.
    pub fn del_delay_rules(&mut self, now: Instant, src: NidMatch, dst: NidMatch) -> usize {
        self.note(|| Input::DelDelayRules { now, src, dst });
        let now = self.clock(now);
        let f = &mut self.faults;
        let before = f.delays.len();
        f.delays.retain(|a| !is_selected(&a.rule.traffic, src, dst));
        let removed = before - f.delays.len();
        let in_force = |rule: u64| f.delays.iter().any(|a| a.id == rule);
        let free = f.held.iter().filter(|(_, (rule, _))| !in_force(*rule)).map(|(token, _)| *token);
        let mut free: Vec<_> = free.map(|t| (self.timers.at(Timer::Delay(t)), t)).collect();
        free.sort_unstable();
        for (_, token) in free {
            self.release(now, token);
        }
        self.settle(now);
        removed
    }

    /// Zeroes the counters of the delay rules and begins their windows anew.
    pub fn reset_delay_rules(&mut self, now: Instant) {
        self.note(|| Input::ResetDelayRules { now });
        let now = self.clock(now);
        let f = &mut self.faults;
        for a in &mut f.delays {
            a.stats = FaultStats::default();
            a.window = Window::new(a.rule.when, false, now, &mut f.rng);
        }
    }

    /// The delay rules in the order in which they are tried, newest first, and what each has done.
    pub fn delay_rules(&self) -> impl ExactSizeIterator<Item = (&DelayRule, FaultStats)> {
        self.faults.delays.iter().map(|a| (&a.rule, a.stats))
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
        if self.faults.failing.len() >= FAULT_RULES_MAX {
            return Err(FaultRuleError::NoSpace(FAULT_RULES_MAX));
        }
        self.faults.failing.push((who, times.map(NonZeroU32::get)));
        Ok(())
    }

    /// Takes back what [`Node::fail_peer`] ordered for `who`; all of it for `Any`.
    pub fn mend_peer(&mut self, now: Instant, who: NidMatch) {
        self.note(|| Input::MendPeer { now, who });
        let _ = self.clock(now);
        self.faults.failing.retain(|(other, _)| !who.selects(*other));
    }

    /// Makes an interface play dead, or lets it be what its driver says (HL-dbg-020, HL-dbg-025).
    ///
    /// # Errors
    /// `ENOENT`: no such interface. `EINVAL`: loopback.
    pub fn simulate_link(&mut self, now: Instant, nid: Nid, link: Link) -> Result<(), Errno> {
        self.note(|| Input::SimulateLink { now, nid, link });
        let now = self.clock(now);
        let id = self.nis.iter().find(|(_, ni)| ni.nid == nid).map(|(id, _)| id);
        let id = id.ok_or(Errno::ENOENT)?;
        let ni = self.nis.get_mut(id).ok_or(Errno::ENOENT)?;
        if ni.is_loopback() {
            return Err(Errno::EINVAL);
        }
        ni.plays_dead = link == Link::Down;
        self.link_judged(now, id);
        Ok(())
    }

    /// Whether an arriving message is lost on purpose (S-81.4, S-81.5).
    pub(crate) fn loses(&mut self, now: Instant, own: Nid, hdr: &Hdr) -> bool {
        let f = &mut self.faults;
        (!f.failing.is_empty() && f.fails(hdr.src))
            || (!f.drops.is_empty() && f.drop(now, hdr, Some(own), false).is_some())
    }

    /// The fault with which a message that is about to leave fails (F-11, F-14). Loopback has no
    /// driver in which it could.
    pub(crate) fn fails_leaving(&mut self, now: Instant, id: MsgId) -> Option<Fault> {
        let msg = self.msgs.get(id)?;
        msg.tx?.peer_ni?;
        let (hdr, own) = (msg.hdr, self.own_leaving(id));
        let errors = self.faults.drop(now, &hdr, own, true)?.errors;
        let drawn = self.faults.rng.below(11) as u32;
        Some(Fault::new(errors.pick(drawn), Errno::EIO))
    }

    /// The interface that a message leaves by, where rules ask for it. The kernel's do not (F-3).
    fn own_leaving(&self, id: MsgId) -> Option<Nid> {
        let tx = self.msgs.get(id)?.tx?;
        self.nis
            .get(tx.ni)
            .map(|ni| ni.nid)
            .filter(|_| self.tunables.conduct.matches_faults_by_interface)
    }

    /// Whether a message that has its credits is held back (C-5.5).
    pub(crate) fn holds_leaving(&mut self, now: Instant, id: MsgId) -> bool {
        let Some(hdr) = self.msgs.get(id).map(|m| m.hdr) else { return false };
        let own = self.own_leaving(id);
        let Some((rule, until)) = self.faults.delay(now, &hdr, own) else { return false };
        let token = self.hold(rule, until, Held::Leaving(id));
        if let Some(msg) = self.msgs.get_mut(id) {
            msg.stage = Stage::Held(token);
        }
        self.wait_until_deadline(id);
        true
    }

    /// Whether an arriving message is held back (S-81.12). If so it has been noted.
    pub(crate) fn holds_arriving(&mut self, now: Instant, own: Nid, rx: Rx, hdr: &Hdr) -> bool {
        if self.faults.held.len() >= self.tunables.messages_max as usize {
            return false;
        }
        let own = Some(own).filter(|_| self.tunables.conduct.matches_faults_by_interface);
        let Some((rule, until)) = self.faults.delay(now, hdr, own) else { return false };
        self.hold(rule, until, Held::Arriving(rx, *hdr));
        true
    }

    fn hold(&mut self, rule: u64, until: Instant, held: Held) -> u64 {
        let token = self.faults.new_id();
        self.faults.held.insert(token, (rule, held));
        self.timers.set(Timer::Delay(token), until);
        token
    }

    /// No message is held under this number any more.
    pub(crate) fn forget_delay(&mut self, token: u64) -> Option<(u64, Held)> {
        self.timers.stop(Timer::Delay(token));
        self.faults.held.remove(&token)
    }

    /// One held message goes on; no rule is asked again (F-22). The caller settles.
    pub(crate) fn release(&mut self, now: Instant, token: u64) {
        match self.forget_delay(token) {
            Some((_, Held::Leaving(id))) => {
                if let Some(msg) = live!(mut self.msgs, id) {
                    msg.stage = Stage::Moving;
                    self.timers.stop(Timer::Waiting(id));
                    self.transmit(now, id);
                }
            }
            Some((_, Held::Arriving(rx, hdr))) => {
                let verdict = self.go_on(now, rx, &hdr);
                // Deferred once more, for want of a buffer, it will be resumed from there.
                if !matches!(verdict, Verdict::Defer) {
                    self.outputs.push_back(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
                }
            }
            None => {}
        }
    }

    /// The connection of a deferred message is gone.
    pub(crate) fn forget_held(&mut self, ni: NiId, rx: RxId) {
        self.take_held(|held| matches!(held, Held::Arriving(h, _) if h.ni == ni && h.id == rx));
    }

    fn take_held(&mut self, gone: impl Fn(&Held) -> bool) -> Vec<Held> {
        let held = self.faults.held.iter();
        let tokens: Vec<u64> =
            held.filter(|(_, (_, h))| gone(h)).map(|(token, _)| *token).collect();
        tokens.into_iter().filter_map(|token| Some(self.forget_delay(token)?.1)).collect()
    }

    /// Drops the arriving messages that are held: all, or what came in through one interface (F-24).
    pub(crate) fn drop_held(&mut self, through: Option<NiId>) {
        let is_meant = |held: &Held| matches!(held, Held::Arriving(rx, _) if through.is_none_or(|ni| ni == rx.ni));
        for held in self.take_held(is_meant) {
            let Held::Arriving(rx, hdr) = held else { continue };
            self.count_drop(rx.ni, &hdr, DropReason::Stopping);
            let verdict = Verdict::Drop(DropReason::Stopping);
            self.outputs.push_back(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
        }
    }
}

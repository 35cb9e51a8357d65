//! Fault rules at work on the way of a message: whether it is lost, fails or is held back. What is held goes
//! on in `release.rs`.

use lnet_types::{Errno, Fault, Instant, NiId, Nid, RxId};
use lnet_wire::Hdr;

use super::{Faults, Held};
use crate::timers::{Timer, Timers};

impl Faults {
    /// Whether an arriving message is lost on purpose (S-81.4, S-81.5).
    pub(crate) fn loses(&mut self, now: Instant, own: Nid, hdr: &Hdr) -> bool {
        (!self.failing.is_empty() && self.fails(hdr.src))
            || (!self.drops.is_empty() && self.drop(now, hdr, Some(own), false).is_some())
    }

    /// The fault with which a message that is about to leave fails (F-11, F-14). `own` as in
    /// [`super::Traffic::matches`].
    pub(crate) fn fails_leaving(
        &mut self,
        now: Instant,
        hdr: &Hdr,
        own: Option<Nid>,
    ) -> Option<Fault> {
        let errors = self.drop(now, hdr, own, true)?.errors;
        let drawn = self.rng.below(11) as u32;
        Some(Fault::new(errors.pick(drawn), Errno::EIO))
    }

    /// How many messages are held back.
    pub(crate) fn holds(&self) -> usize {
        self.held.len()
    }

    /// Holds a message back for a rule, and returns the number under which it is held. Its timer says when
    /// it goes on.
    pub(crate) fn hold(
        &mut self,
        timers: &mut Timers,
        (rule, until): (u64, Instant),
        held: Held,
    ) -> u64 {
        let token = self.new_id();
        self.held.insert(token, (rule, held));
        timers.set(Timer::Delay(token), until);
        token
    }

    /// No message is held under this number any more.
    pub(crate) fn forget(&mut self, timers: &mut Timers, token: u64) -> Option<Held> {
        timers.stop(Timer::Delay(token));
        self.held.remove(&token).map(|(_, held)| held)
    }

    /// The connection of a deferred message is gone.
    pub(crate) fn forget_arriving(&mut self, timers: &mut Timers, ni: NiId, rx: RxId) {
        let is_it = |held: &Held| matches!(held, Held::Arriving(h, _) if h.ni == ni && h.id == rx);
        self.take_held(timers, is_it);
    }

    /// Takes out what is held and `gone`.
    pub(super) fn take_held(
        &mut self,
        timers: &mut Timers,
        gone: impl Fn(&Held) -> bool,
    ) -> Vec<Held> {
        let held = self.held.iter();
        let tokens: Vec<u64> =
            held.filter(|(_, (_, h))| gone(h)).map(|(token, _)| *token).collect();
        tokens.into_iter().filter_map(|token| self.forget(timers, token)).collect()
    }
}

//! Messages that fault rules have held: they go on when their time has come, or are dropped.

use lnet_types::{Instant, NiId};

use super::Held;
use crate::check::live;
use crate::msg::Stage;
use crate::output::Output;
use crate::timers::Timer;
use crate::{DropReason, Node, Verdict};

impl Node {
    /// One held message goes on; no rule is asked again (F-22). The caller settles.
    pub(crate) fn release(&mut self, now: Instant, token: u64) {
        match self.faults.forget(&mut self.timers, token) {
            Some(Held::Leaving(id)) => {
                if let Some(msg) = live!(mut self.msgs, id) {
                    msg.stage = Stage::Moving;
                    self.timers.stop(Timer::Waiting(id));
                    self.transmit(now, id);
                }
            }
            Some(Held::Arriving(rx, hdr)) => {
                let verdict = self.go_on(now, rx, &hdr);
                // Deferred once more, for want of a buffer, it will be resumed from there.
                if !matches!(verdict, Verdict::Defer) {
                    self.outbox.order(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
                }
            }
            None => {}
        }
    }

    /// Drops the arriving messages that are held: all, or what came in through one interface (F-24).
    pub(crate) fn drop_held(&mut self, through: Option<NiId>) {
        let is_meant = |held: &Held| matches!(held, Held::Arriving(rx, _) if through.is_none_or(|ni| ni == rx.ni));
        for held in self.faults.take_held(&mut self.timers, is_meant) {
            let Held::Arriving(rx, hdr) = held else { continue };
            self.count_drop(rx.ni, &hdr, DropReason::Stopping);
            let verdict = Verdict::Drop(DropReason::Stopping);
            self.outbox.order(Output::Resume { ni: rx.ni, rx: rx.id, verdict });
        }
    }
}

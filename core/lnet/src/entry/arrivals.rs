//! Messages that drivers have received: their headers, and the end of their payload. What becomes of them
//! is in `recv.rs`.

use lnet_types::{Fault, Instant, MsgId, NiId, RxId};
use lnet_wire::{Hdr, Kind};

use crate::msg::{Role, Stage};
use crate::output::Verdict;
use crate::record::Input;
use crate::{Node, Rx};

impl Node {
    /// A message's header has arrived. The answer says where its payload goes (S-81).
    pub fn rx_header(&mut self, now: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        let called = now;
        let now = self.clock(now);
        let verdict = self.classify(now, rx, hdr);
        if let Verdict::Drop(reason) = &verdict {
            self.count_drop(rx.ni, hdr, *reason);
        }
        self.settle(now);
        self.note_usual(|live| {
            // A replay looks the sender up.
            live.rx_header(called, &Rx { peer_ni: None, ..rx }, hdr, &verdict);
        });
        verdict
    }

    /// A message's payload is where the verdict said, or never will be. `outcome` holds the bytes
    /// of a [`Sink::Bytes`](crate::Sink::Bytes), else nothing.
    pub fn rx_done(&mut self, now: Instant, msg: MsgId, outcome: Result<&[u8], Fault>) {
        self.note_usual(|live| live.rx_done(now, msg, outcome));
        let now = self.clock(now);
        let Some(m) = self.msgs.get_mut(msg).filter(|m| m.stage == Stage::Receiving) else {
            return;
        };
        m.stage = Stage::Moving;
        if outcome.is_ok() {
            self.copy_arrived(msg);
        }
        let Some(m) = self.msgs.get(msg) else { return };
        match (m.role, outcome) {
            // Its end is the end of the REPLY (S-87).
            (Role::GetIn, Ok(_)) => self.reply(now, msg),
            (Role::Forward, Ok(_)) => self.forward(now, msg),
            (_, Ok(bytes)) => {
                self.judge(now, msg, Ok(()));
                self.complete(now, msg, Ok(()), bytes);
            }
            (_, Err(fault)) => {
                let kind = m.hdr.kind;
                if !self.withdraw(msg) {
                    self.finish(now, msg, Err(fault));
                } else if let Kind::Put { portal, .. } | Kind::Get { portal, .. } = kind {
                    // The buffer that it leaves may be what others wait for (M-13).
                    self.match_delayed(now, portal);
                }
            }
        }
        self.settle(now);
    }

    /// A GET is here whose REPLY its driver carries in the exchange that brought the request, instead of
    /// [`Self::rx_done`]. Such a REPLY leaves at once and holds no credits: its requester holds those of
    /// the GET until the data are there, so that two nodes which ask each other with all their credits
    /// would wait for each other. A GET that passes through goes on as others do.
    pub fn rx_asked(&mut self, now: Instant, msg: MsgId) {
        if self.msgs.get(msg).is_none_or(|m| m.role != Role::GetIn || m.stage != Stage::Receiving) {
            return self.rx_done(now, msg, Ok(&[]));
        }
        self.note(|| Input::RxAsked { now, msg });
        let now = self.clock(now);
        if let Some(m) = self.msgs.get_mut(msg) {
            m.stage = Stage::Moving;
        }
        self.copy_arrived(msg);
        self.reply_in_exchange(now, msg);
        self.settle(now);
    }

    /// A deferred message can't be resumed any more: its connection is gone.
    pub fn rx_gone(&mut self, now: Instant, ni: NiId, rx: RxId) {
        self.note(|| Input::RxGone { now, ni, rx });
        let now = self.clock(now);
        self.faults.forget_arriving(&mut self.timers, ni, rx);
        self.transit_gone(ni, rx);
        for portal in 0..lnet_wire::PORTALS {
            for d in self.portals.take_delayed(portal, |d| d.ni == ni && d.rx == rx) {
                self.discard(d.msg);
            }
        }
        self.settle(now);
    }
}

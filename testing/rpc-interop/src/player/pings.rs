//! Pings that our node sends at times of its own. One that the recording does not have is answered here; a
//! recorded one may come later than it was recorded, and nothing else waits for it.

use core::time::Duration;

use lnet_wire::{Handle, Hdr, Kind};
use lustre_wire::msg::{Header, MsgBuilder};
use lustre_wire::{Body, MsgKind, Opcode};

use super::Player;
use crate::recording::Role;
use crate::stage::{Stage, instant};

/// A ping without a recorded reply is answered after this, before its deadline.
const UNRECORDED_REPLY: Duration = Duration::from_secs(12);

impl<S: Stage> Player<'_, S> {
    /// A recorded ping that our node has not sent yet is looked for from now on, while the play goes on.
    pub(super) fn put_off_ping(&mut self, at: usize) -> bool {
        let message = &self.messages[at];
        let puts_off = S::TIMED
            && message.role == Role::Request
            && message.body().opcode == Opcode::OBD_PING
            && self.candidate(at).is_none();
        if puts_off {
            self.awaited.insert(at, None);
        }
        puts_off
    }

    /// Whether a message is the reply to a ping that our node has yet to send: it comes then.
    pub(super) fn waits_for_ping(&mut self, at: usize) -> bool {
        let awaited = self.sending_of(at).ok().and_then(|sending| self.awaited.get_mut(&sending));
        awaited.is_some_and(|reply| {
            *reply = Some(at);
            true
        })
    }

    /// Compares the pings that were awaited and have been sent, or have not been for too long.
    pub(super) fn pair_pings(&mut self) {
        for at in self.awaited.keys().copied().collect::<Vec<_>>() {
            if self.candidate(at).is_none() && self.stage.now() < self.patience(at) {
                continue;
            }
            let reply = self.awaited.remove(&at).flatten();
            let verdict = self.expect(at);
            self.came_of(at, verdict);
            if let Some(reply) = reply {
                self.input(reply);
            }
        }
    }

    /// Waits for the pings that are still awaited at the end.
    pub(super) fn await_pings(&mut self) {
        while let Some((at, _)) = self.awaited.first_key_value() {
            self.run_to(self.patience(*at));
            self.pair_pings();
        }
    }

    /// Answers pings that come at times of their own, where the recording shows that the connection
    /// held: its next request is no connect.
    pub(super) fn answer_pings(&mut self) {
        for place in 0..self.produced.len() {
            let produced = &self.produced[place];
            let (at, body) = (produced.at, produced.message.body());
            let ping = produced.message.role == Role::Request && body.opcode == Opcode::OBD_PING;
            let due = at + UNRECORDED_REPLY;
            if !ping || produced.paired || produced.answered || self.stage.now() < due {
                continue;
            }
            let next = self.index.link_of.iter().find(|(later, link)| {
                instant(self.messages[**later].at) > at
                    && self.index.links[**link].client == self.me
                    && self.index.links[**link].server == produced.message.to()
                    && (self.messages[**later].body().handle == body.handle
                        || self.index.links[**link].cookie == body.handle)
            });
            let lost = next.is_none_or(|(next, _)| self.messages[*next].body().opcode.is_connect());
            self.produced[place].answered = true;
            if !lost {
                self.answer_ping(place);
            }
        }
    }

    fn answer_ping(&mut self, place: usize) {
        let ping = self.produced[place].message.clone();
        let body = Body {
            kind: MsgKind::REPLY,
            version: 3,
            opcode: Opcode::OBD_PING,
            service_time: 1,
            ..Body::default()
        };
        let payload = MsgBuilder::new(Header::default(), &body).build().expect("a reply");
        let portal = match ping.portal() {
            Some(26) => 25,
            Some(28) => 4,
            _ => 10,
        };
        let bits = if ping.body().mbits == 0 { ping.bits() } else { ping.body().mbits };
        let kind =
            Kind::Put { ack: Handle::NONE, match_bits: bits, hdr_data: 0, portal, offset: 224 };
        let hdr = Hdr {
            dst: ping.from(),
            src: ping.to(),
            payload_len: payload.len() as u32,
            kind,
            ..ping.hdr
        };
        // A reply that came in time has taken the buffer away.
        let _ = self.stage.arrive(&hdr, &payload);
        self.take();
    }
}

//! What arrives: taken in order, acknowledged, or answered with a refusal.

use lnet_types::{Errno, Instant};

use super::{End, Flags, Holder, News, SEND_BUFFER, Segment, State};

/// So many acknowledgements that say nothing new mean that something was lost.
pub(super) const REPEATED: u32 = 3;

impl End {
    /// Takes a segment of this connection. Gives the answer of one that does not fit.
    pub(in crate::bytes) fn receive(
        &mut self,
        now: Instant,
        segment: Segment,
    ) -> (News, Option<Segment>) {
        let none = News::default();
        let Flags { syn, ack, fin, rst } = segment.kind;
        match self.state {
            State::Closed => return (none, segment.refusal()),
            State::SynSent if ack && segment.ack != self.next => return (none, segment.refusal()),
            State::SynSent if rst && ack => return (self.fail(Errno::ECONNREFUSED), None),
            State::SynSent if syn && ack => {
                (self.first, self.expected) = (segment.seq, segment.seq + 1);
                self.acked(now, &segment);
                self.state = State::Open;
                (self.heard, self.ack_due) = (now, true);
                self.rest();
                return (News { readable: true, writable: true }, None);
            }
            State::SynSent => return (none, None),
            State::SynReceived | State::Open => {}
        }
        if rst {
            let fits = (self.expected..=self.window()).contains(&segment.seq);
            return (if fits { self.fail(Errno::ECONNRESET) } else { none }, None);
        }
        if syn {
            if segment.seq == self.first && self.state == State::SynReceived {
                self.syn_due = true;
            } else {
                // Another connection claims this place. The owner's acknowledgement decides.
                self.ack_due = true;
            }
            return (none, None);
        }
        if !ack || segment.ack > self.next {
            self.ack_due = true;
            return (none, None);
        }
        self.heard = now;
        let was = self.state;
        self.state = State::Open;
        let mut news = News::default();
        if was == State::SynReceived {
            if segment.ack < self.next {
                self.state = was;
                return (none, None);
            }
            news.writable = true;
        }
        news.writable |= self.acked(now, &segment);
        if segment.data.is_empty() && !fin {
            if segment.seq < self.expected {
                self.ack_due = true;
            }
            return (news, None);
        }
        if self.holder == Holder::Orphan && !segment.data.is_empty() {
            let answer = segment.refusal();
            self.fail(Errno::ECONNRESET);
            return (none, answer);
        }
        self.ack_due = true;
        let end = segment.seq + segment.data.len() as u64;
        let before = self.expected;
        if end > self.expected && end <= self.announced.max(self.window()) {
            self.early.insert(segment.seq, segment.data);
            self.put_in_order();
        }
        if fin && end == self.expected && !self.eof {
            (self.eof, self.expected) = (true, self.expected + 1);
        }
        news.readable |= self.expected > before;
        (news, None)
    }

    fn put_in_order(&mut self) {
        while let Some(entry) = self.early.first_entry() {
            let seq = *entry.key();
            if seq > self.expected {
                return;
            }
            let data = entry.remove();
            let known = (self.expected - seq) as usize;
            if let Some(new) = data.get(known..).filter(|new| !new.is_empty()) {
                self.inbox.extend(new);
                self.expected += new.len() as u64;
            }
        }
    }

    /// Takes what a segment says of ours; whether there is room again for an owner who waits.
    fn acked(&mut self, now: Instant, segment: &Segment) -> bool {
        if segment.ack < self.una {
            return false;
        }
        let opened = segment.edge > self.edge;
        self.edge = self.edge.max(segment.edge);
        if segment.ack > self.una || self.tries > 0 && !self.in_flight() {
            self.tries = 0;
        }
        let bare = segment.data.is_empty() && !segment.kind.fin;
        if segment.ack == self.una && bare && !opened && self.in_flight() {
            self.repeated += 1;
            if self.repeated == REPEATED && self.una >= self.recover {
                (self.recover, self.again_due) = (self.next, true);
            }
        }
        if segment.ack > self.una {
            self.trips.acked(now, segment.ack);
            // SYN and FIN are counted and are no bytes.
            let bytes = (segment.ack - self.una).min(self.outbox.len() as u64) as usize;
            self.outbox.drain(..bytes);
            (self.una, self.repeated) = (segment.ack, 0);
            if self.in_flight() {
                self.again_due = self.una < self.recover;
                self.wait(now.max(self.through));
            } else {
                self.rest();
            }
        } else if opened && !self.in_flight() {
            self.rest();
        }
        let room = SEND_BUFFER - self.outbox.len();
        self.full && room >= SEND_BUFFER / 3 && {
            self.full = false;
            true
        }
    }
}

//! What arrives: taken in order, acknowledged, or answered with a refusal.

use lnet_types::{Errno, Instant};

use super::{End, Flags, Holder, News, SEND_BUFFER, Segment, State};

/// Where nothing is known to be lost, so many segments may overtake one.
pub(super) const OVERTAKE: u64 = 3;

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

    /// What has arrived behind a gap, in order.
    pub(super) fn early(&self) -> Box<[(u64, u64)]> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (&from, data) in &self.early {
            let to = from + data.len() as u64;
            match ranges.last_mut().filter(|last| from <= last.1) {
                Some(last) => last.1 = last.1.max(to),
                None => ranges.push((from, to)),
            }
        }
        ranges.into()
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
        self.flight.arrived(segment.ack, &segment.early);
        let recovers = segment.ack < self.recover;
        if self.flight.find_lost(if recovers { 1 } else { OVERTAKE }) {
            if !recovers {
                self.recover = self.next;
            }
            self.again_due = true;
        }
        if segment.ack > self.una {
            self.trips.acked(now, segment.ack);
            // SYN and FIN are counted and are no bytes.
            let bytes = (segment.ack - self.una).min(self.outbox.len() as u64) as usize;
            self.outbox.drain(..bytes);
            (self.una, self.probed) = (segment.ack, false);
            if self.in_flight() {
                // Nothing but the FIN is left.
                self.again_due |= self.una < self.recover && self.flight.len() == 0;
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

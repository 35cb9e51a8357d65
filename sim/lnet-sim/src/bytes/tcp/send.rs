//! What an end sends: its SYN, data as far as the other end takes them, its FIN, acknowledgements, and
//! what is to be sent again.

use lnet_types::{Instant, Prng};

use super::{Cut, End, Flags, SEGMENT_MAX, Segment, State, copy};

impl End {
    /// Everything that can be sent now.
    pub(in crate::bytes) fn send(&mut self, now: Instant, rng: &mut Prng, out: &mut Vec<Segment>) {
        match self.state {
            State::Closed => return,
            State::SynSent | State::SynReceived => {
                if core::mem::take(&mut self.syn_due) {
                    let ack = self.state == State::SynReceived;
                    let kind = Flags { syn: true, ack, ..Flags::default() };
                    out.push(self.segment(kind, self.una, Box::default()));
                    self.next = self.una + 1;
                    self.trips.timed = (self.tries == 0).then_some((self.next, now));
                    self.wait(now);
                }
                return;
            }
            State::Open => {}
        }
        if core::mem::take(&mut self.again_due) {
            self.send_again(now, out);
        }
        let end = self.data_end();
        while self.next < end.min(self.edge) && !self.fin_sent {
            let left = (end.min(self.edge) - self.next) as usize;
            let n = self.cut_for_sending(rng, left.min(SEGMENT_MAX));
            let data = self.copy(self.next, n);
            out.push(self.segment(Flags { ack: true, ..Flags::default() }, self.next, data));
            self.flight.sent(self.next, self.next + n as u64);
            self.next += n as u64;
            self.sent = self.sent.wrapping_add(1);
            if self.una >= self.recover {
                self.trips.timed.get_or_insert((self.next, now));
            }
            self.said(now);
        }
        if self.fin && !self.fin_sent && self.next == end {
            let kind = Flags { fin: true, ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.next, Box::default()));
            self.next += 1;
            self.fin_sent = true;
            self.said(now);
        }
        if core::mem::take(&mut self.probe_due) {
            // What the other end has already: it answers with what it expects and takes.
            let kind = Flags { ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.una.wrapping_sub(1), Box::default()));
        }
        if self.ack_due {
            let kind = Flags { ack: true, ..Flags::default() };
            out.push(self.segment(kind, self.next, Box::default()));
            self.said(now);
        }
        if !self.in_flight() && self.next < end && !self.awaiting {
            // There is no room at the other end, and a window update may be lost.
            self.wait(now);
        }
    }

    /// What was sent also acknowledges.
    fn said(&mut self, now: Instant) {
        self.ack_due = false;
        self.announced = self.window();
        if self.in_flight() && !self.awaiting {
            self.wait(now);
        }
    }

    fn cut_for_sending(&self, rng: &mut Prng, n: usize) -> usize {
        match self.cut {
            Cut::Whole => n,
            Cut::Parts | Cut::Crumbs(_) if n > 1448 => 1448.max(rng.below(n as u64) as usize),
            Cut::Parts | Cut::Crumbs(_) => n,
        }
    }

    fn copy(&self, seq: u64, n: usize) -> Box<[u8]> {
        let mut data = vec![0; n];
        let copied = copy(&self.outbox, (seq - self.una) as usize, &mut data);
        debug_assert_eq!(copied, n);
        data.into()
    }

    /// What is lost, once more.
    fn send_again(&mut self, now: Instant, out: &mut Vec<Segment>) {
        if !self.in_flight() {
            return;
        }
        self.trips.timed = None;
        let kind = Flags { ack: true, ..Flags::default() };
        for (seq, end) in self.flight.lost() {
            let data = self.copy(seq, (end - seq) as usize);
            out.push(self.segment(kind, seq, data));
            self.flight.sent(seq, end);
            self.sent = self.sent.wrapping_add(1);
            self.resent = self.resent.wrapping_add(1);
        }
        if self.flight.len() == 0 {
            out.push(self.segment(Flags { fin: true, ..kind }, self.una, Box::default()));
        }
        self.said(now);
    }
}

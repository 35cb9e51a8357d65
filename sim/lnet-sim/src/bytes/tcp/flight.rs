//! What is on the way, segment by segment, and what of it is lost. A receiver says what it has behind a
//! gap (selective acknowledgement). What was sent before something that arrived is late, and lost if
//! enough was sent in between, also if it was sent again itself: a segment that is lost twice costs
//! round trips and no time-out, as on a real host.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    OnTheWay,
    /// Behind a gap; the receiver has it.
    Arrived,
    Lost,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    end: u64,
    /// When it was sent last, in segments.
    turn: u64,
    state: State,
}

/// Segments that are not acknowledged, by their first sequence.
#[derive(Debug, Default)]
pub(super) struct Flight {
    parts: BTreeMap<u64, Part>,
    turns: u64,
    /// The latest turn of which something has arrived.
    newest: u64,
}

impl Flight {
    pub(super) fn len(&self) -> usize {
        self.parts.len()
    }

    /// A segment leaves, for the first time or again.
    pub(super) fn sent(&mut self, seq: u64, end: u64) {
        self.turns += 1;
        self.parts.insert(seq, Part { end, turn: self.turns, state: State::OnTheWay });
    }

    /// Everything below `una` has arrived, and these ranges behind it.
    pub(super) fn arrived(&mut self, una: u64, early: &[(u64, u64)]) {
        while let Some(entry) = self.parts.first_entry()
            && *entry.key() < una
        {
            let part = entry.remove();
            if part.end > una {
                self.parts.insert(una, part);
            } else if part.state != State::Arrived {
                self.newest = self.newest.max(part.turn);
            }
        }
        for &(from, to) in early {
            for (_, part) in self.parts.range_mut(from..to) {
                if part.end <= to && part.state != State::Arrived {
                    part.state = State::Arrived;
                    self.newest = self.newest.max(part.turn);
                }
            }
        }
    }

    /// Finds what is lost: of what was sent so many segments later something has arrived. Whether there
    /// is anything to be sent again.
    pub(super) fn find_lost(&mut self, later: u64) -> bool {
        let mut any = false;
        for part in self.parts.values_mut() {
            if part.state == State::OnTheWay && part.turn + later <= self.newest {
                part.state = State::Lost;
            }
            any |= part.state == State::Lost;
        }
        any
    }

    /// Nothing has been heard for too long: the first segment that has not arrived counts as lost.
    pub(super) fn lose_first(&mut self) {
        if let Some(part) = self.parts.values_mut().find(|part| part.state != State::Arrived) {
            part.state = State::Lost;
        }
    }

    /// The same for the last one, whose acknowledgement says what else is missing.
    pub(super) fn lose_last(&mut self) {
        if let Some(part) = self.parts.values_mut().rfind(|part| part.state != State::Arrived) {
            part.state = State::Lost;
        }
    }

    /// What is to be sent again, in order.
    pub(super) fn lost(&self) -> Vec<(u64, u64)> {
        let lost = self.parts.iter().filter(|(_, part)| part.state == State::Lost);
        lost.map(|(seq, part)| (*seq, part.end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of 100 bytes.
    fn ten() -> Flight {
        let mut flight = Flight::default();
        for n in 0..10 {
            flight.sent(n * 100, (n + 1) * 100);
        }
        flight
    }

    #[test]
    fn what_was_sent_before_enough_that_arrived_is_lost() {
        let mut flight = ten();
        flight.arrived(100, &[(200, 400)]);
        assert!(!flight.find_lost(3), "the third may overtake the second");
        flight.arrived(100, &[(200, 500)]);
        assert!(flight.find_lost(3));
        assert_eq!(flight.lost(), [(100, 200)]);
    }

    #[test]
    fn a_segment_that_is_lost_twice_is_found_by_what_was_sent_behind_it() {
        let mut flight = ten();
        flight.arrived(0, &[(100, 1000)]);
        assert!(flight.find_lost(3));
        flight.sent(0, 100);
        flight.sent(1000, 1100);
        flight.arrived(0, &[(100, 1000)]);
        assert!(!flight.find_lost(1), "nothing new has arrived");
        flight.arrived(0, &[(100, 1100)]);
        assert!(flight.find_lost(1));
        assert_eq!(flight.lost(), [(0, 100)]);
    }

    #[test]
    fn a_segment_of_which_a_part_is_acknowledged_keeps_the_rest() {
        let mut flight = ten();
        flight.arrived(150, &[]);
        flight.lose_first();
        flight.lose_last();
        assert_eq!(flight.lost(), [(150, 200), (900, 1000)]);
        assert_eq!(flight.len(), 9);
    }
}

//! What a receiver remembers of one session: which messages have arrived, so that none is delivered
//! twice. Pure; the table of all windows is in `sessions.rs`.
//!
//! Numbers go up by one per message. Nearly all arrive, nearly in order, so the window keeps what has
//! *not* arrived: gaps between `floor` and `next`.
//!
//! ```text
//!   ancient │ floor        gap        gap   next │ not seen yet
//!  ─────────┴──────────────[··]──────[·]─────────┴─────────────►
//! ```
//!
//! Two facts make a bounded memory enough. A sender makes one first copy of a message and marks every
//! further one. So a first copy is a duplicate only if a further copy came before it, and of those the
//! window keeps a list of its own; and a further copy below the floor can be refused, because its
//! sender will notice that no answer comes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::MsgId;
use lnet_wire::mark::Mark;

/// Runs of missing messages that are remembered per session. What a stalled rail holds is missing
/// message by message where rails take turns: as many as a socket's buffer holds of a few KiB each.
pub(crate) const GAPS_MAX: usize = 1024;
/// Further copies that are remembered per session.
pub(crate) const FURTHER_MAX: usize = 1024;
/// Messages with an atypical ACK that are remembered per session.
pub(crate) const ATYPICAL_MAX: usize = 1024;

/// What is to be done with a copy that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// A first copy.
    Deliver,
    /// An earlier copy is still arriving, perhaps for ever: this one takes its place.
    Replace(MsgId),
    /// It has been delivered, or is being delivered.
    Duplicate,
    /// Whether it has been delivered is not known any more.
    Ancient,
}

/// One session of one sender.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Window {
    floor: u64,
    next: u64,
    /// Runs `from..to` that have not arrived, in order, all between `floor` and `next`.
    gaps: VecDeque<(u64, u64)>,
    /// Messages that were delivered by a further copy.
    further: BTreeSet<u64>,
    /// First copies below this, and below `floor`, may be duplicates.
    first_copy_floor: u64,
    /// Messages whose payload is arriving, or that wait for a buffer, in order. Nearly always none or
    /// a few with the highest numbers, so a list costs less than a tree.
    arriving: Vec<(u64, MsgId)>,
    /// Messages that were delivered and whose ACK said another length than that of their payload:
    /// what it said, or `None` if there was no ACK. Nearly always empty.
    atypical_acks: BTreeMap<u64, Option<u32>>,
    /// Messages below this may have been in that list.
    atypical_floor: u64,
}

impl Window {
    /// The window of a session of which nothing has arrived here before the message of `mark`.
    pub(crate) fn unseen(mark: Mark) -> Self {
        let mut window = Self::forgotten(mark);
        window.floor = window.next.saturating_sub(Mark::NUMBERS / 4);
        window.atypical_floor = window.floor;
        window.gaps.push_back((window.floor, window.next));
        window
    }

    /// The window of a session of which anything may have arrived before the message of `mark`.
    pub(crate) fn forgotten(mark: Mark) -> Self {
        // Far from 0, so that messages from before it have numbers too.
        let next = mark.number_near(1 << 40);
        Self {
            floor: next,
            next,
            gaps: VecDeque::new(),
            further: BTreeSet::new(),
            first_copy_floor: 0,
            arriving: Vec::new(),
            atypical_acks: BTreeMap::new(),
            atypical_floor: next,
        }
    }

    /// Entries of the lists: what the window costs beyond its fixed size. What is arriving is not among
    /// them: those are messages in hand, of which there is a limit, and they come and go with each.
    #[inline]
    pub(crate) fn entries(&self) -> usize {
        self.gaps.len() + self.further.len() + self.atypical_acks.len()
    }

    /// Whether the session has delivered further copies, whose first copies may be on their way.
    pub(crate) fn has_further(&self) -> bool {
        self.first_copy_floor > 0 || !self.further.is_empty()
    }

    /// The number of a marked message.
    pub(crate) fn number(&self, mark: Mark) -> u64 {
        mark.number_near(self.next)
    }

    /// The messages that are arriving, by number.
    pub(crate) fn arriving(&self) -> impl Iterator<Item = (u64, MsgId)> + '_ {
        self.arriving.iter().copied()
    }

    /// What is to be done with a copy of message `n`.
    pub(crate) fn judge(&self, n: u64, further: bool) -> Judgement {
        if let Some(msg) = self.arriving_as(n) {
            return if further { Judgement::Replace(msg) } else { Judgement::Duplicate };
        }
        if n >= self.next || self.gap_of(n).is_some() {
            Judgement::Deliver
        } else if n >= self.floor || (!further && self.further.contains(&n)) {
            Judgement::Duplicate
        } else if further || n < self.first_copy_floor {
            Judgement::Ancient
        } else {
            Judgement::Deliver
        }
    }

    /// A copy that was judged fit is taken, as `msg`.
    pub(crate) fn take(&mut self, n: u64, further: bool, msg: MsgId) {
        match self.place_of(n) {
            Err(at) if at == self.arriving.len() => self.arriving.push((n, msg)),
            Err(at) => self.arriving.insert(at, (n, msg)),
            Ok(at) => self.arriving[at].1 = msg,
        }
        if further {
            self.further.insert(n);
            if self.further.len() > FURTHER_MAX
                && let Some(oldest) = self.further.pop_first()
            {
                self.first_copy_floor = self.first_copy_floor.max(oldest + 1);
            }
        }
        if n >= self.next {
            if n > self.next {
                self.gaps.push_back((self.next, n));
            }
            self.next = n + 1;
        } else if let Some(i) = self.gap_of(n)
            && let Some((from, to)) = self.gaps.remove(i)
        {
            let parts = [(n + 1, to), (from, n)];
            for part in parts.into_iter().filter(|(from, to)| from < to) {
                self.gaps.insert(i, part);
            }
        }
        self.forget();
    }

    /// A message that was taken as `msg` has arrived whole.
    pub(crate) fn arrived(&mut self, n: u64, msg: MsgId) {
        self.stop_arriving(n, msg);
    }

    /// A message that has arrived gets an ACK that says another length than that of its payload, or
    /// no ACK.
    pub(crate) fn atypical_ack(&mut self, n: u64, mlength: Option<u32>) {
        self.atypical_acks.insert(n, mlength);
        if self.atypical_acks.len() > ATYPICAL_MAX
            && let Some((oldest, _)) = self.atypical_acks.pop_first()
        {
            self.atypical_floor = self.atypical_floor.max(oldest + 1);
        }
    }

    /// What the ACK said of message `n` with a payload of `len` bytes, which has been delivered;
    /// `None` if there was none, or it is not known any more.
    pub(crate) fn acked(&self, n: u64, len: u32) -> Option<u32> {
        match self.atypical_acks.get(&n) {
            _ if self.arriving.iter().any(|(m, _)| *m == n) => None,
            Some(mlength) => *mlength,
            None => (n >= self.atypical_floor).then_some(len),
        }
    }

    /// A message that was taken as `msg` has not arrived after all: another copy may.
    pub(crate) fn reopen(&mut self, n: u64, msg: MsgId) {
        if !self.stop_arriving(n, msg) {
            return;
        }
        self.further.remove(&n);
        if n >= self.floor {
            let at = self.gaps.iter().position(|g| g.0 > n).unwrap_or(self.gaps.len());
            self.gaps.insert(at, (n, n + 1));
            self.forget();
        }
    }

    fn place_of(&self, n: u64) -> Result<usize, usize> {
        match self.arriving.last() {
            Some(&(last, _)) if last >= n => self.arriving.binary_search_by_key(&n, |a| a.0),
            _ => Err(self.arriving.len()),
        }
    }

    fn arriving_as(&self, n: u64) -> Option<MsgId> {
        self.place_of(n).ok().and_then(|at| self.arriving.get(at)).map(|a| a.1)
    }

    /// False if message `n` is not arriving as `msg`.
    fn stop_arriving(&mut self, n: u64, msg: MsgId) -> bool {
        if self.arriving.last() == Some(&(n, msg)) {
            self.arriving.pop();
            return true;
        }
        let found = self.arriving.binary_search(&(n, msg));
        if let Ok(at) = found {
            self.arriving.remove(at);
        }
        found.is_ok()
    }

    fn gap_of(&self, n: u64) -> Option<usize> {
        let i = self.gaps.partition_point(|&(_, to)| to <= n);
        self.gaps.get(i).is_some_and(|&(from, _)| from <= n).then_some(i)
    }

    /// Keeps the memory within its bounds: the oldest gap goes.
    fn forget(&mut self) {
        while self.gaps.len() > GAPS_MAX {
            if let Some((_, to)) = self.gaps.pop_front() {
                self.floor = to;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lnet_types::{MsgId, Prng};
    use lnet_wire::mark::SessionName;
    use slotmap::KeyData;

    use super::*;

    fn msg(n: u64) -> MsgId {
        MsgId::from(KeyData::from_ffi(n + 1))
    }

    fn mark() -> Mark {
        Mark::new(SessionName::new(7), 5, false)
    }

    fn window() -> (Window, u64) {
        let w = Window::forgotten(mark());
        let start = w.next;
        (w, start)
    }

    /// Takes a whole copy if it is to be delivered.
    fn copy(w: &mut Window, n: u64, further: bool) -> Judgement {
        let judgement = w.judge(n, further);
        if judgement == Judgement::Deliver {
            w.take(n, further, msg(n));
            w.arrived(n, msg(n));
        }
        judgement
    }

    #[test]
    fn each_message_is_delivered_once_in_whatever_order_its_copies_come() {
        let (mut w, s) = window();
        for n in [0, 1, 5, 3, 4, 2] {
            assert_eq!(copy(&mut w, s + n, false), Judgement::Deliver, "{n}");
        }
        for n in 0..6 {
            assert_eq!(copy(&mut w, s + n, true), Judgement::Duplicate, "{n}");
        }
        assert_eq!(copy(&mut w, s + 9, true), Judgement::Deliver);
        assert_eq!(copy(&mut w, s + 9, false), Judgement::Duplicate, "the first copy comes last");
        assert_eq!(w.gaps, [(s + 6, s + 9)]);
    }

    #[test]
    fn before_a_forgotten_session_first_copies_pass_and_further_ones_do_not() {
        let (mut w, s) = window();
        assert_eq!(copy(&mut w, s - 3, false), Judgement::Deliver);
        assert_eq!(copy(&mut w, s - 2, true), Judgement::Ancient);
    }

    #[test]
    fn before_an_unseen_session_each_message_is_delivered_once() {
        let mut w = Window::unseen(mark());
        let s = w.next;
        for n in [s - 3, s - 1000, s] {
            assert_eq!(copy(&mut w, n, true), Judgement::Deliver);
            assert_eq!(copy(&mut w, n, false), Judgement::Duplicate);
            assert_eq!(copy(&mut w, n, true), Judgement::Duplicate);
            assert_eq!(w.acked(n, 100), Some(100));
        }
        assert_eq!(copy(&mut w, s - 3, false), Judgement::Duplicate);
    }

    #[test]
    fn a_further_copy_takes_the_place_of_one_that_is_still_arriving() {
        let (mut w, s) = window();
        w.take(s, false, msg(1));
        assert_eq!(w.judge(s, false), Judgement::Duplicate);
        assert_eq!(w.judge(s, true), Judgement::Replace(msg(1)));
        w.reopen(s, msg(1));
        w.take(s, true, msg(2));
        w.reopen(s, msg(1));
        assert_eq!(w.judge(s, true), Judgement::Replace(msg(2)), "a late report changes nothing");
        w.arrived(s, msg(2));
        assert_eq!(w.judge(s, true), Judgement::Duplicate);
    }

    #[test]
    fn beyond_its_bounds_a_window_refuses_what_it_can_not_know() {
        let (mut w, s) = window();
        for n in 0..=2 * GAPS_MAX as u64 + 2 {
            assert_eq!(copy(&mut w, s + 2 * n, false), Judgement::Deliver);
        }
        assert_eq!(w.gaps.len(), GAPS_MAX);
        assert_eq!(copy(&mut w, s + 1, true), Judgement::Ancient);
        assert_eq!(copy(&mut w, s + 1, false), Judgement::Deliver, "there is one first copy");
        for n in 0..=FURTHER_MAX as u64 {
            let next = w.next;
            assert_eq!(copy(&mut w, next, true), Judgement::Deliver, "{n}");
        }
        assert_eq!(w.further.len(), FURTHER_MAX);
        assert_eq!(copy(&mut w, s + 3, false), Judgement::Ancient, "forgotten on both lists");
    }

    #[test]
    fn a_copy_is_acknowledged_as_its_message_was() {
        let (mut w, s) = window();
        for n in 0..3 {
            assert_eq!(copy(&mut w, s + n, false), Judgement::Deliver);
        }
        w.atypical_ack(s + 1, Some(7));
        w.atypical_ack(s + 2, None);
        assert_eq!([0, 1, 2].map(|n| w.acked(s + n, 100)), [Some(100), Some(7), None]);
        w.take(s + 3, false, msg(9));
        assert_eq!(w.acked(s + 3, 100), None, "it is still arriving");
        // What was forgotten is not guessed.
        for n in 0..ATYPICAL_MAX as u64 {
            w.atypical_ack(s + 10 + n, None);
        }
        assert_eq!([0, 1, 2].map(|n| w.acked(s + n, 100)), [None, None, None]);
        assert!(w.atypical_acks.len() <= ATYPICAL_MAX);
    }

    /// Against a model that remembers everything: nothing twice, and what is refused as a duplicate
    /// has been delivered.
    #[test]
    fn random_copies_are_delivered_at_most_once_and_refused_with_reason() {
        for seed in 1..=200 {
            let mut rng = Prng::new(seed);
            let mut w = if seed % 2 == 0 { Window::unseen(mark()) } else { window().0 };
            let s = w.next - 30;
            let spread = [4, 40, 4000][rng.below(3) as usize];
            // Per message: has its first copy been made; how often delivered; what is arriving.
            let mut made: BTreeMap<u64, (bool, u32)> = BTreeMap::new();
            let mut arriving: Vec<(u64, MsgId)> = Vec::new();
            let mut name = 0;
            for step in 0..6000 {
                if !arriving.is_empty() && rng.below(3) == 0 {
                    let (n, id) = arriving.swap_remove(rng.below(arriving.len() as u64) as usize);
                    if rng.below(4) == 0 {
                        w.reopen(n, id);
                    } else {
                        w.arrived(n, id);
                        made.entry(n).or_default().1 += 1;
                    }
                    continue;
                }
                let n = s + (step + rng.below(spread)).saturating_sub(rng.below(spread));
                let further = rng.below(3) == 0;
                let state = made.entry(n).or_default();
                if !further && core::mem::replace(&mut state.0, true) {
                    continue;
                }
                let delivered = state.1;
                match w.judge(n, further) {
                    Judgement::Deliver => assert_eq!(delivered, 0, "seed {seed}: {n} twice"),
                    Judgement::Replace(old) => {
                        let at = arriving.iter().position(|a| *a == (n, old));
                        arriving.swap_remove(at.unwrap_or_else(|| panic!("seed {seed}: {n}")));
                        w.reopen(n, old);
                    }
                    Judgement::Duplicate => {
                        let busy = arriving.iter().any(|a| a.0 == n);
                        assert!(delivered == 1 || busy, "seed {seed}: {n} was never delivered");
                        continue;
                    }
                    Judgement::Ancient => continue,
                }
                name += 1;
                w.take(n, further, msg(name));
                arriving.push((n, msg(name)));
            }
            assert!(made.values().all(|(_, times)| *times <= 1), "seed {seed}");
            assert!(w.gaps.len() <= GAPS_MAX && w.further.len() <= FURTHER_MAX);
            assert_eq!(w.arriving.len(), arriving.len(), "seed {seed}");
        }
    }
}

//! What a receiver remembers of one session of a sender: which messages have arrived, so that none is
//! delivered twice. Pure; the node's part is in `once/mod.rs`.
//!
//! Numbers go up by one per message. Nearly all arrive, nearly in order, so what is remembered is
//! what has *not* arrived: gaps between `floor` and `next`.
//!
//! ```text
//!   ancient │ floor        gap        gap   next │ not seen yet
//!  ─────────┴──────────────[··]──────[·]─────────┴─────────────►
//! ```
//!
//! Two facts make a bounded memory enough. A sender makes one first copy of a message (`again` false)
//! and marks every further one. So a first copy can only be a duplicate if a further copy came before
//! it, and of those the window keeps a list of its own; and a further copy of which the window does
//! not know any more can be refused, because its sender will hear of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use lnet_types::MsgId;
use lnet_wire::mark::Mark;

/// Runs of missing messages that are remembered per session. What a stalled rail holds is missing
/// message by message where rails take turns: as many as a socket's buffer holds of a few KiB each.
pub(crate) const GAPS_MAX: usize = 1024;
/// Further copies that are remembered per session.
pub(crate) const AGAIN_MAX: usize = 1024;
/// First copies that came by an interface which is not known to be the sender's that are remembered.
pub(crate) const STRAYS_MAX: usize = 1024;
/// Messages that were not acknowledged as usual that are remembered per session.
pub(crate) const ODD_MAX: usize = 1024;

/// So many first copies in a row whose first copies were here: no transport does that.
const WONDERS_MAX: u8 = 8;

/// What is to be done with a copy that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing speaks against it.
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
    session: u64,
    /// The number of the first message of the session that the window was opened for.
    start: u64,
    floor: u64,
    next: u64,
    /// Runs `from..to` that have not arrived, in order, all between `floor` and `next`.
    gaps: VecDeque<(u64, u64)>,
    /// Messages that were delivered by a further copy.
    again: BTreeSet<u64>,
    /// First copies of messages below this, and below `floor`, may be duplicates.
    deaf: u64,
    /// Messages that were delivered by a first copy which came by an interface that is not known to be
    /// the sender's. It may be another's who lies, so first copies are not judged by it.
    strays: BTreeSet<u64>,
    /// Further copies of messages below this may be of such.
    stray_floor: u64,
    /// Messages whose payload is arriving, or that wait for a buffer, in order. Nearly always none or
    /// a few with the highest numbers, so a list costs less than a tree.
    arriving: Vec<(u64, MsgId)>,
    /// Messages that were delivered and whose ACK did not tell the length of their payload: what it
    /// told, or `None` if they got none. Nearly always empty.
    odd: BTreeMap<u64, Option<u32>>,
    /// Messages below this may have been in that list.
    odd_floor: u64,
    /// First copies that came in a row of messages whose first copies had been taken.
    wonders: u8,
}

impl Window {
    /// The window of a session whose next message is that of `start`.
    pub(crate) fn new(session: u64, start: Mark) -> Self {
        // Far from 0, so that messages from before the start have numbers too.
        let next = start.seq_near(1 << 40);
        Self {
            session,
            start: next,
            floor: next,
            next,
            gaps: VecDeque::new(),
            again: BTreeSet::new(),
            deaf: 0,
            strays: BTreeSet::new(),
            stray_floor: 0,
            arriving: Vec::new(),
            odd: BTreeMap::new(),
            odd_floor: 0,
            wonders: 0,
        }
    }

    /// The window of a life that has seen nothing of a session, whose marks are like `mark`.
    pub(crate) fn unseen(mark: Mark) -> Self {
        let mut window = Self::new(0, mark);
        window.floor = window.next.saturating_sub(u64::from(Mark::SEQS / 4));
        window.start = window.floor;
        window.gaps.push_back((window.floor, window.next));
        window
    }

    /// Whether message `n` was sent before the window was opened.
    pub(crate) const fn is_before(&self, n: u64) -> bool {
        n < self.start
    }

    /// The number after the highest that was seen.
    pub(crate) const fn end(&self) -> u64 {
        self.next
    }

    pub(crate) fn session(&self) -> u64 {
        self.session
    }

    /// The number of a marked message.
    pub(crate) fn number(&self, mark: Mark) -> u64 {
        mark.seq_near(self.next)
    }

    /// What is to be done with a copy of message `n`.
    pub(crate) fn judge(&self, n: u64, again: bool) -> Judgement {
        if let Some(msg) = self.arriving_as(n) {
            return if again { Judgement::Replace(msg) } else { Judgement::Duplicate };
        }
        if again && (n < self.stray_floor || self.strays.contains(&n)) {
            return if n < self.stray_floor { Judgement::Ancient } else { Judgement::Duplicate };
        }
        if n >= self.next || self.gap_of(n).is_some() {
            Judgement::Deliver
        } else if n >= self.floor || (!again && self.again.contains(&n)) {
            Judgement::Duplicate
        } else if again || n < self.deaf {
            Judgement::Ancient
        } else {
            Judgement::Deliver
        }
    }

    /// A copy was judged a duplicate. Whether it is time to doubt that it is of this session: it and
    /// those before it can't be, where no transport makes copies of its own.
    pub(crate) fn wonders(&mut self, n: u64, again: bool) -> bool {
        if again || n < self.deaf || self.again.contains(&n) {
            return false;
        }
        self.wonders = (self.wonders + 1) % WONDERS_MAX;
        self.wonders == 0
    }

    /// A copy that was judged fit is taken, as `msg`.
    pub(crate) fn take(&mut self, n: u64, again: bool, msg: MsgId) {
        self.wonders = 0;
        match self.place_of(n) {
            Err(at) if at == self.arriving.len() => self.arriving.push((n, msg)),
            Err(at) => self.arriving.insert(at, (n, msg)),
            Ok(at) => self.arriving[at].1 = msg,
        }
        if again {
            self.again.insert(n);
            if self.again.len() > AGAIN_MAX
                && let Some(oldest) = self.again.pop_first()
            {
                self.deaf = self.deaf.max(oldest + 1);
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

    /// A first copy of message `n` was delivered that came by an interface which is not known to be the
    /// sender's.
    pub(crate) fn strayed(&mut self, n: u64) {
        self.strays.insert(n);
        if self.strays.len() > STRAYS_MAX
            && let Some(oldest) = self.strays.pop_first()
        {
            self.stray_floor = self.stray_floor.max(oldest + 1);
        }
    }

    /// A message that was taken as `msg` has arrived whole.
    pub(crate) fn arrived(&mut self, n: u64, msg: MsgId) {
        self.stop_arriving(n, msg);
    }

    /// A message that has arrived gets an ACK that tells another length than that of its payload, or
    /// none.
    pub(crate) fn acked_oddly(&mut self, n: u64, told: Option<u32>) {
        self.odd.insert(n, told);
        if self.odd.len() > ODD_MAX
            && let Some((oldest, _)) = self.odd.pop_first()
        {
            self.odd_floor = self.odd_floor.max(oldest + 1);
        }
    }

    /// What the ACK told for message `n` with a payload of `len` bytes, which has been delivered;
    /// `None` if there was none, or it is not known any more.
    pub(crate) fn acked(&self, n: u64, len: u32) -> Option<u32> {
        match self.odd.get(&n) {
            // What became of it is not accounted for here.
            _ if self.strays.contains(&n) => None,
            _ if self.arriving.iter().any(|(m, _)| *m == n) => None,
            Some(told) => *told,
            None => (n >= self.odd_floor).then_some(len),
        }
    }

    /// A message that was taken as `msg` has not arrived after all: another copy may.
    pub(crate) fn reopen(&mut self, n: u64, msg: MsgId) {
        if !self.stop_arriving(n, msg) {
            return;
        }
        self.again.remove(&n);
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
    use slotmap::KeyData;

    use super::*;

    fn msg(n: u64) -> MsgId {
        MsgId::from(KeyData::from_ffi(n + 1))
    }

    fn window() -> (Window, u64) {
        let w = Window::new(7, Mark::new(7, 5, false));
        let start = w.next;
        (w, start)
    }

    /// Takes a whole copy if it is to be delivered.
    fn copy(w: &mut Window, n: u64, again: bool) -> Judgement {
        let judgement = w.judge(n, again);
        if judgement == Judgement::Deliver {
            w.take(n, again, msg(n));
            w.arrived(n, msg(n));
        }
        judgement
    }

    #[test]
    fn first_copies_in_a_row_whose_first_copies_were_here_are_wondered_at() {
        let mut w = Window::new(7, Mark::new(7, 0, false));
        let first = w.end();
        for n in first..first + 20 {
            w.take(n, n == first, MsgId::default());
        }
        assert!((0..20).all(|_| !w.wonders(first, false)), "a further copy came before it");
        assert!((0..20).all(|n| !w.wonders(first + n, true)), "further copies");
        let row = |w: &mut Window, n: u64| (1..=n).map(|n| w.wonders(first + n, false)).collect();
        let told: Vec<bool> = row(&mut w, 7);
        assert_eq!(told, [false; 7]);
        w.take(first + 20, false, MsgId::default());
        let told: Vec<bool> = row(&mut w, 8);
        assert_eq!(told, [false, false, false, false, false, false, false, true]);
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
    fn before_the_session_first_copies_pass_and_further_ones_do_not() {
        let (mut w, s) = window();
        assert_eq!(copy(&mut w, s - 3, false), Judgement::Deliver);
        assert_eq!(copy(&mut w, s - 2, true), Judgement::Ancient);
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
        for n in 0..=AGAIN_MAX as u64 {
            let next = w.next;
            assert_eq!(copy(&mut w, next, true), Judgement::Deliver, "{n}");
        }
        assert_eq!(w.again.len(), AGAIN_MAX);
        assert_eq!(copy(&mut w, s + 3, false), Judgement::Ancient, "forgotten on both lists");
    }

    #[test]
    fn a_first_copy_by_an_unknown_interface_makes_further_ones_duplicates_and_nothing_else() {
        let (mut w, s) = window();
        w.strayed(s + 1);
        assert_eq!(w.judge(s + 1, false), Judgement::Deliver, "it may have been a liar");
        assert_eq!(copy(&mut w, s + 1, true), Judgement::Duplicate);
        assert_eq!(w.acked(s + 1, 100), None);
        assert_eq!(copy(&mut w, s, true), Judgement::Deliver);
        for n in 0..STRAYS_MAX as u64 {
            w.strayed(s + 10 + n);
        }
        assert_eq!(copy(&mut w, s + 1, true), Judgement::Ancient, "it is not known any more");
        assert_eq!(w.strays.len(), STRAYS_MAX);
    }

    #[test]
    fn a_copy_is_acknowledged_as_its_message_was() {
        let (mut w, s) = window();
        for n in 0..3 {
            assert_eq!(copy(&mut w, s + n, false), Judgement::Deliver);
        }
        w.acked_oddly(s + 1, Some(7));
        w.acked_oddly(s + 2, None);
        assert_eq!([0, 1, 2].map(|n| w.acked(s + n, 100)), [Some(100), Some(7), None]);
        w.take(s + 3, false, msg(9));
        assert_eq!(w.acked(s + 3, 100), None, "it is still arriving");
        // What was forgotten is not guessed.
        for n in 0..ODD_MAX as u64 {
            w.acked_oddly(s + 10 + n, None);
        }
        assert_eq!([0, 1, 2].map(|n| w.acked(s + n, 100)), [None, None, None]);
        assert!(w.odd.len() <= ODD_MAX);
    }

    /// Against a model that remembers everything: nothing twice, and what is refused as a duplicate
    /// has been delivered.
    #[test]
    fn random_copies_are_delivered_at_most_once_and_refused_with_reason() {
        for seed in 1..=200 {
            let mut rng = Prng::new(seed);
            let (mut w, s) = window();
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
                let again = rng.below(3) == 0;
                let state = made.entry(n).or_default();
                if !again && core::mem::replace(&mut state.0, true) {
                    continue;
                }
                let delivered = state.1;
                match w.judge(n, again) {
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
                w.take(n, again, msg(name));
                arriving.push((n, msg(name)));
            }
            assert!(made.values().all(|(_, times)| *times <= 1), "seed {seed}");
            assert!(w.gaps.len() <= GAPS_MAX && w.again.len() <= AGAIN_MAX);
            assert_eq!(w.arriving.len(), arriving.len(), "seed {seed}");
        }
    }
}

//! The sessions whose messages arrive here, by name: one window each (`window.rs`), opened at the first
//! marked message. Pure.
//!
//! A name is unguessable, so what bears it is from its sender, whatever NID it comes from. But any
//! node may invent names. So the table has a limit in entries, and at the limit the bringer (the
//! neighbour that a session came by) with the largest share loses its least recently used sessions:
//! a flood of names costs the neighbour that brings it.
//!
//! What was in an evicted window is not known any more. For [`FORGET_AFTER`], as long as copies of its
//! messages can be on their way, further copies of unknown names are refused that come by the same
//! bringer; first copies too, if an evicted session had delivered further ones. Its share is kept for so
//! long, without sessions if need be. What a gateway brought may come by another one next, so there the
//! refusal holds for all bringers.

use std::collections::{BTreeMap, VecDeque};

use core::time::Duration;

use lnet_types::{Instant, MsgId, Nid};
use lnet_wire::mark::{Mark, SessionName};

use super::window::{Judgement, Window};

/// Limit of all sessions together, in entries: some tens of MiB.
pub(crate) const ENTRIES_MAX: usize = 1 << 20;
/// What a session costs besides the entries of its window.
pub(crate) const SESSION_ENTRIES: usize = 8;
/// What the share of a bringer costs besides its sessions.
const SHARE_ENTRIES: usize = 8;
/// At the limit so many entries are freed at once.
const ENTRIES_FREED: usize = ENTRIES_MAX / 64;
/// Longer than this no copy is on its way: transports have ended its connection.
pub(crate) const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The neighbour by which a message came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bringer {
    pub(crate) nid: Nid,
    /// It is a gateway by which others' messages come.
    pub(crate) is_gateway: bool,
}

/// A marked message in the session of its sender.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Copied {
    session: SessionName,
    n: u64,
    further: bool,
}

impl Copied {
    /// The session and the number in it.
    pub(crate) const fn place(self) -> (SessionName, u64) {
        (self.session, self.n)
    }
}

/// What is to be done with a marked message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judged {
    pub(crate) judgement: Judgement,
    pub(crate) copied: Copied,
    /// The `mlength` of the ACK that the message got, where it is a duplicate and got one.
    pub(crate) acked: Option<u32>,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Session {
    window: Window,
    /// The bringer of its first message.
    bringer: Nid,
    by_gateway: bool,
    /// Used since it was last looked at for eviction.
    used: bool,
}

/// One bringer's part of the table.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Share {
    /// In the order in which they are looked at for eviction.
    sessions: VecDeque<SessionName>,
    entries: usize,
    forgotten: Forgotten,
}

impl Default for Share {
    fn default() -> Self {
        let forgotten = Forgotten::default();
        Self { sessions: VecDeque::new(), entries: SHARE_ENTRIES, forgotten }
    }
}

/// Until when copies may come of what was evicted.
#[derive(Clone, Copy, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Forgotten {
    further: Option<Instant>,
    first: Option<Instant>,
}

impl Forgotten {
    fn note(&mut self, other: Self) {
        self.further = self.further.max(other.further);
        self.first = self.first.max(other.first);
    }

    /// Whether copies may come still.
    fn is_pending(self, now: Instant) -> bool {
        self.further.max(self.first).is_some_and(|until| now < until)
    }
}

/// All sessions.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sessions {
    by_name: BTreeMap<SessionName, Session>,
    shares: BTreeMap<Nid, Share>,
    entries: usize,
    forgotten: Forgotten,
}

impl Session {
    fn entries(&self) -> usize {
        SESSION_ENTRIES + self.window.entries()
    }
}

impl Sessions {
    /// Judges a marked message with `payload_len` bytes that came by `bringer`.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        bringer: Bringer,
        mark: Mark,
        payload_len: u32,
    ) -> Judged {
        if let Some(judged) = self.judge_known(mark, payload_len) {
            return judged;
        }
        self.open(now, bringer, mark);
        self.judge_known(mark, payload_len).unwrap_or_else(|| {
            let copied = Copied { session: mark.session, n: 0, further: mark.further };
            Judged { judgement: Judgement::Ancient, copied, acked: None }
        })
    }

    /// The same of a session that is known.
    fn judge_known(&mut self, mark: Mark, payload_len: u32) -> Option<Judged> {
        let Mark { session: name, further, .. } = mark;
        let session = self.by_name.get_mut(&name)?;
        session.used = true;
        let window = &session.window;
        let n = window.number(mark);
        let judgement = window.judge(n, further);
        let is_duplicate = judgement == Judgement::Duplicate;
        let acked = if is_duplicate { window.acked(n, payload_len) } else { None };
        Some(Judged { judgement, copied: Copied { session: name, n, further }, acked })
    }

    /// Opens the window of an unknown name, unless copies may come of what was forgotten.
    fn open(&mut self, now: Instant, bringer: Bringer, mark: Mark) {
        let mut forgotten = self.forgotten;
        if let Some(share) = self.shares.get(&bringer.nid) {
            forgotten.note(share.forgotten);
        }
        let may_come = |until: Option<Instant>| until.is_some_and(|until| now < until);
        if may_come(if mark.further { forgotten.further } else { forgotten.first }) {
            return;
        }
        let has_forgotten = may_come(forgotten.further);
        let window = if has_forgotten { Window::forgotten(mark) } else { Window::unseen(mark) };
        let (by_gateway, bringer) = (bringer.is_gateway, bringer.nid);
        let session = Session { window, bringer, by_gateway, used: true };
        let entries = session.entries();
        self.make_room(now, entries + SHARE_ENTRIES);
        let share = self.shares.entry(bringer).or_insert_with(|| {
            self.entries += SHARE_ENTRIES;
            Share::default()
        });
        self.entries += entries;
        share.entries += entries;
        share.sessions.push_back(mark.session);
        self.by_name.insert(mark.session, session);
    }

    /// A message that was judged fit is taken, as `msg`.
    pub(crate) fn take(&mut self, now: Instant, copied: Copied, msg: MsgId) {
        self.change(copied, |window| window.take(copied.n, copied.further, msg));
        self.make_room(now, 0);
    }

    /// A message that was taken as `msg` has arrived whole. `atypical` is what its ACK says, if that
    /// is not the length of its payload: another length, or that there is none.
    pub(crate) fn arrived(&mut self, copied: Copied, msg: MsgId, atypical: Option<Option<u32>>) {
        self.change(copied, |window| {
            window.arrived(copied.n, msg);
            if let Some(mlength) = atypical {
                window.atypical_ack(copied.n, mlength);
            }
        });
    }

    /// A message that was taken as `msg` has not arrived after all.
    pub(crate) fn reopen(&mut self, copied: Copied, msg: MsgId) {
        self.change(copied, |window| window.reopen(copied.n, msg));
    }

    fn change(&mut self, copied: Copied, change: impl FnOnce(&mut Window)) {
        let Some(session) = self.by_name.get_mut(&copied.session) else { return };
        let before = session.entries();
        change(&mut session.window);
        let after = session.entries();
        if after != before {
            self.entries = self.entries + after - before;
            if let Some(share) = self.shares.get_mut(&session.bringer) {
                share.entries = share.entries + after - before;
            }
        }
    }

    /// Keeps the table within its limit with so many entries more.
    fn make_room(&mut self, now: Instant, more: usize) {
        if self.entries + more <= ENTRIES_MAX {
            return;
        }
        let before = self.shares.len();
        self.shares
            .retain(|_, share| !share.sessions.is_empty() || share.forgotten.is_pending(now));
        self.entries -= (before - self.shares.len()) * SHARE_ENTRIES;
        while self.entries + more > ENTRIES_MAX {
            let largest = self.shares.iter().max_by_key(|(_, share)| share.entries);
            let Some((&bringer, _)) = largest else { return };
            self.evict(now, bringer);
        }
    }

    /// Evicts sessions of a bringer that were not used for longest. Where even the largest share has none
    /// left, it goes itself, and what it refuses is refused from all.
    fn evict(&mut self, now: Instant, bringer: Nid) {
        let Some(share) = self.shares.get_mut(&bringer) else { return };
        if share.sessions.is_empty() {
            self.forgotten.note(share.forgotten);
            self.entries = self.entries.saturating_sub(share.entries);
            self.shares.remove(&bringer);
            return;
        }
        let keep = share.entries.saturating_sub(ENTRIES_FREED);
        while share.entries > keep
            && let Some(name) = share.sessions.pop_front()
        {
            let Some(session) = self.by_name.get_mut(&name) else { continue };
            if core::mem::take(&mut session.used) {
                share.sessions.push_back(name);
                continue;
            }
            let entries = session.entries();
            share.entries = share.entries.saturating_sub(entries);
            self.entries = self.entries.saturating_sub(entries);
            let until = Some(now + FORGET_AFTER);
            let first = until.filter(|_| session.window.has_further());
            let forgotten = Forgotten { further: until, first };
            if session.by_gateway { &mut self.forgotten } else { &mut share.forgotten }
                .note(forgotten);
            self.by_name.remove(&name);
        }
    }

    /// How many sessions are known.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Sessions on the lists of all bringers.
    pub(crate) fn listed(&self) -> usize {
        self.shares.values().map(|share| share.sessions.len()).sum()
    }

    /// The entries of all sessions and shares, counted anew; those of the table and of all shares as they are
    /// counted.
    pub(crate) fn counted(&self) -> [usize; 3] {
        let sessions: usize = self.by_name.values().map(Session::entries).sum();
        let counted = sessions + self.shares.len() * SHARE_ENTRIES;
        [counted, self.entries, self.shares.values().map(|share| share.entries).sum()]
    }

    /// The messages that are arriving, and where in their session.
    pub(crate) fn arriving(&self) -> impl Iterator<Item = ((SessionName, u64), MsgId)> + '_ {
        self.by_name
            .iter()
            .flat_map(|(name, session)| session.window.arriving().map(|(n, msg)| ((*name, n), msg)))
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::Net;

    use super::*;

    const NOW: Instant = Instant(1_000_000_000_000);

    impl Sessions {
        pub(crate) fn check(&self) {
            let [counted, table, shares] = self.counted();
            assert_eq!((table, shares, self.listed()), (counted, counted, self.len()));
            assert!(counted <= ENTRIES_MAX, "{counted}");
        }
    }

    fn by(n: u128) -> Bringer {
        Bringer { nid: Nid::new(Net::TCP, n as u32), is_gateway: n == 100 }
    }

    fn copy(s: &mut Sessions, now: Instant, from: u128, mark: Mark) -> Judgement {
        let judged = s.judge(now, by(from), mark, 0);
        if judged.judgement == Judgement::Deliver {
            s.take(now, judged.copied, MsgId::default());
            s.arrived(judged.copied, MsgId::default(), None);
        }
        judged.judgement
    }

    fn mark(name: u64, n: u64, further: bool) -> Mark {
        Mark::new(SessionName::new(name), n, further)
    }

    /// More names than there is room for, each with one message.
    fn flood(s: &mut Sessions, from: u128, further: bool) {
        for name in 0..(ENTRIES_MAX / SESSION_ENTRIES) as u64 {
            copy(s, NOW, from, mark(name << 8 | 0xFF, 7, further));
            if name % 8192 == 0 {
                s.check();
            }
        }
    }

    #[test]
    fn a_name_is_known_whichever_neighbour_brings_its_messages() {
        let mut s = Sessions::default();
        assert_eq!(copy(&mut s, NOW, 1, mark(5, 7, true)), Judgement::Deliver);
        assert_eq!(copy(&mut s, NOW, 2, mark(5, 7, false)), Judgement::Duplicate);
        assert_eq!(copy(&mut s, NOW, 2, mark(6, 7, false)), Judgement::Deliver, "another name");
        assert_eq!(copy(&mut s, NOW, 1, mark(5, 6, true)), Judgement::Deliver, "not seen before");
        s.check();
        assert_eq!(s.len(), 2);
    }

    #[test]
    fn a_flood_of_names_evicts_and_refuses_sessions_of_its_bringer_alone() {
        let mut s = Sessions::default();
        for name in 0..64 {
            copy(&mut s, NOW, 1, mark(name, 7, name % 2 == 0));
        }
        flood(&mut s, 2, false);
        s.check();
        for name in 0..64 {
            assert_eq!(copy(&mut s, NOW, 1, mark(name, 7, true)), Judgement::Duplicate, "{name}");
        }
        assert_eq!(copy(&mut s, NOW, 1, mark(1000, 7, true)), Judgement::Deliver);
        assert_eq!(copy(&mut s, NOW, 2, mark(1001, 7, true)), Judgement::Ancient);
        assert_eq!(copy(&mut s, NOW, 2, mark(1001, 7, false)), Judgement::Deliver);
        assert_eq!(copy(&mut s, NOW, 2, mark(1001, 6, true)), Judgement::Ancient, "may have come");
        let later = NOW + FORGET_AFTER;
        assert_eq!(copy(&mut s, later, 2, mark(1002, 7, true)), Judgement::Deliver);
    }

    #[test]
    fn a_flood_of_names_by_many_bringers_is_refused_from_them_alone() {
        const BRINGERS: u128 = 100;
        let mut s = Sessions::default();
        let names = (ENTRIES_MAX / SESSION_ENTRIES) as u64;
        for name in 0..names {
            let from = 1000 + u128::from(name) % BRINGERS;
            copy(&mut s, NOW, from, mark(name << 8 | 0xFF, 7, name < 1000));
        }
        s.check();
        let refused = |s: &mut Sessions, from| {
            let name = mark(from as u64, 7, true);
            copy(s, NOW, from, name) == Judgement::Ancient
        };
        let mut evicted: Vec<u128> =
            (1000..1000 + BRINGERS).filter(|n| refused(&mut s, *n)).collect();
        assert!(!evicted.is_empty(), "some has lost its sessions");
        assert!(evicted.len() < 50, "{evicted:?}");
        assert_eq!(copy(&mut s, NOW, 1, mark(1, 7, true)), Judgement::Deliver);
        assert_eq!(copy(&mut s, NOW, 1, mark(2, 7, false)), Judgement::Deliver);
        // Its share is kept no longer than that, where its place is needed.
        let later = NOW + FORGET_AFTER;
        for name in 0..names {
            copy(&mut s, later, 2, mark(name << 8 | 0xFE, 7, false));
        }
        s.check();
        evicted.retain(|n| s.shares.contains_key(&by(*n).nid));
        assert_eq!(evicted, [], "no sessions, no refusal");
    }

    #[test]
    fn shares_without_sessions_are_bounded_by_the_limit_of_all_entries() {
        let mut s = Sessions::default();
        for from in 0..(ENTRIES_MAX / SHARE_ENTRIES + 100) as u128 {
            let share = s.shares.entry(by(1000 + from).nid).or_default();
            share.forgotten = Forgotten { further: Some(NOW + FORGET_AFTER), first: None };
            s.entries += SHARE_ENTRIES;
            s.make_room(NOW, 0);
        }
        s.check();
        assert_eq!(s.shares.len(), ENTRIES_MAX / SHARE_ENTRIES);
        assert_eq!(copy(&mut s, NOW, 1, mark(1, 7, true)), Judgement::Ancient, "refused from all");
        assert_eq!(copy(&mut s, NOW, 1, mark(1, 7, false)), Judgement::Deliver);
        s.check();
    }

    #[test]
    fn after_an_eviction_no_message_is_delivered_again() {
        let mut s = Sessions::default();
        copy(&mut s, NOW, 2, mark(1, 7, true));
        flood(&mut s, 2, true);
        assert_eq!(copy(&mut s, NOW, 2, mark(1, 7, false)), Judgement::Ancient);
        assert_eq!(copy(&mut s, NOW, 2, mark(1, 7, true)), Judgement::Ancient);
        // What a gateway brought comes by another one.
        let mut s = Sessions::default();
        copy(&mut s, NOW, 100, mark(1, 7, true));
        flood(&mut s, 100, true);
        assert_eq!(copy(&mut s, NOW, 3, mark(1, 7, false)), Judgement::Ancient);
    }

    #[test]
    fn full_windows_count_with_all_their_entries() {
        let mut s = Sessions::default();
        for name in 0..700 {
            for n in 0..2000 {
                copy(&mut s, NOW, name % 7, mark(name as u64, 2 * n, true));
            }
            s.check();
        }
        assert!(s.len() < 700, "{}", s.len());
    }
}

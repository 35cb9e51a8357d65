//! Windows of sessions whose peer has no record here any more, or a new one: discovery was switched off
//! and on, or the peer deleted and met again. What of such a session has been delivered is still known:
//! first copies may have been on their way for long.
//!
//! Here also stands which sessions were offered and have no window yet, or get none. Their senders mark
//! messages from then on, and what bears the same bits is not to be taken for that of a former life.

use std::collections::VecDeque;
use std::sync::Arc;

use lnet_types::Nid;
use lnet_wire::mark::Mark;

use super::fresh::life_of;
use super::window::Window;

/// More than so many are not remembered.
const RETIRED_MAX: usize = 1024;

/// All of them, oldest first.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Retired {
    windows: VecDeque<Kept>,
    /// Of these, so many were only offered.
    offers: usize,
    /// Some were forgotten.
    lost: bool,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Kept {
    session: u64,
    /// None if it was only offered.
    window: Option<Window>,
    /// What its sender had then.
    nids: Arc<[Nid]>,
}

impl Retired {
    /// Keeps the windows of a peer that has these NIDs.
    pub(crate) fn keep(&mut self, nids: &[Nid], windows: impl IntoIterator<Item = Window>) {
        // The newest session of a peer is the first of its windows.
        let mut windows: Vec<Window> = windows.into_iter().collect();
        windows.reverse();
        let nids: Arc<[Nid]> = nids.into();
        for window in windows {
            self.take(window.session());
            self.push(Kept { session: window.session(), window: Some(window), nids: nids.clone() });
        }
    }

    /// A node with these NIDs has told its session: it is the newest of all of that node's.
    pub(crate) fn offered(&mut self, session: u64, nids: impl Iterator<Item = Nid>) {
        let window = self.take(session);
        self.push(Kept { session, window, nids: nids.collect() });
    }

    /// A session that was offered is newer than what was kept since.
    pub(crate) fn renew(&mut self, session: u64) {
        let at = self.windows.iter().position(|kept| kept.session == session);
        if let Some(kept) = at.and_then(|at| self.windows.remove(at)) {
            self.windows.push_back(kept);
        }
    }

    /// What a node with these NIDs has told before has been followed by a session that has a window.
    pub(crate) fn settled(&mut self, nids: &[Nid]) {
        if self.offers > 0 {
            let of_it =
                |kept: &Kept| kept.window.is_none() && kept.nids.iter().any(|n| nids.contains(n));
            self.windows.retain(|kept| !of_it(kept));
            self.offers = self.windows.iter().filter(|kept| kept.window.is_none()).count();
        }
    }

    /// The session without a window that whoever has `nid` has told, if the mark may be of it.
    pub(crate) fn offer_of(&self, nid: Nid, mark: Mark) -> Option<u64> {
        if self.offers == 0 {
            return None;
        }
        let mut offers = self.windows.iter().rev().filter(|kept| kept.window.is_none());
        let kept = offers.find(|kept| mark.is_of(kept.session) && kept.nids.contains(&nid))?;
        Some(kept.session)
    }

    fn push(&mut self, kept: Kept) {
        self.offers += usize::from(kept.window.is_none());
        self.windows.push_back(kept);
        if self.windows.len() > RETIRED_MAX
            && let Some(oldest) = self.windows.pop_front()
        {
            self.lost |= oldest.window.is_some();
            self.offers = self.offers.saturating_sub(usize::from(oldest.window.is_none()));
        }
    }

    /// Gives the window of a session that is there again.
    pub(crate) fn take(&mut self, session: u64) -> Option<Window> {
        let at = self.windows.iter().position(|kept| kept.session == session)?;
        let window = self.windows.remove(at)?.window;
        // A state that was read from a file may say anything.
        self.offers = self.offers.saturating_sub(usize::from(window.is_none()));
        window
    }

    /// The window for a mark of the life with this cookie.
    pub(crate) fn of(&mut self, cookie: u64, mark: Mark) -> Option<&mut Window> {
        let of_it = |w: &&mut Window| life_of(w.session()) == life_of(cookie);
        let windows = self.windows.iter_mut().rev().filter_map(|kept| kept.window.as_mut());
        windows.filter(of_it).find(|w| mark.is_of(w.session()))
    }

    /// The window for a mark of whoever had `nid`: of the newest session that it may be of.
    pub(crate) fn from(&mut self, nid: Nid, mark: Mark) -> Option<&mut Window> {
        let mut of_it = self.windows.iter_mut().rev().filter(|kept| kept.nids.contains(&nid));
        of_it.find(|kept| mark.is_of(kept.session))?.window.as_mut()
    }

    /// Whether there may have been one that is forgotten.
    pub(crate) const fn has_lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once::window::Judgement;

    fn window(session: u64) -> Window {
        Window::new(session, Mark::new(session, 5, false))
    }

    #[test]
    fn what_was_delivered_is_known_until_it_is_taken_or_too_much() {
        let mut retired = Retired::default();
        let (old, new) = (7, 7 + (1 << 30));
        let mut seen = window(old);
        let n = seen.end();
        seen.take(n, true, lnet_types::MsgId::default());
        seen.arrived(n, lnet_types::MsgId::default());
        let [had, other] = [7, 8].map(|n| Nid::new(lnet_types::Net::TCP, n));
        retired.keep(&[had], [window(new), seen]);
        let found = retired.from(had, Mark::new(old, 5, false)).unwrap();
        assert_eq!(found.judge(n, false), Judgement::Duplicate);
        assert!(retired.from(other, Mark::new(old, 5, false)).is_none(), "another node");
        let found = retired.of(old, Mark::new(old, 5, false)).unwrap();
        assert_eq!(found.judge(n, false), Judgement::Duplicate);
        let life = old + (8 << 30) + 1;
        retired.offered(life, [had].into_iter());
        assert!(
            retired.from(had, Mark::new(old, 5, false)).is_none(),
            "a new life's, with the same bits"
        );
        assert_eq!(retired.offer_of(had, Mark::new(old, 6, false)), Some(life));
        assert!(retired.offer_of(other, Mark::new(old, 6, false)).is_none());
        assert!(retired.take(life).is_none());
        assert!(retired.offer_of(had, Mark::new(old, 6, false)).is_none());
        retired.offered(life, [had].into_iter());
        retired.settled(&[other]);
        assert!(retired.offer_of(had, Mark::new(old, 6, false)).is_some());
        retired.settled(&[other, had]);
        assert!(retired.offer_of(had, Mark::new(old, 6, false)).is_none());
        assert!(retired.from(had, Mark::new(old, 5, false)).is_some());
        assert_eq!(retired.of(old, Mark::new(new, 5, false)).unwrap().session(), new);
        assert!(retired.of(old + 1, Mark::new(old, 5, false)).is_none(), "another life");
        assert_eq!(retired.take(old).unwrap().judge(n, true), Judgement::Duplicate);
        assert!(retired.take(old).is_none() && !retired.has_lost());
        retired.keep(&[], (0..RETIRED_MAX as u64).map(|n| window(1000 + n)));
        assert!(retired.has_lost() && retired.take(new).is_none());
        assert_eq!(retired.windows.len(), RETIRED_MAX);
    }
}

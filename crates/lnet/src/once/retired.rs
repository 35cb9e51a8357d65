//! Windows of sessions whose peer has no record here any more, or a new one: discovery was switched off
//! and on, or the peer deleted and met again. What of such a session has been delivered is still known:
//! first copies may have been on their way for long.

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
    /// Some were forgotten.
    lost: bool,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Kept {
    window: Window,
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
            self.windows.push_back(Kept { window, nids: nids.clone() });
            if self.windows.len() > RETIRED_MAX {
                self.windows.pop_front();
                self.lost = true;
            }
        }
    }

    /// Gives the window of a session that is there again.
    pub(crate) fn take(&mut self, session: u64) -> Option<Window> {
        let at = self.windows.iter().position(|kept| kept.window.session() == session)?;
        self.windows.remove(at).map(|kept| kept.window)
    }

    /// The window for a mark of the life with this cookie.
    pub(crate) fn of(&mut self, cookie: u64, mark: Mark) -> Option<&mut Window> {
        let of_it = |w: &&mut Window| life_of(w.session()) == life_of(cookie);
        let windows = self.windows.iter_mut().rev().map(|kept| &mut kept.window);
        windows.filter(of_it).find(|w| mark.is_of(w.session()))
    }

    /// The window for a mark of whoever had `nid`.
    pub(crate) fn from(&mut self, nid: Nid, mark: Mark) -> Option<&mut Window> {
        let mut of_it = self.windows.iter_mut().rev().filter(|kept| kept.nids.contains(&nid));
        of_it.find(|kept| mark.is_of(kept.window.session())).map(|kept| &mut kept.window)
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
        assert_eq!(retired.of(old, Mark::new(new, 5, false)).unwrap().session(), new);
        assert!(retired.of(old + 1, Mark::new(old, 5, false)).is_none(), "another life");
        assert_eq!(retired.take(old).unwrap().judge(n, true), Judgement::Duplicate);
        assert!(retired.take(old).is_none() && !retired.has_lost());
        retired.keep(&[], (0..RETIRED_MAX as u64).map(|n| window(1000 + n)));
        assert!(retired.has_lost() && retired.take(new).is_none());
        assert_eq!(retired.windows.len(), RETIRED_MAX);
    }
}

//! Windows of sessions whose peer has no record here any more, or a new one: discovery was switched off
//! and on, or the peer deleted and met again. What of such a session has been delivered is still known:
//! first copies may have been on their way for long.

use std::collections::VecDeque;

use lnet_wire::mark::Mark;

use super::fresh::life_of;
use super::window::Window;

/// More than so many are not remembered.
const RETIRED_MAX: usize = 1024;

/// All of them, oldest first.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Retired {
    windows: VecDeque<Window>,
    /// Some were forgotten.
    lost: bool,
}

impl Retired {
    pub(crate) fn keep(&mut self, windows: impl IntoIterator<Item = Window>) {
        // The newest session of a peer is the first of its windows.
        let mut windows: Vec<Window> = windows.into_iter().collect();
        windows.reverse();
        for window in windows {
            self.take(window.session());
            self.windows.push_back(window);
            if self.windows.len() > RETIRED_MAX {
                self.windows.pop_front();
                self.lost = true;
            }
        }
    }

    /// Gives the window of a session that is there again.
    pub(crate) fn take(&mut self, session: u64) -> Option<Window> {
        let at = self.windows.iter().position(|w| w.session() == session)?;
        self.windows.remove(at)
    }

    /// The window for a mark of the life with this cookie.
    pub(crate) fn of(&mut self, cookie: u64, mark: Mark) -> Option<&mut Window> {
        let of_it = |w: &&mut Window| life_of(w.session()) == life_of(cookie);
        self.windows.iter_mut().rev().filter(of_it).find(|w| mark.is_of(w.session()))
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
        retired.keep([window(new), seen]);
        let found = retired.of(old, Mark::new(old, 5, false)).unwrap();
        assert_eq!(found.judge(n, false), Judgement::Duplicate);
        assert_eq!(retired.of(old, Mark::new(new, 5, false)).unwrap().session(), new);
        assert!(retired.of(old + 1, Mark::new(old, 5, false)).is_none(), "another life");
        assert_eq!(retired.take(old).unwrap().judge(n, true), Judgement::Duplicate);
        assert!(retired.take(old).is_none() && !retired.has_lost());
        retired.keep((0..RETIRED_MAX as u64).map(|n| window(1000 + n)));
        assert!(retired.has_lost() && retired.take(new).is_none());
        assert_eq!(retired.windows.len(), RETIRED_MAX);
    }
}

//! What a life of a node knows of sessions that it has not agreed on (DEC-6). Its predecessor has: their
//! senders go on, and repeat what they had written and nobody answered. This life has delivered none
//! of it, and can say so for as long as it has kept account of every such message from its first
//! moment on. That is done here, by the name that the sender's life has in the handle of a request.
//!
//! When the session is agreed on after all, its window takes over from where this account ends; what
//! comes from before stays here.

use std::collections::BTreeMap;

use lnet_types::PeerId;
use lnet_wire::mark::Mark;

use super::window::Window;

/// Lives of senders of which an account is kept.
pub(crate) const ACCOUNTS_MAX: usize = 512;
/// Lives of senders with which sessions were agreed on that are remembered.
const AGREED_MAX: usize = 1 << 16;

/// The lower bits of a session are those of the cookie of its sender's life.
const LIFE: u64 = (1 << 30) - 1;

/// The cookie of a life, and the bits of the session in its marks.
pub(crate) type Name = (u64, u8);

/// All accounts.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Fresh {
    accounts: BTreeMap<Name, Account>,
    /// Of these, much was delivered without an account; and whose they were, as it was last agreed.
    agreed: BTreeMap<u32, PeerId>,
    /// Something was delivered of which there is no account, and nobody knows whose.
    full: bool,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Account {
    window: Window,
    /// Where the window of the session begins, once it is agreed on.
    until: Option<u64>,
}

impl Fresh {
    /// Whether a request that bears `mark`, from the life with this cookie, is judged here. If it is the
    /// first of that life, an account is opened.
    pub(crate) fn keeps(&mut self, cookie: u64, mark: Mark) -> bool {
        let name = (cookie, mark.session());
        if let Some(account) = self.accounts.get(&name) {
            let n = account.window.number(mark);
            return account.until.is_none_or(|until| n < until);
        }
        if self.full || self.agreed.contains_key(&life_of(cookie)) {
            return false;
        }
        self.full = self.accounts.len() >= ACCOUNTS_MAX;
        if !self.full {
            self.accounts.insert(name, Account { window: Window::unseen(mark), until: None });
        }
        !self.full
    }

    pub(crate) fn window(&mut self, name: Name) -> Option<&mut Window> {
        self.accounts.get_mut(&name).map(|account| &mut account.window)
    }

    /// The peer with which a session was agreed on by the life with this cookie.
    pub(crate) fn agreed_with(&self, cookie: u64) -> Option<PeerId> {
        self.agreed.get(&life_of(cookie)).copied()
    }

    /// A session is agreed on with `peer`, to begin with the message of `start`. Where its window is to
    /// begin.
    pub(crate) fn hand_over(&mut self, peer: PeerId, session: u64, start: Mark) -> Mark {
        let life = life_of(session);
        if self.agreed.len() < AGREED_MAX {
            self.agreed.insert(life, peer);
        } else {
            self.full = true;
        }
        let of_it = |(name, account): &(&Name, &mut Account)| {
            life_of(name.0) == life && start.session() == name.1 && account.until.is_none()
        };
        let Some((_, account)) = self.accounts.iter_mut().find(of_it) else { return start };
        let begin = account.window.number(start).max(account.window.end());
        account.until = Some(begin);
        Mark::new(session, begin, start.again)
    }
}

pub(super) const fn life_of(cookie: u64) -> u32 {
    (cookie & LIFE) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::once::window::Judgement;

    const COOKIE: u64 = 0x5000_1234_5678;

    fn mark(seq: u64) -> Mark {
        Mark::new(COOKIE, seq, true)
    }

    #[test]
    fn an_account_ends_where_its_session_begins_and_is_not_opened_again() {
        let mut f = Fresh::default();
        assert!(f.keeps(COOKIE, mark(100)));
        let w = f.window((COOKIE, mark(100).session())).unwrap();
        let n = w.number(mark(100));
        for older in [0, 1, 50] {
            assert_eq!(w.judge(n - older, true), Judgement::Deliver, "nothing was delivered yet");
        }
        w.take(n, true, lnet_types::MsgId::default());
        // The push tells an earlier number than what has overtaken it.
        let begin = f.hand_over(PeerId::default(), COOKIE, mark(90));
        assert_eq!(begin.seq(), 101);
        assert!(f.keeps(COOKIE, mark(100)) && !f.keeps(COOKIE, mark(101)));
        // Another session of that life is none of which everything is known.
        let other = Mark::new(COOKIE + (1 << 30), 5, true);
        assert!(!f.keeps(COOKIE, other));
    }

    #[test]
    fn who_had_a_session_has_no_account() {
        let mut f = Fresh::default();
        assert_eq!(f.hand_over(PeerId::default(), COOKIE + (3 << 30), mark(7)).seq(), 7);
        assert!(!f.keeps(COOKIE, mark(8)));
    }

    #[test]
    fn beyond_the_bound_nobody_is_believed_any_more() {
        let mut f = Fresh::default();
        for life in 0..ACCOUNTS_MAX as u64 {
            assert!(f.keeps(life, mark(1)));
        }
        assert!(!f.keeps(COOKIE, mark(1)));
        assert!(f.keeps(0, mark(1)), "what is kept is kept");
    }
}

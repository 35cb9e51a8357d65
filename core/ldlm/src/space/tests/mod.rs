//! Tests of the lock machine: `statements.rs` and `timers.rs` one by one, `flock.rs` locks of files'
//! users, `model.rs` any sequence of calls against a model, `hostile.rs` any value of any field.

mod flock;
mod hostile;
mod model;
mod statements;
mod timers;

use core::time::Duration;

use lnet_types::Instant;
use lustre_wire::ldlm::{InodeBits, LockDesc, LockFlags, LockKind, LockMode, Policy, ResourceName};

use super::*;
use crate::Cookie;

pub(super) const NONE: LockFlags = LockFlags::empty();
/// The end of a file.
pub(super) const EOF: u64 = u64::MAX;

pub(super) fn secs(n: u64) -> Instant {
    Instant::from_secs(n)
}

/// The name of a resource.
pub(super) fn name(n: u64) -> ResourceName {
    ResourceName { words: [n, 0, 0, 0] }
}

fn ask(kind: LockKind, mode: LockMode, policy: Policy) -> Ask {
    let desc = LockDesc {
        kind,
        resource: name(1),
        requested: mode,
        granted: LockMode::NONE,
        policy: policy.words(),
    };
    Ask { client_cookie: 0, flags: NONE, desc, resent: false }
}

pub(super) fn extent(mode: LockMode, start: u64, end: u64) -> Ask {
    ask(LockKind::EXTENT, mode, Policy::Extent { start, end, gid: 0 })
}

/// An extent that does not grow.
pub(super) fn fixed(mode: LockMode, start: u64, end: u64) -> Ask {
    Ask { flags: LockFlags::NO_EXPANSION, ..extent(mode, start, end) }
}

pub(super) fn group(gid: u64) -> Ask {
    ask(LockKind::EXTENT, LockMode::GROUP, Policy::Extent { start: 0, end: EOF, gid })
}

pub(super) fn plain(mode: LockMode) -> Ask {
    ask(LockKind::PLAIN, mode, Policy::Plain)
}

pub(super) fn ibits(mode: LockMode, bits: u64, try_bits: u64) -> Ask {
    let (bits, try_bits) =
        (InodeBits::from_bits_retain(bits), InodeBits::from_bits_retain(try_bits));
    ask(LockKind::IBITS, mode, Policy::Ibits { bits, try_bits, gid: 0, initiator: 0 })
}

pub(super) fn flock(mode: LockMode, owner: u64, start: u64, end: u64) -> Ask {
    ask(LockKind::FLOCK, mode, Policy::Flock { start, end, owner, pid: owner as u32 })
}

/// A namespace with its clock, and ten clients.
pub(super) struct World {
    pub(super) space: Namespace,
    pub(super) now: Instant,
    cookies: u64,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config::new(1))
    }

    pub(super) fn with(config: Config) -> Self {
        let mut space = Namespace::new(config);
        for client in 0..10 {
            space.connect(HolderId(client), HolderKind::Client, Duration::from_secs(10));
        }
        Self { space, now: secs(1000), cookies: 0 }
    }

    /// Enqueues and answers.
    pub(super) fn take(&mut self, client: u64, ask: &Ask) -> Answer {
        let lock = self.enqueue(client, ask).expect("the request is not refused").lock;
        self.space.answer(self.now, lock).expect("the lock is there")
    }

    /// The same, of a lock that is granted.
    pub(super) fn hold(&mut self, client: u64, ask: &Ask) -> Cookie {
        let answer = self.take(client, ask);
        assert_eq!(answer.state, State::Granted, "{ask:?}");
        answer.lock
    }

    /// The same, of a lock that waits.
    pub(super) fn wait(&mut self, client: u64, ask: &Ask) -> Cookie {
        let answer = self.take(client, ask);
        assert_eq!(answer.state, State::Waiting, "{ask:?}");
        answer.lock
    }

    pub(super) fn enqueue(&mut self, client: u64, ask: &Ask) -> Result<Enqueued, crate::Refusal> {
        self.cookies += 1;
        let client_cookie = if ask.client_cookie == 0 { self.cookies } else { ask.client_cookie };
        self.space.enqueue(self.now, HolderId(client), &Ask { client_cookie, ..*ask })
    }

    pub(super) fn cancel(&mut self, client: u64, lock: Cookie) -> Cancelled {
        self.space.cancel(self.now, HolderId(client), &[lock])
    }

    pub(super) fn effects(&mut self) -> Vec<Effect> {
        core::iter::from_fn(|| self.space.poll_effect()).collect()
    }

    pub(super) fn state(&self, lock: Cookie) -> Option<State> {
        self.space.lock(lock).map(|view| view.state)
    }

    pub(super) fn range(&self, lock: Cookie) -> (u64, u64) {
        let policy = self.space.lock(lock).expect("the lock is there").desc.policy;
        (policy.start, policy.end)
    }
}

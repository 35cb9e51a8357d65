//! Promises of space (L-95, L-96): bytes that the target has promised to take. Data is cached only
//! as far as there are promises for it; without them it is written through.

/// What a client says of its promises in a data request (L-95).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// Bytes that are dirty.
    pub(super) dirty: u64,
    /// Bytes that the client would like to hold in all.
    pub(super) wanted: u32,
    /// Bytes that it holds when the request is done.
    pub(super) held: u64,
    /// Bytes that the request uses.
    pub(super) used: u64,
}

/// The promises that a client holds.
#[derive(Debug, Default)]
pub(super) struct Grant {
    /// For which there is no data.
    free: u64,
    /// For which there is dirty data, or data on its way.
    reserved: u64,
}

impl Grant {
    /// Whether there are promises for so many bytes; they are reserved then.
    pub(super) fn reserve(&mut self, len: u64) -> bool {
        let fits = self.free >= len;
        if fits {
            self.free -= len;
            self.reserved += len;
        }
        fits
    }

    /// Reserved bytes are not dirty any more, and were not written.
    pub(super) fn give_up(&mut self, len: u64) {
        let len = len.min(self.reserved);
        self.reserved -= len;
        self.free += len;
    }

    /// Reserved bytes were written: the target counts them as used.
    pub(super) fn spend(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_sub(len);
    }

    /// The target promises more.
    pub(super) fn add(&mut self, len: u64) {
        self.free = self.free.saturating_add(len);
    }

    /// The target has dropped this client, and its promises.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All that is held.
    pub(super) const fn total(&self) -> u64 {
        self.free.saturating_add(self.reserved)
    }

    pub(super) fn account(&self, wanted: u64, used: u64) -> Account {
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        let held = self.total().saturating_sub(used);
        Account { dirty: self.reserved, wanted, held, used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_reserved_spent_and_given_up() {
        let mut grant = Grant::default();
        assert!(!grant.reserve(1));
        grant.add(100);
        assert!(grant.reserve(60) && !grant.reserve(41) && grant.reserve(40));
        grant.give_up(40);
        grant.spend(50);
        assert_eq!(grant.total(), 50);
        let account = grant.account(1 << 40, 10);
        assert_eq!(account, Account { dirty: 10, wanted: u32::MAX, held: 40, used: 10 });
        grant.clear();
        assert_eq!(grant.total(), 0);
    }
}

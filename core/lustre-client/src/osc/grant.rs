//! Promises of space (L-95, L-96): bytes that the target has promised to take. Data is cached only
//! as far as there are promises for it; without them it is written through.

use lustre_wire::connect::{ConnectData, ConnectFlags};

/// Bytes in which space is counted by servers that do not say how (L-95).
const BLOCK: u64 = 4096;
/// Bytes that a client would like to hold when it connects: two of the largest requests.
pub(super) const GRANT_FIRST: u32 = 8 << 20;

/// How a target counts space: in whole blocks, and for each extent something more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Price {
    block: u64,
    /// For each extent.
    tax: u64,
    /// Most bytes of an extent.
    extent: u64,
}

impl Price {
    /// As a target has said when it was connected.
    pub(super) fn of(granted: &ConnectData) -> Self {
        if !granted.flags.contains(ConnectFlags::GRANT_PARAM) {
            return Self { block: BLOCK, tax: 0, extent: u64::MAX };
        }
        // No block is longer than an object.
        let block = 1u64 << granted.grant_blkbits.min(40);
        let extent = u64::from(granted.grant_max_blks).saturating_mul(block);
        Self {
            block: block.max(BLOCK),
            tax: u64::from(granted.grant_tax_kb) << 10,
            extent: if extent == 0 { u64::MAX } else { extent },
        }
    }

    /// The space that a range may take.
    pub(super) fn of_range(&self, start: u64, len: u64) -> u64 {
        let first = start / self.block;
        let last = start.saturating_add(len).div_ceil(self.block);
        let space = (last - first).saturating_mul(self.block);
        space.saturating_add(space.div_ceil(self.extent).saturating_mul(self.tax))
    }
}

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
    /// A connection has begun the account.
    begun: bool,
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

    /// The target promises so much with a connection (C-229): to a client that was connected before all that
    /// it holds, what is reserved included (L-96). Promises that came with lost replies are among them.
    pub(super) fn begin(&mut self, len: u64) {
        self.free = len.saturating_sub(self.reserved);
        self.begun = true;
    }

    /// What the next connect says: all that is held, or what a new client would like to hold.
    pub(super) fn announced(&self) -> u32 {
        match self.begun {
            true => u32::try_from(self.total()).unwrap_or(u32::MAX),
            false => GRANT_FIRST,
        }
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
    fn l95_space_is_counted_in_blocks_of_the_target_and_by_extents() {
        let plain = Price::of(&ConnectData::default());
        assert_eq!(
            [(0, 1), (4095, 2), (4096, 4096)].map(|(at, len)| plain.of_range(at, len)),
            [4096, 8192, 4096]
        );
        // As a recorded target has said: pages, 24 KiB for each extent of 64 MiB.
        let mut granted = ConnectData {
            flags: ConnectFlags::GRANT_PARAM,
            grant_blkbits: 12,
            grant_tax_kb: 24,
            grant_max_blks: 0x4000,
            ..ConnectData::default()
        };
        let price = Price::of(&granted);
        assert_eq!(price.of_range(10, 100), 4096 + (24 << 10));
        assert_eq!(price.of_range(0, 65 << 20), (65 << 20) + (48 << 10));
        // Blocks of a megabyte, and a target that says nothing of extents.
        (granted.grant_blkbits, granted.grant_tax_kb, granted.grant_max_blks) = (20, 0, 0);
        assert_eq!(Price::of(&granted).of_range((1 << 20) - 1, 2), 2 << 20);
        granted.grant_blkbits = 255;
        assert_eq!(Price::of(&granted).of_range(0, 1), 1 << 40);
    }

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
        grant.begin(70);
        assert_eq!((grant.total(), grant.announced()), (70, 70));
        grant.begin(120);
        assert_eq!((grant.total(), grant.free), (120, 110), "L-96");
        grant.begin(5);
        assert_eq!((grant.total(), grant.free), (10, 0), "a target that holds less");
        grant.clear();
        assert_eq!(grant.announced(), GRANT_FIRST);
        grant.begin(70);
        assert_eq!(grant.total(), 70);
    }
}

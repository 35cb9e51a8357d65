//! Registered memory: which bytes are pinned, for which buffer, and how long.
//!
//! Memory that the adapter only reads is kept registered: the next message from the same buffer finds
//! it. Its key never leaves this node. An entry belongs to the *anchor* of its buffer
//! ([`lnet_types::Memory::anchor`]), not to an address: memory that was freed and given out again is
//! another buffer's, and is registered anew. Memory that a peer may write is registered for one exchange and
//! no longer: its key must open nothing behind the end of that (RS-096).
//!
//! Pinned bytes have a limit. At the limit those go that were used longest ago; what is in use stays,
//! and one more is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use lnet_types::Errno;
use slotmap::SlotMap;

/// What registers memory.
pub(super) trait Registrar {
    /// Its name for registered memory.
    type Handle: Copy;

    /// Pins memory.
    ///
    /// # Errors
    /// The device's, or the limit of the system on locked memory.
    fn register(&self, addr: u64, len: u64, reach: Reach) -> Result<Keys<Self::Handle>, Errno>;

    /// Unpins it. Behind this call its keys open nothing.
    fn deregister(&self, handle: Self::Handle);
}

/// What may be done with registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// This node's own work requests read it.
    Read,
    /// They write it: receive buffers.
    Write,
    /// Peers write it.
    Remote,
}

/// Registered memory: its name, the key for this node's own work requests, and that for peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys<H> {
    pub(super) handle: H,
    pub(super) local: u32,
    pub(super) remote: u32,
}

slotmap::new_key_type! {
    /// A registration.
    pub(super) struct RegId;
}

struct Registration<H> {
    /// Of the buffer that it may be found by.
    anchor: Option<Weak<()>>,
    from: u64,
    to: u64,
    keys: Keys<H>,
    users: u32,
    /// When it was released last, in a row.
    released: u64,
}

impl<H> Registration<H> {
    fn is_dead(&self) -> bool {
        self.users == 0 && self.anchor.as_ref().is_none_or(|anchor| anchor.strong_count() == 0)
    }
}

/// What has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PinStats {
    /// Bytes that are pinned now.
    pub pinned: u64,
    /// Most that were.
    pub pinned_max: u64,
    /// Registrations made.
    pub registered: u64,
    /// Uses of one that was there.
    pub found: u64,
    /// Registrations that went because of the limit.
    pub evicted: u64,
    /// Refusals because of the limit.
    pub refused: u64,
}

/// All registrations of an adapter.
pub(super) struct Registrations<R: Registrar> {
    registrar: R,
    all: SlotMap<RegId, Registration<R::Handle>>,
    /// By the place of their anchor, which is nothing else's as long as one of them has it.
    by_anchor: BTreeMap<usize, Vec<RegId>>,
    /// Those that are not in use, the one released first in front.
    idle: BTreeMap<u64, RegId>,
    limit: u64,
    releases: u64,
    stats: PinStats,
}

/// Registrations begin and end with pages, of which the system pins whole ones.
const PAGE: u64 = 4096;

fn place(anchor: &Weak<()>) -> usize {
    anchor.as_ptr() as usize
}

impl<R: Registrar> Registrations<R> {
    pub(super) fn new(registrar: R, limit: u64) -> Self {
        Self {
            registrar,
            all: SlotMap::with_key(),
            by_anchor: BTreeMap::new(),
            idle: BTreeMap::new(),
            limit,
            releases: 0,
            stats: PinStats::default(),
        }
    }

    pub(super) const fn stats(&self) -> PinStats {
        self.stats
    }

    /// Memory to be read by this node's own work requests: its key here.
    pub(super) fn hold(
        &mut self,
        anchor: Option<&Arc<()>>,
        addr: u64,
        len: u64,
    ) -> Result<(RegId, u32), Errno> {
        let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
        let weak = anchor.map(Arc::downgrade);
        let known = weak.as_ref().and_then(|weak| self.by_anchor.get(&place(weak)));
        let fits = |id: &&RegId| self.all.get(**id).is_some_and(|r| r.from <= addr && end <= r.to);
        if let Some(id) = known.and_then(|ids| ids.iter().find(fits)).copied()
            && let Some(registration) = self.all.get_mut(id)
        {
            registration.users += 1;
            self.idle.remove(&registration.released);
            self.stats.found += 1;
            return Ok((id, registration.keys.local));
        }
        let from = addr / PAGE * PAGE;
        let to = end.checked_next_multiple_of(PAGE).unwrap_or(end);
        let (id, keys) = self.register(weak, from, to, Reach::Read)?;
        Ok((id, keys.local))
    }

    /// Memory that peers may write: its keys, for one exchange.
    pub(super) fn expose(&mut self, addr: u64, len: u64) -> Result<(RegId, u32), Errno> {
        let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
        let (id, keys) = self.register(None, addr, end, Reach::Remote)?;
        Ok((id, keys.remote))
    }

    /// Memory to be read once.
    pub(super) fn lend(&mut self, addr: u64, len: u64) -> Result<(RegId, u32), Errno> {
        let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
        let (id, keys) = self.register(None, addr, end, Reach::Read)?;
        Ok((id, keys.local))
    }

    /// Memory of the driver's own, for as long as the adapter lives or until it is released.
    pub(super) fn own(&mut self, addr: u64, len: u64) -> Result<(RegId, u32), Errno> {
        let end = addr.checked_add(len).ok_or(Errno::EINVAL)?;
        let (id, keys) = self.register(None, addr, end, Reach::Write)?;
        Ok((id, keys.local))
    }

    /// One user less. What no user can find again goes at once.
    pub(super) fn release(&mut self, id: RegId) {
        let Some(registration) = self.all.get_mut(id) else { return };
        registration.users = registration.users.saturating_sub(1);
        if registration.users > 0 {
            return;
        }
        if registration.is_dead() {
            self.remove(id);
            return;
        }
        self.releases += 1;
        registration.released = self.releases;
        self.idle.insert(self.releases, id);
    }

    fn register(
        &mut self,
        anchor: Option<Weak<()>>,
        from: u64,
        to: u64,
        reach: Reach,
    ) -> Result<(RegId, Keys<R::Handle>), Errno> {
        let len = to - from;
        self.forget_dead();
        while self.stats.pinned.saturating_add(len) > self.limit {
            if !self.evict() {
                self.stats.refused += 1;
                return Err(Errno::ENOMEM);
            }
        }
        let mut keys = self.registrar.register(from, len, reach);
        // The limit of the system may be lower than that of the adapter.
        while matches!(keys, Err(Errno::ENOMEM)) && self.evict() {
            keys = self.registrar.register(from, len, reach);
        }
        let keys = keys?;
        self.stats.registered += 1;
        self.stats.pinned += len;
        self.stats.pinned_max = self.stats.pinned_max.max(self.stats.pinned);
        let place = anchor.as_ref().map(place);
        let id = self.all.insert(Registration { anchor, from, to, keys, users: 1, released: 0 });
        if let Some(place) = place {
            self.by_anchor.entry(place).or_default().push(id);
        }
        Ok((id, keys))
    }

    /// Buffers that are gone take their registrations along.
    fn forget_dead(&mut self) {
        let dead = |id: &&RegId| self.all.get(**id).is_some_and(Registration::is_dead);
        for id in self.idle.values().filter(dead).copied().collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    /// The one that was used longest ago goes; whether there was one.
    fn evict(&mut self) -> bool {
        let Some((_, id)) = self.idle.first_key_value() else { return false };
        self.stats.evicted += 1;
        self.remove(*id);
        true
    }

    fn remove(&mut self, id: RegId) {
        let Some(registration) = self.all.remove(id) else { return };
        self.idle.remove(&registration.released);
        if let Some(place) = registration.anchor.as_ref().map(place)
            && let Some(ids) = self.by_anchor.get_mut(&place)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_anchor.remove(&place);
            }
        }
        self.stats.pinned -= registration.to - registration.from;
        self.registrar.deregister(registration.keys.handle);
    }
}

impl<R: Registrar> Drop for Registrations<R> {
    fn drop(&mut self) {
        for id in self.all.keys().collect::<Vec<_>>() {
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::RefCell;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    use super::*;

    /// A device with room for so many bytes.
    #[derive(Clone)]
    struct Device {
        room: u64,
        open: Rc<RefCell<BTreeMap<u32, u64>>>,
        last: Rc<RefCell<u32>>,
    }

    impl Device {
        fn new(room: u64) -> Self {
            Self { room, open: Rc::default(), last: Rc::default() }
        }
        fn open(&self) -> BTreeSet<u32> {
            self.open.borrow().keys().copied().collect()
        }
    }

    impl Registrar for Device {
        type Handle = u32;
        fn register(&self, _: u64, len: u64, _: Reach) -> Result<Keys<u32>, Errno> {
            let mut open = self.open.borrow_mut();
            if open.values().sum::<u64>() + len > self.room {
                return Err(Errno::ENOMEM);
            }
            *self.last.borrow_mut() += 1;
            let handle = *self.last.borrow();
            open.insert(handle, len);
            Ok(Keys { handle, local: handle, remote: handle + 1000 })
        }
        fn deregister(&self, handle: u32) {
            assert!(self.open.borrow_mut().remove(&handle).is_some(), "{handle} is not open");
        }
    }

    const KIB: u64 = 1024;

    #[test]
    fn a_buffer_that_is_used_twice_is_registered_once() {
        let mut all = Registrations::new(Device::new(u64::MAX), 1 << 20);
        let anchor = Arc::new(());
        let (first, key) = all.hold(Some(&anchor), 0x10_010, 60 * KIB).unwrap();
        let (second, same) = all.hold(Some(&anchor), 0x10_800, 10).unwrap();
        assert_eq!((first, key), (second, same));
        all.release(first);
        all.release(second);
        assert_eq!(all.hold(Some(&anchor), 0x11_000, KIB), Ok((first, key)), "it is still there");
        assert_eq!((all.stats().registered, all.stats().found), (1, 2));
        assert_eq!(all.stats().pinned, 64 * KIB, "whole pages");
        let (_, other) = all.hold(Some(&anchor), 0x1_f000, 8 * KIB).unwrap();
        assert_ne!(other, key, "it ends behind the first one");
    }

    #[test]
    fn memory_that_was_freed_and_given_out_again_is_registered_anew() {
        let device = Device::new(u64::MAX);
        let mut all = Registrations::new(device.clone(), 1 << 20);
        let old = Arc::new(());
        let (id, key) = all.hold(Some(&old), 0x10_000, 4 * KIB).unwrap();
        all.release(id);
        drop(old);
        let new = Arc::new(());
        let (_, other) = all.hold(Some(&new), 0x10_000, 4 * KIB).unwrap();
        assert_ne!(key, other);
        assert_eq!(device.open(), BTreeSet::from([other]), "the old one is closed");
        // One that is in use when its buffer goes is closed by its last user.
        let gone = Arc::new(());
        let (id, key) = all.hold(Some(&gone), 0x20_000, 4 * KIB).unwrap();
        drop(gone);
        assert!(device.open().contains(&key));
        all.release(id);
        assert!(!device.open().contains(&key));
    }

    #[test]
    fn what_a_peer_may_write_is_closed_when_it_is_released() {
        let device = Device::new(u64::MAX);
        let mut all = Registrations::new(device.clone(), 1 << 20);
        let (id, key) = all.expose(0x10_010, 100).unwrap();
        assert_eq!(key, 1001, "the key for peers");
        assert_eq!(all.stats().pinned, 100, "not a byte beside it");
        all.release(id);
        assert_eq!((device.open(), all.stats().pinned), (BTreeSet::new(), 0));
    }

    #[test]
    fn at_the_limit_the_one_used_longest_ago_goes_and_what_is_in_use_stays() {
        let mut all = Registrations::new(Device::new(u64::MAX), 12 * KIB);
        let anchors: Vec<_> = (0..4).map(|_| Arc::new(())).collect();
        let hold = |all: &mut Registrations<Device>, n: usize| {
            all.hold(Some(&anchors[n]), 0x10_000 * (n as u64 + 1), 4 * KIB)
        };
        let (a, _) = hold(&mut all, 0).unwrap();
        let (b, _) = hold(&mut all, 1).unwrap();
        let (c, _) = hold(&mut all, 2).unwrap();
        assert_eq!(hold(&mut all, 3), Err(Errno::ENOMEM), "all are in use");
        all.release(b);
        all.release(a);
        all.release(c);
        let (d, _) = hold(&mut all, 3).unwrap();
        assert_eq!(all.stats().evicted, 1);
        assert_eq!(
            hold(&mut all, 0).unwrap().0,
            a,
            "the second one went, which was released first"
        );
        assert_eq!((all.stats().pinned, all.stats().refused), (12 * KIB, 1));
        let _ = (d, c);
    }

    #[test]
    fn where_the_system_locks_no_more_idle_registrations_go_first() {
        let device = Device::new(8 * KIB);
        let mut all = Registrations::new(device.clone(), 1 << 30);
        let anchor = Arc::new(());
        let (id, _) = all.hold(Some(&anchor), 0x10_000, 8 * KIB).unwrap();
        assert_eq!(all.expose(0x40_000, 4 * KIB), Err(Errno::ENOMEM));
        all.release(id);
        assert!(all.expose(0x40_000, 4 * KIB).is_ok());
        drop(all);
        assert_eq!(device.open(), BTreeSet::new(), "nothing stays open behind it");
    }

    #[test]
    fn memory_that_ends_beyond_the_address_space_is_refused() {
        let mut all = Registrations::new(Device::new(u64::MAX), u64::MAX);
        assert_eq!(all.expose(u64::MAX, 2), Err(Errno::EINVAL));
        assert_eq!(all.hold(None, u64::MAX - 1, 4), Err(Errno::EINVAL));
    }
}

//! A router's buffers: three pools by size, and the messages that wait for one (behaviour.md 4.2,
//! 7.2).
//!
//! The node owns no memory. Its host lends regions through [`RouterMemory`], a slab of many
//! buffers at a time; payload of forwarded messages is received into a buffer and transmitted from
//! there. A slab goes back by [`crate::Output::Release`] when the last of its buffers is gone.
//!
//! This file counts and cuts; who takes a buffer and when it returns is in `transit.rs`.

use std::collections::{BTreeMap, VecDeque};

use lnet_types::{Errno, IoVec, MsgId, RegionId, Span};
use lnet_wire::PAYLOAD_MAX;

use crate::Tunables;

/// Bytes of a small buffer: one page.
const SMALL_BYTES: u32 = 4096;
/// Bytes lent at a time. Small enough that lowering a number frees memory piece by piece, large
/// enough that the default pools (64 MiB and 1 GiB) are a few dozen regions.
const SLAB_BYTES: u32 = 16 << 20;

/// The memory that a router's buffers are made of, lent by the shell.
pub trait RouterMemory {
    /// Registers `len` bytes of memory for the node, which may read and write them through its
    /// drivers from now on until [`crate::Output::Release`]. It need not be touched before it is
    /// used.
    ///
    /// # Errors
    /// There is no more.
    fn register(&mut self, len: u32) -> Result<RegionId, Errno>;
}

/// The pools, by the payload that their buffers hold (C-21).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum PoolKind {
    /// No payload.
    Tiny,
    /// Up to one page, 4096 bytes.
    Small,
    /// Up to 1 MiB.
    Large,
}

impl PoolKind {
    /// In the order of listings.
    pub const ALL: [Self; 3] = [Self::Tiny, Self::Small, Self::Large];

    /// Name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Large => "large",
        }
    }

    /// Bytes of one buffer.
    pub const fn buffer_bytes(self) -> u32 {
        match self {
            Self::Tiny => 0,
            Self::Small => SMALL_BYTES,
            Self::Large => PAYLOAD_MAX,
        }
    }

    /// The smallest pool whose buffers hold `payload` bytes (C-21).
    pub(crate) const fn for_payload(payload: u32) -> Self {
        if payload == 0 {
            Self::Tiny
        } else if payload <= SMALL_BYTES {
            Self::Small
        } else {
            Self::Large
        }
    }

    /// The number of buffers that the tunables ask for; 0 there means the default.
    pub(crate) const fn wanted(self, t: &Tunables) -> u32 {
        let (configured, default) = match self {
            Self::Tiny => (t.tiny_buffers, 2048),
            Self::Small => (t.small_buffers, 16_384),
            Self::Large => (t.large_buffers, 1024),
        };
        if configured > 0 { configured as u32 } else { default }
    }
}

/// One buffer. `None` has no memory (tiny).
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Buffer(Option<Span>);

impl Buffer {
    /// The part of the buffer that a payload of `len` bytes fills.
    pub(crate) fn spans(&self, len: u32) -> IoVec {
        self.0
            .iter()
            .filter(|_| len > 0)
            .map(|span| Span { len: len.min(span.len), ..*span })
            .collect()
    }
}

/// A pool.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Pool {
    pub(crate) kind: PoolKind,
    /// Buffers in existence, free or not.
    pub(crate) buffers: u32,
    /// Buffers that there should be.
    wanted: u32,
    /// The one that came back last is used first: its memory is warm.
    free: Vec<Buffer>,
    /// Messages that wait for one. Not empty only if none is free.
    queue: VecDeque<MsgId>,
    pub(crate) credits_min: i32,
    /// Buffers that each slab still stands for.
    slabs: BTreeMap<RegionId, u32>,
}

impl Pool {
    pub(crate) const fn new(kind: PoolKind) -> Self {
        Self {
            kind,
            buffers: 0,
            wanted: 0,
            free: Vec::new(),
            queue: VecDeque::new(),
            credits_min: 0,
            slabs: BTreeMap::new(),
        }
    }

    /// Buffers that were last asked for.
    pub(crate) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Free buffers; negative: messages waiting (C-4).
    pub(crate) fn credits(&self) -> i32 {
        self.free.len() as i32 - self.queue.len() as i32
    }

    /// Whether no message has a buffer or waits for one.
    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == self.buffers as usize && self.queue.is_empty()
    }

    /// Takes a buffer for `msg`, which else waits for one.
    pub(crate) fn take(&mut self, msg: MsgId) -> Option<Buffer> {
        let taken = self.free.pop();
        if taken.is_none() {
            self.queue.push_back(msg);
        }
        self.credits_min = self.credits_min.min(self.credits());
        taken
    }

    /// A message does not wait any more.
    pub(crate) fn leave(&mut self, msg: MsgId) {
        self.queue.retain(|x| *x != msg);
    }

    /// Takes a buffer back (C-23). Returns a slab that is not needed any more.
    pub(crate) fn give(&mut self, buffer: Buffer) -> Option<RegionId> {
        if self.free.len() >= self.wanted as usize {
            return self.destroy(&buffer);
        }
        self.free.push(buffer);
        None
    }

    /// The next message in line, if there is a buffer for it.
    pub(crate) fn serve(&mut self) -> Option<(MsgId, Buffer)> {
        let msg = *self.queue.front()?;
        let buffer = self.free.pop()?;
        self.queue.pop_front();
        Some((msg, buffer))
    }

    /// Messages that wait for a buffer.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = MsgId> + '_ {
        self.queue.iter().copied()
    }

    /// Compares what there is with the buffers that messages have. Gives the invariant that does not
    /// hold, what was expected and what was found.
    pub(crate) fn check(&self, out: u32) -> Result<(), (&'static str, usize, usize)> {
        let (buffers, there) = (self.buffers as usize, self.free.len() + out as usize);
        if there != buffers {
            return Err(("buffers of a pool", buffers, there));
        }
        let in_slabs: usize = self.slabs.values().map(|n| *n as usize).sum();
        if self.kind != PoolKind::Tiny && in_slabs != buffers {
            return Err(("buffers in the slabs of a pool", buffers, in_slabs));
        }
        if !self.queue.is_empty() && !self.free.is_empty() {
            return Err(("free buffers while messages wait", 0, self.free.len()));
        }
        Ok(())
    }

    fn destroy(&mut self, buffer: &Buffer) -> Option<RegionId> {
        self.buffers = self.buffers.saturating_sub(1);
        let region = buffer.0?.region;
        let left = self.slabs.get_mut(&region)?;
        *left -= 1;
        (*left == 0).then(|| {
            self.slabs.remove(&region);
            region
        })
    }

    /// Sets the number of buffers. More are made at once; surplus ones go as they return.
    ///
    /// # Errors
    /// The memory was refused: the pool is as before, and the slabs that it got are in `released`.
    pub(crate) fn resize(
        &mut self,
        wanted: u32,
        memory: &mut dyn RouterMemory,
        released: &mut Vec<RegionId>,
    ) -> Result<(), Errno> {
        let each = self.kind.buffer_bytes();
        let mut missing = wanted.saturating_sub(self.buffers);
        let was_empty = self.buffers == 0;
        if each == 0 {
            self.free.extend((0..missing).map(|_| Buffer(None)));
            self.buffers += missing;
            missing = 0;
        }
        let mut slabs = Vec::new();
        while missing > 0 {
            let n = missing.min(SLAB_BYTES / each);
            match memory.register(n * each) {
                Ok(region) => slabs.push((region, n)),
                Err(errno) => {
                    released.extend(slabs.iter().map(|s| s.0));
                    return Err(errno);
                }
            }
            missing -= n;
        }
        for (region, n) in slabs {
            self.slabs.insert(region, n);
            self.buffers += n;
            self.free.extend((0..n).rev().map(|i| {
                let offset = u64::from(i) * u64::from(each);
                Buffer(Some(Span { region, len: each, offset }))
            }));
        }
        self.wanted = wanted;
        if was_empty {
            self.credits_min = self.credits();
        }
        Ok(())
    }

    /// Routing is off: free buffers go now, others as they return.
    pub(crate) fn close(&mut self, released: &mut Vec<RegionId>) {
        self.wanted = 0;
        for buffer in core::mem::take(&mut self.free) {
            released.extend(self.destroy(&buffer));
        }
    }
}

/// What a forwarded message holds on this router.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Transit {
    pub(super) pool: PoolKind,
    /// A credit of the interface that it came from, or a place in the queue for one.
    pub(super) credit: bool,
    pub(super) buffer: Option<Buffer>,
}

impl Transit {
    /// What a message that needs a buffer of this pool holds at first: nothing.
    pub(crate) const fn new(pool: PoolKind) -> Self {
        Self { pool, credit: false, buffer: None }
    }

    /// The pool whose buffer it needs; whether it has taken a router credit, and a buffer.
    pub(crate) const fn holds(&self) -> (PoolKind, bool, bool) {
        (self.pool, self.credit, self.buffer.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lender {
        next: u32,
        refuse_from: u32,
    }

    impl RouterMemory for Lender {
        fn register(&mut self, _len: u32) -> Result<RegionId, Errno> {
            if self.next >= self.refuse_from {
                return Err(Errno::ENOMEM);
            }
            self.next += 1;
            Ok(RegionId(self.next))
        }
    }

    fn lender() -> Lender {
        Lender { next: 0, refuse_from: u32::MAX }
    }

    #[test]
    fn c21_each_payload_goes_to_the_smallest_pool_that_holds_it() {
        let pools = [0, 1, 4096, 4097, 1 << 20].map(PoolKind::for_payload);
        use PoolKind::{Large, Small, Tiny};
        assert_eq!(pools, [Tiny, Small, Small, Large, Large]);
    }

    #[test]
    fn r27_zero_means_the_default_number() {
        let mut t = Tunables::default();
        assert_eq!(PoolKind::ALL.map(|k| k.wanted(&t)), [2048, 16_384, 1024]);
        t.set("small_buffers", 7).unwrap();
        assert_eq!(PoolKind::Small.wanted(&t), 7);
    }

    #[test]
    fn buffers_of_a_pool_do_not_overlap() {
        let mut p = Pool::new(PoolKind::Small);
        p.resize(5000, &mut lender(), &mut Vec::new()).unwrap();
        assert_eq!((p.buffers, p.slabs.len()), (5000, 2));
        let mut spans: Vec<_> =
            p.free.iter().map(|b| b.0.unwrap()).map(|s| (s.region, s.offset)).collect();
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), 5000);
        assert!(spans.iter().all(|s| s.1 % 4096 == 0 && s.1 < u64::from(SLAB_BYTES)));
    }

    #[test]
    fn a_lowered_number_takes_effect_as_buffers_return_and_then_frees_the_memory() {
        let mut p = Pool::new(PoolKind::Large);
        let mut released = Vec::new();
        p.resize(2, &mut lender(), &mut released).unwrap();
        let a = p.take(MsgId::default()).unwrap();
        let b = p.take(MsgId::default()).unwrap();
        p.resize(1, &mut lender(), &mut released).unwrap();
        assert_eq!((p.buffers, p.credits()), (2, 0));
        assert_eq!(p.give(a), None);
        assert_eq!(p.give(b), None, "the other buffer of the slab is in use");
        assert_eq!((p.buffers, p.credits(), p.credits_min), (1, 1, 0));
        p.close(&mut released);
        assert_eq!(released, [RegionId(1)]);
        assert_eq!(p.buffers, 0);
    }

    #[test]
    fn memory_that_is_refused_leaves_the_pool_as_it_was() {
        let mut p = Pool::new(PoolKind::Large);
        let mut released = Vec::new();
        let mut short = Lender { next: 0, refuse_from: 3 };
        p.resize(16, &mut short, &mut released).unwrap();
        assert_eq!(p.resize(100, &mut short, &mut released), Err(Errno::ENOMEM));
        assert_eq!(released, [RegionId(2), RegionId(3)]);
        assert_eq!((p.buffers, p.credits(), p.wanted), (16, 16, 16));
    }

    #[test]
    fn messages_are_served_in_order_of_arrival() {
        let mut ids: slotmap::SlotMap<MsgId, ()> = slotmap::SlotMap::with_key();
        let (a, b, c) = (ids.insert(()), ids.insert(()), ids.insert(()));
        let mut p = Pool::new(PoolKind::Tiny);
        p.resize(1, &mut lender(), &mut Vec::new()).unwrap();
        let buffer = p.take(a).unwrap();
        assert!(p.take(b).is_none() && p.take(c).is_none());
        assert_eq!((p.credits(), p.credits_min), (-2, -2));
        assert!(p.serve().is_none());
        p.give(buffer);
        assert_eq!(p.serve().map(|s| s.0), Some(b));
        p.leave(c);
        assert_eq!(p.credits(), 0);
    }
}

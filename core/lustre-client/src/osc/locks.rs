//! What locks mean for data: what is known of an object while there are locks on it, what has to be
//! written back before one goes, what is lost with one that the target takes away (L-40, L-44).

use core::ops::Range;

use ldlm::Mode;
use ldlm::client::{GoneReason, HoldId, LockEvent, LockId};
use lnet_types::{ByteOrder, Errno};
use lustre_wire::Layout;
use lustre_wire::fid::ObjectId;
use lustre_wire::ldlm::{Lvb, Policy};

use super::dirty::{Dirty, Piece};
use super::turns::Urgency;
use super::writers::Writers;
use super::{Cx, FilePart, OpId, Osc, OscEvent};

/// A lock that this client has, in the words of data: from the first byte to the last.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeldLock {
    key: Key,
    start: u64,
    pub(super) last: u64,
}

impl HeldLock {
    const fn range(&self) -> Range<u64> {
        self.start..self.last.saturating_add(1)
    }
}

/// What has to wait until a range is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// A lock goes.
    Leave(LockId),
    /// An operation goes on.
    Go(OpId),
}

impl Then {
    const fn is_leave(self) -> bool {
        matches!(self, Self::Leave(_))
    }
}

/// The words of an object's resource.
pub(super) type Key = [u64; 4];

/// What is known of an object.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) id: ObjectId,
    pub(super) dirty: Dirty,
    /// Its size, as far as this client knows: what its locks said, and what it has written since.
    pub(super) size: u64,
    /// Whether that is more than what this client has written.
    pub(super) size_known: bool,
    pub(super) mtime: Option<i64>,
    /// Blocks of 512 bytes, as its target has said with a lock.
    blocks: u64,
    pub(super) part: Option<FilePart>,
    pub(super) waits: Vec<(Range<u64>, Then)>,
    /// Operations under way.
    pub(super) ops: usize,
    /// Those of them that are to end when what was written is committed.
    pub(super) settling: usize,
    /// Who hears of what was lost.
    pub(super) writers: Writers,
    /// Locks on it, each with its last byte.
    locks: Vec<(LockId, u64)>,
}

impl Object {
    pub(super) const fn new(id: ObjectId) -> Self {
        Self {
            id,
            dirty: Dirty::new(),
            size: 0,
            size_known: false,
            mtime: None,
            blocks: 0,
            part: None,
            waits: Vec::new(),
            ops: 0,
            settling: 0,
            writers: Writers::new(),
            locks: Vec::new(),
        }
    }

    /// Who waits for its data.
    pub(super) fn urgency(&self) -> Urgency {
        match self.waits.as_slice() {
            [] => Urgency::Kept,
            waits if waits.iter().any(|(_, then)| then.is_leave()) => Urgency::CalledBack,
            _ => Urgency::Awaited,
        }
    }

    /// Ranges whose locks other clients want.
    pub(super) fn called_back(&self) -> Vec<Range<u64>> {
        let called = self.waits.iter().filter(|(_, then)| then.is_leave());
        called.map(|(range, _)| range.clone()).collect()
    }
}

impl Osc {
    /// Takes an event of the locks of this import.
    pub fn lock_event(&mut self, event: LockEvent, cx: &mut Cx<'_, '_, '_>) {
        match event {
            LockEvent::Granted { hold, lock, mode, policy, lvb } => {
                self.granted(hold, lock, mode, &policy, &lvb, cx);
            }
            LockEvent::Refused { hold, error } => {
                if let Some(op) = self.holds.remove(&hold) {
                    self.refused(op, error.errno(), cx);
                }
            }
            LockEvent::Aborted { hold, results, lvb } => {
                if let Some(op) = self.holds.remove(&hold) {
                    // The second word is a negative errno, or 0.
                    let errno = (results.1 as i64).min(results.0 as i64);
                    let size = Lvb::parse_either(ByteOrder::Little, &lvb).ok();
                    let size = size.filter(|lvb| errno >= 0 && lvb.error().is_none());
                    self.sized(op, size.map(|lvb| lvb.size).ok_or(Errno::ENOENT), cx);
                }
            }
            LockEvent::Flush { lock, discard } => self.flush(lock, discard, cx),
            LockEvent::Glimpse { glimpse, lock } => {
                let lvb = self.show(lock).map(|lvb| lvb.to_bytes(ByteOrder::Little));
                cx.locks.glimpsed(glimpse, lvb, cx.rpc);
            }
            LockEvent::Gone { lock, holds, reason } => self.gone(lock, &holds, reason, cx),
            // Operations end by themselves, and none begins under a lock that another client wants.
            LockEvent::CalledBack { .. } | LockEvent::Converted { .. } => {}
        }
        self.work(cx);
    }

    /// A lock is there, and with it what the target says of the object.
    fn granted(
        &mut self,
        hold: HoldId,
        lock: LockId,
        mode: Mode,
        policy: &Policy,
        lvb: &[u8],
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(&op) = self.holds.get(&hold) else { return };
        let Some(key) = self.ops.get(&op).map(|op| op.key) else { return };
        let Policy::Extent { start, end, .. } = *policy else { return };
        let written = self.written(key);
        if let Some(object) = self.objects.get_mut(&key)
            && !self.locks.contains_key(&lock)
        {
            self.locks.insert(lock, HeldLock { key, start, last: end });
            object.locks.push((lock, end));
            let lvb = Lvb::parse_either(ByteOrder::Little, lvb).ok();
            let lvb = lvb.filter(|lvb| lvb.error().is_none());
            object.size_known = lvb.is_some();
            let size = lvb.map_or(object.size, |lvb| lvb.size);
            object.size = size.max(written);
            object.mtime = object.mtime.max(lvb.map(|lvb| lvb.mtime));
            object.blocks = lvb.map_or(object.blocks, |lvb| lvb.blocks);
        }
        self.locked(op, lock, mode, cx);
    }

    /// Behind the last byte of an object that is dirty, or on its way.
    pub(super) fn written(&self, key: Key) -> u64 {
        let moving = self.ios.values().filter_map(|io| io.writes(key)).map(|range| range.end).max();
        let dirty = self.objects.get(&key).map(|object| object.dirty.end());
        moving.max(dirty).unwrap_or(0)
    }

    /// Bytes of an object that are dirty, or on their way.
    fn unwritten(&self, key: Key) -> u64 {
        let moving = self.ios.values().filter_map(|io| io.writes(key));
        let moving: u64 = moving.map(|range| range.end - range.start).sum();
        let dirty = self.objects.get(&key).map_or(0, |object| object.dirty.bytes());
        moving.saturating_add(dirty)
    }

    /// What this client knows of the object of a lock, for a client that asks (L-40).
    fn show(&self, lock: LockId) -> Option<Lvb> {
        let held = self.locks.get(&lock)?;
        let object = self.objects.get(&held.key)?;
        // Behind its locks others know better.
        let size = object.size.min(held.last.saturating_add(1));
        // What the target has it knows itself: times may have been set back since (C-120).
        let unwritten = self.unwritten(held.key);
        let mtime = object.mtime.filter(|_| unwritten > 0).unwrap_or_default();
        let blocks = object.blocks.saturating_add(unwritten.div_ceil(512));
        Some(Lvb { size, mtime, blocks, ..Lvb::default() })
    }

    /// A lock is to go: what is dirty under it is written back first, or dropped (L-44).
    fn flush(&mut self, lock: LockId, discard: bool, cx: &mut Cx<'_, '_, '_>) {
        let Some(held) = self.locks.get(&lock).copied() else {
            return cx.locks.flushed(self.import, lock, cx.rpc);
        };
        if discard {
            self.drop_dirty(held.key, &held.range(), None, cx);
        }
        self.wait_for(held.key, held.range(), Then::Leave(lock));
        self.check(held.key, cx);
    }

    /// A lock is gone. If the target has taken it away, what was dirty under it is lost.
    fn gone(
        &mut self,
        lock: LockId,
        holds: &[HoldId],
        reason: GoneReason,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(held) = self.locks.remove(&lock) else { return };
        let lost = reason == GoneReason::Lost;
        if lost {
            self.drop_dirty(held.key, &held.range(), Some(Errno::EIO), cx);
        }
        let written = self.written(held.key);
        if let Some(object) = self.objects.get_mut(&held.key) {
            object.waits.retain(|(_, then)| *then != Then::Leave(lock));
            object.locks.retain(|(other, _)| *other != lock);
            let last = object.locks.iter().map(|(_, last)| *last).max();
            let bound = last.map_or(0, |last| last.saturating_add(1));
            object.size = object.size.min(bound).max(written);
            object.size_known &= last == Some(u64::MAX);
        }
        for hold in holds.iter().filter(|_| lost) {
            if let Some(op) = self.holds.remove(hold) {
                self.unlocked(op, cx);
            }
        }
        self.check(held.key, cx);
        self.tidy(held.key);
    }

    /// The target has dropped this client, and with it the locks under which data is dirty: nothing of it may
    /// be written under later ones, since other clients have written between.
    pub(super) fn lose_dirty(&mut self, cx: &mut Cx<'_, '_, '_>) {
        for id in core::mem::take(&mut self.crowd) {
            self.unlocked(id, cx);
        }
        let keys: Vec<Key> = self.objects.keys().copied().collect();
        for key in keys {
            self.drop_dirty(key, &(0..u64::MAX), Some(Errno::EIO), cx);
        }
    }

    /// Drops dirty data. With an error it is lost, and the object says so.
    fn drop_dirty(
        &mut self,
        key: Key,
        range: &Range<u64>,
        error: Option<Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let pieces = object.dirty.cut(range.clone());
        for (_, piece) in pieces {
            if piece.granted {
                self.grant.give_up(piece.space);
            }
            self.settled(key, &piece, error.map_or(Ok(()), Err), cx);
        }
    }

    /// A piece is dirty no more: it is at the target, replaced, or lost. Its memory is not needed.
    pub(super) fn settled(
        &mut self,
        key: Key,
        piece: &Piece,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) {
        self.free(piece);
        self.dirty_bytes = self.dirty_bytes.saturating_sub(piece.len);
        match (piece.op, result) {
            // It waits, and says it itself.
            (Some(op), result) => self.through(op, piece.len, result, cx),
            (None, Err(errno)) => {
                self.stats.lost += piece.len;
                if let Some(object) = self.objects.get_mut(&key) {
                    object.writers.fail(errno);
                }
            }
            (None, Ok(())) => {}
        }
    }

    /// The memory of a piece is not needed.
    pub(super) fn free(&mut self, piece: &Piece) {
        self.events.extend(self.buffers.release(piece.buffer, piece.len).map(OscEvent::Free));
    }

    /// Lets something wait until what is dirty in a range is written back.
    pub(super) fn wait_for(&mut self, key: Key, range: Range<u64>, then: Then) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let urgent = object.dirty.urge(&range, |_| true);
        object.waits.push((range, then));
        if urgent {
            self.urgent.insert(key, object.urgency());
        }
    }

    /// Goes on with what has waited for data of an object that is written back.
    pub(super) fn check(&mut self, key: Key, cx: &mut Cx<'_, '_, '_>) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let moving: Vec<Range<u64>> = self.ios.values().filter_map(|io| io.writes(key)).collect();
        let waits = core::mem::take(&mut object.waits);
        let clean = |range: &Range<u64>| {
            let meets = |other: &Range<u64>| other.start < range.end && range.start < other.end;
            !object.dirty.is_urgent(range) && !moving.iter().any(meets)
        };
        let (ready, left): (Vec<_>, Vec<_>) =
            waits.into_iter().partition(|(range, _)| clean(range));
        object.waits = left;
        for (_, then) in ready {
            match then {
                Then::Leave(lock) => cx.locks.flushed(self.import, lock, cx.rpc),
                Then::Go(op) => self.written_back(op, cx),
            }
        }
    }

    /// Forgets an object of which nothing is left.
    pub(super) fn tidy(&mut self, key: Key) {
        let Some(object) = self.objects.get(&key) else { return };
        let waits = object.ops > 0 || !object.dirty.is_empty() || !object.waits.is_empty();
        let used = waits || !object.locks.is_empty() || object.writers.has_errors();
        let moving = || self.ios.values().any(|io| io.writes(key).is_some());
        let kept = || !object.writers.is_empty() && self.uncommitted.is_of(key);
        if !used && !moving() && !kept() {
            self.objects.remove(&key);
            self.urgent.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{Instant, IoVec};
    use ptlrpc::ImportId;

    use super::super::OscConfig;
    use super::*;

    #[test]
    fn l40_times_and_blocks_that_a_target_knows_better_are_not_said_to_it() {
        let mut osc = Osc::new(ImportId::from(1), OscConfig::default());
        let (key, lock) = ([1; 4], LockId(1));
        let mut object = Object::new(ObjectId::old(1));
        (object.size, object.mtime, object.blocks) = (1 << 30, Some(9), 8);
        osc.objects.insert(key, object);
        osc.locks.insert(lock, HeldLock { key, start: 0, last: u64::MAX });
        let shown = |osc: &Osc| osc.show(lock).map(|lvb| (lvb.size, lvb.mtime, lvb.blocks));
        assert_eq!(shown(&osc), Some((1 << 30, 0, 8)), "its time may have been set since");
        let buffer = osc.buffers.insert(IoVec::new());
        let piece = Piece {
            len: 1,
            buffer,
            at: 0,
            since: Instant::ZERO,
            granted: true,
            space: 4096,
            op: None,
            urgent: false,
        };
        let object = osc.objects.get_mut(&key).unwrap();
        object.dirty.insert(1 << 30, piece);
        object.size += 1;
        assert_eq!(shown(&osc), Some(((1 << 30) + 1, 9, 9)), "a byte, and not all before it");
    }
}

//! One lock of a client: where it stands, who holds it, what is known of it.

use lnet_types::Instant;
use lustre_wire::Buffers;
use lustre_wire::ldlm::{InodeBits, LockDesc, LockFlags, Policy, ResourceName};
use smallvec::SmallVec;

use super::ask::{Ask, HoldId};
use super::wire::{contains, covers, overlap};
use crate::{Kind, Mode};

/// Flags that a lock keeps from its request and from replies (L-17).
const INHERITED: LockFlags = LockFlags::from_bits_retain(0x208a_0000);

/// Where a lock of a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its request is not answered.
    Asked {
        /// A completion came before the answer.
        granted: bool,
    },
    /// It waits for its completion.
    Blocked {
        /// When the import is made again if the completion does not come (L-37).
        until: Option<Instant>,
    },
    /// Granted: held, or in the cache if it has no holds.
    Granted,
    /// Data under it are being written back.
    Flushing,
    /// Its cancel is under way.
    Leaving,
}

/// What another client wants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) desc: LockDesc,
    /// Data under the lock may be dropped.
    pub(super) discard: bool,
}

/// A conversion under way (L-45).
#[derive(Clone, Copy, Debug)]
pub(super) struct Conversion {
    /// Tells its answer from that of one which was asked for before the server lost the lock.
    pub(super) number: u32,
    pub(super) keep: InodeBits,
}

#[derive(Clone, Debug)]
pub(super) struct Lock {
    /// The server's cookie, 0 before it is known.
    pub(super) remote: u64,
    pub(super) resource: ResourceName,
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    pub(super) policy: Policy,
    /// Inherited ones (L-17).
    pub(super) flags: LockFlags,
    pub(super) stage: Stage,
    pub(super) holds: SmallVec<[HoldId; 1]>,
    pub(super) wanted: Option<Wanted>,
    /// Bits are being given back.
    pub(super) converting: Option<Conversion>,
    pub(super) lvb: Vec<u8>,
    pub(super) lvb_max: u32,
    pub(super) writes_back: bool,
    pub(super) glimpses: bool,
    /// Buffers behind each request for it.
    pub(super) beside: Buffers,
    pub(super) asked_at: Instant,
    /// When its last hold went.
    pub(super) used_at: Instant,
    /// Out of the cache a hold was given it once more.
    pub(super) reused: bool,
}

/// A hold, and what it is for.
#[derive(Clone, Debug)]
pub(super) struct HoldState {
    pub(super) lock: super::LockId,
    pub(super) mode: Mode,
    pub(super) policy: Policy,
    /// When it is refused if it is not granted.
    pub(super) limit: Option<Instant>,
}

impl Lock {
    pub(super) fn new(now: Instant, ask: &Ask, hold: HoldId) -> Self {
        Self {
            remote: 0,
            resource: ask.resource,
            kind: ask.kind(),
            mode: ask.mode,
            policy: ask.policy,
            flags: ask.flags & INHERITED,
            stage: Stage::Asked { granted: false },
            holds: SmallVec::from_slice(&[hold]),
            wanted: None,
            converting: None,
            lvb: Vec::new(),
            lvb_max: ask.lvb_max,
            writes_back: ask.writes_back,
            glimpses: ask.glimpses,
            beside: ask.beside.clone(),
            asked_at: now,
            used_at: now,
            reused: false,
        }
    }

    /// Whether the lock serves for `ask` without a request, as far as the lock itself says (L-36).
    pub(super) fn serves(&self, ask: &Ask) -> bool {
        self.stage == Stage::Granted
            && self.wanted.is_none()
            && self.converting.is_none()
            && self.kind == ask.kind()
            && covers(self.mode, ask.mode)
            && contains(&self.policy, &ask.policy)
    }

    /// Whether the lock conflicts with what is asked for, so that its cancel may go along (L-60).
    pub(super) fn conflicts(&self, ask: &Ask) -> bool {
        self.kind == ask.kind() && !self.mode.allows(ask.mode) && overlap(&self.policy, &ask.policy)
    }

    /// Whether the lock may stay without a hold (L-58).
    pub(super) fn may_stay(&self) -> bool {
        self.wanted.is_none() && self.mode != Mode::Group && self.converting.is_none()
    }

    /// Whether the server drops the lock by itself when it calls it back (L-46).
    pub(super) fn goes_by_itself(&self) -> bool {
        self.flags.contains(LockFlags::CANCEL_ON_BLOCK) && self.wanted.is_some()
    }

    /// Takes over flags of a reply or callback: inherited ones, and what AST_SENT says (L-36.2, .4).
    pub(super) fn take_flags(&mut self, flags: LockFlags, desc: LockDesc) {
        self.flags |= flags & INHERITED;
        if flags.contains(LockFlags::AST_SENT) {
            let discard = flags.contains(LockFlags::DISCARD_DATA);
            self.wanted.get_or_insert(Wanted { desc, discard });
        }
    }

    /// Takes over what the server has granted (L-36.3, L-38): the lock must be of its kind, its mode
    /// must serve for what was asked for, its range must contain it. With `changed` the mode and the
    /// bits are those that the server wants.
    ///
    /// # Errors
    /// What does not fit.
    pub(super) fn take_desc(&mut self, desc: &LockDesc, changed: bool) -> Result<(), &'static str> {
        if desc.kind != self.kind.word() {
            return Err("type of the lock differs from that of the request");
        }
        let mode = Mode::of(desc.granted).ok_or("granted mode is not one of the modes")?;
        if !changed && !covers(mode, self.mode) {
            return Err("granted mode is weaker than the requested one");
        }
        let policy = desc.policy().ok_or("type of the lock is unknown")?;
        let bits_changed = changed && self.kind == Kind::Ibits;
        let whole = self.kind == Kind::Flock || contains(&policy, &self.policy);
        if !whole && !bits_changed {
            return Err("granted part does not contain the requested one");
        }
        (self.resource, self.mode, self.policy) = (desc.resource, mode, policy);
        Ok(())
    }

    /// Takes over attributes that came with the lock (L-38).
    ///
    /// # Errors
    /// They are longer than expected.
    pub(super) fn take_lvb(&mut self, lvb: &[u8]) -> Result<(), &'static str> {
        if lvb.len() > self.lvb_max as usize {
            return Err("attributes are longer than expected");
        }
        self.lvb = lvb.to_vec();
        Ok(())
    }
}

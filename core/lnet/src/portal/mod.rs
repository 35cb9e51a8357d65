//! Portals: which posted buffer an arriving message is for (behaviour.md 2.2 … 2.6).
//!
//! Pure matching over the descriptors in [`Portals::mds`]. It has no messages, peers or
//! credits: `recv.rs` asks [`Portals::find`] and acts on the answer; events are made in `send/finish.rs`.

mod list;
pub(crate) mod md;
pub(crate) mod owner;

use std::collections::VecDeque;

use lnet_types::{IoVec, MdId, MsgId, NiId, Nid, Pid, RxId, iovec_slice};
use lnet_wire::mark::{Mark, SessionName};
use lnet_wire::{Kind, PAYLOAD_MAX, PORTALS};
use slotmap::{Key, SlotMap};

use crate::table::Lookup;
use crate::{AttachError, MatchEntry, MdOptions, MdSpec, Position, Sink, Unlink};
use list::List;
use md::{Md, MdBuf};
use owner::Owner;

/// The portal of LNet itself (V-6).
pub(crate) const RESERVED_PORTAL: u32 = 0;
/// Most fragments of one buffer (V-6).
const FRAGMENTS_MAX: usize = 256;
/// Most descriptors of one node: 2^24, about 4 GiB of bookkeeping at the very worst, and far more
/// than any service posts.
const MDS_MAX: usize = 1 << 24;

/// A PUT that waits for a buffer (M-27). The driver holds its bytes.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Delayed {
    pub(crate) msg: MsgId,
    pub(crate) ni: NiId,
    pub(crate) rx: RxId,
}

/// What kind of entries a portal holds; fixed by the first one (M-7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum MatchType {
    Unique,
    Wildcard,
}

#[derive(Debug, serde::Serialize, serde::Deserialize)]
struct Portal {
    kind: Option<MatchType>,
    lazy: bool,
    /// Entries with ignore bits, searched first (M-19).
    ignoring: List,
    /// Entries whose bits must be met exactly, by these bits. Each list is in posting order.
    exact: Lookup<u64, List>,
    delayed: VecDeque<Delayed>,
}

/// What a message brings to the search.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Wanted {
    pub(crate) portal: u32,
    /// `OP_PUT` or `OP_GET`.
    pub(crate) op: MdOptions,
    pub(crate) bits: u64,
    /// Primary NID of the sender (M-20).
    pub(crate) nid: Nid,
    pub(crate) pid: Pid,
    /// Payload of a PUT, sink length of a GET.
    pub(crate) len: u32,
    /// Offset in the header, for `MANAGE_REMOTE`.
    pub(crate) offset: u32,
}

/// A buffer was found and part of it taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Matched {
    pub(crate) md: MdId,
    pub(crate) offset: u64,
    pub(crate) mlength: u32,
}

/// The answer to a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Search {
    Found(Matched),
    /// Matched, but does not fit: the message is dropped (M-24).
    TooLong,
    /// Matched, but does not fit any more: the descriptor is to go, and the search to go on.
    Full(MdId),
    /// Nothing matches; a PUT on a lazy portal waits (M-26).
    Nothing {
        lazy: bool,
    },
    BadPortal,
}

/// All portals and all memory descriptors of a node.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Portals {
    pub(crate) mds: SlotMap<MdId, Md>,
    /// The last descriptor with each key by which a marked request has asked.
    by_key: Vec<MdId>,
    portals: Vec<Portal>,
}

impl Portals {
    pub(crate) fn new(seed: u64) -> Self {
        let portal = |i| Portal {
            kind: None,
            lazy: i == RESERVED_PORTAL,
            ignoring: List::default(),
            exact: Lookup::new(seed),
            delayed: VecDeque::new(),
        };
        Self {
            mds: SlotMap::with_key(),
            by_key: Vec::new(),
            portals: (0..PORTALS).map(portal).collect(),
        }
    }

    /// Posts a buffer (M-6 … M-12). The caller then looks for delayed messages that it satisfies.
    pub(crate) fn attach(
        &mut self,
        portal: u32,
        me: MatchEntry,
        spec: MdSpec,
    ) -> Result<MdId, AttachError> {
        if portal == RESERVED_PORTAL {
            return Err(AttachError::ReservedPortal);
        }
        if !spec.options.intersects(MdOptions::OP_PUT | MdOptions::OP_GET) {
            return Err(AttachError::NoOperation);
        }
        check(&spec)?;
        self.place(portal, me, || md_of(spec))
    }

    /// Posts a descriptor of any kind, the node's own included.
    pub(crate) fn attach_md(
        &mut self,
        portal: u32,
        me: MatchEntry,
        md: Md,
    ) -> Result<MdId, AttachError> {
        self.place(portal, me, || md)
    }

    /// The descriptor is made where it stays: it is large.
    #[inline]
    fn place(
        &mut self,
        portal: u32,
        me: MatchEntry,
        md: impl FnOnce() -> Md,
    ) -> Result<MdId, AttachError> {
        if self.mds.len() >= MDS_MAX {
            return Err(AttachError::NoSpace(MDS_MAX));
        }
        let slot = self.portals.get_mut(portal as usize).ok_or(AttachError::BadPortal(portal))?;
        let unique = me.ignore_bits == 0 && !me.from.nid.is_any() && me.from.pid != Pid::ANY;
        let kind = if unique { MatchType::Unique } else { MatchType::Wildcard };
        if slot.kind.is_some_and(|k| k != kind) {
            return Err(AttachError::OtherMatchType(portal));
        }
        slot.kind = Some(kind);
        let id = self.mds.insert_with_key(|_| md().placed(portal, me));
        let list = slot.list(&me);
        match me.position {
            Position::Before => list.push_front(id),
            Position::After => list.push_back(id),
        }
        Ok(id)
    }

    /// Makes a free-floating descriptor for operations of our own (M-14).
    pub(crate) fn bind(&mut self, spec: MdSpec) -> Result<MdId, AttachError> {
        if spec.options.intersects(MdOptions::OP_PUT | MdOptions::OP_GET) {
            return Err(AttachError::OperationOnFree);
        }
        if spec.len() > u64::from(PAYLOAD_MAX) {
            return Err(AttachError::TooLong(spec.len()));
        }
        if self.mds.len() >= MDS_MAX {
            return Err(AttachError::NoSpace(MDS_MAX));
        }
        check(&spec)?;
        Ok(self.mds.insert_with_key(|_| md_of(spec)))
    }

    /// The key of a descriptor in the handles of marked requests.
    pub(crate) fn key_of(id: MdId) -> u32 {
        id.data().as_ffi() as u32 & (Mark::KEYS - 1)
    }

    /// Message `number` of a session asks for something by this descriptor. Gives its key.
    pub(crate) fn ask_by(&mut self, id: MdId, session: SessionName, number: u32) -> u32 {
        let key = Self::key_of(id);
        let at = key as usize;
        if let Some(md) = self.mds.get_mut(id) {
            md.asks(session, number);
            if at >= self.by_key.len() {
                self.by_key.resize(at + 1, MdId::null());
            }
            self.by_key[at] = id;
        }
        key
    }

    /// The descriptor with this key by which message `number` of a session has asked.
    pub(crate) fn asked_by(&self, key: u32, session: SessionName, number: u32) -> Option<MdId> {
        let id = *self.by_key.get(key as usize)?;
        self.mds.get(id)?.has_asked(session, number).then_some(id)
    }

    /// Finds the buffer for a message and takes its part of it (M-16 … M-26). `same_peer` says
    /// whether two NIDs belong to one peer (M-21).
    pub(crate) fn find(&mut self, want: &Wanted, same_peer: impl Fn(Nid, Nid) -> bool) -> Search {
        let Some(portal) = self.portals.get(want.portal as usize) else {
            return Search::BadPortal;
        };
        let fits = |id| {
            let Some(md) = self.mds.get(id) else { return false };
            let Some((_, me)) = &md.place else { return false };
            (me.match_bits ^ want.bits) & !me.ignore_bits == 0
                && md.options.contains(want.op)
                && !md.is_exhausted()
                && (me.from.pid == Pid::ANY || me.from.pid == want.pid)
                && (me.from.nid.is_any()
                    || me.from.nid == want.nid
                    || same_peer(me.from.nid, want.nid))
        };
        let first_of = |list: &List| list.iter().find(|id| fits(*id));
        let ignoring = if portal.ignoring.is_empty() { None } else { first_of(&portal.ignoring) };
        match ignoring.or_else(|| first_of(portal.exact.get(&want.bits)?)) {
            Some(id) => self.accept(id, want),
            None => Search::Nothing { lazy: portal.lazy },
        }
    }

    /// M-23 … M-25.
    fn accept(&mut self, id: MdId, want: &Wanted) -> Search {
        let Some(md) = self.mds.get_mut(id) else { return Search::Nothing { lazy: false } };
        let remote = md.options.contains(MdOptions::MANAGE_REMOTE);
        let offset = if remote { u64::from(want.offset) } else { md.offset };
        let room = if md.options.contains(MdOptions::MAX_SIZE) {
            u64::from(md.max_size).min(md.len.saturating_sub(offset))
        } else {
            // An initiator's offset may lie anywhere: past the end there is no room (wire.md 4.6).
            md.len.saturating_sub(offset)
        };
        let past_end = offset > md.len;
        let mlength = u64::from(want.len).min(room) as u32;
        if past_end || (mlength < want.len && !md.options.contains(MdOptions::TRUNCATE)) {
            if md.fills_up() && offset > 0 && u64::from(want.len) <= md.len {
                return Search::Full(id);
            }
            return Search::TooLong;
        }
        md.take();
        md.offset = offset + u64::from(mlength);
        if md.auto_unlink && md.is_exhausted() {
            md.zombie = true;
            self.hide(id);
        }
        Search::Found(Matched { md: id, offset, mlength })
    }

    /// Where the accepted bytes of a PUT go.
    pub(crate) fn sink(&self, m: &Matched) -> Sink {
        match self.mds.get(m.md).map(|md| &md.buf) {
            Some(MdBuf::Spans(iov)) => {
                Sink::Spans(iovec_slice(iov, m.offset, u64::from(m.mlength)))
            }
            Some(MdBuf::Collect(_)) => Sink::Bytes(m.mlength),
            Some(MdBuf::Bytes(_)) | None => Sink::Spans(IoVec::new()),
        }
    }

    /// Takes a descriptor out of the lists, so that nothing finds it any more.
    pub(crate) fn hide(&mut self, id: MdId) {
        let Some((portal, me)) = self.mds.get(id).and_then(|md| md.place) else { return };
        if let Some(portal) = self.portals.get_mut(portal as usize) {
            if me.ignore_bits != 0 {
                portal.ignoring.remove(id);
            } else {
                portal.exact.reduce(me.match_bits, |list| {
                    list.remove(id);
                    list.is_empty()
                });
            }
        }
    }

    /// Puts a descriptor back into its list, before all others: the message that it was taken out for
    /// was matched by none before it.
    pub(crate) fn unhide(&mut self, id: MdId) {
        let Some((portal, me)) = self.mds.get(id).and_then(|md| md.place) else { return };
        if let Some(portal) = self.portals.get_mut(portal as usize) {
            portal.list(&me).push_front(id);
        }
    }

    pub(crate) fn delay(&mut self, portal: u32, delayed: Delayed, max: usize) -> bool {
        match self.portals.get_mut(portal as usize) {
            Some(p) if p.delayed.len() < max => {
                p.delayed.push_back(delayed);
                true
            }
            _ => false,
        }
    }

    /// Takes out the delayed messages that `which` chooses, oldest first.
    pub(crate) fn take_delayed(
        &mut self,
        portal: u32,
        mut which: impl FnMut(&Delayed) -> bool,
    ) -> Vec<Delayed> {
        let Some(p) = self.portals.get_mut(portal as usize) else { return Vec::new() };
        let mut out = Vec::new();
        p.delayed.retain(|d| {
            let take = which(d);
            if take {
                out.push(*d);
            }
            !take
        });
        out
    }

    /// The messages that wait on all portals.
    pub(crate) fn all_delayed(&self) -> impl Iterator<Item = &Delayed> {
        self.portals.iter().flat_map(|portal| &portal.delayed)
    }

    pub(crate) fn delayed_snapshot(&self, portal: u32) -> Vec<Delayed> {
        self.portals
            .get(portal as usize)
            .map(|p| p.delayed.iter().copied().collect())
            .unwrap_or_default()
    }

    /// M-40.
    pub(crate) fn set_lazy(&mut self, portal: u32, lazy: bool) -> Result<(), AttachError> {
        let slot = self.portals.get_mut(portal as usize).ok_or(AttachError::BadPortal(portal))?;
        if portal == RESERVED_PORTAL {
            return Err(AttachError::ReservedPortal);
        }
        slot.lazy = lazy;
        Ok(())
    }
}

impl Portal {
    fn list(&mut self, me: &MatchEntry) -> &mut List {
        if me.ignore_bits != 0 { &mut self.ignoring } else { self.exact.or_default(me.match_bits) }
    }
}

/// M-11.
#[inline]
fn check(spec: &MdSpec) -> Result<(), AttachError> {
    if spec.buf.len() > FRAGMENTS_MAX {
        return Err(AttachError::TooManyFragments(spec.buf.len()));
    }
    if spec.options.contains(MdOptions::MAX_SIZE) && u64::from(spec.max_size) > spec.len() {
        return Err(AttachError::MaxSize { max_size: spec.max_size, len: spec.len() });
    }
    Ok(())
}

/// The descriptor that a user wants.
#[inline]
fn md_of(spec: MdSpec) -> Md {
    let owner = match spec.events {
        true if spec.options.contains(MdOptions::QUIET) => Owner::Quiet(spec.user),
        true => Owner::User(spec.user),
        false => Owner::Silent,
    };
    let auto_unlink = spec.unlink == Unlink::Auto;
    let buf = MdBuf::Spans(spec.buf);
    Md::new(buf, spec.threshold, spec.options, owner, auto_unlink).limited(spec.max_size)
}

/// Match bits of pings and pushes (V-6).
pub(crate) use lnet_wire::ping::MATCH_BITS as PING_BITS;
/// The smallest buffer for pings: 16 entries (D-6).
pub(crate) const PING_BYTES_MIN: u32 = 272;
/// The largest ping data that we take from a peer: 4096 entries, long ones included.
pub(crate) const PING_BYTES_MAX: u32 = 16 + 4096 * 24;

/// Whether a request is LNet's own: a PUT or GET on the reserved portal.
pub(crate) fn is_internal(kind: &Kind) -> bool {
    matches!(kind, Kind::Put { portal, .. } | Kind::Get { portal, .. } if *portal == RESERVED_PORTAL)
}

//! One request: what it is made of, and how it goes out (P-78 … P-84).

use core::time::Duration;

use lnet::{MatchEntry, MdOptions, MdSpec, Put};
use lnet_types::{Errno, Instant, IoVec, MdId, ProcessId};
use lustre_wire::msg::{BODY_ONLY_LEN, message_into, message_size, size_behind_body};
use lustre_wire::opcode::Effect;
use lustre_wire::{Body, BodyFlags, Buffers, Header, HeaderFlags, Opcode, Portal};

use super::decide::{May, Passage, may};
use super::slots::Class;
use super::{Client, ImportState, LogLine};
use crate::common::{Cx, Post, Sending, Word, errno, spec};
use crate::cut::Cut;
use crate::error::CallError;
use crate::estimate::wire_secs;
use crate::event::{Event, Reply};
use crate::lose::Part;
use crate::piece::MovedPieces;
use crate::sabotage::Sabotage;
use crate::table::{CallId, ImportId};
use crate::timers::Timer;

/// Direction of bulk data, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The server writes into the client's memory.
    Read,
    /// The server reads the client's memory.
    Write,
}

/// Bulk data of a call. The memory is the request layer's until the call has ended, or longer, if that is
/// what the call says ([`Call::retains_bulk`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bulk {
    /// Which way.
    pub direction: Direction,
    /// Where the bytes are, or go. At most 64 MiB. For `OST_READ` and `OST_WRITE` the offset of the first
    /// niobuf says how they lie to pages, of which the parts before the first byte count (P-46).
    pub memory: IoVec,
}

/// What is asked of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Operation.
    pub opcode: Opcode,
    /// Buffers behind the body.
    pub buffers: Buffers,
    /// Bytes that the reply may have ([`Call::answered_by`]).
    pub reply_max: u32,
    /// Bulk data.
    pub bulk: Option<Bulk>,
    /// Portals of request and reply, where they are not those of the opcode: a rename has its own
    /// ([`lustre_wire::opcode::RENAME`]).
    pub portals: Option<(Portal, Portal)>,
    /// Whether it may be sent again.
    pub resend: bool,
    /// Whether it may wait for the connection.
    pub delay: bool,
    /// It fails when it is not answered after so long, waiting included.
    pub limit: Option<Duration>,
    /// Whether it changes something that the server keeps a record of: it takes one of the slots
    /// that the server grants (P-82).
    pub modifies: bool,
    /// Whether the target takes it while it recovers (P-79.10).
    pub in_recovery: bool,
    /// Part of its effect lives as long as the server's process, such as an open file: if the answer
    /// names a transaction, the call is repeated after each crash of the server, committed or not,
    /// until [`Rpc::forget`](crate::Rpc::forget), or until a call that [ends](Call::ends) it is
    /// committed (P-74, P-75). The answer to each repetition is
    /// [`Event::Replayed`].
    pub keep: bool,
    /// Of a write: its memory stays as it is after an answer that leaves it uncommitted, so that it can be
    /// repeated to a server that has lost it (P-74). [`Event::Unretained`] gives the memory back. Without
    /// it a write is not repeated.
    pub retains_bulk: bool,
    /// The call with [`keep`](Call::keep) whose effect this one ends, as a close ends an open.
    pub ends: Option<CallId>,
    /// An error of the operation ends it with the reply instead of [`CallError::Refused`]:
    /// [`Reply::status`] is negative then. For operations whose error comes with more than a number.
    pub error_reply: bool,
}

impl Call {
    /// A call that waits, and is sent again, until it is answered. It modifies if its opcode always
    /// does, or is a program's own.
    pub fn new(opcode: Opcode, buffers: Buffers) -> Self {
        let modifies = opcode.row().is_none_or(|row| row.effect == Effect::Modifies);
        Self {
            opcode,
            buffers,
            reply_max: BODY_ONLY_LEN as u32,
            bulk: None,
            portals: None,
            resend: true,
            delay: true,
            limit: None,
            modifies,
            in_recovery: false,
            keep: false,
            retains_bulk: false,
            ends: None,
            error_reply: false,
        }
    }

    /// The same with room for a reply that has, behind its body, buffers of at most these lengths.
    #[must_use]
    pub fn answered_by(mut self, lens: &[u32]) -> Self {
        self.reply_max = u32::try_from(size_behind_body(lens)).unwrap_or(u32::MAX);
        self
    }
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A program's.
    Call,
    Connect,
    Disconnect,
    Ping,
    /// A ping that is to find out whether the server is still the same. No answer says nothing (DEC-48).
    Probe,
    /// A finished request, repeated after the server lost it.
    Replay,
    /// A program's, which brings a lock back (P-57).
    LockReplay,
    /// The last of recovery (P-72).
    FinalPing,
}

/// What happens when nothing of the bulk memory is in use any more.
#[derive(Debug)]
pub(crate) enum Next {
    End(Result<Reply, CallError>),
    Again,
    /// After so long.
    Later(Duration),
}

#[derive(Debug)]
pub(crate) enum Phase {
    /// Waits for a slot, and has no number yet (P-82).
    Queued,
    /// Not sent, or waiting for the import.
    Delayed,
    /// On its way, or being worked on.
    Sent,
    /// Answered, with bulk data under way.
    Bulk(Reply),
    /// Waits before it goes again (P-83, P-85).
    Waiting,
    /// Waits until its bulk memory is not in use.
    Unlinking(Next),
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) import: ImportId,
    pub(crate) purpose: Purpose,
    /// The state in which it goes (P-79).
    pub(crate) send_state: ImportState,
    pub(crate) header: Header,
    pub(crate) body: Body,
    /// Buffers behind the body.
    pub(crate) buffers: Buffers,
    /// Portals of request, reply.
    pub(crate) portals: (u32, u32),
    pub(crate) bulk_portal: u32,
    pub(crate) reply_len: u32,
    pub(crate) bulk: Option<Bulk>,
    pub(crate) resend: bool,
    pub(crate) delay: bool,
    pub(crate) limit: Option<Instant>,
    pub(crate) class: Class,
    /// Its slot, 0 if it needs none.
    pub(crate) slot: u16,
    pub(crate) in_recovery: bool,
    pub(crate) keep: bool,
    pub(crate) retains_bulk: bool,
    pub(crate) ends: Option<CallId>,
    pub(crate) error_reply: bool,
    pub(crate) xid: u64,
    /// The xid of the last sending, 0 before the first.
    pub(crate) sent_as: u64,
    pub(crate) generation: u32,
    pub(crate) phase: Phase,
    /// How often it was sent.
    pub(crate) attempt: u32,
    pub(crate) sent: Option<Instant>,
    /// The server has it, or may have it: the next one is a copy.
    pub(crate) resent: bool,
    /// It was sent and refused without effect: it goes again as a copy (P-73), and is not in doubt.
    pub(crate) refused: bool,
    /// Time that the server has, as sent.
    pub(crate) timeout: Duration,
    pub(crate) deadline: Option<Instant>,
    /// Where the reply comes, until it is taken back.
    pub(crate) reply_buffer: Option<MdId>,
    pub(crate) bulk_mds: Vec<MdId>,
    /// Bulk descriptors whose last event has not come.
    pub(crate) bulk_open: u32,
    pub(crate) bulk_failed: bool,
    /// Pieces of which the data have moved, and the memory is in use.
    pub(crate) bulk_moved: MovedPieces,
    /// How often the server said that it is working on it (P-85).
    pub(crate) in_progress: u32,
    /// It does not go again before (P-83, P-87).
    pub(crate) not_before: Option<Instant>,
    pub(crate) cancelled: bool,
}

impl Client {
    /// Whether a request may go (P-79).
    pub(crate) fn may_go(&self, id: CallId, now: Instant) -> May {
        let Some(r) = self.calls.get(id) else { return May::Fail(CallError::Cancelled) };
        let Some(im) = self.imports.get(r.import) else { return May::Fail(CallError::NoImport) };
        if r.cancelled {
            return May::Fail(CallError::Cancelled);
        }
        if im.closing && r.purpose == Purpose::Call {
            return May::Fail(CallError::Closed);
        }
        let may = may(&Passage {
            import: im.state,
            send_state: r.send_state,
            limit_passed: r.limit.is_some_and(|limit| limit <= now),
            invalidating: im.invalidating,
            invalid: im.invalid,
            older: r.generation != im.generation,
            delay: r.delay,
            woke: im.woken == Some(r.generation),
            in_recovery: r.in_recovery,
        });
        match (may, im.refusal.as_deref()) {
            // What has ended the calls before says more than that the import is void.
            (May::Fail(CallError::Inactive), Some(refusal)) if im.deactivated => {
                May::Fail(*refusal)
            }
            (may, _) => may,
        }
    }

    /// Sends a request, lets it wait, or ends it.
    pub(crate) fn progress(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let now = cx.below.now();
        match self.may_go(id, now) {
            May::Go if self.paced(cx, id, now) => {}
            May::Go => {
                if let Err(e) = self.transmit(cx, id) {
                    self.release(cx, id, Next::End(Err(CallError::NoDescriptor(e))));
                }
            }
            May::Delay => {
                if let Some(r) = self.calls.get_mut(id) {
                    r.phase = Phase::Delayed;
                    cx.common.timers.stop(Timer::Call(id));
                }
            }
            May::Fail(e) => self.release(cx, id, Next::End(Err(e))),
        }
    }

    /// Lets a request wait that has just gone (P-83, P-87).
    fn paced(&mut self, cx: &mut Cx<'_, '_>, id: CallId, now: Instant) -> bool {
        let Some(r) = self.calls.get_mut(id) else { return false };
        let Some(at) = r.not_before.take_if(|at| *at > now) else { return false };
        r.phase = Phase::Waiting;
        cx.common.timers.set(Timer::Call(id), at);
        true
    }

    /// One sending (P-84).
    fn transmit(&mut self, cx: &mut Cx<'_, '_>, id: CallId) -> Result<(), Errno> {
        let now = Self::now(cx);
        let Some(r) = self.calls.get_mut(id) else { return Ok(()) };
        let Some(im) = self.imports.get_mut(r.import) else { return Ok(()) };
        let tunables = &cx.common.tunables;
        let limited = tunables.deadline_limits_lnet;
        self.stats.sent += 1;
        self.stats.resent += u64::from(r.attempt > 0);
        r.attempt += 1;
        let connects = matches!(r.purpose, Purpose::Connect | Purpose::Disconnect);
        // Match bits: the last bulk descriptor's. A copy has new ones, so that what is left of the
        // sending before does no harm (P-48).
        let cut = Cut::of_call(r.body.opcode, &r.buffers);
        let pieces = r.bulk.as_ref().map_or(0, |bulk| cut.pieces_of(&bulk.memory));
        let first = core::mem::replace(&mut r.sent_as, r.xid) != r.xid;
        let base =
            if first || r.purpose == Purpose::Replay { r.xid } else { cx.common.xids.next() };
        let by_mbits = im.rep_mbits() && r.purpose != Purpose::Connect;
        r.body.mbits = match (pieces, by_mbits) {
            (_, _) if r.purpose == Purpose::Connect => 0,
            (0, false) => 0,
            (0, true) => base,
            (n, _) => base + n - 1,
        };
        if r.purpose != Purpose::Connect {
            // A copy takes the time with it that an early reply has named (P-98).
            let named = if r.attempt > 1 { r.timeout } else { Duration::ZERO };
            r.timeout = im.server_time(r.portals.0, tunables).max(named);
            r.body.handle = im.handle;
            // P-11: callbacks carry none.
            r.body.conn_cnt = if im.callback.is_some() { 0 } else { im.conn_cnt };
            r.body.last_xid = if connects { 0 } else { im.known_replied(r.xid) };
            let adaptive = HeaderFlags::AT_SUPPORT | HeaderFlags::CKSUM_INCOMPAT18;
            r.header.flags = if im.adaptive { adaptive } else { HeaderFlags::empty() };
            r.body.timeout = wire_secs(r.timeout);
        }
        if im.callback.is_some() && r.attempt > 1 {
            cx.common.events.push_back(Event::CalledAgain { call: id });
        }
        let copy = (r.resent || r.refused) && r.purpose != Purpose::Connect;
        let marked = copy && !cx.common.breaks(Sabotage::ResentUnmarked);
        r.body.flags.set(BodyFlags::RESENT, marked);
        let deadline = now + r.timeout + im.net_time(tunables);
        r.sent = Some(now);
        r.deadline = Some(deadline);
        r.phase = Phase::Sent;
        r.bulk_failed = false;
        r.bulk_moved = MovedPieces::default();

        // Where the reply comes (P-38): room for an early one before the real one.
        let peer = ProcessId::from(im.nid());
        let reply_bits = if by_mbits { r.body.mbits } else { r.xid };
        let want = r.reply_len.saturating_add(BODY_ONLY_LEN as u32);
        let room = want.checked_next_power_of_two().unwrap_or(want);
        let span = cx.below.alloc(room).ok_or(Errno::ENOMEM)?;
        let (call, attempt) = (id, r.attempt);
        let sending = Sending::new(id, r.attempt);
        let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE;
        let entry = MatchEntry { from: peer, ..MatchEntry::bits(reply_bits) };
        let given = spec(IoVec::from([span]), Word::ReplyBuffer(sending), options, None);
        let attached = cx.below.attach_block(r.portals.1, entry, given);
        r.reply_buffer = Some(attached.map_err(errno)?);

        // The bulk data, a descriptor for each piece (P-46, P-47).
        if let Some(bulk) = &r.bulk {
            let options = match bulk.direction {
                Direction::Read => MdOptions::OP_PUT | MdOptions::TRUNCATE,
                Direction::Write => MdOptions::OP_GET | MdOptions::TRUNCATE,
            };
            for k in 0..pieces {
                if cx.common.losses.hit(r.body.opcode, Part::Bulk) {
                    // What comes for it finds nothing.
                    continue;
                }
                let part = cut.piece(&bulk.memory, k);
                let post = cx.common.posts.insert(Post::ClientBulk { call, attempt });
                let entry = MatchEntry { from: peer, ..MatchEntry::bits(base + k) };
                match cx.below.attach(
                    r.bulk_portal,
                    entry,
                    spec(part, Word::Post(post), options, Some(1)),
                ) {
                    Ok(md) => {
                        r.bulk_mds.push(md);
                        r.bulk_open += 1;
                    }
                    Err(e) => {
                        cx.common.posts.remove(post);
                        return Err(errno(e));
                    }
                }
            }
        }

        if cx.common.losses.hit(r.body.opcode, Part::Request) {
            cx.common.timers.set(Timer::Call(id), deadline);
            if r.purpose != Purpose::Connect {
                self.traffic(cx, id);
            }
            return Ok(());
        }

        // The request itself (P-35), written where it leaves from.
        let size = message_size(&r.buffers).map_err(|_| Errno::EINVAL)?;
        let write = |out: &mut [u8]| message_into(&r.header, &r.body, &r.buffers, out);
        let span = cx.message(size, write)?;
        let longest = cx.below.node().tunables().transaction_timeout;
        let longest = Duration::from_secs(u64::try_from(longest).unwrap_or(0));
        let left = deadline.saturating_since(cx.below.now());
        let unlike = !limited && longest > left;
        let timeout = limited.then(|| left.min(longest).into());
        let (portal, match_bits) = (r.portals.0, r.xid);
        let put = |md| Put {
            md,
            ack: false,
            src: None,
            target: peer,
            portal,
            match_bits,
            offset: 0,
            hdr_data: 0,
            timeout,
        };
        cx.common.timers.set(Timer::Call(id), deadline);
        if unlike && !core::mem::replace(&mut self.warned, true) {
            let import = r.import;
            cx.common
                .events
                .push_back(Event::Log { import, line: LogLine::SlowLnet { longest, left } });
        }
        // That it has left says nothing: the reply, or its absence, will (P-43).
        let given = spec(IoVec::from([span]), Word::Request(sending), MdOptions::empty(), Some(1));
        cx.below.send_block(MdSpec { events: false, ..given }, put).map_err(errno)?;
        if r.purpose != Purpose::Connect {
            self.traffic(cx, id);
        }
        Ok(())
    }

    /// Takes the buffers of a sending back; `next` comes when nothing uses the bulk memory.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_, '_>, id: CallId, next: Next) {
        let Some(r) = self.calls.get_mut(id) else { return };
        cx.common.timers.stop(Timer::Call(id));
        if let Some(md) = r.reply_buffer.take() {
            // One that is in use, or gone, has its last event.
            let _ = cx.below.unlink_at_once(md);
        }
        for md in core::mem::take(&mut r.bulk_mds) {
            let _ = cx.below.unlink(md);
        }
        r.phase = Phase::Unlinking(next);
        if r.bulk_open == 0 {
            self.released(cx, id);
        }
    }

    /// Nothing uses the memory of a request any more.
    pub(crate) fn released(&mut self, cx: &mut Cx<'_, '_>, id: CallId) {
        let Some(r) = self.calls.get_mut(id) else { return };
        match core::mem::replace(&mut r.phase, Phase::Delayed) {
            Phase::Unlinking(Next::End(result)) => self.finish(cx, id, result),
            Phase::Unlinking(Next::Again) => self.progress(cx, id),
            Phase::Unlinking(Next::Later(pause)) => {
                r.phase = Phase::Waiting;
                cx.common.timers.set(Timer::Call(id), cx.below.now() + pause);
            }
            phase => r.phase = phase,
        }
    }
}

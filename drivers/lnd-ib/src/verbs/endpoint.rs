//! One connection: the identifier of the connection manager, its queue pair, the ring of receive
//! buffers, and the send queue. It posts; what is to be posted is decided above.

#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::{null, null_mut};

use lnet_types::Errno;
use lnet_wire::ib::MSG_MAX;

use super::CmConfig;
use super::completions::Reserved;
use super::device::{Bounds, Device, last_error};
use super::library::Functions;
use super::pages::Pages;
use super::registrations::RegId;
use super::sends::{Message, Request, SendQueue};
use super::sys::{
    CmId, ConnParam, Cq, QPT_RC, QpCap, QpInitAttr, RecvWr, SEND_INLINE, SEND_SIGNALED, SendWr,
    Sge, WR_RDMA_WRITE, WR_SEND,
};
use crate::value::QpSize;

/// Bytes that go with the queue entry itself, where the device can do that: all messages without
/// payload, and small ones with it.
const INLINE: [u32; 3] = [256, 128, 0];
/// Entries of the send queue for each chain: a write and its message. Longer chains go in parts. Each
/// entry takes memory of the device, with its inline bytes, for as long as the connection lives.
const ENTRIES_PER_CHAIN: u32 = 2;

/// The name of a connection in work requests: a seat, and how often that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What a completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// A receive buffer.
    Receive(Seat, u16),
    /// The signalled request that is next in the queue.
    Signalled(Seat),
    /// A request that says nothing, unless it fails: what is behind it fails too.
    Silent(Seat),
}

impl Named {
    const SEATS: u64 = (1 << 20) - 1;
    const GENERATIONS: u64 = (1 << 26) - 1;

    pub(super) const fn number(self) -> u64 {
        let (kind, seat, slot) = match self {
            Self::Receive(seat, slot) => (0, seat, slot),
            Self::Signalled(seat) => (1, seat, 0),
            Self::Silent(seat) => (2, seat, 0),
        };
        let generation = seat.generation as u64 & Self::GENERATIONS;
        kind << 62 | generation << 36 | (seat.index as u64 & Self::SEATS) << 16 | slot as u64
    }

    pub(super) const fn of(number: u64) -> Option<Self> {
        let seat = Seat {
            index: (number >> 16 & Self::SEATS) as u32,
            generation: (number >> 36 & Self::GENERATIONS) as u32,
        };
        Some(match number >> 62 {
            0 => Self::Receive(seat, number as u16),
            1 => Self::Signalled(seat),
            2 => Self::Silent(seat),
            _ => return None,
        })
    }
}

/// The ring of receive buffers.
pub(super) struct Ring {
    pub(super) pages: Pages,
    pub(super) registration: RegId,
    pub(super) key: u32,
    /// Buffers that the device may write to.
    posted: Vec<bool>,
    /// Buffers that have not been posted yet.
    missing: u16,
}

/// What is to be said once all receive buffers are posted.
pub(super) struct Start {
    pub(super) private: Vec<u8>,
    pub(super) accepts: bool,
}

/// See the module's head.
pub(super) struct Endpoint {
    call: Functions,
    pub(super) id: *mut CmId,
    pub(super) seat: Seat,
    has_qp: bool,
    pub(super) entries: Option<Reserved>,
    pub(super) ring: Option<Ring>,
    pub(super) sends: SendQueue,
    pub(super) start: Option<Start>,
    /// Bytes that fit into a queue entry.
    pub(super) inline: u32,
}

/// Entries of the send queue for a queue pair of this size.
pub(super) fn send_entries(size: QpSize, bounds: Bounds) -> u32 {
    (u32::from(size.sends) * ENTRIES_PER_CHAIN).clamp(2, bounds.queue)
}

impl Endpoint {
    pub(super) const fn new(call: Functions, id: *mut CmId, seat: Seat) -> Self {
        Self {
            call,
            id,
            seat,
            has_qp: false,
            entries: None,
            ring: None,
            sends: SendQueue::new(0),
            start: None,
            inline: 0,
        }
    }

    /// Makes the queue pair.
    pub(super) fn make_qp(
        &mut self,
        device: &Device,
        cq: *mut Cq,
        size: QpSize,
    ) -> Result<(), Errno> {
        // SAFETY: an identifier whose address is resolved or that a request came with.
        if unsafe { (*self.id).verbs } != device.context {
            // Another device leads there than the one that the interface's address is on.
            return Err(Errno::EXDEV);
        }
        let entries = send_entries(size, device.bounds);
        let mut failed = Errno::EINVAL;
        for inline in INLINE {
            let mut attr = QpInitAttr {
                qp_context: null_mut(),
                send_cq: cq,
                recv_cq: cq,
                srq: null_mut(),
                cap: QpCap {
                    max_send_wr: entries,
                    max_recv_wr: size.receives.into(),
                    max_send_sge: device.bounds.places.min(PLACES as u32),
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: QPT_RC,
                sq_sig_all: 0,
            };
            // SAFETY: identifier, domain and queues live; the structure is this function's.
            let made = unsafe { (self.call.rdma_create_qp)(self.id, device.pd, &raw mut attr) };
            if made == 0 {
                self.has_qp = true;
                self.inline = inline;
                self.sends = SendQueue::new(entries);
                return Ok(());
            }
            failed = last_error();
            // Only a refusal of the inline size is answered by asking for less.
            if !matches!(failed, Errno::EINVAL | Errno::ENOMEM) {
                break;
            }
        }
        Err(failed)
    }

    /// Gives the connection its receive buffers.
    pub(super) fn set_ring(&mut self, pages: Pages, registration: RegId, key: u32, count: u16) {
        let posted = vec![false; count.into()];
        self.ring = Some(Ring { pages, registration, key, posted, missing: count });
    }

    /// Posts a receive buffer; true if it was the last one that was missing at the beginning.
    pub(super) fn post_receive(&mut self, slot: u16) -> Result<bool, Errno> {
        let (Some(ring), true) = (&mut self.ring, self.has_qp) else { return Err(Errno::ENOTCONN) };
        let place = ring.posted.get_mut(usize::from(slot)).filter(|posted| !**posted);
        let Some(posted) = place else { return Err(Errno::EINVAL) };
        let mut sge = Sge {
            addr: ring.pages.addr() + u64::from(slot) * MSG_MAX as u64,
            length: MSG_MAX as u32,
            lkey: ring.key,
        };
        let mut wr = RecvWr {
            wr_id: Named::Receive(self.seat, slot).number(),
            next: null_mut(),
            sg_list: &raw mut sge,
            num_sge: 1,
        };
        let mut bad = null_mut();
        // SAFETY: the queue pair lives; the request and what it points to outlive the call, which
        // copies them. The buffer belongs to the device until it completes: `slot` shows no bytes of
        // it meanwhile.
        let failed = unsafe {
            let qp = (*self.id).qp;
            ((*(*qp).context).ops.post_recv)(qp, &raw mut wr, &raw mut bad)
        };
        if failed != 0 {
            return Err(Errno(failed));
        }
        *posted = true;
        ring.missing = ring.missing.saturating_sub(1);
        Ok(ring.missing == 0)
    }

    /// A receive buffer has completed: it is this side's again.
    pub(super) fn received(&mut self, slot: u16) {
        let posted = self.ring.as_mut().and_then(|ring| ring.posted.get_mut(usize::from(slot)));
        if let Some(posted) = posted {
            *posted = false;
        }
    }

    /// The bytes of a receive buffer; none of one that is posted.
    pub(super) fn slot(&self, slot: u16) -> &[u8] {
        let Some(ring) = &self.ring else { return &[] };
        if ring.posted.get(usize::from(slot)) != Some(&false) {
            return &[];
        }
        // SAFETY: the buffer has completed or was never posted, so the device does not write it; it
        // is posted through `&mut self` only.
        unsafe { ring.pages.bytes(usize::from(slot) * MSG_MAX, MSG_MAX) }
    }

    /// Posts requests in one go, the last one signalled.
    ///
    /// # Safety
    /// What the requests read stays registered and unchanged until the last one has completed.
    pub(super) unsafe fn post(
        &self,
        batch: &[Request],
        buffer: impl Fn(super::sends::BufferId) -> Sge,
    ) -> Result<(), Errno> {
        // All places first: requests point to them.
        let mut places: Vec<Sge> = Vec::with_capacity(batch.len());
        for request in batch {
            match request {
                Request::Write(piece) => places.extend_from_slice(&piece.from),
                Request::Send(Message::Inline(bytes)) => places.push(Sge {
                    addr: bytes.as_ptr() as u64,
                    length: u32::try_from(bytes.len()).unwrap_or(0),
                    lkey: 0,
                }),
                Request::Send(Message::Buffer(id, len)) => {
                    places.push(Sge { length: *len, ..buffer(*id) });
                }
            }
        }
        let mut requests: Vec<SendWr> = Vec::with_capacity(batch.len());
        let mut at = 0;
        for (n, request) in batch.iter().enumerate() {
            let last = n + 1 == batch.len();
            let (count, opcode, addr, key, inline) = match request {
                Request::Write(piece) => {
                    (piece.from.len(), WR_RDMA_WRITE, piece.addr, piece.key, false)
                }
                Request::Send(message) => (1, WR_SEND, 0, 0, matches!(message, Message::Inline(_))),
            };
            let name = if last { Named::Signalled(self.seat) } else { Named::Silent(self.seat) };
            let signalled = if last { SEND_SIGNALED } else { 0 };
            let inline = if inline { SEND_INLINE } else { 0 };
            requests.push(SendWr {
                wr_id: name.number(),
                next: null_mut(),
                sg_list: places[at..at + count].as_mut_ptr(),
                num_sge: count as i32,
                opcode,
                send_flags: signalled | inline,
                imm_data: 0,
                remote_addr: addr,
                rkey: key,
                unused: [0; 9],
            });
            at += count;
        }
        let first = requests.as_mut_ptr();
        for n in 1..requests.len() {
            // SAFETY: both lie inside of the list, which does not grow any more.
            unsafe { (*first.add(n - 1)).next = first.add(n) };
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair lives; requests, places and inline bytes outlive the call, which
        // copies them; what they name besides is the caller's promise.
        let failed = unsafe {
            let qp = (*self.id).qp;
            if qp.is_null() {
                return Err(Errno::ENOTCONN);
            }
            ((*(*qp).context).ops.post_send)(qp, first, &raw mut bad)
        };
        if failed == 0 { Ok(()) } else { Err(Errno(failed)) }
    }

    /// Says what was to be said once all receive buffers are posted.
    pub(super) fn begin(&mut self, cm: CmConfig) -> Result<(), Errno> {
        let Some(Start { private, accepts }) = self.start.take() else { return Ok(()) };
        let mut param = ConnParam {
            private_data: private.as_ptr().cast::<c_void>(),
            private_data_len: u8::try_from(private.len()).map_err(|_| Errno::EMSGSIZE)?,
            responder_resources: 0,
            initiator_depth: 0,
            flow_control: 1,
            retry_count: cm.retries,
            rnr_retry_count: cm.receiver_retries,
            srq: 0,
            qp_num: 0,
        };
        // SAFETY: the identifier lives; parameters and private data outlive the calls, which copy them.
        let failed = unsafe {
            match accepts {
                true => (self.call.rdma_accept)(self.id, &raw mut param),
                false => (self.call.rdma_connect)(self.id, &raw mut param),
            }
        };
        if failed == 0 { Ok(()) } else { Err(last_error()) }
    }

    /// Ends the connection: everything posted comes back.
    pub(super) fn disconnect(&mut self) {
        // SAFETY: the identifier lives. That the peer is gone already is no concern of this side.
        unsafe { (self.call.rdma_disconnect)(self.id) };
    }

    pub(super) fn qp(&self) -> *const c_void {
        // SAFETY: the identifier lives.
        if self.has_qp { unsafe { (*self.id).qp }.cast() } else { null() }
    }

    /// Destroys queue pair and identifier: behind this call the device reaches no memory of the
    /// connection (RS-096).
    pub(super) fn destroy(&mut self) {
        // SAFETY: both live and are destroyed once: the identifier is null from here on.
        unsafe {
            if self.has_qp {
                (self.call.rdma_destroy_qp)(self.id);
            }
            if !self.id.is_null() && (self.call.rdma_destroy_id)(self.id) != 0 {
                tracing::error!("an identifier is not destroyed: {}", last_error());
            }
        }
        self.has_qp = false;
        self.id = null_mut();
    }
}

/// Places that one RDMA write reads from, at most.
pub(super) const PLACES: usize = 16;

/// A request of a peer that is refused or goes unanswered.
pub(super) fn refuse(call: &Functions, id: *mut CmId, private: &[u8]) {
    let len = u8::try_from(private.len()).unwrap_or(0);
    // SAFETY: the identifier came with a request and is destroyed here, once; the bytes outlive the
    // call, which copies them.
    unsafe {
        (call.rdma_reject)(id, private.as_ptr().cast(), len);
        (call.rdma_destroy_id)(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_work_requests_are_read_back() {
        let seat = Seat { index: 0xf_fffe, generation: 0x3ff_fff1 };
        for named in [Named::Receive(seat, 511), Named::Signalled(seat), Named::Silent(seat)] {
            assert_eq!(Named::of(named.number()), Some(named));
        }
        assert_eq!(Named::of(3 << 62), None);
    }

    #[test]
    fn a_send_queue_keeps_within_the_device() {
        let bounds = Bounds { queue: 40, places: 4, completions: 100, message: 1 << 30 };
        let size = |sends| QpSize { sends, receives: 18 };
        assert_eq!(send_entries(size(8), bounds), 16);
        assert_eq!(send_entries(size(255), bounds), 40);
        assert_eq!(send_entries(size(0), bounds), 2);
    }
}

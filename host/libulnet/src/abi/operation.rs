//! PUT and GET: waited for, or started with their end in a queue.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_char, c_int, c_void};
use core::time::Duration;

use lnet_rt::{GetRequest, Moved, Nid, OpFailed, OpFuture, PutRequest};

use super::queue::{Happened, QUEUES};
use super::raw;
use super::types::{ULNET_ACK, ulnet_event_kind, ulnet_node, ulnet_options, ulnet_queue};
use crate::failure::{Failure, entry};
use crate::lease::Lease;
use crate::source::{OperationSource, settled};

/// What C says of an operation, checked.
#[derive(Default)]
struct Options {
    ack: bool,
    offset: u32,
    hdr_data: u64,
    source: Option<Nid>,
    send: Option<Duration>,
    response: Option<Duration>,
}

impl Options {
    /// # Safety
    /// `options` is NULL or readable, and its string ends with NUL.
    unsafe fn read(options: *const ulnet_options) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        let Some(given) = (unsafe { raw::read("options", options)? }) else {
            return Ok(Self::default());
        };
        raw::flags("ulnet_options", given.flags, ULNET_ACK)?;
        raw::reserved("ulnet_options", &given.reserved)?;
        let limit = |ms: u32| (ms != 0).then(|| Duration::from_millis(ms.into()));
        Ok(Self {
            ack: given.flags & ULNET_ACK != 0,
            offset: given.offset,
            hdr_data: given.hdr_data,
            // SAFETY: the caller's promise.
            source: unsafe { raw::optional_nid("source", given.source)? },
            send: limit(given.send_timeout_ms),
            response: limit(given.response_timeout_ms),
        })
    }
}

/// A PUT or GET that C has described.
struct Prepared<R> {
    request: R,
    lease: Lease,
}

/// What C names to describe an operation.
struct Described {
    node: *mut ulnet_node,
    target: *const c_char,
    portal: u32,
    match_bits: u64,
    memory: *const c_void,
    len: usize,
    options: *const ulnet_options,
}

macro_rules! with_options {
    ($request:ident, $options:ident) => {{
        let mut request = $request.offset($options.offset);
        if let Some(nid) = $options.source {
            request = request.source(nid);
        }
        if let Some(limit) = $options.send {
            request = request.send_timeout(limit);
        }
        if let Some(limit) = $options.response {
            request = request.response_timeout(limit);
        }
        request
    }};
}

impl Described {
    /// # Safety
    /// The pointers are as the header demands.
    unsafe fn put(self) -> Result<Prepared<PutRequest>, Failure> {
        let node = super::node::node(self.node)?;
        let memory = raw::memory("data", self.memory, self.len)?;
        // SAFETY: the caller's promise.
        let (target, options) =
            unsafe { (raw::target(self.target)?, Options::read(self.options)?) };
        // SAFETY: the header demands that the bytes stay as they are until the operation has ended; both
        // ways wait for the lease before they say so. A node only reads what it sends.
        let (lease, buffer) = unsafe { Lease::new(memory, self.len) };
        let request = node.put(target, self.portal, self.match_bits, buffer);
        let request = request.hdr_data(options.hdr_data);
        let request = if options.ack { request.ack() } else { request };
        Ok(Prepared { request: with_options!(request, options), lease })
    }

    /// # Safety
    /// The pointers are as the header demands.
    unsafe fn get(self) -> Result<Prepared<GetRequest>, Failure> {
        let node = super::node::node(self.node)?;
        let memory = raw::memory("to", self.memory, self.len)?;
        // SAFETY: the caller's promise.
        let (target, options) =
            unsafe { (raw::target(self.target)?, Options::read(self.options)?) };
        if options.ack || options.hdr_data != 0 {
            return Err(Failure::argument("ulnet_options: ULNET_ACK and hdr_data are for PUTs"));
        }
        // SAFETY: the header demands that nothing else touches the bytes until the operation has ended; both
        // ways wait for the lease before they say so.
        let (lease, buffer) = unsafe { Lease::new(memory, self.len) };
        let request = node.get(target, self.portal, self.match_bits, buffer);
        Ok(Prepared { request: with_options!(request, options), lease })
    }
}

/// # Safety
/// `moved` is NULL or writable.
unsafe fn ended(
    outcome: Result<Moved, OpFailed>,
    lease: &Lease,
    moved: *mut usize,
) -> Result<c_int, Failure> {
    let bytes = settled(outcome, lease)?;
    // SAFETY: the caller's promise.
    unsafe { raw::write_if_wanted("moved", moved, bytes as usize)? };
    Ok(0)
}

fn started(
    request: impl IntoFuture<IntoFuture = OpFuture>,
    lease: Lease,
    kind: ulnet_event_kind,
    queue: *mut ulnet_queue,
    user: *mut c_void,
) -> Result<c_int, Failure> {
    let queue = QUEUES.get(raw::number(queue))?;
    let user = user.expose_provenance();
    let end = move |outcome| Happened::Ended { kind, user, outcome };
    queue.add(Box::new(OperationSource::start(request, lease, end)))?;
    Ok(0)
}

/// Sends len bytes at data to a portal of target, and waits until they are sent, or with ULNET_ACK until
/// the target has acknowledged them. options may be NULL. Bytes that were sent, or that the target took,
/// are written to moved if that is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_put(
    node: *mut ulnet_node,
    target: *const c_char,
    portal: u32,
    match_bits: u64,
    data: *const c_void,
    len: usize,
    options: *const ulnet_options,
    moved: *mut usize,
) -> c_int {
    entry(|| {
        let described = Described { node, target, portal, match_bits, memory: data, len, options };
        // SAFETY: as the header demands; the memory is awaited below.
        let Prepared { request, lease } = unsafe { described.put()? };
        // SAFETY: the header demands that it is NULL or writable.
        unsafe { ended(request.blocking(), &lease, moved) }
    })
}

/// Fetches at most len bytes from a portal of target to the memory at to, and waits for them. options may
/// be NULL. How many came is written to moved if that is not NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_get(
    node: *mut ulnet_node,
    target: *const c_char,
    portal: u32,
    match_bits: u64,
    to: *mut c_void,
    len: usize,
    options: *const ulnet_options,
    moved: *mut usize,
) -> c_int {
    entry(|| {
        let described = Described { node, target, portal, match_bits, memory: to, len, options };
        // SAFETY: as the header demands; the memory is awaited below.
        let Prepared { request, lease } = unsafe { described.get()? };
        // SAFETY: the header demands that it is NULL or writable.
        unsafe { ended(request.blocking(), &lease, moved) }
    })
}

/// Starts a PUT, which ends with ULNET_EVENT_PUT_DONE in queue. The bytes at data are not copied: they
/// must stay, and stay the same, until that event has been taken or the queue is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_put_start(
    node: *mut ulnet_node,
    target: *const c_char,
    portal: u32,
    match_bits: u64,
    data: *const c_void,
    len: usize,
    options: *const ulnet_options,
    queue: *mut ulnet_queue,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // First: what has been started can't be taken back without waiting.
        QUEUES.get(raw::number(queue))?;
        let described = Described { node, target, portal, match_bits, memory: data, len, options };
        // SAFETY: as the header demands; the source awaits the memory.
        let Prepared { request, lease } = unsafe { described.put()? };
        started(request, lease, ulnet_event_kind::ULNET_EVENT_PUT_DONE, queue, user)
    })
}

/// Starts a GET, which ends with ULNET_EVENT_GET_DONE in queue. The memory at to must stay, and not be
/// touched, until that event has been taken or the queue is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_get_start(
    node: *mut ulnet_node,
    target: *const c_char,
    portal: u32,
    match_bits: u64,
    to: *mut c_void,
    len: usize,
    options: *const ulnet_options,
    queue: *mut ulnet_queue,
    user: *mut c_void,
) -> c_int {
    entry(|| {
        // First: what has been started can't be taken back without waiting.
        QUEUES.get(raw::number(queue))?;
        let described = Described { node, target, portal, match_bits, memory: to, len, options };
        // SAFETY: as the header demands; the source awaits the memory.
        let Prepared { request, lease } = unsafe { described.get()? };
        started(request, lease, ulnet_event_kind::ULNET_EVENT_GET_DONE, queue, user)
    })
}

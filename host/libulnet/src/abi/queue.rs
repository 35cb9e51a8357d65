//! Event queues of C programs: taken by calls, by a descriptor that polls, or given to a callback.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_int, c_void};
use core::ptr::{null, null_mut, with_exposed_provenance_mut};
use core::time::Duration;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

use lnet_rt::{Errno, Event, EventKind, Message, OpFailed};

use super::inbox::MESSAGES;
use super::raw;
use super::types::{ulnet_callback, ulnet_event, ulnet_event_kind, ulnet_queue};
use crate::failure::{Failure, entry, remember};
use crate::queue::{Closed, Queue, Taken};
use crate::source::Landed;
use crate::table::Table;

pub(super) static QUEUES: Table<Queue<Happened>> = Table::new("queue");

impl From<Closed> for Failure {
    fn from(_: Closed) -> Self {
        Self::new(Errno::ESHUTDOWN, "the queue is closed")
    }
}

/// An event before C sees it. `user` is the program's pointer, exposed.
pub(super) enum Happened {
    /// A PUT or GET has ended.
    Ended { kind: ulnet_event_kind, user: usize, outcome: Result<u32, OpFailed> },
    /// A message, or `None` at the end of an inbox.
    Message { user: usize, message: Option<Message> },
    /// An event at attached memory that begins at `base`, or `None` at its end.
    Attached { user: usize, base: usize, landed: Option<Landed> },
}

const NOTHING: ulnet_event = ulnet_event {
    kind: ulnet_event_kind::ULNET_EVENT_CLOSED,
    status: 0,
    stage: 0,
    portal: 0,
    match_bits: 0,
    hdr_data: 0,
    offset: 0,
    requested: 0,
    length: 0,
    user: null_mut(),
    data: null(),
    message: null_mut(),
    initiator_pid: 0,
    reserved: 0,
    initiator: raw::NO_NID,
};

impl Happened {
    /// As C sees it: a failure's text is this thread's last error, a message has a handle.
    fn show(self) -> ulnet_event {
        match self {
            Self::Ended { kind, user, outcome } => {
                let user = with_exposed_provenance_mut(user);
                match outcome {
                    Ok(length) => ulnet_event { kind, user, length, ..NOTHING },
                    Err(failed) => {
                        let failure = Failure::from(failed);
                        let stage = failure.stage;
                        let status = remember(failure);
                        ulnet_event { kind, user, status, stage, ..NOTHING }
                    }
                }
            }
            Self::Message { user, message } => {
                let user = with_exposed_provenance_mut(user);
                let Some(message) = message else { return ulnet_event { user, ..NOTHING } };
                let message = Arc::new(message);
                let data = if message.is_empty() { null() } else { message.as_ptr().cast() };
                let event = message.event;
                let handle = raw::handle(MESSAGES.insert(message));
                let kind = ulnet_event_kind::ULNET_EVENT_MESSAGE;
                ulnet_event { data, message: handle, ..received(kind, user, &event) }
            }
            Self::Attached { user, base, landed } => {
                let user = with_exposed_provenance_mut(user);
                let Some(Landed { event, at }) = landed else {
                    return ulnet_event { user, ..NOTHING };
                };
                let kind = match event.kind {
                    EventKind::Put => ulnet_event_kind::ULNET_EVENT_PUT,
                    EventKind::Get => ulnet_event_kind::ULNET_EVENT_GET,
                    EventKind::Unlink | EventKind::Send | EventKind::Ack | EventKind::Reply => {
                        ulnet_event_kind::ULNET_EVENT_UNLINK
                    }
                };
                let data = at.map_or(null(), |at| {
                    with_exposed_provenance_mut::<c_void>(base.wrapping_add(at)).cast_const()
                });
                ulnet_event { data, ..received(kind, user, &event) }
            }
        }
    }
}

/// What an event of the node says.
fn received(kind: ulnet_event_kind, user: *mut c_void, event: &Event) -> ulnet_event {
    let status = match event.status {
        Ok(()) => 0,
        Err(errno) => remember(Failure::new(errno, errno.to_string())),
    };
    ulnet_event {
        kind,
        status,
        user,
        portal: event.portal,
        match_bits: event.match_bits,
        hdr_data: event.hdr_data,
        offset: event.offset,
        requested: event.rlength,
        length: event.mlength,
        initiator_pid: event.initiator.pid.0,
        initiator: raw::nid_text(event.initiator.nid),
        ..NOTHING
    }
}

/// Makes a queue from which events are taken with ulnet_queue_next. ulnet_queue_close ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_queue_new(queue: *mut *mut ulnet_queue) -> c_int {
    entry(|| {
        raw::place("queue", queue)?;
        let number = QUEUES.insert(Arc::new(Queue::new()));
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(queue, raw::handle(number)) };
        Ok(0)
    })
}

/// Makes a queue whose events are given to callback, one by one and with user, on a thread of its own.
/// ulnet_queue_close ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_queue_serve(
    callback: ulnet_callback,
    user: *mut c_void,
    queue: *mut *mut ulnet_queue,
) -> c_int {
    entry(|| {
        raw::place("queue", queue)?;
        let missing = || Failure::argument("callback NULL: must be a function");
        let callback = callback.ok_or_else(missing)?;
        let user = user.expose_provenance();
        let served = Queue::serve(move |happened: Happened| {
            let event = happened.show();
            // SAFETY: the header demands a function of this type that may be called on this thread until
            // the queue is closed; the event is valid during the call.
            unsafe { callback(&raw const event, with_exposed_provenance_mut(user)) };
        })?;
        let number = QUEUES.insert(Arc::new(served));
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(queue, raw::handle(number)) };
        Ok(0)
    })
}

/// A descriptor that polls readable (POLLIN) while there may be events: take them with ulnet_queue_next
/// and a timeout of 0 until it returns 0. Not to be read from or closed; it is valid until the queue is
/// closed. Returns the descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_queue_fd(queue: *mut ulnet_queue) -> c_int {
    entry(|| {
        let queue = taken_by_calls(queue)?;
        // The queue keeps it open.
        Ok(queue.fd()?.as_raw_fd())
    })
}

/// Takes the next event, waiting at most timeout_ms; 0: does not wait, negative: for ever. Returns 1 with
/// an event, 0 without one, -ESHUTDOWN when another thread has closed the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_queue_next(
    queue: *mut ulnet_queue,
    timeout_ms: c_int,
    event: *mut ulnet_event,
) -> c_int {
    entry(|| {
        let queue = taken_by_calls(queue)?;
        raw::place("event", event)?;
        let limit = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        match queue.next(limit) {
            Taken::Event(happened) => {
                // SAFETY: looked at above; the header demands that it is writable.
                unsafe { raw::write(event, happened.show()) };
                Ok(1)
            }
            Taken::Nothing => Ok(0),
            Taken::Closed => Err(Closed.into()),
        }
    })
}

fn taken_by_calls(queue: *mut ulnet_queue) -> Result<Arc<Queue<Happened>>, Failure> {
    let queue = QUEUES.get(raw::number(queue))?;
    if queue.is_served() {
        return Err(Failure::argument("queue: its events go to its callback"));
    }
    Ok(queue)
}

/// Closes a queue and ends its handle. Events that were not taken are gone, with their messages;
/// operations whose end was not taken are cancelled; inboxes and attachments stay, without events. Returns
/// when no thread is in the callback and no operation uses memory of the program: that may take as long as
/// a transmission. In the queue's own callback it fails with EDEADLK.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_queue_close(queue: *mut ulnet_queue) -> c_int {
    entry(|| {
        let number = raw::number(queue);
        if QUEUES.get(number)?.is_here() {
            let errno = lnet_rt::OpError::WouldDeadlock.errno();
            return Err(Failure::new(errno, "the queue is closed in its own callback"));
        }
        QUEUES.remove(number)?.close();
        Ok(0)
    })
}

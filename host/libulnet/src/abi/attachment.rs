//! Attached memory of the program.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use lnet_rt::{AttachOptions, Attachment};

use super::inbox::match_entry;
use super::node::node;
use super::queue::{Happened, QUEUES};
use super::raw;
use super::types::{
    ULNET_ATTACH_GET, ULNET_ATTACH_MANAGE_REMOTE, ULNET_ATTACH_NO_ACK, ULNET_ATTACH_PUT,
    ULNET_ATTACH_TRUNCATE, ulnet_attach_options, ulnet_attachment, ulnet_match, ulnet_node,
    ulnet_queue,
};
use crate::failure::{Failure, entry};
use crate::lease::Lease;
use crate::queue::{Key, Queue};
use crate::source::AttachmentSource;
use crate::table::Table;

struct Attached {
    /// Goes before the lease is awaited.
    attachment: Arc<Attachment>,
    lease: Arc<Lease>,
    queue: Weak<Queue<Happened>>,
    key: Key,
}

static ATTACHMENTS: Table<Attached> = Table::new("attachment");

/// # Safety
/// `options` is NULL or readable.
unsafe fn attach_options(options: *const ulnet_attach_options) -> Result<AttachOptions, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { raw::read("options", options)? };
    let Some(given) = given else { return Ok(AttachOptions::PUT) };
    let known = ULNET_ATTACH_PUT
        | ULNET_ATTACH_GET
        | ULNET_ATTACH_MANAGE_REMOTE
        | ULNET_ATTACH_TRUNCATE
        | ULNET_ATTACH_NO_ACK;
    raw::flags("ulnet_attach_options", given.flags, known)?;
    raw::reserved("ulnet_attach_options", &given.reserved)?;
    let has = |flag| given.flags & flag != 0;
    let chosen = |value: u32| (value != 0).then_some(value);
    Ok(AttachOptions {
        put: has(ULNET_ATTACH_PUT),
        get: has(ULNET_ATTACH_GET),
        manage_remote: has(ULNET_ATTACH_MANAGE_REMOTE),
        truncate: has(ULNET_ATTACH_TRUNCATE),
        no_ack: has(ULNET_ATTACH_NO_ACK),
        max_size: chosen(given.max_size),
        threshold: chosen(given.threshold),
        events_max: chosen(given.events_max)
            .map_or(AttachOptions::PUT.events_max, |max| max as usize),
    })
}

/// Attaches len bytes of the program's memory to a portal, for messages that match. Each message is an
/// event in queue, with user; messages without ULNET_ATTACH_MANAGE_REMOTE land one behind the other.
/// options may be NULL: PUTs. The memory must stay until ulnet_detach has returned; what a
/// ULNET_EVENT_PUT names may be read before, the rest must not be touched. To receive without end, use an
/// inbox.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_attach(
    node: *mut ulnet_node,
    portal: u32,
    r#match: *const ulnet_match,
    memory: *mut c_void,
    len: usize,
    options: *const ulnet_attach_options,
    queue: *mut ulnet_queue,
    user: *mut c_void,
    attachment: *mut *mut ulnet_attachment,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        raw::place("attachment", attachment)?;
        let queue = QUEUES.get(raw::number(queue))?;
        let start = raw::memory("memory", memory, len)?;
        // SAFETY: the header demands a structure, and one or NULL.
        let (entry, options) = unsafe { (match_entry(r#match)?, attach_options(options)?) };
        let base = memory.expose_provenance();
        // SAFETY: the header demands that the memory stays until ulnet_detach has returned, which waits for
        // the lease; so do the ways out of here.
        let (lease, buffer) = unsafe { Lease::new(start, len) };
        let made = node.attach(portal, entry, buffer, options).map_err(|failed| {
            // With its buffer, if it has one.
            let error = failed.error;
            drop(failed);
            lease.wait();
            error
        });
        let made = Arc::new(made?);
        let user = user.expose_provenance();
        let event = move |landed| Happened::Attached { user, base, landed };
        let key = match queue.add(Box::new(AttachmentSource::new(Arc::clone(&made), event))) {
            Ok(key) => key,
            Err(closed) => {
                drop(made);
                lease.wait();
                return Err(closed.into());
            }
        };
        let queue = Arc::downgrade(&queue);
        let attached = Attached { attachment: made, lease: Arc::new(lease), queue, key };
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(attachment, raw::handle(ATTACHMENTS.insert(Arc::new(attached)))) };
        Ok(0)
    })
}

/// Copies len bytes at offset of attached memory to the memory at to, as they are between two messages:
/// for memory whose offsets the initiators choose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_attachment_read(
    attachment: *mut ulnet_attachment,
    offset: u64,
    to: *mut c_void,
    len: usize,
) -> c_int {
    entry(|| {
        let attached = ATTACHMENTS.get(raw::number(attachment))?;
        let to = raw::memory("to", to, len)?;
        // Zeroed first, by the checked length, so that the slice is one of initialised bytes.
        // SAFETY: the header demands `len` writable bytes that nothing else touches during the call.
        let to = unsafe {
            to.write_bytes(0, len);
            core::slice::from_raw_parts_mut(to.as_ptr(), len)
        };
        attached.attachment.read_at_blocking(offset, to)?;
        Ok(0)
    })
}

/// Changes len bytes at offset of attached memory, between two messages. Bytes that have been delivered by
/// an event can't be changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_attachment_write(
    attachment: *mut ulnet_attachment,
    offset: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    entry(|| {
        let attached = ATTACHMENTS.get(raw::number(attachment))?;
        let data = raw::memory("data", data, len)?;
        // SAFETY: the header demands `len` readable bytes that nothing changes during the call.
        let bytes = unsafe { core::slice::from_raw_parts(data.as_ptr().cast_const(), len) };
        attached.attachment.write_at_blocking(offset, bytes)?;
        Ok(0)
    })
}

/// Detaches memory and ends the handle. Returns when no message uses the memory any more: that may take as
/// long as a transmission. No event of it follows but one that another thread is taking now.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_detach(attachment: *mut ulnet_attachment) -> c_int {
    entry(|| {
        let attached = ATTACHMENTS.remove(raw::number(attachment))?;
        if let Some(queue) = attached.queue.upgrade() {
            queue.remove(attached.key);
        }
        let lease = Arc::clone(&attached.lease);
        drop(attached);
        lease.wait();
        Ok(0)
    })
}

//! Inboxes and their messages.

#![allow(unsafe_code, reason = "entries of a C library: the header says what callers keep to")]
#![allow(clippy::missing_safety_doc, reason = "the comments are those of the header")]

use core::ffi::{c_int, c_void};
use std::sync::{Arc, Weak};

use lnet_rt::{Inbox, InboxOptions, MatchEntry, Message, Pid, Position, ProcessId};

use super::node::node;
use super::queue::{Happened, QUEUES};
use super::raw;
use super::types::{
    ULNET_INBOX_DROP, ULNET_MATCH_FIRST, ulnet_inbox, ulnet_inbox_options, ulnet_inbox_state,
    ulnet_match, ulnet_message, ulnet_node, ulnet_queue,
};
use crate::failure::{Failure, entry};
use crate::queue::{Key, Queue};
use crate::source::InboxSource;
use crate::table::Table;

pub(super) struct Opened {
    inbox: Arc<Inbox>,
    queue: Weak<Queue<Happened>>,
    key: Key,
}

static INBOXES: Table<Opened> = Table::new("inbox");
pub(super) static MESSAGES: Table<Message> = Table::new("message");

/// A match entry as C describes it.
///
/// # Safety
/// `given` is NULL or readable, and its string ends with NUL.
pub(super) unsafe fn match_entry(given: *const ulnet_match) -> Result<MatchEntry, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { raw::read("match", given)? };
    let given = given.ok_or_else(|| Failure::argument("match NULL: must be a structure"))?;
    raw::flags("ulnet_match", given.flags, ULNET_MATCH_FIRST)?;
    raw::reserved("ulnet_match", &[given.reserved.into()])?;
    let mut entry = MatchEntry { ignore_bits: given.ignore_bits, ..MatchEntry::bits(given.bits) };
    // SAFETY: the caller's promise.
    if let Some(nid) = unsafe { raw::optional_nid("from", given.from)? } {
        entry.from = ProcessId { nid, pid: Pid::ANY };
    }
    if given.flags & ULNET_MATCH_FIRST != 0 {
        entry.position = Position::Before;
    }
    Ok(entry)
}

/// # Safety
/// `options` is NULL or readable.
unsafe fn inbox_options(options: *const ulnet_inbox_options) -> Result<InboxOptions, Failure> {
    let mut all = InboxOptions::DEFAULT;
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { raw::read("options", options)? }) else { return Ok(all) };
    raw::flags("ulnet_inbox_options", given.flags, ULNET_INBOX_DROP)?;
    let [first, second] = given.reserved;
    raw::reserved("ulnet_inbox_options", &[u64::from(given.reserved32), first, second])?;
    if given.buffers != 0 {
        all.buffers = given.buffers as usize;
    }
    if given.buffer_bytes != 0 {
        raw::memory("buffer_bytes", core::ptr::dangling(), given.buffer_bytes)?;
        all.buffer_bytes = given.buffer_bytes;
    }
    if given.messages_per_buffer != 0 {
        all.messages_per_buffer = given.messages_per_buffer;
    }
    all.wait = given.flags & ULNET_INBOX_DROP == 0;
    Ok(all)
}

/// Opens an inbox at a portal, for PUTs that match: a ring of buffers that are posted again by themselves.
/// Each message is a ULNET_EVENT_MESSAGE in queue, with user. options may be NULL. ulnet_inbox_close ends
/// it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_inbox_open(
    node: *mut ulnet_node,
    portal: u32,
    r#match: *const ulnet_match,
    options: *const ulnet_inbox_options,
    queue: *mut ulnet_queue,
    user: *mut c_void,
    inbox: *mut *mut ulnet_inbox,
) -> c_int {
    entry(|| {
        let node = self::node(node)?;
        raw::place("inbox", inbox)?;
        let queue = QUEUES.get(raw::number(queue))?;
        // SAFETY: the header demands a structure, and one or NULL.
        let (entry, options) = unsafe { (match_entry(r#match)?, inbox_options(options)?) };
        let opened = Arc::new(node.inbox(portal, entry, options)?);
        let user = user.expose_provenance();
        let event = move |message| Happened::Message { user, message };
        let key = queue.add(Box::new(InboxSource::new(Arc::clone(&opened), event)))?;
        let opened = Opened { inbox: opened, queue: Arc::downgrade(&queue), key };
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(inbox, raw::handle(INBOXES.insert(Arc::new(opened)))) };
        Ok(0)
    })
}

/// Writes where the buffers of an inbox are to state: how far the program is behind its senders.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ulnet_inbox_get_state(
    inbox: *mut ulnet_inbox,
    state: *mut ulnet_inbox_state,
) -> c_int {
    entry(|| {
        let opened = INBOXES.get(raw::number(inbox))?;
        raw::place("state", state)?;
        let now = opened.inbox.state();
        let value = ulnet_inbox_state {
            buffers: now.buffers,
            posted: now.posted,
            unread: now.unread,
            exhausted: now.exhausted,
        };
        // SAFETY: looked at above; the header demands that it is writable.
        unsafe { raw::write(state, value) };
        Ok(0)
    })
}

/// Closes an inbox and ends its handle: nothing is received any more, and no event of it follows but one
/// that another thread is taking now. Messages that were taken stay until they are freed.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_inbox_close(inbox: *mut ulnet_inbox) -> c_int {
    entry(|| {
        let opened = INBOXES.remove(raw::number(inbox))?;
        if let Some(queue) = opened.queue.upgrade() {
            queue.remove(opened.key);
        }
        Ok(0)
    })
}

/// Frees a message: its bytes must not be read any more. When all messages of a buffer are freed, the
/// buffer is posted again, so keep copies of what has to stay for long.
#[unsafe(no_mangle)]
pub extern "C" fn ulnet_message_free(message: *mut ulnet_message) -> c_int {
    entry(|| {
        MESSAGES.remove(raw::number(message))?;
        Ok(0)
    })
}

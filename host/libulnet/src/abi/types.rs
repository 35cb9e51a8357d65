//! Types and constants of the header.

#![allow(non_camel_case_types, reason = "names of C")]

use core::ffi::{c_char, c_void};

/// Bytes of a NID as text, its NUL included.
pub const ULNET_NID_SIZE: usize = 64;

/// What a node starts with. Made by ulnet_config_new.
pub struct ulnet_config(());

/// A node on a thread of its own. Made by ulnet_node_start.
pub struct ulnet_node(());

/// An event queue. Made by ulnet_queue_new or ulnet_queue_serve.
pub struct ulnet_queue(());

/// Buffers that receive without end. Made by ulnet_inbox_open.
pub struct ulnet_inbox(());

/// Memory of the program at a portal. Made by ulnet_attach.
pub struct ulnet_attachment(());

/// A message that an inbox has received. Comes with ULNET_EVENT_MESSAGE.
pub struct ulnet_message(());

/// A NID as text, such as 10.0.0.1@tcp.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_nid {
    /// Ends with NUL.
    pub text: [c_char; ULNET_NID_SIZE],
}

/// A local interface. All 0 is the default. Fields called reserved must be 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_ni_options {
    /// The device or alias that it follows; NULL: whatever device has the address.
    pub interface: *const c_char,
    /// Concurrent sends; 0: 256.
    pub credits: u32,
    /// Concurrent sends for each peer interface; 0: 8.
    pub peer_credits: u32,
    /// Bulk connections each way for each peer, at most 127; 0: by the device's speed.
    pub conns_per_peer: u32,
    /// Type of service, at most 255; 0: the system's choice.
    pub tos: u32,
    /// Limit of one transmission, milliseconds; 0: derived from the node's tunables.
    pub timeout_ms: u32,
    /// Must be 0.
    pub reserved32: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// The target acknowledges a PUT, and the operation ends with that.
pub const ULNET_ACK: u32 = 1;

/// How a PUT or GET is done. All 0 is the default. Fields called reserved must be 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_options {
    /// ULNET_ACK or 0.
    pub flags: u32,
    /// Where the bytes go to or come from, for targets that leave the offset to the initiator.
    pub offset: u32,
    /// PUT: 64 bits that the target's event shows.
    pub hdr_data: u64,
    /// The own NID to send from; NULL: the node chooses.
    pub source: *const c_char,
    /// Limit on sending, retries included, milliseconds; 0: the node's transaction_timeout.
    pub send_timeout_ms: u32,
    /// Limit on the answer, milliseconds; 0: as for sending.
    pub response_timeout_ms: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// The entry stands before those that the portal has, else behind them.
pub const ULNET_MATCH_FIRST: u32 = 1;

/// Which messages match.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_match {
    /// Bits that a message must carry.
    pub bits: u64,
    /// Those of the bits that do not count.
    pub ignore_bits: u64,
    /// The NID that it must come from; NULL: any.
    pub from: *const c_char,
    /// ULNET_MATCH_FIRST or 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Messages that find no buffer posted are dropped; otherwise they wait, and their senders with them.
pub const ULNET_INBOX_DROP: u32 = 1;

/// The ring of an inbox. All 0 is the default. Fields called reserved must be 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_inbox_options {
    /// Bytes of each buffer; 0: 1 MiB. Longer messages are dropped; LNet has none of more than 1 MiB.
    pub buffer_bytes: usize,
    /// Buffers; 0: 4.
    pub buffers: u32,
    /// Most messages in one buffer; 0: 16384.
    pub messages_per_buffer: u32,
    /// ULNET_INBOX_DROP or 0.
    pub flags: u32,
    /// Must be 0.
    pub reserved32: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// Where the buffers of an inbox are.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_inbox_state {
    /// Buffers of the ring.
    pub buffers: usize,
    /// Of these, posted: messages can land. The others hold messages that were not freed.
    pub posted: usize,
    /// Messages that have arrived and are in no event yet.
    pub unread: usize,
    /// How often the last posted buffer became full.
    pub exhausted: u64,
}

/// PUTs may match.
pub const ULNET_ATTACH_PUT: u32 = 1;
/// GETs may match.
pub const ULNET_ATTACH_GET: u32 = 2;
/// The initiator chooses the offset.
pub const ULNET_ATTACH_MANAGE_REMOTE: u32 = 4;
/// Longer messages are cut to what fits; otherwise they are dropped.
pub const ULNET_ATTACH_TRUNCATE: u32 = 8;
/// No PUT is acknowledged.
pub const ULNET_ATTACH_NO_ACK: u32 = 16;
/// The usual options of memory that peers read from: GET, MANAGE_REMOTE and TRUNCATE.
pub const ULNET_ATTACH_SHELF: u32 = 14;

/// How attached memory is used. Fields called reserved must be 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_attach_options {
    /// ULNET_ATTACH_..., at least one of PUT and GET.
    pub flags: u32,
    /// Bound of each message, bytes, and the memory is used up when that much is not left; 0: none.
    pub max_size: u32,
    /// Operations until it is used up; 0: no limit.
    pub threshold: u32,
    /// Events that may wait in the queue; with as many the memory is detached. 0: 65536.
    pub events_max: u32,
    /// Must be 0.
    pub reserved: [u64; 2],
}

/// What has happened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ulnet_event_kind {
    /// A PUT that was started has ended; its memory is the program's again.
    ULNET_EVENT_PUT_DONE = 1,
    /// A GET that was started has ended; its memory is the program's again.
    ULNET_EVENT_GET_DONE = 2,
    /// An inbox has received a message.
    ULNET_EVENT_MESSAGE = 3,
    /// A PUT has arrived in attached memory.
    ULNET_EVENT_PUT = 4,
    /// A GET has read attached memory.
    ULNET_EVENT_GET = 5,
    /// Attached memory is used up or detached.
    ULNET_EVENT_UNLINK = 6,
    /// The last event of an inbox or attachment: the node has stopped, or the memory is used up. The
    /// handle still has to be closed.
    ULNET_EVENT_CLOSED = 7,
}

/// The operation did not fail at a stage, or did not fail.
pub const ULNET_STAGE_NONE: u32 = 0;
/// No interface, peer interface or route leads to the target.
pub const ULNET_STAGE_NO_PATH: u32 = 1;
/// The target, or a router, refused the connection.
pub const ULNET_STAGE_REFUSED: u32 = 2;
/// The request was not transmitted.
pub const ULNET_STAGE_TRANSMISSION: u32 = 3;
/// The target answered with an error.
pub const ULNET_STAGE_ANSWER: u32 = 4;
/// No answer came: nothing matched at the target's portal, or a message was lost.
pub const ULNET_STAGE_NO_ANSWER: u32 = 5;

/// An event.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_event {
    /// What has happened.
    pub kind: ulnet_event_kind,
    /// 0, or a negative error number: then ulnet_last_error has the text for the thread that took the event.
    pub status: i32,
    /// ULNET_STAGE_...: how far an operation came that failed.
    pub stage: u32,
    /// Portal of a message that came.
    pub portal: u32,
    /// Match bits of a message that came.
    pub match_bits: u64,
    /// 64 bits of the initiator of a PUT that came.
    pub hdr_data: u64,
    /// Where in attached memory, bytes.
    pub offset: u64,
    /// Bytes asked for.
    pub requested: u32,
    /// Bytes moved.
    pub length: u32,
    /// The word given when the operation was started, the inbox opened or the memory attached.
    pub user: *mut c_void,
    /// The bytes of a message that came: of an inbox until its message is freed, of attached memory in
    /// place. NULL where there are none.
    pub data: *const c_void,
    /// ULNET_EVENT_MESSAGE: to be given to ulnet_message_free. Otherwise NULL.
    pub message: *mut ulnet_message,
    /// Process id of the initiator; 12345 for Lustre services.
    pub initiator_pid: u32,
    /// 0.
    pub reserved: u32,
    /// The peer that began the operation: its primary NID. Replies go there.
    pub initiator: ulnet_nid,
}

/// A peer, from ulnet_ping or ulnet_discover.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ulnet_peer {
    /// The NID that it is known by.
    pub primary: ulnet_nid,
    /// Whether it is Multi-Rail: 0 or 1.
    pub multi_rail: u32,
    /// How many NIDs it has.
    pub nids: u32,
}

/// Is given each event of a queue, on the queue's own thread. The event is valid until it returns; its
/// message is the program's. It must not close its own queue, and no exception may leave it.
pub type ulnet_callback =
    Option<unsafe extern "C" fn(event: *const ulnet_event, user: *mut c_void)>;

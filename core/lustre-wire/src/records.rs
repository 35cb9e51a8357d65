//! The two files in which a target keeps what it must know of its clients after a crash: `last_rcvd`
//! (P-139) and `reply_data` (P-140). Both are little-endian, whichever machine has written them.
//!
//! A file is read as a whole, and written as a whole or record by record: a record's place follows
//! from its slot.

use core::fmt;

use lnet_types::ByteOrder;

use crate::layout::{Text, codes, layout, part_mut};
use crate::{Layout, WireError};

const ORDER: ByteOrder = ByteOrder::Little;
/// Most slots of clients that a file may have.
pub const CLIENT_SLOTS_MAX: u32 = 1 << 18;
/// Most slots of replies that a file may have.
pub const REPLY_SLOTS_MAX: u32 = 1 << 22;

/// Bytes whose meaning is not known here. They are written as they were read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kept<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Kept<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Debug for Kept<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.0.iter().filter(|b| **b != 0).count();
        write!(f, "{used} of {N} bytes in use")
    }
}

impl<const N: usize> Layout for Kept<N> {
    const LEN: usize = N;
    const NAME: &'static str = "bytes";

    fn get(order: ByteOrder, b: &[u8]) -> Self {
        Self(Layout::get(order, b))
    }

    fn put(&self, order: ByteOrder, out: &mut [u8]) {
        self.0.put(order, out);
    }
}

codes! {
    /// What a file of replies begins with.
    pub struct ReplyMagic(u32) {
        /// Records of 32 bytes.
        V1 = 0xbdab_da01 "v1",
        /// Records of 64 bytes, with an index within a batch.
        V2 = 0xbdab_da02 "v2",
    }
}

layout! {
    /// The front of `last_rcvd`: the target.
    pub struct ServerRecord("server record", 512) {
        /// Uuid of the target.
        0 uuid: Text<40>,
        /// Highest transaction.
        40 last_transno: u64,
        /// Not known.
        48 kept_48: Kept<8>,
        /// How often the target was started.
        56 mount_count: u64,
        /// Features that others may ignore.
        64 compat: u32,
        /// Features without which others may only read.
        68 rocompat: u32,
        /// Features that others must know.
        72 incompat: u32,
        /// Bytes of this record.
        76 server_size: u32,
        /// Where the clients begin.
        80 client_start: u32,
        /// Bytes of a client's record.
        84 client_size: u16,
        /// Not known.
        86 kept_86: Kept<54>,
        /// Index of the target.
        140 osd_index: u32,
        /// Most clients.
        144 max_clients: u32,
        /// Epoch of the last start.
        148 start_epoch: u32,
        /// The transno table, and what follows it.
        152 table: Kept<360>,
    }

    /// A client of a target, in `last_rcvd`.
    pub struct ClientSlot("client record", 128) {
        /// Uuid of the client; an empty one means that the slot is free.
        0 uuid: Text<40>,
        /// Transaction of its last change.
        40 last_transno: u64,
        /// Number of that request.
        48 last_xid: u64,
        /// Its result.
        56 last_result: u32,
        /// What else its answer needs.
        60 last_data: u32,
        /// Transaction of its last close.
        64 close_transno: u64,
        /// Number of that request.
        72 close_xid: u64,
        /// Its result.
        80 close_result: u32,
        /// What else its answer needs.
        84 close_data: u32,
        /// Versions of the objects before the last change.
        88 pre_versions: [u64; 4],
        /// Epoch of its last change.
        120 last_epoch: u32,
        /// Names the client in `reply_data`.
        124 generation: u32,
    }

    /// The front of `reply_data`.
    pub struct ReplyHead("reply data header", 32) {
        /// Kind of the records.
        0 magic: ReplyMagic,
        /// Not known.
        4 kept: Kept<28>,
    }

    /// An answer, in `reply_data` of the first kind; the second has more behind it.
    pub struct ReplySlot("reply record", 32) {
        /// Its transaction; 0 means that the slot is free.
        0 transno: u64,
        /// Number of the request.
        8 xid: u64,
        /// What else the answer needs.
        16 data: u64,
        /// Result.
        24 result: u32,
        /// The client, by [`ClientSlot::generation`].
        28 generation: u32,
    }

    /// What a record of the second kind has behind the first.
    pub struct ReplyTail("reply record tail", 32) {
        /// Index within a batch.
        0 batch: u32,
        /// Not known.
        4 kept: Kept<28>,
    }
}

impl ServerRecord {
    /// That of a new target, with clients at 8192 in records of 128 bytes.
    pub fn new(uuid: Text<40>) -> Self {
        Self {
            uuid,
            server_size: Self::LEN as u32,
            client_start: 8192,
            client_size: ClientSlot::LEN as u16,
            ..Self::default()
        }
    }

    /// Where the record of a slot stands, and how many bytes it has.
    ///
    /// # Errors
    /// A record that says that its clients stand in its own place, or have too few bytes; a slot
    /// beyond [`CLIENT_SLOTS_MAX`].
    pub fn place(&self, slot: u32) -> Result<(u64, usize), WireError> {
        let limit = |field, value, min, max| {
            let (min, max) = (min as u64, max as u64);
            WireError::Limit { what: Self::NAME, field, value, min, max }
        };
        let (start, size) = (self.client_start, self.client_size);
        if (start as usize) < Self::LEN {
            return Err(limit("client start", start.into(), Self::LEN, u32::MAX as usize));
        }
        if usize::from(size) < ClientSlot::LEN {
            let (min, max) = (ClientSlot::LEN, usize::from(u16::MAX));
            return Err(limit("client size", size.into(), min, max));
        }
        if slot >= CLIENT_SLOTS_MAX {
            return Err(limit("slot", slot.into(), 0, CLIENT_SLOTS_MAX as usize - 1));
        }
        Ok((u64::from(start) + u64::from(slot) * u64::from(size), size.into()))
    }
}

/// `last_rcvd`, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastRcvd {
    /// The target.
    pub server: ServerRecord,
    /// Its clients with their slots, ascending.
    pub clients: Vec<(u32, ClientSlot)>,
}

impl LastRcvd {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that ends within a record, sizes that can't be, more than [`CLIENT_SLOTS_MAX`] slots.
    pub fn parse(b: &[u8]) -> Result<Self, WireError> {
        let server = ServerRecord::parse(ORDER, b)?;
        let (start, size) = server.place(0)?;
        // A target that never had a client may end before the place of the first.
        let area = usize::try_from(start).ok().and_then(|at| b.get(at..)).unwrap_or_default();
        let mut clients = Vec::new();
        for (slot, bytes) in (0..).zip(area.chunks(size)) {
            server.place(slot)?;
            let client = ClientSlot::parse(ORDER, bytes)?;
            if !client.uuid.as_bytes().is_empty() {
                clients.push((slot, client));
            }
        }
        Ok(Self { server, clients })
    }

    /// The bytes of the file, up to the last client. Of two clients in one slot the later one counts.
    ///
    /// # Errors
    /// Sizes of the server's record that can't be, a slot beyond [`CLIENT_SLOTS_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, WireError> {
        let mut out = self.server.to_bytes(ORDER);
        for (slot, client) in &self.clients {
            let (at, size) = self.server.place(*slot)?;
            write(&mut out, at, size, client);
        }
        Ok(out)
    }
}

impl ReplyMagic {
    /// Bytes of a record.
    ///
    /// # Errors
    /// A magic that is not known.
    pub fn record_len(self) -> Result<usize, WireError> {
        match self {
            Self::V1 => Ok(ReplySlot::LEN),
            Self::V2 => Ok(ReplySlot::LEN + ReplyTail::LEN),
            Self(value) => {
                let (what, field) = (ReplyHead::NAME, "magic");
                Err(WireError::Value { what, field, value: value.into() })
            }
        }
    }

    /// Where the record of a slot stands, and how many bytes it has.
    ///
    /// # Errors
    /// A magic that is not known, a slot beyond [`REPLY_SLOTS_MAX`].
    pub fn place(self, slot: u32) -> Result<(u64, usize), WireError> {
        let size = self.record_len()?;
        if slot >= REPLY_SLOTS_MAX {
            let (what, field, value) = (ReplyHead::NAME, "slot", slot.into());
            let max = u64::from(REPLY_SLOTS_MAX) - 1;
            return Err(WireError::Limit { what, field, value, min: 0, max });
        }
        Ok((ReplyHead::LEN as u64 + u64::from(slot) * size as u64, size))
    }
}

/// `reply_data`, as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplyData {
    /// Its front, which decides how long records are.
    pub head: ReplyHead,
    /// The answers with their slots, ascending. The tail is written only in files of the second kind.
    pub replies: Vec<(u32, ReplySlot, ReplyTail)>,
}

impl ReplyData {
    /// Reads the file.
    ///
    /// # Errors
    /// A magic that is not known, a file that ends within a record, more than [`REPLY_SLOTS_MAX`]
    /// slots.
    pub fn parse(b: &[u8]) -> Result<Self, WireError> {
        let head = ReplyHead::parse(ORDER, b)?;
        let size = head.magic.record_len()?;
        let mut replies = Vec::new();
        for (slot, bytes) in (0..).zip(b.get(ReplyHead::LEN..).unwrap_or_default().chunks(size)) {
            head.magic.place(slot)?;
            let reply = ReplySlot::parse(ORDER, bytes)?;
            let tail = match head.magic {
                ReplyMagic::V2 => {
                    ReplyTail::parse(ORDER, bytes.get(ReplySlot::LEN..).unwrap_or_default())?
                }
                _ => ReplyTail::default(),
            };
            if reply.transno != 0 {
                replies.push((slot, reply, tail));
            }
        }
        Ok(Self { head, replies })
    }

    /// The bytes of the file, up to the last answer. Of two answers in one slot the later one counts.
    ///
    /// # Errors
    /// A magic that is not known, a slot beyond [`REPLY_SLOTS_MAX`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, WireError> {
        let mut out = self.head.to_bytes(ORDER);
        for (slot, reply, tail) in &self.replies {
            let (at, size) = self.head.magic.place(*slot)?;
            write(&mut out, at, size, reply);
            if self.head.magic == ReplyMagic::V2 {
                write(&mut out, at + ReplySlot::LEN as u64, ReplyTail::LEN, tail);
            }
        }
        Ok(out)
    }
}

/// Writes a value, and makes room for a record of `size` bytes there.
fn write<T: Layout>(out: &mut Vec<u8>, at: u64, size: usize, value: &T) {
    // At most 2^18 slots of 64 KiB behind 4 GiB, or 2^22 of 64 bytes.
    let Ok(at) = usize::try_from(at) else { return };
    if out.len() < at + size {
        out.resize(at + size, 0);
    }
    value.put(ORDER, part_mut(out, at, T::LEN));
}

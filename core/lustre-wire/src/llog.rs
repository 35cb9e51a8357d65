//! Logs: where to read, what the records are, and the commands of configurations (P-157 … P-160,
//! C-16 … C-21).

use lnet_types::ByteOrder;

use crate::layout::{Text, codes, flags, layout, part};
use crate::{Layout, WireError};

/// Bytes of a header, and of a block.
pub const BLOCK_LEN: usize = 8192;
/// Kind of a record that only fills a block.
pub const PADDING: RecordKind = RecordKind(0x1060_0000);
/// Version of a command.
pub const COMMAND_VERSION: u32 = 0x1CF6_0001;
/// The bit of a command that must be understood (C-20).
pub const REQUIRED: u32 = 0x1000;
/// Most buffers of a command.
pub const COMMAND_BUFFERS_MAX: u32 = 8;

layout! {
    /// The name of a log.
    pub struct LogId("log id", 20) {
        /// Number.
        0 oid: u64,
        /// Sequence.
        8 seq: u64,
        /// Generation.
        16 generation: u32,
    }

    /// Where a log is to be read, or was (P-158).
    pub struct LlogdBody("llogd body", 48) {
        /// The log.
        0 id: LogId,
        /// Context.
        20 context: u32,
        /// Flags of the log.
        24 flags: u32,
        /// Index of the record that is wanted.
        28 index: u32,
        /// Index of the last record that was seen.
        32 saved_index: u32,
        /// Bytes.
        36 len: u32,
        /// Where the block begins.
        40 offset: u64,
    }

    /// The front of a record.
    pub struct RecordHeader("log record", 16) {
        /// Bytes of the record.
        0 len: u32,
        /// Its index.
        4 index: u32,
        /// Its kind.
        8 kind: RecordKind,
        /// An id.
        12 id: u32,
    }

    /// The end of a record.
    pub struct RecordTail("log record tail", 8) {
        /// Bytes of the record.
        0 len: u32,
        /// Its index.
        4 index: u32,
    }

    /// The front of a log's first block (P-157).
    pub struct LogHeader("log header", 8192) {
        /// It is a record itself.
        0 record: RecordHeader,
        /// When the log was made.
        16 timestamp: i64,
        /// Number of records.
        24 count: u32,
        /// Where the bitmap begins.
        28 bitmap_offset: u32,
        /// Bytes of each record, 0 if they differ.
        32 size: u32,
        /// Flags.
        36 flags: u32,
        /// Index in the catalogue.
        40 catalogue_index: u32,
        /// Target.
        44 uuid: Text<40>,
        /// A bit for each record that was not removed.
        88 bitmap: Bitmap,
        /// The end of the record: the index is that of the last record.
        8184 tail: RecordTail,
    }

    /// What stands before the buffers of a command.
    pub struct CommandHeader("log command", 32) {
        /// [`COMMAND_VERSION`].
        0 version: u32,
        /// What to do.
        4 command: Command,
        /// A number.
        8 num: u32,
        /// Flags.
        12 flags: u32,
        /// A NID in its short form.
        16 nid: u64,
        /// A number of old.
        24 nal: u32,
        /// Number of buffers.
        28 count: u32,
    }

    /// A marker: what the records up to the next one belong to (C-21).
    pub struct Marker("log marker", 160) {
        /// Step.
        0 step: u32,
        /// Flags.
        4 flags: MarkerFlags,
        /// Version of the writer.
        8 version: u32,
        /// When the records were written.
        16 created: i64,
        /// When they were taken back.
        24 cancelled: i64,
        /// Target.
        32 target: Text<64>,
        /// What it is for.
        96 comment: Text<64>,
    }
}

codes! {
    /// Kind of a record.
    pub struct RecordKind(u32) {
        /// A command.
        CONFIG = 0x1062_0000 "config",
        /// Filling.
        PAD = 0x1060_0000 "pad",
        /// The header.
        HEADER = 0x1064_5539 "header",
    }

    /// A command of a configuration (P-160, C-20).
    pub struct Command(u32) {
        /// Device of a kind.
        ATTACH = 0xcf001 "attach",
        /// Of a device, with its target.
        SETUP = 0xcf003 "setup",
        /// NID of a node.
        ADD_UUID = 0xcf005 "add_uuid",
        /// Profile of a mount.
        MOUNT_OPTION = 0xcf007 "mount_option",
        /// No such profile any more.
        DEL_MOUNT_OPTION = 0xcf008 "del_mount_option",
        /// Base time.
        SET_TIMEOUT = 0xcf009 "set_timeout",
        /// One more node of a device.
        ADD_CONN = 0xcf00b "add_conn",
        /// One node less.
        DEL_CONN = 0xcf00c "del_conn",
        /// An object target.
        LOV_ADD_OBD = 0xcf00d "lov_add_obd",
        /// An object target less.
        LOV_DEL_OBD = 0xcf00e "lov_del_obd",
        /// A parameter.
        PARAM = 0xcf00f "param",
        /// A marker.
        MARKER = 0xcf010 "marker",
        /// A metadata target.
        ADD_MDC = 0xcf014 "add_mdc",
        /// A metadata target less.
        DEL_MDC = 0xcf015 "del_mdc",
        /// A log begins.
        LOG_START = 0xce011 "log_start",
        /// A log ends.
        LOG_END = 0xce012 "log_end",
        /// An object target that is not active.
        LOV_ADD_INACTIVE = 0xce013 "lov_add_ina",
        /// A security rule.
        SPTLRPC_CONF = 0xce016 "sptlrpc_conf",
        /// A pool.
        POOL_NEW = 0xce020 "pool_new",
        /// A target in a pool.
        POOL_ADD = 0xce021 "pool_add",
        /// A target less in a pool.
        POOL_REM = 0xce022 "pool_rem",
        /// A pool less.
        POOL_DEL = 0xce023 "pool_del",
        /// A parameter of many nodes.
        SET_PARAM = 0xce032 "set_param",
    }
}

flags! {
    /// Flags of a marker.
    pub struct MarkerFlags(u32) {
        /// The records begin.
        START = 0x1, "START";
        /// The records end.
        END = 0x2, "END";
        /// The records do not count.
        SKIP = 0x4, "SKIP";
        /// Of an upgrade.
        UPGRADE = 0x8, "UPGRADE";
        /// The records are excluded.
        EXCLUDE = 0x10, "EXCLUDE";
    }
}

/// Which records of a log were not removed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bitmap([u8; Self::LEN]);

impl Bitmap {
    /// Whether the record with this index was not removed (C-18). The order of the words is that of
    /// a little-endian sender.
    pub fn has(&self, index: u32) -> bool {
        let byte = self.0.get(index as usize / 8);
        byte.is_some_and(|byte| byte >> (index % 8) & 1 != 0)
    }

    /// Keeps the record with this index, or removes it; an index beyond the bitmap changes nothing.
    pub fn set(&mut self, index: u32, kept: bool) {
        if let Some(byte) = self.0.get_mut(index as usize / 8) {
            let bit = 1 << (index % 8);
            *byte = if kept { *byte | bit } else { *byte & !bit };
        }
    }
}

impl Default for Bitmap {
    fn default() -> Self {
        Self([0; Self::LEN])
    }
}

impl core::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let count: u32 = self.0.iter().map(|byte| byte.count_ones()).sum();
        write!(f, "Bitmap({count} records)")
    }
}

impl Layout for Bitmap {
    const LEN: usize = BLOCK_LEN - 88 - RecordTail::LEN;
    const NAME: &'static str = "log bitmap";

    fn get(order: ByteOrder, b: &[u8]) -> Self {
        Self(words_swapped(order, Layout::get(order, b)))
    }

    fn put(&self, order: ByteOrder, out: &mut [u8]) {
        words_swapped(order, self.0).put(order, out);
    }
}

/// The bitmap is an array of words of 4 bytes, in the order of the writer.
fn words_swapped<const N: usize>(order: ByteOrder, mut bytes: [u8; N]) -> [u8; N] {
    if order == ByteOrder::Big {
        bytes.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    }
    bytes
}

/// A record of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The byte order of its writer.
    pub order: ByteOrder,
    /// Its front.
    pub header: RecordHeader,
    /// What is between front and end.
    pub payload: &'a [u8],
}

/// The records of a block. Ends where no further record begins.
#[derive(Clone, Debug)]
pub struct LogRecords<'a> {
    rest: &'a [u8],
}

impl<'a> LogRecords<'a> {
    /// The records of `block`, in the order that each one's kind shows (P-159).
    pub const fn new(block: &'a [u8]) -> Self {
        Self { rest: block }
    }

    fn record(&self) -> Result<Option<(LogRecord<'a>, usize)>, WireError> {
        let (what, have) = (RecordHeader::NAME, self.rest.len());
        // Behind the last record a block is filled with zeros.
        if self.rest.iter().take(RecordHeader::LEN).all(|byte| *byte == 0) {
            return Ok(None);
        }
        let order = match RecordHeader::parse(ByteOrder::Little, self.rest)?.kind.0 >> 24 {
            0x10 => ByteOrder::Little,
            _ => ByteOrder::Big,
        };
        let header = RecordHeader::get(order, self.rest);
        let len = header.len as usize;
        let least = RecordHeader::LEN + RecordTail::LEN;
        if header.kind.0 >> 24 != 0x10 {
            let value = header.kind.0.into();
            return Err(WireError::Value { what, field: "kind", value });
        }
        if len < least || !len.is_multiple_of(8) || len > BLOCK_LEN {
            let (value, max) = (header.len.into(), BLOCK_LEN as u64);
            return Err(WireError::Limit { what, field: "length", value, min: least as u64, max });
        }
        if have < len {
            return Err(WireError::Short { what, need: len, have });
        }
        let tail = RecordTail::get(order, part(self.rest, len - RecordTail::LEN, RecordTail::LEN));
        if (tail.len, tail.index) != (header.len, header.index) {
            return Err(WireError::Value { what, field: "tail", value: tail.index.into() });
        }
        let payload = part(self.rest, RecordHeader::LEN, len - least);
        Ok(Some((LogRecord { order, header, payload }, len)))
    }
}

impl<'a> Iterator for LogRecords<'a> {
    type Item = Result<LogRecord<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.record() {
            Ok(None) => None,
            Ok(Some((record, len))) => {
                self.rest = self.rest.get(len..).unwrap_or_default();
                Some(Ok(record))
            }
            Err(why) => {
                self.rest = &[];
                Some(Err(why))
            }
        }
    }
}

/// A command with its buffers; the first names the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigCommand<'a> {
    /// What stands before the buffers.
    pub header: CommandHeader,
    /// The buffers.
    pub buffers: Vec<&'a [u8]>,
}

impl<'a> ConfigCommand<'a> {
    /// The command in the payload of a record of kind [`RecordKind::CONFIG`].
    ///
    /// # Errors
    /// Another version, more than [`COMMAND_BUFFERS_MAX`] buffers, fewer bytes than they need.
    pub fn parse(record: &LogRecord<'a>) -> Result<Self, WireError> {
        let (order, b) = (record.order, record.payload);
        let (what, have) = (CommandHeader::NAME, b.len());
        let header = CommandHeader::parse(order, b)?;
        if header.version != COMMAND_VERSION {
            let (version, expected) = (header.version, COMMAND_VERSION);
            return Err(WireError::Version { what, version, expected });
        }
        if header.count > COMMAND_BUFFERS_MAX {
            let (value, max) = (header.count.into(), COMMAND_BUFFERS_MAX.into());
            return Err(WireError::Limit { what, field: "bufcount", value, min: 0, max });
        }
        let count = header.count as usize;
        let mut at = (CommandHeader::LEN + 4 * count).next_multiple_of(8);
        let mut buffers = Vec::with_capacity(count);
        for i in 0..count {
            let len = part(b, CommandHeader::LEN + 4 * i, 4);
            let len = u32::get(order, len) as usize;
            let need = at.saturating_add(len);
            let buffer = b.get(at..need).ok_or(WireError::Short { what, need, have })?;
            buffers.push(buffer);
            at = need.next_multiple_of(8);
        }
        Ok(Self { header, buffers })
    }

    /// The text in a buffer, up to its NUL; nothing if there is no such buffer.
    pub fn text(&self, index: usize) -> &'a [u8] {
        let b = self.buffers.get(index).copied().unwrap_or_default();
        b.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// The marker of a command [`Command::MARKER`].
    ///
    /// # Errors
    /// A buffer of another length.
    pub fn marker(&self, order: ByteOrder) -> Result<Marker, WireError> {
        Marker::parse_exact(order, self.buffers.get(1).copied().unwrap_or_default())
    }

    /// The payload of a record.
    pub fn to_bytes(&self, order: ByteOrder) -> Vec<u8> {
        let count = self.buffers.len() as u32;
        let mut bytes = CommandHeader { count, ..self.header }.to_bytes(order);
        for buffer in &self.buffers {
            bytes.extend((buffer.len() as u32).to_bytes(order));
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        for buffer in &self.buffers {
            bytes.extend_from_slice(buffer);
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        bytes
    }
}

impl LogRecord<'_> {
    /// The bytes of the record: front, payload up to a multiple of 8, end.
    pub fn to_bytes(&self) -> Vec<u8> {
        let payload = self.payload.len().next_multiple_of(8);
        let len = (RecordHeader::LEN + payload + RecordTail::LEN) as u32;
        let header = RecordHeader { len, ..self.header };
        let mut bytes = header.to_bytes(self.order);
        bytes.extend_from_slice(self.payload);
        bytes.resize(RecordHeader::LEN + payload, 0);
        bytes.extend(RecordTail { len, index: header.index }.to_bytes(self.order));
        bytes
    }
}

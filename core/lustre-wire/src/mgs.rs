//! Management: targets as their servers register them, and the table of targets (P-161, P-162).

use lnet_types::ByteOrder;

use crate::layout::{Text, codes, flags, layout};
use crate::{Layout, WireError};

flags! {
    /// What a target says of itself.
    pub struct TargetFlags(u32) {
        /// A metadata target.
        MDT = 0x1, "MDT";
        /// An object target.
        OST = 0x2, "OST";
        /// A management target.
        MGS = 0x4, "MGS";
        /// It has no index yet.
        NEED_INDEX = 0x10, "NEED_INDEX";
        /// It was never registered.
        VIRGIN = 0x20, "VIRGIN";
        /// Its log is to be updated.
        UPDATE = 0x40, "UPDATE";
        /// Its log is to be written anew.
        WRITECONF = 0x100, "WRITECONF";
        /// It takes part in imperative recovery.
        IR_CAPABLE = 0x2000, "IR_CAPABLE";
        /// Registration failed.
        ERROR = 0x4000, "ERROR";
    }
}

codes! {
    /// Kind of a configuration.
    pub struct ConfigKind(u16) {
        /// A log.
        CONFIG = 0 "config",
        /// Security rules.
        SPTLRPC = 1 "sptlrpc",
        /// The table of targets.
        RECOVER = 2 "recover",
        /// Parameters.
        PARAMS = 3 "params",
    }

    /// Kind of a target in the table.
    pub struct TableKind(u8) {
        /// A metadata target.
        MDT = 1 "MDT",
        /// An object target.
        OST = 2 "OST",
    }
}

layout! {
    /// A target.
    pub struct TargetInfo("target info", 4544) {
        /// Version of the server.
        0 version: u32,
        /// Index of the target.
        4 index: u32,
        /// Version of the configuration.
        8 config_version: u32,
        /// Flags.
        12 flags: TargetFlags,
        /// Number of NIDs.
        16 nid_count: u32,
        /// Number of its start.
        20 instance: u32,
        /// File system.
        24 fsname: Text<64>,
        /// Name.
        88 service: Text<64>,
        /// UUID.
        152 uuid: Text<40>,
        /// NIDs in their short form.
        192 nids: [u64; 32],
        /// Parameters.
        448 params: Text<4096>,
    }

    /// What is to be read of a configuration.
    pub struct ConfigBody("config body", 80) {
        /// Its name.
        0 name: Text<64>,
        /// Version of the first entry that is wanted.
        64 offset: u64,
        /// Kind.
        72 kind: ConfigKind,
        /// Bytes of a NID.
        74 nid_size: u8,
        /// log2 of the bytes of a unit.
        75 bits: u8,
        /// Units that there is room for.
        76 units: u32,
    }

    /// How far it was read.
    pub struct ConfigResult("config result", 16) {
        /// Version of the last entry.
        0 offset: u64,
        /// Version of the table.
        8 size: u64,
    }

    /// What stands before the NIDs of an entry of the table of targets.
    pub struct TableEntryHead("target table entry", 24) {
        /// Version.
        0 version: u64,
        /// Number of the target's start.
        8 instance: u32,
        /// Index of the target.
        12 index: u32,
        /// Bytes of the entry, NIDs included.
        16 len: u32,
        /// Kind of the target.
        20 kind: TableKind,
        /// Kind of the NIDs.
        21 nid_kind: u8,
        /// Bytes of a NID.
        22 nid_size: u8,
        /// Number of NIDs.
        23 nid_count: u8,
    }
}

/// An entry of the table of targets, as bulk data brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntry<'a> {
    /// What it is of.
    pub head: TableEntryHead,
    /// Its NIDs, one behind the other.
    pub nids: &'a [u8],
}

/// The entries in a page of the table. Ends at the end of the bytes or at an entry without length.
#[derive(Clone, Debug)]
pub struct TableEntries<'a> {
    order: ByteOrder,
    rest: &'a [u8],
}

impl<'a> TableEntries<'a> {
    /// The entries in `page`.
    pub const fn new(order: ByteOrder, page: &'a [u8]) -> Self {
        Self { order, rest: page }
    }

    fn entry(&self) -> Result<Option<(TableEntry<'a>, usize)>, WireError> {
        // Entries don't go across a page: what is left of it is empty (P-161).
        let is_rest = self.rest.len() < TableEntryHead::LEN;
        if is_rest && self.rest.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let head = TableEntryHead::parse(self.order, self.rest)?;
        let (what, have) = (TableEntryHead::NAME, self.rest.len());
        let need = head.len as usize;
        if need == 0 {
            return Ok(None);
        }
        let nids = usize::from(head.nid_size) * usize::from(head.nid_count);
        if need < TableEntryHead::LEN + nids {
            return Err(WireError::Size { what, need: TableEntryHead::LEN + nids, have: need });
        }
        let bytes = self.rest.get(TableEntryHead::LEN..need);
        let bytes = bytes.ok_or(WireError::Short { what, need, have })?;
        let nids = bytes.get(..nids).unwrap_or(bytes);
        Ok(Some((TableEntry { head, nids }, need)))
    }
}

impl<'a> Iterator for TableEntries<'a> {
    type Item = Result<TableEntry<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.entry() {
            Ok(None) => None,
            Ok(Some((entry, len))) => {
                self.rest = self.rest.get(len..).unwrap_or_default();
                Some(Ok(entry))
            }
            Err(why) => {
                self.rest = &[];
                Some(Err(why))
            }
        }
    }
}

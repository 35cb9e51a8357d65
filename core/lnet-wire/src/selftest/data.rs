//! What selftest moves in bulk: the list of a test's destinations (wire.md 6.8) and the pattern of
//! test data (6.13).

use lnet_types::{Nid, Pid, ProcessId};

use super::DESTINATIONS_MAX;
use super::fields::{Field, Reader, Writer};
use crate::{ByteOrder, WireError};

/// Bytes of one destination.
pub const DEST_LEN: usize = 12;
/// The list is laid out in pages of this size by consoles on most machines, and by us.
pub const LIST_PAGE: usize = 4096;
/// The word that test data repeat, in the order of their writer.
pub const PATTERN: u64 = 0xEEB0_EEB1_EEB2_EEB3;
/// Bytes of it.
pub const PATTERN_LEN: usize = 8;

const NID_LEN: usize = 8;

/// Bytes of the list that a node asks for.
pub const fn destinations_len(count: usize) -> usize {
    count.saturating_mul(DEST_LEN)
}

/// Where destination `i` begins: no entry lies across two pages.
const fn place(i: usize) -> usize {
    let per_page = LIST_PAGE / DEST_LEN;
    i / per_page * LIST_PAGE + i % per_page * DEST_LEN
}

/// The list as it is exposed to a node: the whole of it, a little longer than
/// [`destinations_len`] where there is more than one page.
pub fn emit_destinations(order: ByteOrder, list: &[ProcessId]) -> Vec<u8> {
    let end = list.len().checked_sub(1).map_or(0, |last| place(last) + DEST_LEN);
    let mut out = vec![0; end];
    for (i, dest) in list.iter().enumerate() {
        let Some(entry) = out.get_mut(place(i)..) else { continue };
        let w = &mut Writer::new(order, entry);
        dest.nid.to_nid4().unwrap_or(Nid::NID4_ANY).write(w);
        dest.pid.0.write(w);
    }
    out
}

/// Reads a list of `count` destinations as far as it came: of the last entries a node asks for too
/// few bytes where there is more than one page (6.8). An entry that came with its NID only has the
/// pid of every Lustre node.
///
/// # Errors
/// More than [`DESTINATIONS_MAX`] destinations.
pub fn parse_destinations(
    order: ByteOrder,
    count: u32,
    b: &[u8],
) -> Result<Vec<ProcessId>, WireError> {
    if count > DESTINATIONS_MAX {
        let (value, max) = (count.into(), DESTINATIONS_MAX.into());
        return Err(WireError::Limit { what: "selftest destinations", field: "count", value, max });
    }
    let entry = |i: usize| {
        let entry = b.get(place(i)..).filter(|entry| entry.len() >= NID_LEN)?;
        let r = &mut Reader::new(order, entry);
        let nid = Nid::from_nid4(Field::read(r));
        let pid = if entry.len() < DEST_LEN { Pid::LUSTRE } else { Pid(Field::read(r)) };
        Some(ProcessId { nid, pid })
    };
    Ok((0..count as usize).map_while(entry).collect())
}

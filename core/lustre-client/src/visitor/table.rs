//! The table of targets: on which nodes they are now (C-28, P-161). A visit reads it once, so that it does
//! not begin with nodes whose targets have been taken over.

use lnet_types::{ByteOrder, Nid};
use lustre_wire::connect::ConnectFlags;
use lustre_wire::mgs::{ConfigBody, ConfigKind, ConfigResult, TableEntries, TableEntry, TableKind};
use lustre_wire::{Buffers, Layout, Opcode, Text};
use ptlrpc::Call;

use super::config::{TARGETS_MAX, Targets};
use super::{Moved, Remote, Wire};

const ORDER: ByteOrder = ByteOrder::Little;
/// log2 of the bytes of a page: no entry is on two of them.
const PAGE_BITS: u8 = 12;
/// Pages that are read at a time, as many as kernel nodes ask for.
const PAGES: u32 = 256;
/// Entries that are taken at most: one for each target of both kinds.
const ENTRIES_MAX: usize = 2 * TARGETS_MAX;
/// Bytes of a NID in its long form.
const NID_LEN: u8 = 20;

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    kind: TableKind,
    index: u32,
    nids: Vec<Nid>,
}

impl Location {
    /// `None` for an entry whose NIDs have another form.
    fn of(entry: &TableEntry<'_>) -> Option<Self> {
        let each = entry.nids.chunks_exact(usize::from(entry.head.nid_size).max(1));
        let nid = |bytes: &[u8]| match entry.head.nid_size {
            NID_LEN => Nid::from_wire(bytes.try_into().ok()?).ok(),
            8 => Some(Nid::from_nid4(u64::from_le_bytes(bytes.try_into().ok()?))),
            _ => None,
        };
        let nids = each.map(nid).collect::<Option<_>>()?;
        Some(Self { kind: entry.head.kind, index: entry.head.index, nids })
    }
}

/// What a management server says of where targets are, the latest last. It is a help: what a server does not
/// keep, or does not say, is left out (C-14).
pub(super) async fn locations<W: Wire>(
    wire: &W,
    mgs: &Remote<W::Link>,
    fsname: &str,
) -> Vec<Location> {
    let mut locations = Vec::new();
    let Ok(name) = Text::new(&format!("{fsname}-cliir")) else { return locations };
    if !mgs.terms(wire).await.flags.contains(ConnectFlags::IMP_RECOV) {
        return locations;
    }
    let mut seen = 0;
    loop {
        let body = ConfigBody {
            name,
            offset: seen + 1,
            kind: ConfigKind::RECOVER,
            nid_size: NID_LEN,
            bits: PAGE_BITS,
            units: PAGES,
        };
        let call = Call::new(Opcode::MGS_CONFIG_READ, Buffers::new().layout(&body))
            .answered_by(&[ConfigResult::LEN as u32]);
        let Ok(answer) = mgs.ask_with(wire, call, Moved::Read(PAGES << PAGE_BITS)).await else {
            return locations;
        };
        let before = locations.len();
        locations.extend(in_pages(&answer.bytes));
        let read: Option<ConfigResult> = answer.get(1);
        wire.recycle(answer.bytes);
        let goes_on = before < locations.len() && locations.len() < ENTRIES_MAX;
        match read {
            Some(ConfigResult { offset, size }) if goes_on && seen < offset && offset < size => {
                seen = offset;
            }
            _ => return locations,
        }
    }
}

/// What stands in the pages of a table. What can't be read of a page is left out, and the next one begins
/// anew (P-161).
fn in_pages(bytes: &[u8]) -> impl Iterator<Item = Location> {
    let pages = bytes.chunks(1 << PAGE_BITS);
    let entries = pages.flat_map(|page| TableEntries::new(ORDER, page).map_while(Result::ok));
    entries.filter_map(|entry| Location::of(&entry))
}

/// Puts the nodes first that targets are on.
pub(super) fn apply(locations: Vec<Location>, targets: &mut Targets) {
    for Location { kind, index, nids } in locations {
        let list = match kind {
            TableKind::MDT => &mut targets.mdts,
            TableKind::OST => &mut targets.osts,
            _ => continue,
        };
        let Some(entry) = list.get_mut(&index) else { continue };
        let (here, others): (Vec<_>, Vec<_>) =
            entry.nids.iter().partition(|nid| nids.contains(nid));
        // A node that the log does not name.
        let here = if here.is_empty() { nids } else { here };
        entry.nids = here.into_iter().chain(others).collect();
    }
}

#[cfg(test)]
mod tests {
    use lustre_wire::mgs::TableEntryHead;

    use super::*;
    use crate::visitor::config::TargetEntry;

    fn nid(text: &str) -> Nid {
        text.parse().unwrap()
    }

    fn entry(kind: TableKind, nid_size: u8, nids: &[u8]) -> Option<Location> {
        let count = nids.len() / usize::from(nid_size);
        let head = TableEntryHead {
            kind,
            nid_size,
            nid_count: u8::try_from(count).unwrap(),
            ..TableEntryHead::default()
        };
        Location::of(&TableEntry { head, nids })
    }

    #[test]
    fn nids_of_the_table_have_two_forms() {
        let at = nid("10.78.0.2@tcp");
        let short = at.to_nid4().unwrap().to_le_bytes();
        for found in [entry(TableKind::OST, 20, at.as_wire()), entry(TableKind::OST, 8, &short)] {
            assert_eq!(found.unwrap().nids, [at]);
        }
        assert_eq!(entry(TableKind::OST, 4, &[1, 2, 3, 4]), None);
        assert_eq!(entry(TableKind::OST, 20, &[7; 20]), None);
    }

    #[test]
    fn p161_entries_of_each_page_count_whatever_is_left_of_the_page_before() {
        let at = nid("10.78.0.2@tcp");
        let entry = |index| {
            let len = u32::try_from(TableEntryHead::LEN + at.as_wire().len()).unwrap();
            let head = TableEntryHead { kind: TableKind::OST, index, len, ..Default::default() };
            let head = TableEntryHead { nid_size: 20, nid_count: 1, ..head };
            [head.to_bytes(ORDER).as_slice(), at.as_wire()].concat()
        };
        // 93 entries of 44 bytes leave 4 of a page.
        let mut bytes: Vec<u8> = (0..93).flat_map(entry).collect();
        bytes.resize(1 << PAGE_BITS, 0);
        bytes.extend(entry(93));
        bytes.resize(2 << PAGE_BITS, 0);
        let found: Vec<u32> = in_pages(&bytes).map(|location| location.index).collect();
        assert_eq!(found, (0..94).collect::<Vec<_>>());
    }

    #[test]
    fn node_of_a_target_is_tried_first() {
        let listed = ["10.0.0.1@tcp", "10.1.0.1@tcp1", "10.0.0.2@tcp", "10.1.0.2@tcp1"].map(nid);
        let after = |table: &[&str]| {
            let mut targets = Targets::default();
            let entry = TargetEntry { uuid: String::new(), nids: listed.to_vec(), active: true };
            targets.osts.insert(3, entry);
            let nids = table.iter().map(|text| nid(text)).collect();
            apply(vec![Location { kind: TableKind::OST, index: 3, nids }], &mut targets);
            targets.osts.remove(&3).unwrap().nids
        };
        let [a, a1, b, b1] = listed;
        assert_eq!(after(&["10.1.0.2@tcp1", "10.0.0.2@tcp"]), [b, b1, a, a1]);
        assert_eq!(after(&["10.0.0.1@tcp"]), [a, a1, b, b1]);
        assert_eq!(after(&[]), listed);
        let new = nid("10.0.0.9@tcp");
        assert_eq!(after(&["10.0.0.9@tcp"]), [new, a, a1, b, b1]);
    }
}

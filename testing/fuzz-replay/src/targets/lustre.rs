//! The layouts of Lustre above LNet: what is read is written again, to bytes that are read as the same
//! value.

use std::fmt::Debug;

use lnet_types::ByteOrder;
use lustre_target::{Acl, AcrossWire};
use lustre_wire::connect::ConnectData;
use lustre_wire::dir::{self, EntryHead, PageHead};
use lustre_wire::fid::SeqRange;
use lustre_wire::ldlm::{Intent, LayoutIntent, LockReply, LockRequest, Lvb};
use lustre_wire::listing::listing;
use lustre_wire::llog::{ConfigCommand, LlogdBody, LogHeader, LogRecords, Marker};
use lustre_wire::mds::{Epoch, MdtBody, Record, ReintOp};
use lustre_wire::mgs::{ConfigBody, ConfigResult, TableEntries, TargetInfo};
use lustre_wire::msg::{pack, rewrite};
use lustre_wire::ost::{IoObj, Niobuf, Obdo, Statfs};
use lustre_wire::records::{LastRcvd, ReplyData};
use lustre_wire::striping::Striping;
use lustre_wire::{Body, Layout, Msg, Variant, WireError};

/// A structure of a fixed length.
#[derive(Clone, Copy)]
pub struct Structure {
    /// Its name.
    pub name: &'static str,
    run: fn(ByteOrder, &[u8]),
}

const fn structure<T: Layout + PartialEq + Debug>() -> Structure {
    Structure { name: T::NAME, run: check::<T> }
}

/// The structures of a fixed length; [`fixed`] chooses by index.
pub const STRUCTURES: &[Structure] = &[
    structure::<Body>(),
    structure::<ConnectData>(),
    structure::<LockReply>(),
    structure::<Lvb>(),
    structure::<LayoutIntent>(),
    structure::<Obdo>(),
    structure::<IoObj>(),
    structure::<Niobuf>(),
    structure::<Statfs>(),
    structure::<MdtBody>(),
    structure::<Epoch>(),
    structure::<LlogdBody>(),
    structure::<LogHeader>(),
    structure::<Marker>(),
    structure::<SeqRange>(),
    structure::<TargetInfo>(),
    structure::<ConfigBody>(),
    structure::<ConfigResult>(),
    structure::<PageHead>(),
    structure::<EntryHead>(),
];

fn check<T: Layout + PartialEq + Debug>(order: ByteOrder, b: &[u8]) {
    match T::parse(order, b) {
        Ok(value) => {
            assert_eq!(T::parse_exact(order, &value.to_bytes(order)), Ok(value));
        }
        Err(why) => {
            assert_eq!(why, WireError::Short { what: T::NAME, need: T::LEN, have: b.len() });
        }
    }
}

/// The order and the rest that a first byte chooses.
fn choice(input: &[u8]) -> Option<(ByteOrder, usize, &[u8])> {
    let (choice, rest) = input.split_first()?;
    let order = if choice & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    Some((order, usize::from(choice >> 1), rest))
}

/// A structure of a fixed length; the first byte of the input chooses which, and the order.
pub fn fixed(input: &[u8]) {
    let Some((order, which, b)) = choice(input) else { return };
    if let Some(structure) = STRUCTURES.get(which % STRUCTURES.len()) {
        (structure.run)(order, b);
    }
}

/// A message: envelope, body, buffers, listing.
pub fn msg(input: &[u8]) {
    let message = match Msg::parse(input) {
        Ok(message) => message,
        Err(WireError::Short { need, have, .. }) => {
            return assert!(have == input.len() && need > have);
        }
        Err(_) => return,
    };
    assert!(message.size() <= input.len());
    let packed = pack(message.order, &message.header, &message.buffers().collect::<Vec<_>>())
        .expect("what was parsed");
    let again = Msg::parse(&packed).expect("what was packed");
    assert_eq!((again.order, again.header), (message.order, message.header));
    assert!(again.buffers().eq(message.buffers()));
    assert_eq!(again.size(), message.size());
    let body = message.body();
    let _ = listing(&message, 0, Variant::Plain);
    let Ok(body) = body else { return };
    let mut rewritten = packed.clone();
    if rewrite(&mut rewritten, &message.header, &body).is_ok() {
        let again = Msg::parse(&rewritten).expect("what was rewritten");
        assert_eq!(again.body(), Ok(body));
        assert!(again.buffers().skip(1).eq(message.buffers().skip(1)));
    }
    let variants = [
        Variant::of(&message, &body),
        Variant::Intent(Intent::OPEN),
        Variant::Intent(Intent::GETATTR),
        Variant::Intent(Intent::GETXATTR),
        Variant::Intent(Intent::LAYOUT),
        Variant::Reint(ReintOp::SETATTR),
        Variant::Reint(ReintOp::RENAME),
    ];
    for variant in variants {
        let _ = listing(&message, 0, variant);
        for format in [variant.request(body.opcode), variant.reply(body.opcode)] {
            let _ = format.map(|format| format.check(&message));
        }
    }
}

/// A lock request; the first byte of the input chooses the order.
pub fn lock(input: &[u8]) {
    let Some((order, _, b)) = choice(input) else { return };
    if let Ok(request) = LockRequest::parse(order, b) {
        assert_eq!(request.to_bytes(order).len(), b.len());
        assert_eq!(LockRequest::parse(order, &request.to_bytes(order)), Ok(request.clone()));
        assert!(request.counted().len() <= request.handles.len());
        let _ = request.desc.policy();
    }
}

/// A change of metadata; the first byte of the input chooses the order.
pub fn record(input: &[u8]) {
    let Some((order, _, b)) = choice(input) else { return };
    if let Ok(record) = Record::parse(order, b) {
        assert_eq!(Record::parse(order, &record.to_bytes(order)), Ok(record));
    }
}

/// The layout of a file or directory.
pub fn striping(input: &[u8]) {
    if let Ok(layout) = Striping::parse(input) {
        let written = layout.to_bytes();
        assert!(written.len() <= input.len());
        assert_eq!(Striping::parse(&written), Ok(layout));
    }
}

/// An access control list.
pub fn acl(input: &[u8]) {
    if let Ok(Some(list)) = Acl::parse(input) {
        let written = list.to_bytes();
        assert_eq!(written, input);
        assert_eq!(Acl::parse(&written), Ok(Some(list)));
    }
}

/// What our metadata targets say to each other; the first byte of the input chooses what of it.
pub fn across(input: &[u8]) {
    let Some((which, b)) = input.split_first() else { return };
    let kinds = [AcrossWire::Message, AcrossWire::Change, AcrossWire::Decision];
    let kind = kinds[usize::from(*which) % kinds.len()];
    let Some(written) = kind.rewritten(b) else { return };
    // A refusal has nothing else, whatever stands behind it.
    assert!(
        written == b || matches!(kind, AcrossWire::Decision) && written.len() <= b.len().max(16)
    );
    assert_eq!(kind.rewritten(&written), Some(written));
}

/// A block of a log.
pub fn log(input: &[u8]) {
    for record in LogRecords::new(input).flatten() {
        let written = record.to_bytes();
        assert_eq!(LogRecords::new(&written).next(), Some(Ok(record)));
        if let Ok(command) = ConfigCommand::parse(&record) {
            let payload = command.to_bytes(record.order);
            let again = lustre_wire::llog::LogRecord { payload: &payload, ..record };
            assert_eq!(ConfigCommand::parse(&again), Ok(command.clone()));
            let _ = command.marker(record.order);
        }
    }
}

/// A table of targets; the first byte of the input chooses the order.
pub fn table(input: &[u8]) {
    let Some((order, _, b)) = choice(input) else { return };
    for entry in TableEntries::new(order, b).flatten() {
        let nids = usize::from(entry.head.nid_size) * usize::from(entry.head.nid_count);
        assert_eq!(entry.nids.len(), nids);
    }
}

/// A file of a target's clients; the first byte of the input chooses which.
pub fn files(input: &[u8]) {
    let Some((which, b)) = input.split_first() else { return };
    if which & 1 == 0 {
        let Ok(file) = LastRcvd::parse(b) else { return };
        let written = file.to_bytes().expect("what was read");
        assert_eq!(LastRcvd::parse(&written), Ok(file));
    } else {
        let Ok(file) = ReplyData::parse(b) else { return };
        let written = file.to_bytes().expect("what was read");
        assert_eq!(ReplyData::parse(&written), Ok(file));
    }
}

/// A page of a directory; the first byte of the input chooses the order.
pub fn directory(input: &[u8]) {
    let Some((order, _, b)) = choice(input) else { return };
    let Ok((_, entries)) = dir::page(order, b) else { return };
    for entry in entries.flatten() {
        let mut page = PageHead::default().to_bytes(order);
        page.extend(entry.to_bytes(order, true));
        let (_, mut again) = dir::page(order, &page).expect("a page");
        let again = again.next().expect("an entry").expect("what was written");
        assert_eq!((again.name, again.kind), (entry.name, entry.kind));
    }
}

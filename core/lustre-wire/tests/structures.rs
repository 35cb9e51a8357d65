//! Promises of all structures, for any bytes: what is read is written again, what is cut is refused,
//! nothing panics.

use std::fmt::Debug;

use lnet_types::ByteOrder;
use lustre_wire::connect::ConnectData;
use lustre_wire::dir::{self, EntryHead, PageHead};
use lustre_wire::fid::{Fid, ObjectId, SeqOp, SeqRange};
use lustre_wire::ldlm::{
    BarrierDescriptor, Intent, LayoutIntent, LockDesc, LockMode, LockReply, LockRequest, Lvb,
    Policy, QuotaDescriptor, ResourceName,
};
use lustre_wire::listing::listing;
use lustre_wire::llog::{
    CommandHeader, ConfigCommand, LlogdBody, LogHeader, LogRecord, LogRecords, Marker, PADDING,
    RecordHeader, RecordTail,
};
use lustre_wire::mds::{
    CreateRecord, Epoch, MdtBody, NameRecord, Record, RecordHead, ReintOp, SetattrRecord,
    SetxattrRecord,
};
use lustre_wire::mgs::{ConfigBody, ConfigResult, TableEntries, TableEntryHead, TargetInfo};
use lustre_wire::msg::{RawHeader, pack};
use lustre_wire::opcode::OPCODES;
use lustre_wire::ost::{IoObj, Niobuf, Obdo, ObdoFlags, Statfs, StripeInfo};
use lustre_wire::records::{ClientSlot, ReplyHead, ReplySlot, ReplyTail, ServerRecord};
use lustre_wire::striping::{
    ComponentEntry, CompositeHead, DirDefault, DirHead, ForeignHead, Magic, StripeHead,
    StripeObject, Striping,
};
use lustre_wire::{Body, Header, Layout, Msg, MsgKind, Text, Variant, WireError};
use proptest::collection::vec;
use proptest::prelude::*;

/// What holds for every structure of a fixed length.
fn check<T: Layout + PartialEq + Debug>(bytes: &[u8]) {
    assert!(bytes.len() > T::LEN, "the test has too few bytes for {}", T::NAME);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let value = T::parse(order, bytes).expect("enough bytes");
        let written = value.to_bytes(order);
        assert_eq!(written.len(), T::LEN);
        assert_eq!(T::parse_exact(order, &written), Ok(value), "{}", T::NAME);
        for (ours, theirs) in written.iter().zip(bytes) {
            assert!(*ours == *theirs || *ours == 0, "{}: neither the value nor padding", T::NAME);
        }
    }
    for have in [0, T::LEN / 2, T::LEN - 1] {
        let short = WireError::Short { what: T::NAME, need: T::LEN, have };
        assert_eq!(T::parse(ByteOrder::Little, &bytes[..have]), Err(short));
    }
    let why = T::parse_exact(ByteOrder::Little, &bytes[..T::LEN + 1]);
    assert_eq!(why, Err(WireError::Size { what: T::NAME, need: T::LEN, have: T::LEN + 1 }));
}

macro_rules! check_all {
    ($bytes:expr, $($ty:ty)*) => { $(check::<$ty>($bytes);)* };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_structure_is_written_as_it_was_read_and_refused_when_cut(
        bytes in vec(any::<u8>(), 8200),
    ) {
        check_all!(&bytes,
            RawHeader Body ConnectData Fid ObjectId SeqRange SeqOp ResourceName LockDesc LockReply
            Lvb QuotaDescriptor BarrierDescriptor LayoutIntent Intent Obdo StripeInfo IoObj Niobuf
            Statfs MdtBody Epoch RecordHead CreateRecord NameRecord SetattrRecord SetxattrRecord
            LlogdBody RecordHeader RecordTail LogHeader CommandHeader Marker TargetInfo ConfigBody
            ConfigResult TableEntryHead StripeHead StripeObject CompositeHead ComponentEntry
            ForeignHead DirHead DirDefault PageHead EntryHead ServerRecord ClientSlot ReplyHead ReplySlot
            ReplyTail
        );
    }
}

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

/// A buffer of a length that structures have, or of another one.
fn buffer() -> impl Strategy<Value = Vec<u8>> {
    let len = prop_oneof![0_usize..30, Just(104), Just(112), Just(136), Just(208), Just(216)];
    len.prop_flat_map(|len| vec(any::<u8>(), len))
}

proptest! {
    #[test]
    fn lock_requests_are_written_as_they_were_read(
        order in order(),
        mut bytes in vec(any::<u8>(), 0..160),
        count in 0_u32..12,
    ) {
        if let Some(field) = bytes.get_mut(4..8) {
            count.put(order, field);
        }
        match LockRequest::parse(order, &bytes) {
            Ok(request) => {
                let written = request.to_bytes(order);
                prop_assert_eq!(written.len(), bytes.len());
                prop_assert!(request.counted().len() == count as usize);
                prop_assert_eq!(LockRequest::parse(order, &written), Ok(request));
            }
            Err(_) => {
                let handles = bytes.len().saturating_sub(88) / 8;
                prop_assert!(
                    bytes.len() < 104 || bytes.len() % 8 != 0 || count as usize > handles
                );
            }
        }
    }

    #[test]
    fn records_are_written_as_they_were_read(
        order in order(),
        opcode in 0_u32..12,
        bytes in vec(any::<u8>(), 136),
    ) {
        let mut bytes = bytes;
        opcode.put(order, &mut bytes);
        match Record::parse(order, &bytes) {
            Ok(record) => {
                prop_assert_eq!(record.opcode(), ReintOp(opcode));
                prop_assert_eq!(Record::parse(order, &record.to_bytes(order)), Ok(record));
            }
            Err(why) => {
                let value = opcode.into();
                prop_assert!(matches!(opcode, 0 | 10..), "{}", opcode);
                prop_assert_eq!(why, WireError::Value { what: "record", field: "opcode", value });
            }
        }
        prop_assert!(Record::parse(order, &bytes[..135]).is_err());
    }

    #[test]
    fn layouts_are_written_as_they_were_read(
        magic in prop_oneof![
            Just(Magic::V1), Just(Magic::V3), Just(Magic::COMPOSITE), Just(Magic::FOREIGN),
            Just(Magic::SPECIFIC), Just(Magic::DIR), Just(Magic::DIR_USER),
            Just(Magic::DIR_USER_SPECIFIC), any::<u32>().prop_map(Magic),
        ],
        mut bytes in vec(prop_oneof![4 => Just(0), 1 => any::<u8>()], 0..300),
    ) {
        if let Some(field) = bytes.get_mut(..4) {
            magic.put(ByteOrder::Little, field);
        }
        if let Ok(layout) = Striping::parse(&bytes) {
            let written = layout.to_bytes();
            prop_assert!(written.len() <= bytes.len());
            prop_assert_eq!(Striping::parse(&written), Ok(layout));
        }
    }

    #[test]
    fn any_bytes_give_log_records_table_entries_and_directory_entries_or_errors(
        order in order(),
        bytes in vec(prop_oneof![2 => Just(0), 1 => any::<u8>(), 1 => Just(16), 1 => Just(0x62)], 0..400),
    ) {
        for record in LogRecords::new(&bytes).flatten() {
            let _ = ConfigCommand::parse(&record);
        }
        prop_assert!(TableEntries::new(order, &bytes).count() <= bytes.len());
        if let Ok((_, entries)) = dir::page(order, &bytes) {
            prop_assert!(entries.count() <= bytes.len());
        }
    }

    #[test]
    fn log_records_are_read_as_they_were_written(
        order in order(),
        payloads in vec(vec(any::<u8>(), 0..60), 0..8),
    ) {
        let mut block = Vec::new();
        for (index, payload) in payloads.iter().enumerate() {
            let header = RecordHeader { index: index as u32, kind: PADDING, ..Default::default() };
            block.extend(LogRecord { order, header, payload }.to_bytes());
        }
        block.resize(block.len() + 24, 0);
        let found: Result<Vec<_>, _> = LogRecords::new(&block).collect();
        let found = found.expect("records");
        prop_assert_eq!(found.len(), payloads.len());
        for (record, payload) in found.iter().zip(&payloads) {
            prop_assert_eq!(record.order, order);
            prop_assert_eq!(&record.payload[..payload.len()], &payload[..]);
        }
    }

    #[test]
    fn commands_are_read_as_they_were_written(
        order in order(),
        num in any::<u32>(),
        buffers in vec(vec(any::<u8>(), 0..20), 0..8),
    ) {
        let header = CommandHeader {
            version: lustre_wire::llog::COMMAND_VERSION,
            num,
            count: buffers.len() as u32,
            ..Default::default()
        };
        let buffers = buffers.iter().map(Vec::as_slice).collect();
        let command = ConfigCommand { header, buffers };
        let payload = command.to_bytes(order);
        let header = RecordHeader::default();
        let record = LogRecord { order, header, payload: &payload };
        prop_assert_eq!(ConfigCommand::parse(&record), Ok(command));
    }

    #[test]
    fn directory_entries_are_read_as_they_were_written(
        order in order(),
        entries in vec((vec(any::<u8>(), 1..40), any::<Option<u16>>()), 1..10),
    ) {
        let mut bytes = PageHead::default().to_bytes(order);
        let last = entries.len() - 1;
        for (i, (name, kind)) in entries.iter().enumerate() {
            let head = EntryHead::default();
            bytes.extend(dir::DirEntry { head, name, kind: *kind }.to_bytes(order, i == last));
        }
        bytes.resize(dir::PAGE_LEN, 0xEE);
        let (_, found) = dir::page(order, &bytes).expect("a page");
        let found: Vec<_> = found.map(|e| e.map(|e| (e.name.to_vec(), e.kind))).collect();
        prop_assert_eq!(found, entries.into_iter().map(Ok).collect::<Vec<_>>());
    }

    #[test]
    fn a_listing_shows_any_message(
        order in order(),
        row in any::<prop::sample::Index>(),
        kind in prop_oneof![Just(MsgKind::REQUEST), Just(MsgKind::REPLY), any::<u32>().prop_map(MsgKind)],
        variant in prop_oneof![
            Just(Variant::Plain),
            any::<u64>().prop_map(|bits| Variant::Intent(Intent::from_bits_retain(bits))),
            (0_u32..12).prop_map(|op| Variant::Reint(ReintOp(op))),
        ],
        buffers in vec(buffer(), 0..8),
    ) {
        let opcode = row.get(OPCODES).opcode;
        let body = Body { kind, opcode, version: 3, ..Body::default() }.to_bytes(order);
        let all: Vec<&[u8]> =
            std::iter::once(&body[..]).chain(buffers.iter().map(Vec::as_slice)).collect();
        let bytes = pack(order, &Header::default(), &all).expect("fits");
        let message = Msg::parse(&bytes).expect("a message");
        prop_assert!(listing(&message, 1, variant).contains(row.get(OPCODES).name));
        let _ = Variant::of(&message, &message.body().expect("a body"));
        for format in [variant.request(opcode), variant.reply(opcode)].into_iter().flatten() {
            let _ = format.check(&message);
        }
    }
}

#[test]
fn policies_are_the_words_on_the_wire_by_the_kind_of_lock() {
    use lustre_wire::ldlm::{InodeBits, LockKind};
    let bits = InodeBits::UPDATE;
    for (kind, policy) in [
        (LockKind::PLAIN, Policy::Plain),
        (LockKind::EXTENT, Policy::Extent { start: 1, end: u64::MAX, gid: 3 }),
        (LockKind::IBITS, Policy::Ibits { bits, try_bits: InodeBits::DOM, gid: 4, initiator: 5 }),
        (LockKind::FLOCK, Policy::Flock { start: 1, end: 2, owner: 3, pid: 4 }),
    ] {
        let desc = LockDesc {
            kind,
            requested: LockMode::PR,
            policy: policy.words(),
            ..LockDesc::default()
        };
        let bytes = desc.to_bytes(ByteOrder::Little);
        assert_eq!(LockDesc::get(ByteOrder::Little, &bytes).policy(), Some(policy));
    }
    assert_eq!(LockDesc::default().policy(), None, "a cancel has no kind");
}

#[test]
fn an_lvb_that_is_an_error_says_which() {
    let error = Lvb { blocks: 0xFFBA_DBAD_0000_0000 | 0xFFFF_FFFE, ..Lvb::default() };
    assert_eq!(error.error(), Some(-2));
    assert_eq!(Lvb::default().error(), None);
    let bytes = Lvb { size: 9, mtime_ns: 7, ..Lvb::default() }.to_bytes(ByteOrder::Little);
    let short = Lvb::parse_either(ByteOrder::Little, &bytes[..40]).expect("without nanoseconds");
    assert_eq!((short.size, short.mtime_ns), (9, 0));
    assert!(Lvb::parse_either(ByteOrder::Little, &bytes[..48]).is_err());
}

#[test]
fn the_kind_of_checksum_stands_within_the_flags_of_an_object() {
    let flags = ObdoFlags::SHORT_IO.with_checksum(4);
    assert_eq!(flags.bits(), 0x40_4000);
    assert_eq!((flags.checksum(), flags.without_checksum()), (4, ObdoFlags::SHORT_IO));
    assert_eq!(ObdoFlags::empty().with_checksum(0xFF).bits(), 0xF000);
}

#[test]
fn a_text_leaves_room_for_its_nul() {
    let text = Text::<4>::new("abc").expect("fits");
    assert_eq!((text.as_bytes(), text.to_string()), (&b"abc"[..], "abc".to_owned()));
    let why = Text::<4>::new("abcd").expect_err("too long").to_string();
    assert_eq!(why, "text: length 4: expected 0 to 3");
    assert_eq!(Text(*b"ab\0c").to_string(), "ab");
}

#[test]
fn names_of_locks_are_those_of_the_reference() {
    let fid = Fid { seq: 0x2_4000_0400, oid: 5, ver: 0 };
    assert_eq!(ResourceName::of(fid).to_string(), "[0x240000400:0x5:0x0:0x0]");
    assert_eq!(ResourceName::of_config(b"lfs", 2).to_string(), "[0x73666c:0x2:0x0:0x0]");
    assert_eq!(ResourceName::of_config(b"a-long-name", 0).words[0], 0x6e2d_676e_6f6c_2d61);
}

#[test]
fn object_names_are_fids_or_numbers_of_old() {
    let fid = Fid { seq: 1, oid: 2, ver: 3 };
    assert_eq!(ObjectId::of(fid).fid(), Some(fid));
    assert_eq!(ObjectId::old(7).fid(), None);
}

#[test]
fn a_log_says_which_records_were_removed() {
    let mut header = LogHeader::default();
    header.bitmap.set(9, true);
    header.bitmap.set(1_000_000, true);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let read = LogHeader::get(order, &header.to_bytes(order));
        assert!(read.bitmap.has(9) && !read.bitmap.has(8) && !read.bitmap.has(1_000_000));
    }
    assert_eq!(header.to_bytes(ByteOrder::Little)[88 + 1], 1 << 1);
    header.bitmap.set(9, false);
    assert!(!header.bitmap.has(9));
}

/// Recorded: what a directory tells of a directory elsewhere, and a stripe of itself.
#[test]
fn foreign_directories_and_stripes_are_read_by_their_magic_and_length() {
    let foreign = [&b"\xd0\x0c\xd5\x0c\x04\0\0\0\0\0\0\0\x05\xda\0\0"[..], b"some"].concat();
    let Ok(Striping::Foreign(head, value)) = Striping::parse(&foreign) else { panic!("foreign") };
    assert_eq!((head.kind, head.flags, &value[..]), (0, 0xDA05, &b"some"[..]));
    let mut stripe = b"\xd0\x0c\xd4\x0c\x02\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0".to_vec();
    stripe.resize(56, 0);
    let Ok(Striping::Dir(head, stripes)) = Striping::parse(&stripe) else { panic!("a stripe") };
    assert_eq!((head.stripe_count, head.master, stripes.len()), (2, 1, 0));
    assert_eq!(Striping::Dir(head, stripes).to_bytes(), stripe);
}

#[test]
fn room_behind_a_layout_is_filled_with_zeros() {
    let head = StripeHead { magic: Magic::V1, stripe_count: 2, ..StripeHead::default() };
    let mut bytes = head.to_bytes(ByteOrder::Little);
    bytes.resize(32 + 24 + 9, 0);
    let Ok(Striping::Plain(found)) = Striping::parse(&bytes) else { panic!("a layout") };
    assert_eq!((found.head, found.objects.len()), (head, 1));
    bytes[60] = 1;
    let why = Striping::parse(&bytes).expect_err("rubbish").to_string();
    assert_eq!(why, "stripe object: 9 bytes, expected 24");
}

#[test]
fn components_that_share_their_bytes_are_refused() {
    let entry = ComponentEntry { offset: 128, size: 32, ..ComponentEntry::default() };
    let stripes = || StripeHead { magic: Magic::V1, ..StripeHead::default() };
    let layout = |size: u32, offsets: [u32; 2]| {
        let head = CompositeHead { magic: Magic::COMPOSITE, size, count: 2, ..Default::default() };
        let entries = offsets.map(|offset| ComponentEntry { offset, ..entry });
        let mut bytes = head.to_bytes(ByteOrder::Little);
        entries.iter().for_each(|entry| bytes.extend(entry.to_bytes(ByteOrder::Little)));
        bytes.extend([stripes(), stripes()].iter().flat_map(|s| s.to_bytes(ByteOrder::Little)));
        Striping::parse(&bytes)
    };
    assert!(layout(192, [128, 160]).is_ok());
    let why = layout(31, [128, 160]).expect_err("no room for its own head").to_string();
    assert_eq!(why, "composite layout: size 31: expected 32 to 4294967295");
    let why = layout(193, [128, 160]).expect_err("longer than it is").to_string();
    assert_eq!(why, "composite layout: 192 bytes, expected at least 193");
    let why = layout(192, [128, 161]).expect_err("a component beyond the end").to_string();
    assert_eq!(why, "composite layout: 192 bytes, expected at least 193");

    let mut bytes =
        CompositeHead { magic: Magic::COMPOSITE, size: 128, count: 2, ..Default::default() }
            .to_bytes(ByteOrder::Little);
    let wide = ComponentEntry { offset: 0, size: 128, ..entry };
    bytes.extend([wide, wide].iter().flat_map(|entry| entry.to_bytes(ByteOrder::Little)));
    let why = Striping::parse(&bytes).expect_err("128 bytes of which each is shared").to_string();
    assert_eq!(why, "composite layout: size of all components 256: expected 0 to 128");
}

#[test]
fn a_broken_log_record_is_refused_by_name() {
    let header = RecordHeader { index: 1, kind: PADDING, ..RecordHeader::default() };
    let good = LogRecord { order: ByteOrder::Little, header, payload: &[0; 8] }.to_bytes();
    let why = |bytes: &[u8]| {
        let mut records = LogRecords::new(bytes);
        let why = records.next().expect("a record").expect_err("a broken one").to_string();
        assert_eq!(records.next(), None, "nothing is read behind it");
        why
    };
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        value.put(ByteOrder::Little, &mut bytes[at..]);
        why(&bytes)
    };
    assert_eq!(with(0, 8), "log record: length 8: expected 24 to 8192");
    assert_eq!(with(0, 30), "log record: length 30: expected 24 to 8192");
    assert_eq!(with(0, 40), "log record: 32 bytes, expected at least 40");
    assert_eq!(with(28, 2), "log record: tail 0x2 is not known");
    assert_eq!(with(8, 5), "log record: kind 0x5000000 is not known");
    assert_eq!(why(&good[..12]), "log record: 12 bytes, expected at least 16");
}

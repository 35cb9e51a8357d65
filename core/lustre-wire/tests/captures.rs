//! Every RPC that kernel nodes exchanged in the recordings of `fixtures/ptlrpc`, through our
//! decoders and back, in both byte orders.

mod support;

use std::collections::BTreeMap;

use lnet_capture::Message;
use lnet_types::ByteOrder;
use lnet_wire::Kind;
use lustre_wire::dir;
use lustre_wire::fid::{SeqOp, SeqRange};
use lustre_wire::ldlm::{Intent, LayoutIntent, LockReply, LockRequest, Lvb};
use lustre_wire::llog::{Command, ConfigCommand, LlogdBody, LogHeader, LogRecords, RecordKind};
use lustre_wire::mds::{Epoch, MdtBody, Record};
use lustre_wire::mgs::{ConfigBody, ConfigResult, TableEntries, TableEntryHead, TargetInfo};
use lustre_wire::msg::{self, pack};
use lustre_wire::ost::{IoObj, Niobuf, Obdo, Statfs};
use lustre_wire::striping::Striping;
use lustre_wire::{
    Body, ConnectData, Format, Layout, Msg, MsgKind, Opcode, Part, Variant, WireError,
};
use support::{captures, messages, rpc};

/// Each RPC of each capture, with the name of the capture and the number of the frame.
fn each_found(mut see: impl FnMut(&str, &Message)) {
    for capture in captures() {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        for found in messages(&capture).iter().filter(|found| rpc(&found.hdr).is_some()) {
            see(&format!("{name} {}", found.frame), found);
        }
    }
}

/// The bulk data that servers put to a portal.
fn bulk(wanted: u32) -> Vec<(String, Vec<u8>)> {
    let mut bulk = Vec::new();
    for capture in captures() {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        for found in messages(&capture) {
            if matches!(found.hdr.kind, Kind::Put { portal, .. } if portal == wanted) {
                bulk.push((format!("{name} {}", found.frame), found.payload));
            }
        }
    }
    bulk
}

/// Each message of each capture, with the name of the capture and the number of the frame.
fn each(mut see: impl FnMut(&str, &[u8])) -> usize {
    let mut count = 0;
    each_found(|at, found| {
        count += 1;
        see(at, &found.payload);
    });
    count
}

/// The bytes of a message with zeros between its buffers. A kernel node that shortens a buffer moves
/// the following ones down and leaves what was there before.
fn padding_cleared(message: &Msg<'_>, bytes: &[u8]) -> Vec<u8> {
    let mut cleared = bytes.to_vec();
    let start = bytes.as_ptr() as usize;
    for buffer in message.buffers() {
        let end = buffer.as_ptr() as usize - start + buffer.len();
        cleared[end..end.next_multiple_of(8)].fill(0);
    }
    cleared
}

/// A structure in both byte orders: what is read is written as it was, and again in the other one.
fn both_ways<T: Layout + PartialEq + std::fmt::Debug>(at: &str, bytes: &[u8]) -> T {
    let value = T::parse_exact(ByteOrder::Little, bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
    assert_eq!(value.to_bytes(ByteOrder::Little), bytes, "{at}: {}", T::NAME);
    let big = value.to_bytes(ByteOrder::Big);
    assert_eq!(T::parse_exact(ByteOrder::Big, &big).as_ref(), Ok(&value), "{at}: {}", T::NAME);
    value
}

#[test]
fn every_message_of_every_capture_is_packed_as_it_was() {
    let mut kinds = BTreeMap::<MsgKind, usize>::new();
    let mut dirty = 0;
    let count = each(|at, bytes| {
        let message = Msg::parse(bytes).unwrap_or_else(|e| panic!("{at}: {e}"));
        assert_eq!(message.size(), bytes.len(), "{at}");
        let packed = pack(message.order, &message.header, &message.buffers().collect::<Vec<_>>())
            .expect("fits");
        dirty += usize::from(packed != bytes);
        assert!(packed == padding_cleared(&message, bytes), "{at}: packed otherwise");
        let body: Body = both_ways(at, message.buffer(0).unwrap());
        assert_eq!(message.body(), Ok(body), "{at}");
        *kinds.entry(body.kind).or_default() += 1;
        assert!(body.opcode.row().is_some(), "{at}: {}", body.opcode);

        let mut again = bytes.to_vec();
        msg::rewrite(&mut again, &message.header, &body).expect("a message");
        assert!(again == bytes, "{at}: rewritten otherwise");

        let big =
            pack(ByteOrder::Big, &message.header, &[&body.to_bytes(ByteOrder::Big)]).expect("fits");
        let big = Msg::parse(&big).expect("a message");
        assert_eq!((big.order, big.header), (ByteOrder::Big, message.header), "{at}");
        assert_eq!(big.body(), Ok(body), "{at}");
    });
    let expected = [(MsgKind::REQUEST, 883), (MsgKind::ERROR, 4), (MsgKind::REPLY, 876)];
    assert_eq!(kinds, BTreeMap::from(expected), "of {count}");
    assert_eq!(dirty, 2, "messages with rubbish behind a buffer");
}

#[test]
fn every_request_has_the_version_word_of_its_opcode() {
    each(|at, bytes| {
        let body = Msg::parse(bytes).and_then(|message| message.body()).expect("a body");
        let row = body.opcode.row().expect("a row");
        if let Some(service) = row.service
            && body.kind == MsgKind::REQUEST
        {
            assert_eq!(body.version, service.word(), "{at}: {}", row.name);
        }
    });
}

/// Bytes that were read as a value and are written again.
fn again(at: &str, what: &str, bytes: &[u8], written: Vec<u8>) {
    assert!(written == bytes, "{at}: {what} is written otherwise:\n{bytes:02x?}\n{written:02x?}");
}

/// Reads a buffer as what it is and writes it again, in both orders; gives whether it is a structure.
fn check_part(at: &str, part: Part, bytes: &[u8]) -> bool {
    let little = ByteOrder::Little;
    match part {
        Part::ConnectData => {
            both_ways::<ConnectData>(at, bytes);
        }
        Part::LockReply => {
            both_ways::<LockReply>(at, bytes);
        }
        Part::Intent => {
            both_ways::<Intent>(at, bytes);
        }
        Part::LayoutIntent => {
            both_ways::<LayoutIntent>(at, bytes);
        }
        Part::Lvb => {
            both_ways::<Lvb>(at, bytes);
        }
        Part::OstBody => {
            both_ways::<Obdo>(at, bytes);
        }
        Part::IoObj => {
            both_ways::<IoObj>(at, bytes);
        }
        Part::Statfs => {
            both_ways::<Statfs>(at, bytes);
        }
        Part::MdtBody => {
            both_ways::<MdtBody>(at, bytes);
        }
        Part::Epoch => {
            both_ways::<Epoch>(at, bytes);
        }
        Part::LlogdBody => {
            both_ways::<LlogdBody>(at, bytes);
        }
        Part::SeqOp => {
            both_ways::<SeqOp>(at, bytes);
        }
        Part::SeqRange => {
            both_ways::<SeqRange>(at, bytes);
        }
        Part::TargetInfo => {
            both_ways::<TargetInfo>(at, bytes);
        }
        Part::ConfigBody => {
            both_ways::<ConfigBody>(at, bytes);
        }
        Part::ConfigResult => {
            both_ways::<ConfigResult>(at, bytes);
        }
        Part::LogHeader => {
            both_ways::<LogHeader>(at, bytes);
        }
        Part::Niobufs => {
            for b in bytes.chunks(Niobuf::LEN) {
                both_ways::<Niobuf>(at, b);
            }
        }
        Part::LockRequest => {
            let request = LockRequest::parse(little, bytes).expect("a lock request");
            again(at, "lock request", bytes, request.to_bytes(little));
            let big = request.to_bytes(ByteOrder::Big);
            assert_eq!(LockRequest::parse(ByteOrder::Big, &big), Ok(request), "{at}");
        }
        Part::Record => {
            let record = Record::parse(little, bytes).expect("a record");
            again(at, "record", bytes, record.to_bytes(little));
            let big = record.to_bytes(ByteOrder::Big);
            assert_eq!(Record::parse(ByteOrder::Big, &big), Ok(record), "{at}");
        }
        Part::LogBlock => {
            let mut written = Vec::new();
            for record in LogRecords::new(bytes) {
                let record = record.expect("a record");
                again(
                    at,
                    "record",
                    &bytes[written.len()..][..record.header.len as usize],
                    record.to_bytes(),
                );
                written.extend(record.to_bytes());
                if record.header.kind == RecordKind::CONFIG {
                    let command = ConfigCommand::parse(&record).expect("a command");
                    again(at, "command", record.payload, command.to_bytes(record.order));
                    if command.header.command == Command::MARKER {
                        let marker = command.marker(record.order).expect("a marker");
                        again(at, "marker", command.buffers[1], marker.to_bytes(record.order));
                    }
                }
            }
            assert!(bytes[written.len()..].iter().all(|byte| *byte == 0), "{at}: records are left");
        }
        Part::Md | Part::DefaultMd | Part::EaData if Striping::parse(bytes).is_ok() => {
            let written = Striping::parse(bytes).expect("a layout").to_bytes();
            again(at, "layout", &bytes[..written.len()], written.clone());
            assert!(
                bytes[written.len()..].iter().all(|byte| *byte == 0),
                "{at}: more than a layout"
            );
        }
        _ => return false,
    }
    true
}

#[test]
fn every_structure_of_every_message_is_written_as_it_was() {
    let mut requests = BTreeMap::new();
    let mut structures = BTreeMap::<Part, usize>::new();
    each_found(|at, found| {
        let message = Msg::parse(&found.payload).expect("a message");
        let body = message.body().expect("a body");
        let (_, match_bits, _) = rpc(&found.hdr).expect("an RPC");
        let format = if body.kind == MsgKind::REQUEST {
            let variant = Variant::of(&message, &body);
            let bits = if body.mbits == 0 { match_bits } else { body.mbits };
            requests.insert((at.split(' ').next().map(str::to_owned), bits), variant);
            variant.request(body.opcode)
        } else {
            let name = at.split(' ').next().map(str::to_owned);
            let variant = requests.get(&(name, match_bits)).copied().unwrap_or_default();
            if body.kind == MsgKind::ERROR { None } else { variant.reply(body.opcode) }
        };
        let format = format.filter(|_| message.header.cksum == 0);
        if body.status >= 0
            && let Some(format) = &format
        {
            format.check(&message).unwrap_or_else(|e| panic!("{at}: {}: {e}", body.opcode));
        }
        let parts = format.as_ref().map_or(&[][..], Format::parts);
        for (part, bytes) in parts.iter().zip(message.buffers().skip(1)) {
            if !bytes.is_empty() && check_part(at, *part, bytes) {
                *structures.entry(*part).or_default() += 1;
            }
        }
        assert!(
            body.status < 0 || message.buffers().count() <= parts.len() + 1 || format.is_none(),
            "{at}"
        );
    });
    assert!(structures.len() >= 22, "{structures:?}");
    println!("{structures:?}");
}

#[test]
fn directories_in_bulk_data_are_written_as_they_were() {
    let mut names = BTreeMap::<String, usize>::new();
    for (at, page) in bulk(14) {
        let (head, entries) = dir::page(ByteOrder::Little, &page).expect("a page");
        let entries: Vec<_> = entries.map(|entry| entry.expect("an entry")).collect();
        let mut written = head.to_bytes(ByteOrder::Little);
        for (i, entry) in entries.iter().enumerate() {
            assert!(entry.kind.is_some(), "{at}");
            written.extend(entry.to_bytes(ByteOrder::Little, i + 1 == entries.len()));
            *names.entry(entry.name.escape_ascii().to_string()).or_default() += 1;
        }
        // The server leaves rubbish between a name and the next entry.
        let (head_again, entries_again) = dir::page(ByteOrder::Little, &written).expect("a page");
        assert_eq!(head_again, head, "{at}");
        let entries_again: Vec<_> = entries_again.map(|entry| entry.expect("an entry")).collect();
        assert_eq!(entries_again.len(), entries.len(), "{at}");
        for (again, entry) in entries_again.iter().zip(&entries) {
            assert_eq!(again, entry, "{at}");
        }
        assert_eq!(head.end, dir::END_OF_DIRECTORY, "{at}: all fit into one page");
    }
    assert_eq!(names.get("."), Some(&8));
    assert_eq!(names.get(".."), Some(&8));
    assert!(names.contains_key("f1"), "{names:?}");
}

#[test]
fn target_tables_in_bulk_data_are_written_as_they_were() {
    let mut targets = BTreeMap::<String, usize>::new();
    for (at, table) in bulk(33) {
        // A page of an index of the nodemap, whose layout is not read here.
        if table.len() == 4096 {
            continue;
        }
        let mut written = Vec::new();
        for entry in TableEntries::new(ByteOrder::Little, &table) {
            let entry = entry.expect("an entry");
            written.extend(
                both_ways::<TableEntryHead>(&at, &table[written.len()..][..24])
                    .to_bytes(ByteOrder::Little),
            );
            written.extend(entry.nids);
            *targets.entry(format!("{}{}", entry.head.kind, entry.head.index)).or_default() += 1;
        }
        again(&at, "table", &table, written);
    }
    assert_eq!(
        targets,
        [("MDT0", 4), ("OST0", 4), ("OST1", 1)].map(|(t, n)| (t.to_owned(), n)).into()
    );
}

#[test]
fn connect_data_are_written_as_they_were() {
    let mut requests = 0;
    each(|at, bytes| {
        let message = Msg::parse(bytes).expect("a message");
        let body = message.body().expect("a body");
        let index = match body.kind {
            MsgKind::REQUEST => 4,
            _ => 1,
        };
        if body.opcode.is_connect() && body.kind != MsgKind::ERROR {
            let data: ConnectData = both_ways(at, message.buffer(index).unwrap());
            assert_eq!(ConnectData::of(&message, index), Ok(data), "{at}");
            requests += usize::from(body.kind == MsgKind::REQUEST);
            if body.kind == MsgKind::REQUEST {
                assert!(message.text("target", 1).expect("a text").starts_with(
                    if body.opcode == Opcode::MGS_CONNECT { b"MGS" } else { b"lfs-" }
                ));
            }
        }
    });
    assert_eq!(requests, 34);
}

#[test]
fn early_replies_bear_the_checksum_of_their_body_and_no_other_message_has_one() {
    let mut early = 0;
    each(|at, bytes| {
        let message = Msg::parse(bytes).expect("a message");
        if message.header.cksum != 0 {
            early += 1;
            assert!(message.checksum_holds(), "{at}");
            assert_eq!(bytes.len(), msg::BODY_ONLY_LEN, "{at}");
        }
    });
    assert_eq!(early, 20);
}

#[test]
fn a_message_that_is_cut_anywhere_is_refused() {
    each(|at, bytes| {
        for have in 0..bytes.len() {
            let why = Msg::parse(&bytes[..have]).expect_err("a part of a message");
            let short =
                matches!(why, WireError::Short { need, have: h, .. } if h == have && need > have);
            assert!(short, "{at}: {have} bytes: {why}");
        }
    });
}

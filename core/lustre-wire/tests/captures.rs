//! Every RPC that kernel nodes exchanged in the recordings of `fixtures/ptlrpc`, through our
//! decoders and back, in both byte orders.

mod support;

use std::collections::BTreeMap;

use lnet_types::ByteOrder;
use lustre_wire::msg::{self, pack};
use lustre_wire::{Body, ConnectData, Layout, Msg, MsgKind, Opcode, WireError};
use support::{captures, messages, rpc};

/// Each message of each capture, with the name of the capture and the number of the frame.
fn each(mut see: impl FnMut(&str, &[u8])) -> usize {
    let mut count = 0;
    for capture in captures() {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        for found in messages(&capture).iter().filter(|found| rpc(&found.hdr).is_some()) {
            count += 1;
            see(&format!("{name} {}", found.frame), &found.payload);
        }
    }
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
    assert_eq!(value.to_vec(ByteOrder::Little), bytes, "{at}: {}", T::NAME);
    let big = value.to_vec(ByteOrder::Big);
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
        let packed = pack(message.order, &message.header, message.buffers()).expect("fits");
        dirty += usize::from(packed != bytes);
        assert!(packed == padding_cleared(&message, bytes), "{at}: packed otherwise");
        let body: Body = both_ways(at, message.buffers()[0]);
        assert_eq!(message.body(), Ok(body), "{at}");
        *kinds.entry(body.kind).or_default() += 1;
        assert!(body.opcode.row().is_some(), "{at}: {}", body.opcode);

        let mut again = bytes.to_vec();
        msg::rewrite(&mut again, &message.header, &body).expect("a message");
        assert!(again == bytes, "{at}: rewritten otherwise");

        let big =
            pack(ByteOrder::Big, &message.header, &[&body.to_vec(ByteOrder::Big)]).expect("fits");
        let big = Msg::parse(&big).expect("a message");
        assert_eq!((big.order, big.header), (ByteOrder::Big, message.header), "{at}");
        assert_eq!(big.body(), Ok(body), "{at}");
    });
    let expected = [(MsgKind::REQUEST, 883), (MsgKind::ERROR, 4), (MsgKind::REPLY, 876)];
    assert_eq!(kinds, BTreeMap::from(expected), "of {count}");
    assert_eq!(dirty, 2, "messages with rubbish behind a buffer");
}

#[test]
fn every_message_has_the_buffers_and_version_word_of_its_opcode() {
    each(|at, bytes| {
        let message = Msg::parse(bytes).expect("a message");
        let body = message.body().expect("a body");
        let row = body.opcode.row().expect("a row");
        let format = match body.kind {
            MsgKind::REQUEST => {
                if let Some(service) = row.service {
                    assert_eq!(body.version, service.word(), "{at}: {}", row.name);
                }
                row.request
            }
            MsgKind::REPLY if body.status >= 0 && message.header.cksum == 0 => row.reply,
            _ => None,
        };
        if let Some(format) = format {
            format.check(&message).unwrap_or_else(|e| panic!("{at}: {}: {e}", row.name));
        }
    });
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
            let data: ConnectData = both_ways(at, message.buffers()[index]);
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

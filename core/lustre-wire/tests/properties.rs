//! Promises that hold for any bytes and any values.

use lnet_types::ByteOrder;
use lustre_wire::msg::{
    BODY_ONLY_LEN, BUFFERS_MAX, LEN_MAX, MAGIC, checksum, message, message_into, pack, rewrite,
    size,
};
use lustre_wire::{
    Body, Buffers, ConnectData, Header, HeaderFlags, Layout, Msg, MsgBuilder, MsgKind, Opcode,
    WireError,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

fn header() -> impl Strategy<Value = Header> {
    any::<[u32; 5]>().prop_map(|[secflvr, repsize, cksum, flags, opc]| Header {
        secflvr,
        repsize,
        cksum,
        flags: HeaderFlags::from_bits_retain(flags),
        opc,
    })
}

/// Bytes that begin like a message in one of the orders, so that more than the magic is reached.
fn almost_a_message() -> impl Strategy<Value = Vec<u8>> {
    (order(), 0_u32..40, vec(0_u32..300, 0..40), vec(any::<u8>(), 0..600)).prop_map(
        |(order, count, lens, rest)| {
            let mut bytes = vec![0; 32];
            count.put(order, &mut bytes);
            MAGIC.put(order, &mut bytes[8..]);
            lens.iter().for_each(|len| bytes.extend(len.to_bytes(order)));
            bytes.extend(rest);
            bytes
        },
    )
}

proptest! {
    #[test]
    fn any_bytes_give_a_message_or_an_error(bytes in vec(any::<u8>(), 0..700)) {
        let _ = Msg::parse(&bytes);
    }

    #[test]
    fn a_message_is_its_buffers_wherever_the_bytes_came_from(bytes in almost_a_message()) {
        if let Ok(message) = Msg::parse(&bytes) {
            prop_assert!(message.size() <= bytes.len());
            let again = pack(message.order, &message.header, &message.buffers().collect::<Vec<_>>()).expect("fits");
            prop_assert_eq!(again.len(), message.size());
            let again = Msg::parse(&again).expect("what we pack is a message");
            prop_assert!(again.buffers().eq(message.buffers()));
            prop_assert_eq!(again.header, message.header);
        }
    }

    #[test]
    fn packed_buffers_are_read_as_they_were(
        order in order(),
        header in header(),
        buffers in vec(vec(any::<u8>(), 0..70), 1..=BUFFERS_MAX),
        after in vec(any::<u8>(), 0..9),
    ) {
        let buffers: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let mut bytes = pack(order, &header, &buffers).expect("fits");
        let lens: Vec<u32> = buffers.iter().map(|b| b.len() as u32).collect();
        prop_assert_eq!(bytes.len(), size(&lens));
        let len = bytes.len();
        bytes.extend(after);
        let message = Msg::parse(&bytes).expect("a message");
        prop_assert!(message.buffers().eq(buffers.iter().copied()));
        prop_assert_eq!((message.order, message.header, message.size()), (order, header, len));
    }

    #[test]
    fn a_cut_message_says_how_much_is_missing(
        order in order(),
        buffers in vec(vec(any::<u8>(), 0..70), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let buffers: Vec<&[u8]> = buffers.iter().map(Vec::as_slice).collect();
        let bytes = pack(order, &Header::default(), &buffers).expect("fits");
        let have = cut.index(bytes.len());
        let why = Msg::parse(&bytes[..have]).expect_err("a part");
        let short = matches!(why, WireError::Short { need, .. } if need > have && need <= bytes.len());
        prop_assert!(short, "{}", why);
    }

    #[test]
    fn structures_are_written_as_they_were_read_but_for_their_padding(
        order in order(),
        bytes in vec(any::<u8>(), 192),
    ) {
        let body = Body::get(order, &bytes);
        prop_assert_eq!(Body::get(order, &body.to_bytes(order)), body);
        let data = ConnectData::get(order, &bytes);
        prop_assert_eq!(ConnectData::get(order, &data.to_bytes(order)), data);
    }

    #[test]
    fn the_builder_packs_as_pack_does(
        order in order(),
        header in header(),
        body in vec(any::<u8>(), Body::LEN),
        buffers in vec(vec(any::<u8>(), 0..40), 0..8),
    ) {
        let body = Body::get(order, &body);
        let mut builder = MsgBuilder::in_order(order, header, &body);
        for buffer in &buffers {
            builder = builder.bytes(buffer);
        }
        let first = body.to_bytes(order);
        let all: Vec<&[u8]> =
            std::iter::once(&first[..]).chain(buffers.iter().map(Vec::as_slice)).collect();
        let packed = pack(order, &header, &all).expect("fits");
        prop_assert_eq!(&builder.build().expect("fits"), &packed);
        let mut out = vec![0xEE; packed.len() + 3];
        prop_assert_eq!(builder.build_into(&mut out), Ok(packed.len()));
        prop_assert_eq!(&out[..packed.len()], &packed[..]);
        let short = builder.build_into(&mut out[..packed.len() - 1]).is_err();
        prop_assert!(short);
        if order == ByteOrder::Little {
            let buffers: Buffers = buffers.iter().collect();
            prop_assert_eq!(&message(&header, &body, &buffers).expect("fits"), &packed);
            // Memory of another message.
            let mut used = vec![0xEE; packed.len()];
            message_into(&header, &body, &buffers, &mut used);
            prop_assert_eq!(&used, &packed);
            // Memory that is too short has the front of it.
            let mut short = vec![0xEE; packed.len() - 9];
            message_into(&header, &body, &buffers, &mut short);
            prop_assert_eq!(&short[..], &packed[..short.len()]);
        }
    }

    #[test]
    fn buffers_are_a_list_of_bytes(
        mut list in vec(vec(any::<u8>(), 0..20), 0..6),
        more in vec(vec(any::<u8>(), 0..20), 0..3),
        (index, other) in (0usize..8, vec(any::<u8>(), 0..20)),
    ) {
        let mut buffers: Buffers = list.iter().collect();
        let same = |buffers: &Buffers, list: &[Vec<u8>]| {
            let bytes: Vec<&[u8]> = buffers.iter().collect();
            bytes == list
                && (0..9).all(|i| buffers.get(i) == list.get(i).map(Vec::as_slice))
                && (buffers.len(), buffers.is_empty()) == (list.len(), list.is_empty())
                && buffers.total() == list.iter().map(Vec::len).sum::<usize>()
                && *buffers == list.iter().collect::<Buffers>()
        };
        prop_assert!(same(&buffers, &list), "{buffers:?}");
        prop_assert_eq!(buffers.get_mut(index).map(|b| &*b), list.get(index).map(|b| &b[..]));
        if let (Some(b), Some(l)) = (buffers.get_mut(index), list.get_mut(index)) {
            b.fill(7);
            l.fill(7);
        }
        prop_assert!(same(&buffers, &list), "{buffers:?}");
        buffers.replace(index, &other);
        if let Some(l) = list.get_mut(index) {
            l.clone_from(&other);
        }
        prop_assert!(same(&buffers, &list), "{buffers:?}");
        buffers.replace_last(b"last");
        if let Some(last) = list.last_mut() {
            *last = b"last".to_vec();
        }
        let buffers = buffers.and(&more.iter().collect()).layout(&1u32).text(&other).up_to(9);
        list.extend(more);
        list.extend([vec![1, 0, 0, 0], [&other[..], b"\0"].concat()]);
        list.resize(list.len().max(9), Vec::new());
        prop_assert!(same(&buffers, &list), "{buffers:?}");
    }

    #[test]
    fn rewriting_changes_header_and_body_alone(
        order in order(),
        header in header(),
        bodies in vec(vec(any::<u8>(), Body::LEN), 2),
        rest in vec(any::<u8>(), 0..40),
    ) {
        let body = |i: usize| Body { version: 0x1_0003, ..Body::get(order, &bodies[i]) };
        let build = |header, body: &Body| {
            MsgBuilder::in_order(order, header, body).bytes(&rest).build().expect("fits")
        };
        let mut bytes = build(Header::default(), &body(0));
        rewrite(&mut bytes, &header, &body(1)).expect("a message");
        prop_assert_eq!(bytes, build(header, &body(1)));
    }
}

#[test]
fn a_ping_has_224_bytes_and_a_connect_request_520() {
    let body = Body { kind: MsgKind::REQUEST, opcode: Opcode::OBD_PING, ..Body::default() };
    let ping = MsgBuilder::new(Header::default(), &body);
    assert_eq!((ping.size(), BODY_ONLY_LEN), (224, 224));
    let connect = MsgBuilder::new(Header::default(), &body)
        .bytes(&[b'x'; 39])
        .bytes(&[b'y'; 39])
        .layout(&0_u64)
        .layout(&ConnectData::default())
        .bytes(&[]);
    assert_eq!(connect.size(), 520);
}

#[test]
fn counts_and_lengths_beyond_their_limits_are_refused_by_name() {
    let body = Body::default().to_bytes(ByteOrder::Little);
    let good = pack(ByteOrder::Little, &Header::default(), &[&body, &[]]).expect("fits");
    let with = |at: usize, value: u32| {
        let mut bytes = good.clone();
        value.put(ByteOrder::Little, &mut bytes[at..]);
        Msg::parse(&bytes).expect_err("a bad message").to_string()
    };
    assert_eq!(with(0, 0), "message: bufcount 0: expected 1 to 32");
    assert_eq!(with(0, 33), "message: bufcount 33: expected 1 to 32");
    assert_eq!(with(36, 1_024_001), "message: buflen 1024001: expected 0 to 1024000");
    assert_eq!(with(36, 1_023_999), "message: length 1024224: expected 0 to 1024000");
    assert_eq!(with(36, 1), "message: 224 bytes, expected at least 232");
    assert_eq!(
        with(8, 0x0BD0_0BD1),
        "message: magic 0x0bd00bd1 (read as little-endian): expected 0x0bd00bd3"
    );
    let many: Vec<&[u8]> = vec![&[]; BUFFERS_MAX + 1];
    for (buffers, why) in [
        (&many[..], "message: bufcount 33: expected 1 to 32"),
        (&[], "message: bufcount 0: expected 1 to 32"),
        (&[&vec![0; LEN_MAX][..]], "message: length 1024040: expected 0 to 1024000"),
    ] {
        let packed = pack(ByteOrder::Little, &Header::default(), buffers);
        assert_eq!(packed.expect_err("too much").to_string(), why);
    }
}

#[test]
fn bodies_of_another_length_or_version_are_refused_or_read_in_part() {
    let body = Body {
        version: 0x1_0003,
        gid: 7,
        jobid: lustre_wire::Text::new("job").expect("short"),
        ..Body::default()
    };
    let bytes = body.to_bytes(ByteOrder::Little);
    let parse = |bytes: &[u8]| Body::parse(ByteOrder::Little, bytes);
    assert_eq!(parse(&bytes), Ok(body));
    let old = Body { jobid: lustre_wire::Text::default(), ..body };
    assert_eq!(parse(&bytes[..152]), Ok(old), "version 2 has no job");
    let why = parse(&bytes[..151]).expect_err("too short").to_string();
    assert_eq!(why, "body: 151 bytes, expected at least 152");
    let other = Body { version: 0x1_0002, ..body }.to_bytes(ByteOrder::Little);
    let why = parse(&other).expect_err("another version").to_string();
    assert_eq!(why, "body: version 0x10002: expected 0x3 in the low half");
}

#[test]
fn buffers_are_read_by_their_size_rules() {
    let message = MsgBuilder::new(Header::default(), &Body::default())
        .text(b"name")
        .bytes(b"endless")
        .array(&[1_u64, 2])
        .bytes(&[]);
    let bytes = message.build().expect("fits");
    let message = Msg::parse(&bytes).expect("a message");
    assert_eq!(message.text("x", 1), Ok(&b"name"[..]));
    assert_eq!(message.text("x", 4), Ok(&b""[..]));
    assert_eq!(message.array::<u64>(3), Ok(vec![1, 2]));
    let why = |e: WireError| e.to_string();
    assert_eq!(
        message.text("x", 2).map_err(why),
        Err("x: a text of 7 bytes must end with NUL".to_owned())
    );
    assert_eq!(message.get::<u64>(3).map_err(why), Err("u64: 16 bytes, expected 8".to_owned()));
    assert_eq!(message.array::<u64>(2).map_err(why), Err("u64: 7 bytes, expected 8".to_owned()));
    assert_eq!(
        message.get::<u64>(9).map_err(why),
        Err("u64: buffer 9 is missing, the message has 5".to_owned())
    );
}

#[test]
fn the_checksum_of_early_replies_is_crc_32_without_the_final_inversion() {
    // The check value of CRC-32 is 0xcbf43926.
    assert_eq!(checksum(b"123456789"), !0xCBF4_3926);
}

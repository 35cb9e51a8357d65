//! The files of a target's clients: bytes made by hand from the tables, and promises for any bytes.

use lustre_wire::records::{
    CLIENT_SLOTS_MAX, ClientSlot, Kept, LastRcvd, REPLY_SLOTS_MAX, ReplyData, ReplyHead,
    ReplyMagic, ReplySlot, ReplyTail, ServerRecord,
};
use lustre_wire::{Text, WireError};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// Zeros with numbers and texts at offsets.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new(len: usize) -> Self {
        Self(vec![0; len])
    }

    fn at(mut self, at: usize, bytes: &[u8]) -> Self {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }
}

#[test]
fn last_rcvd_is_what_the_table_says() {
    // P-139, by hand: the server at 0, the client of slot 1 at 8192 + 128.
    let slot = 8192 + 128;
    let bytes = Bytes::new(slot + 128)
        .at(0, b"lfs-MDT0000_UUID\0")
        .at(40, &[7, 0, 0, 0, 2, 0, 0, 0])
        .at(56, &[9, 0, 0, 0, 0, 0, 0, 0])
        .at(64, &[8, 0, 0, 0, 1, 0, 0, 0, 0x1c, 2, 0, 0])
        .at(76, &[0, 2, 0, 0])
        .at(80, &[0, 0x20, 0, 0, 128, 0])
        .at(140, &[3, 0, 0, 0])
        .at(144, &[0, 0, 2, 0])
        .at(148, &[2, 0, 0, 0])
        .at(152, &[0x55])
        .at(511, &[0xaa])
        .at(slot, b"c4f352a4-6f4c-411e-a95a-fa92c8866d63\0")
        .at(slot + 40, &[6, 0, 0, 0, 2, 0, 0, 0])
        .at(slot + 48, &[0x80, 0, 0, 0, 0, 0, 6, 0])
        .at(slot + 56, &[0xfe, 0xff, 0xff, 0xff])
        .at(slot + 60, &[4])
        .at(slot + 64, &[5, 0, 0, 0, 2, 0, 0, 0])
        .at(slot + 72, &[0, 1])
        .at(slot + 80, &[1])
        .at(slot + 84, &[2])
        .at(slot + 88, &[11])
        .at(slot + 96, &[12])
        .at(slot + 104, &[13])
        .at(slot + 112, &[14])
        .at(slot + 120, &[2])
        .at(slot + 124, &[1]);
    let file = LastRcvd::parse(&bytes.0).unwrap();
    let mut table = [0; 360];
    (table[0], table[359]) = (0x55, 0xaa);
    let server = ServerRecord {
        uuid: Text::new("lfs-MDT0000_UUID").unwrap(),
        last_transno: (2 << 32) + 7,
        mount_count: 9,
        compat: 8,
        rocompat: 1,
        incompat: 0x21c,
        server_size: 512,
        client_start: 8192,
        client_size: 128,
        osd_index: 3,
        max_clients: 0x20000,
        start_epoch: 2,
        table: Kept(table),
        ..ServerRecord::default()
    };
    let client = ClientSlot {
        uuid: Text::new("c4f352a4-6f4c-411e-a95a-fa92c8866d63").unwrap(),
        last_transno: (2 << 32) + 6,
        last_xid: 0x6_0000_0000_0080,
        last_result: -2i32 as u32,
        last_data: 4,
        close_transno: (2 << 32) + 5,
        close_xid: 0x100,
        close_result: 1,
        close_data: 2,
        pre_versions: [11, 12, 13, 14],
        last_epoch: 2,
        generation: 1,
    };
    assert_eq!(file, LastRcvd { server, clients: vec![(1, client)] });
    let bytes = Bytes(bytes.0);
    assert_eq!(file.to_bytes(), Ok(bytes.0));
}

#[test]
fn reply_data_is_what_the_table_says() {
    // P-140, by hand: both kinds, with the reply in slot 1.
    for (magic, size) in [(1u8, 32usize), (2, 64)] {
        let slot = 32 + size;
        let mut bytes = Bytes::new(slot + size)
            .at(0, &[magic, 0xda, 0xab, 0xbd])
            .at(slot, &[7, 0, 0, 0, 1, 0, 0, 0])
            .at(slot + 8, &[0x80, 0x34, 0x12, 0, 0, 0, 6, 0])
            .at(slot + 16, &[0x37])
            .at(slot + 24, &[0xfe, 0xff, 0xff, 0xff])
            .at(slot + 28, &[5, 0, 0, 0]);
        let mut tail = ReplyTail::default();
        if magic == 2 {
            bytes = bytes.at(slot + 32, &[4, 0, 0, 0]);
            tail.batch = 4;
        }
        let magic = if magic == 1 { ReplyMagic::V1 } else { ReplyMagic::V2 };
        let reply = ReplySlot {
            transno: (1 << 32) + 7,
            xid: 0x6_0000_0012_3480,
            data: 0x37,
            result: -2i32 as u32,
            generation: 5,
        };
        let head = ReplyHead { magic, ..ReplyHead::default() };
        let file = ReplyData { head, replies: vec![(1, reply, tail)] };
        assert_eq!(ReplyData::parse(&bytes.0), Ok(file.clone()));
        assert_eq!(file.to_bytes(), Ok(bytes.0));
    }
}

#[test]
fn files_that_can_not_be_are_refused() {
    let good = ServerRecord::new(Text::new("t").unwrap());
    let file = |server| LastRcvd { server, clients: vec![(0, ClientSlot::default())] };
    let field = |server| match file(server).to_bytes() {
        Err(WireError::Limit { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(ServerRecord { client_start: 511, ..good }), "client start");
    assert_eq!(field(ServerRecord { client_size: 127, ..good }), "client size");
    assert!(good.place(CLIENT_SLOTS_MAX - 1).is_ok());
    assert!(good.place(CLIENT_SLOTS_MAX).is_err());
    assert!(ReplyMagic::V2.place(REPLY_SLOTS_MAX - 1).is_ok());
    assert!(ReplyMagic::V2.place(REPLY_SLOTS_MAX).is_err());
    let unknown = ReplyData { head: ReplyHead::default(), replies: Vec::new() };
    let why = ReplyData::parse(&unknown.to_bytes().unwrap());
    assert!(matches!(why, Err(WireError::Value { field: "magic", value: 0, .. })), "{why:?}");
    // Cut within a record.
    let client = ClientSlot { uuid: Text::new("c").unwrap(), ..ClientSlot::default() };
    let whole = LastRcvd { server: good, clients: vec![(2, client)] }.to_bytes().unwrap();
    assert_eq!(whole.len(), 8192 + 3 * 128);
    for cut in [511, 8192 + 1, 8192 + 2 * 128 + 127] {
        let why = LastRcvd::parse(&whole[..cut]);
        assert!(matches!(why, Err(WireError::Short { .. })), "{cut}: {why:?}");
    }
    // A target that never had a client.
    assert_eq!(LastRcvd::parse(&whole[..512]).unwrap().clients, []);
}

fn uuid() -> impl Strategy<Value = Text<40>> {
    "[a-z0-9-]{1,39}".prop_map(|text| Text::new(&text).expect("a text that fits"))
}

prop_compose! {
    fn client()(
        uuid in uuid(),
        n in any::<[u64; 8]>(),
        m in any::<[u32; 6]>(),
    ) -> ClientSlot {
        ClientSlot {
            uuid,
            last_transno: n[0],
            last_xid: n[1],
            last_result: m[0],
            last_data: m[1],
            close_transno: n[2],
            close_xid: n[3],
            close_result: m[2],
            close_data: m[3],
            pre_versions: [n[4], n[5], n[6], n[7]],
            last_epoch: m[4],
            generation: m[5],
        }
    }
}

prop_compose! {
    fn reply()(
        transno in 1u64..,
        n in any::<[u64; 2]>(),
        m in any::<[u32; 3]>(),
    ) -> (ReplySlot, u32) {
        let [xid, data] = n;
        (ReplySlot { transno, xid, data, result: m[0], generation: m[1] }, m[2])
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        clients in btree_map(0u32..300, client(), 0..20),
        start in 512u32..10_000,
        size in 128u16..300,
        replies in btree_map(0u32..300, reply(), 0..20),
        second in any::<bool>(),
    ) {
        let server = ServerRecord {
            client_start: start,
            client_size: size,
            ..ServerRecord::new(Text::default())
        };
        let file = LastRcvd { server, clients: clients.into_iter().collect() };
        prop_assert_eq!(LastRcvd::parse(&file.to_bytes().unwrap()), Ok(file));
        let magic = if second { ReplyMagic::V2 } else { ReplyMagic::V1 };
        let tail = |batch| ReplyTail { batch: if second { batch } else { 0 }, ..Default::default() };
        let reply = |(slot, (reply, batch))| (slot, reply, tail(batch));
        let head = ReplyHead { magic, ..ReplyHead::default() };
        let file = ReplyData { head, replies: replies.into_iter().map(reply).collect() };
        prop_assert_eq!(ReplyData::parse(&file.to_bytes().unwrap()), Ok(file));
    }

    #[test]
    fn any_bytes_are_a_file_or_an_error(mut bytes in vec(any::<u8>(), 0..3000), which in 0u8..3) {
        match which {
            // Sizes that make sense, so that what lies behind them is read.
            0 if bytes.len() > 86 => bytes[80..86].copy_from_slice(&[0, 2, 0, 0, 128, 0]),
            1 | 2 if bytes.len() > 4 => {
                bytes[..4].copy_from_slice(&[which, 0xda, 0xab, 0xbd]);
            }
            _ => {}
        }
        if let Ok(file) = LastRcvd::parse(&bytes) {
            prop_assert_eq!(LastRcvd::parse(&file.to_bytes().unwrap()), Ok(file));
        }
        if let Ok(file) = ReplyData::parse(&bytes) {
            prop_assert_eq!(ReplyData::parse(&file.to_bytes().unwrap()), Ok(file));
        }
    }
}

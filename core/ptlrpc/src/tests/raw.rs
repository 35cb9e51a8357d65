//! A client without an import: it sends any bytes as requests, and reads what comes to the reply
//! portal of the bench.

use lnet::{MatchEntry, MdOptions, MdSpec, Put, Unlink};
use lnet_types::{ByteOrder, IoVec, Memory, Nid, ProcessId, Span};
use lustre_wire::{
    Body, ConnectData, Header, HeaderFlags, ImportKind, Layout, Msg, MsgBuilder, MsgKind, Opcode,
};

use super::bench::{APPEND, Bench, data};
use crate::Rpc;

/// A purpose that no table has.
const USER: u64 = (1 << 53) - 1;
/// Where the real reply stands in a reply buffer.
const BEHIND: usize = 224;

/// Puts bytes on the service's portal.
pub(super) fn throw(bench: &mut Bench, bytes: &[u8], match_bits: u64) {
    throw_at(bench, ImportKind::Osc.portals().0.0, bytes, match_bits);
}

pub(super) fn throw_at(bench: &mut Bench, portal: u32, bytes: &[u8], match_bits: u64) {
    bench.rpc(bench.client, |rpc| put(rpc, portal, bytes, match_bits));
    bench.settle();
}

/// Puts the same bytes on the service's portal so often, with ascending match bits, before any of
/// them is looked at.
pub(super) fn throw_many(bench: &mut Bench, bytes: &[u8], match_bits: u64, times: usize) {
    let portal = ImportKind::Osc.portals().0.0;
    bench.rpc(bench.client, |rpc| {
        for n in 0..times as u64 {
            put(rpc, portal, bytes, match_bits + n * 128);
        }
    });
    bench.settle();
}

fn put(rpc: &mut Rpc<'_, '_>, portal: u32, bytes: &[u8], match_bits: u64) {
    let below = rpc.below();
    let span = below.alloc(bytes.len() as u32).unwrap();
    below.bytes_mut(span).copy_from_slice(bytes);
    let spec = MdSpec {
        threshold: Some(1),
        unlink: Unlink::Auto,
        options: MdOptions::empty(),
        ..MdSpec::new(IoVec::from([span]), USER)
    };
    let md = below.bind(spec).unwrap();
    let put = Put {
        md,
        ack: false,
        src: None,
        target: ProcessId::from(Nid::LOOPBACK),
        portal,
        match_bits,
        offset: 0,
        hdr_data: 0,
        timeout: None,
    };
    below.put(put).unwrap();
}

/// A request that is put together by hand, and the buffer that its replies come to.
pub(super) struct Raw {
    buffer: Span,
}

impl Raw {
    /// The body of a request for an export.
    pub(super) fn body(handle: u64) -> Body {
        Body {
            handle,
            kind: MsgKind::REQUEST,
            version: 0x3_0003,
            opcode: APPEND,
            timeout: 11,
            conn_cnt: 1,
            ..Body::default()
        }
    }

    /// Sends a request that takes early replies.
    pub(super) fn send(bench: &mut Bench, xid: u64, body: &Body) -> Self {
        let body = &Body { mbits: xid, ..*body };
        let header = Header { flags: HeaderFlags::AT_SUPPORT, ..Header::default() };
        let bytes = MsgBuilder::new(header, body).bytes(b"raw").build().unwrap();
        Self::send_bytes(bench, xid, &bytes)
    }

    /// Sends any bytes, with room for their replies.
    pub(super) fn send_bytes(bench: &mut Bench, xid: u64, bytes: &[u8]) -> Self {
        let memory = bench.memory(4096, |_| 0);
        let portal = ImportKind::Osc.portals().1.0;
        let buffer = memory[0];
        bench.rpc(bench.client, |rpc| {
            let spec = MdSpec {
                threshold: None,
                unlink: Unlink::Retain,
                options: MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE | MdOptions::TRUNCATE,
                ..MdSpec::new(memory.clone(), USER)
            };
            let from = ProcessId::from(Nid::LOOPBACK);
            let entry = MatchEntry { from, ..MatchEntry::bits(xid) };
            rpc.below().attach(portal, entry, spec).unwrap();
        });
        throw(bench, bytes, xid);
        Self { buffer }
    }

    fn at(&self, bench: &Bench, offset: usize) -> Option<Body> {
        let bytes = bench.heap.bytes(self.buffer);
        Msg::parse(&bytes[offset..offset + BEHIND]).ok()?.body().ok()
    }

    /// The reply, with what is behind its body.
    pub(super) fn message(&self, bench: &Bench) -> Vec<u8> {
        bench.heap.bytes(self.buffer)[BEHIND..].to_vec()
    }

    /// The last early reply.
    pub(super) fn early(&self, bench: &Bench) -> Option<Body> {
        self.at(bench, 0)
    }

    /// The reply.
    pub(super) fn reply(&self, bench: &Bench) -> Option<Body> {
        self.at(bench, BEHIND)
    }
}

/// Connects the bench's client; its export's handle, and a number above those of its requests.
pub(super) fn connected(bench: &mut Bench) -> (u64, u64) {
    let call = bench.call(Bench::say(Opcode(20_001), "connect"));
    let served = bench.kept()[0].clone();
    bench.rpc(bench.server, |rpc| rpc.reply(served.id, crate::Answer::default()));
    bench.settle();
    assert!(bench.end_of(call).unwrap().is_ok());
    (served.body.handle, served.xid + (1 << 40))
}

/// The bytes of a connect.
pub(super) fn connect_message(client: &str) -> Vec<u8> {
    connect_with(client, ConnectData::LEN)
}

/// Those of one whose connect data have so many bytes.
pub(super) fn connect_with(client: &str, len: usize) -> Vec<u8> {
    connect_of(client, &Raw::body(0), data(), len)
}

/// Those of one with this body but for its opcode, and these connect data, cut or filled up.
pub(super) fn connect_of(client: &str, body: &Body, data: ConnectData, len: usize) -> Vec<u8> {
    let body = Body { opcode: Opcode::OST_CONNECT, version: 0x1_0003, timeout: 5, ..*body };
    let header = Header { flags: HeaderFlags::AT_SUPPORT, ..Header::default() };
    let mut connect = data.to_bytes(ByteOrder::Little);
    connect.resize(len, 0);
    MsgBuilder::new(header, &body)
        .bytes(b"log-1\0")
        .bytes(format!("{client}\0").as_bytes())
        .layout(&7u64)
        .bytes(&connect)
        .build()
        .unwrap()
}

/// Connects a client that says nothing more.
pub(super) fn connect(bench: &mut Bench, client: &str) {
    throw(bench, &connect_message(client), 1);
}

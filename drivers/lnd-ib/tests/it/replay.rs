//! The recordings of two kernel nodes over soft-RoCE, played to one interface in the part of either:
//! what the other node sent is received, what the node behind our part wanted is ordered, and what
//! leaves is compared with what the kernel sent, field by field and credit by credit.
//!
//! Values that a sender chooses (cookies, keys, addresses) may differ, but have to be used as the
//! kernel used its own; the other node's answers are translated accordingly. The order of verdicts
//! is that of the recording: a message is judged when it comes, except that memory for data is given
//! when the recorded node gave it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

use core::time::Duration;
use lnd_ib::{CmCall, CmEvent, ConnId, Event, IbConfig, IbNi, NiStart, Output, RequestId};
use lnet::{Payload, Sink, Transmit, Verdict};
use lnet_pcap::roce::{self, CmKind, Happened, Operation};
use lnet_types::{Instant, IoVec, MsgId, NiId, Nid, Pid, ProcessId, RegionId, RxId, Span};
use lnet_wire::ib::{Body, Frag, Msg, RdmaDesc, Type};
use lnet_wire::{Handle, Hdr, Kind};
use slotmap::SlotMap;

/// Messages that were posted earlier than the emulated adapter sent them: capture, frame, the frame of
/// the other node ahead of which it was posted, and how the recording shows that.
const POSTED_EARLIER: &[(&str, u32, u32, &str)] = &[
    ("o2ib-rxe-selftest", 14, 12, "returns one credit, and the buffer of 12 would be a second one"),
    ("o2ib-rxe-selftest", 52, 51, "answers 48, and is ahead of the data that 51 asks for"),
    ("o2ib-rxe-selftest", 184, 52, "returns no credit, although 52 and 118 have come"),
];

/// What one side did, as far as a driver decides it.
#[derive(Clone, Debug)]
enum Deed {
    Request(Msg),
    Reply(Msg),
    Ready,
    Write { addr: u64, key: u32, len: usize },
    Message { msg: Msg, payload: Vec<u8> },
}

impl Deed {
    fn of(operation: &Operation) -> Option<Self> {
        let parse = |bytes: &[u8]| Msg::parse(bytes).expect("a message").0;
        Some(match operation {
            Operation::Cm { kind: CmKind::Request, private, .. } => {
                Self::Request(parse(&private[36..]))
            }
            Operation::Cm { kind: CmKind::Reply, private, .. } => Self::Reply(parse(private)),
            Operation::Cm { kind: CmKind::Ready, .. } => Self::Ready,
            Operation::Cm { .. } => return None,
            Operation::Write { addr, key, bytes, .. } => {
                Self::Write { addr: *addr, key: *key, len: bytes.len() }
            }
            Operation::Send { bytes, .. } => {
                let msg = parse(bytes);
                let payload = bytes[msg.len()..].to_vec();
                Self::Message { msg, payload }
            }
        })
    }
}

/// Fields of a deed by name; with `true` those that the sender chooses.
fn fields(deed: &Deed) -> Vec<(&'static str, String, bool)> {
    let mut all: Vec<(&'static str, String, bool)> = Vec::new();
    let mut add = |name, value: String, free| all.push((name, value, free));
    let (msg, payload) = match deed {
        Deed::Ready => return vec![("kind", "Ready".into(), false)],
        Deed::Write { addr, key, len } => {
            return vec![
                ("kind", "write".into(), false),
                ("address", format!("{addr:#x}"), false),
                ("key", format!("{key:#x}"), false),
                ("length", len.to_string(), false),
            ];
        }
        Deed::Request(msg) | Deed::Reply(msg) => (msg, &[][..]),
        Deed::Message { msg, payload } => (msg, &payload[..]),
    };
    let head = msg.head;
    add("type", msg.body.kind().to_string(), false);
    add("order", head.order.to_string(), false);
    add("version", head.version.to_string(), false);
    add("credits", head.credits.to_string(), false);
    add("nob", (msg.len() + payload.len()).to_string(), false);
    add("src", head.src.to_string(), false);
    add("src_stamp", head.src_stamp.to_string(), false);
    add("dst", head.dst.to_string(), false);
    add("dst_stamp", head.dst_stamp.to_string(), false);
    let rd = |rd: &RdmaDesc, add: &mut dyn FnMut(&'static str, String, bool)| {
        add("rd.bytes", rd.nob().to_string(), false);
        add("rd.fragments", rd.frags.len().to_string(), false);
        add("rd.key", rd.key.to_string(), true);
    };
    match &msg.body {
        Body::ConnReq(p) | Body::ConnAck(p) => add("parameters", format!("{p:?}"), false),
        Body::Noop => {}
        Body::Immediate(hdr) => {
            add("hdr", format!("{hdr:?}"), false);
            add("payload", format!("{payload:02x?}"), false);
        }
        Body::PutReq { hdr, cookie } => {
            add("hdr", format!("{hdr:?}"), false);
            add("cookie", cookie.to_string(), true);
        }
        Body::GetReq { hdr, cookie, rd: desc } => {
            add("hdr", format!("{hdr:?}"), false);
            add("cookie", cookie.to_string(), true);
            rd(desc, &mut add);
        }
        Body::PutAck { src_cookie, dst_cookie, rd: desc } => {
            add("src_cookie", src_cookie.to_string(), false);
            add("cookie", dst_cookie.to_string(), true);
            rd(desc, &mut add);
        }
        Body::PutNak(done) | Body::PutDone(done) | Body::GetDone(done) => {
            add("cookie of the request", done.cookie.to_string(), false);
            add("status", done.status.to_string(), false);
        }
    }
    all
}

struct Player {
    ib: IbNi,
    now: Instant,
    conn: Option<ConnId>,
    ids: SlotMap<MsgId, ()>,
    /// What the kernel did in our part, still to be compared.
    expected: VecDeque<(u32, Deed)>,
    /// Orders that the node still has to give: those of `expected`, in order.
    orders: VecDeque<(u32, Deed)>,
    /// Headers whose data are not asked for yet.
    parked: VecDeque<(RxId, Hdr)>,
    /// Freely chosen values: captured to ours.
    ours: BTreeMap<(&'static str, String), String>,
    /// The last message of the other node: its type, and its header if the node has judged it.
    last_kind: Option<Type>,
    last_in: Option<Hdr>,
    /// What is asked for by GET_REQs in hand.
    served: VecDeque<Hdr>,
    slots: VecDeque<u16>,
    compared: usize,
    deeds: usize,
    differences: Vec<String>,
}

fn spans(len: u32) -> IoVec {
    [Span { region: RegionId(0), len, offset: 0 }].into_iter().collect()
}

impl Player {
    fn new(nid: Nid, incarnation: u64, own: VecDeque<(u32, Deed)>) -> Self {
        let start = NiStart { ni: NiId::default(), nid, incarnation };
        let is_order = |deed: &Deed| {
            let Deed::Message { msg, .. } = deed else { return false };
            !matches!(msg.body, Body::Noop | Body::PutDone(_))
        };
        Self {
            ib: IbNi::new(IbConfig::default(), start).expect("the defaults"),
            now: Instant::from_secs(1),
            conn: None,
            ids: SlotMap::with_key(),
            orders: own.iter().filter(|(_, deed)| is_order(deed)).cloned().collect(),
            expected: own,
            parked: VecDeque::new(),
            ours: BTreeMap::new(),
            last_kind: None,
            last_in: None,
            served: VecDeque::new(),
            slots: VecDeque::new(),
            compared: 0,
            deeds: 0,
            differences: Vec::new(),
        }
    }

    /// Something leaves: it is what the kernel did at this place, or a difference.
    fn left(&mut self, ours: &Deed) {
        let Some((frame, theirs)) = self.expected.pop_front() else {
            return self.differences.push(format!("surplus: {ours:?}"));
        };
        self.deeds += 1;
        let (theirs, ours) = (fields(&theirs), fields(ours));
        if theirs.len() != ours.len() {
            let text = format!("frame {frame}: expected {:?}, got {:?}", theirs[0], ours[0]);
            return self.differences.push(text);
        }
        for ((name, want, free), (_, got, _)) in theirs.into_iter().zip(ours) {
            self.compared += 1;
            let same = if free {
                let known = self.ours.entry((name, want.clone())).or_insert_with(|| got.clone());
                *known == got
            } else {
                want == got
            };
            if !same {
                self.differences.push(format!("frame {frame} {name}: expected {want}, got {got}"));
            }
        }
    }

    fn our_cookie(&self, captured: u64) -> u64 {
        let ours = self.ours.get(&("cookie", captured.to_string()));
        ours.map_or(captured, |cookie| cookie.parse().expect("a number"))
    }

    fn order(&mut self, hdr: Hdr, payload: Payload, sink: IoVec) {
        let msg = self.ids.insert(());
        let to = hdr.dst;
        let transmit = Transmit {
            msg,
            ni: NiId::default(),
            to: ProcessId { nid: to, pid: Pid::LUSTRE },
            peer_ni: None,
            hdr,
            payload,
            sink,
            timeout: Duration::from_secs(50),
            retention: None,
            repeats: false,
        };
        self.ib.send(self.now, transmit).expect("it is taken");
    }

    /// Gives the order behind the next deed of the node.
    fn give_order(&mut self) {
        let Some((_, Deed::Message { msg, payload })) = self.orders.pop_front() else { return };
        match msg.body {
            Body::Immediate(hdr) => {
                // A GET names its sink whether or not a message holds the data.
                let sink = if let Kind::Get { sink_len, .. } = hdr.kind {
                    spans(sink_len)
                } else {
                    IoVec::new()
                };
                let payload = if payload.is_empty() {
                    Payload::empty()
                } else {
                    Payload::Bytes(Arc::from(payload))
                };
                self.order(hdr, payload, sink);
            }
            Body::PutReq { hdr, .. } => {
                self.order(hdr, Payload::Spans(spans(hdr.payload_len)), IoVec::new());
            }
            Body::GetReq { hdr, rd, .. } => {
                self.order(hdr, Payload::empty(), spans(rd.nob() as u32));
            }
            Body::PutAck { rd, .. } => {
                let (rx, _) = self.parked.pop_front().expect("a PUT_REQ");
                let (msg, sink) = (self.ids.insert(()), Sink::Spans(spans(rd.nob() as u32)));
                self.ib.verdict(self.now, rx, Verdict::Deliver { msg, sink });
            }
            Body::GetDone(done) => {
                let get = self.served.pop_front().expect("a GET_REQ");
                let Kind::Get { ret, .. } = get.kind else { panic!("{get}") };
                let hdr = Hdr {
                    dst: get.src,
                    src: get.dst,
                    dst_pid: get.src_pid,
                    src_pid: get.dst_pid,
                    payload_len: done.status as u32,
                    kind: Kind::Reply { dst: ret, pad: [0; 24] },
                };
                self.order(hdr, Payload::Spans(spans(hdr.payload_len)), IoVec::new());
            }
            other => panic!("no order gives {other:?}"),
        }
    }

    /// Whether the next order answers the message that has just been received.
    fn answers(&self) -> bool {
        let handle = |hdr: &Hdr| match hdr.kind {
            Kind::Put { ack, .. } => Some(ack),
            Kind::Get { ret, .. } => Some(ret),
            _ => None,
        };
        let Some(asked) = self.last_in.as_ref().and_then(handle).filter(|h| *h != Handle::NONE)
        else {
            return false;
        };
        let Some((_, Deed::Message { msg, .. })) = self.orders.front() else { return false };
        matches!(msg.body, Body::Immediate(Hdr { kind: Kind::Ack { dst, .. } | Kind::Reply { dst, .. }, .. }) if dst == asked)
    }

    fn drain(&mut self) {
        while let Some(output) = self.ib.poll_output() {
            match output {
                Output::Cm(CmCall::Resolve { conn, .. }) => {
                    self.conn = Some(conn);
                    self.ib.cm_event(self.now, conn, CmEvent::AddrResolved);
                }
                Output::Cm(CmCall::ResolveRoute { conn }) => {
                    self.ib.cm_event(self.now, conn, CmEvent::RouteResolved);
                }
                Output::Cm(CmCall::Connect { private, .. }) => {
                    self.left(&Deed::Request(Msg::parse(&private).expect("ours").0));
                }
                Output::Cm(CmCall::Accept { conn, private, .. }) => {
                    self.conn = Some(conn);
                    self.left(&Deed::Reply(Msg::parse(&private).expect("ours").0));
                }
                Output::Cm(call) => self.differences.push(format!("{call:?}")),
                Output::Receive { slot, .. } => self.slots.push_back(slot),
                Output::Post(post) => {
                    for write in &post.writes {
                        let (addr, key, len) = (write.addr, write.key, write.len as usize);
                        self.left(&Deed::Write { addr, key, len });
                    }
                    let payload = match &post.payload {
                        Some(Payload::Bytes(bytes)) => bytes.to_vec(),
                        _ => Vec::new(),
                    };
                    let (msg, _) = Msg::parse(&[&post.head[..], &payload].concat()).expect("ours");
                    self.left(&Deed::Message { msg, payload });
                    self.ib.work_done(self.now, post.work, Ok(()));
                }
                Output::Map { map, .. } => {
                    let frags = [Frag { addr: 0x1000, nob: 1 << 20 }].into_iter().collect();
                    let mut desc = RdmaDesc { key: map.0 as u32, frags };
                    if let Some(len) = self.map_len(&output) {
                        desc.frags[0].nob = len;
                    }
                    self.ib.mapped(self.now, map, Ok(desc));
                }
                Output::Unmap { .. }
                | Output::Copy { .. }
                | Output::Scatter { .. }
                | Output::Keep { .. }
                | Output::Release { .. }
                | Output::Look
                | Output::Reopen => {}
                Output::Event(event) => self.event(event),
            }
        }
        self.ib.check().expect("the tables agree");
    }

    fn map_len(&self, output: &Output) -> Option<u32> {
        let Output::Map { memory: lnd_ib::MapMemory::Spans(spans), .. } = output else {
            return None;
        };
        Some(spans.iter().map(|span| span.len).sum())
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Header { rx, hdr } => {
                let large = matches!(self.last_kind, Some(Type::PutReq));
                if large && matches!(hdr.kind, Kind::Put { .. }) {
                    return self.parked.push_back((rx.id, hdr));
                }
                self.last_in = Some(hdr);
                if self.last_kind == Some(Type::GetReq) {
                    self.served.push_back(hdr);
                }
                let msg = self.ids.insert(());
                let sink = Sink::Spans(spans(hdr.payload_len.max(1)));
                self.ib.verdict(self.now, rx.id, Verdict::Deliver { msg, sink });
            }
            Event::Asked { .. } | Event::RxDone { outcome: Ok(_), .. } => {
                if self.answers() {
                    self.give_order();
                }
            }
            Event::TxDone { outcome, .. } => assert_eq!(outcome, Ok(())),
            other => self.differences.push(format!("{other:?}")),
        }
    }

    /// The other node did something.
    fn theirs(&mut self, deed: &Deed) {
        let bytes = |msg: &Msg, payload: &[u8]| {
            let mut out = vec![0; msg.len()];
            msg.emit(payload.len(), &mut out).expect("it fits");
            [&out[..], payload].concat()
        };
        match deed {
            Deed::Request(msg) => {
                self.ib.connect_request(self.now, RequestId(1), &bytes(msg, &[]));
            }
            Deed::Reply(msg) => {
                let conn = self.conn.expect("a request of ours");
                let private = bytes(msg, &[]);
                self.ib.cm_event(self.now, conn, CmEvent::Established { private: &private });
                // The connection manager confirms by itself.
                self.left(&Deed::Ready);
            }
            Deed::Ready => {
                let conn = self.conn.expect("accepted");
                self.ib.cm_event(self.now, conn, CmEvent::Established { private: b"" });
            }
            Deed::Write { .. } => {}
            Deed::Message { msg, payload } => {
                let mut msg = msg.clone();
                match &mut msg.body {
                    Body::PutAck { src_cookie, .. } => *src_cookie = self.our_cookie(*src_cookie),
                    Body::PutNak(done) | Body::PutDone(done) | Body::GetDone(done) => {
                        done.cookie = self.our_cookie(done.cookie);
                    }
                    _ => {}
                }
                self.last_kind = Some(msg.body.kind());
                let conn = self.conn.expect("a connection");
                let slot = self.slots.pop_front().expect("a receive buffer");
                self.ib.received(self.now, conn, slot, Ok(&bytes(&msg, payload)));
            }
        }
        self.drain();
    }
}

/// Plays a recording in the part of `own`; the player with what it found.
fn play(name: &str, own: &str) -> Player {
    let path = format!("{}/../../fixtures/o2ib/{name}.pcap", env!("CARGO_MANIFEST_DIR"));
    let file = std::fs::read(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let own: IpAddr = own.parse().expect("an address");
    let all: Vec<Happened> = roce::operations(&file).expect("a capture");
    let deeds: Vec<(u32, bool, Deed)> =
        all.iter().filter_map(|h| Some((h.frame, h.src == own, Deed::of(&h.operation)?))).collect();
    let stamp = deeds.iter().find_map(|(_, ours, deed)| match deed {
        Deed::Request(msg) | Deed::Reply(msg) if *ours => Some(msg.head.src_stamp),
        _ => None,
    });
    let nid = format!("{own}@o2ib").parse().expect("a NID");
    let mine = deeds.iter().filter(|(_, ours, _)| *ours);
    let mine = mine.map(|(frame, _, deed)| (*frame, deed.clone())).collect();
    let mut player = Player::new(nid, stamp.expect("an incarnation"), mine);
    for (frame, ours, deed) in &deeds {
        player.now += Duration::from_millis(1);
        // The first message of the side that connects is behind its request.
        if *ours && matches!(deed, Deed::Request(_)) {
            player.give_order();
            player.drain();
        }
        let due = |order: u32| {
            let earlier = POSTED_EARLIER.iter().find(|(c, f, ..)| (*c, *f) == (name, order));
            earlier.map_or(order, |(_, _, before, _)| before - 1) <= *frame
        };
        while player.orders.front().is_some_and(|(order, _)| due(*order)) {
            player.give_order();
            player.drain();
        }
        if !ours {
            player.theirs(deed);
        }
    }
    let missing: Vec<_> =
        player.expected.iter().map(|(f, d)| format!("did not: {f} {d:?}")).collect();
    player.differences.extend(missing);
    player
}

#[test]
fn recordings_of_kernel_nodes_are_played_in_both_parts_without_a_difference() {
    let mut table = String::new();
    let mut found = Vec::new();
    for name in ["o2ib-rxe-ping-discovery", "o2ib-rxe-selftest"] {
        for (part, own) in [("connects", "10.77.0.2"), ("accepts", "10.77.0.3")] {
            let player = play(name, own);
            let Player { deeds, compared, differences, .. } = &player;
            let count = differences.len();
            let _ = writeln!(
                table,
                "{name} {part}: {deeds} messages and writes, {compared} fields compared, {count} different"
            );
            for difference in differences {
                let _ = writeln!(table, "    {difference}");
            }
            found.extend(differences.iter().map(|d| format!("{name} {part}: {d}")));
            assert!(*deeds > 4 && *compared > 40, "{table}");
        }
    }
    println!("{table}");
    assert!(found.is_empty(), "{table}");
}

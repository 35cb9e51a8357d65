//! The RDMA driver's machine: any order of inputs, with any bytes where bytes come from outside.
//! After each input its tables agree; each message that it takes ends once, at the latest when the
//! interface has been stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use lnd_ib::{
    CmCall, CmEvent, CmRejection, ConnId, DeviceEvent, Event, IbConfig, IbNi, MapId, NiStart,
    Output, RequestId, WorkId,
};
use lnet::{DropReason, Payload, PeerMisbehaved, Sink, Transmit, Verdict};
use lnet_types::{Errno, Instant, IoVec, MsgId, NiId, Nid, Pid, ProcessId, RegionId, RxId, Span};
use lnet_wire::ib::{
    Body, ConnParams, Done, Frag, MSG_MAX, Msg, MsgHead, RdmaDesc, Reject, RejectReason, Version,
};
use lnet_wire::{ByteOrder, Handle, Hdr, Kind};
use slotmap::SlotMap;

/// Inputs in one run: more make it slow, not better.
const STEPS: usize = 200;

const OURS: Nid = Nid::new(lnet_types::Net::new(lnet_types::NetType::O2IB, 0), 0x0a00_0001);
const THEIRS: Nid = Nid::new(lnet_types::Net::new(lnet_types::NetType::O2IB, 0), 0x0a00_0002);

/// What the shell knows, and the rest of the input.
struct Shell<'a> {
    ib: IbNi,
    now: Instant,
    rest: &'a [u8],
    conns: Vec<ConnId>,
    works: Vec<WorkId>,
    maps: Vec<MapId>,
    rxs: Vec<RxId>,
    cookies: Vec<u64>,
    ids: SlotMap<MsgId, ()>,
    out: BTreeSet<MsgId>,
    receiving: BTreeSet<MsgId>,
}

/// Any inputs; each byte chooses something.
pub fn ib_conn(input: &[u8]) {
    let Some((choice, rest)) = input.split_first() else { return };
    let config = IbConfig {
        version: if choice & 1 == 0 { Version::V12 } else { Version::V11 },
        conns_per_peer: 1 + (choice >> 1 & 1),
        legacy_status: choice & 4 != 0,
        ..IbConfig::default()
    };
    let start = NiStart { ni: NiId::default(), nid: OURS, incarnation: 1 };
    let mut shell = Shell {
        ib: IbNi::new(config, start).expect("good settings"),
        now: Instant::from_secs(1),
        rest,
        conns: Vec::new(),
        works: Vec::new(),
        maps: Vec::new(),
        rxs: Vec::new(),
        cookies: vec![0],
        ids: SlotMap::with_key(),
        out: BTreeSet::new(),
        receiving: BTreeSet::new(),
    };
    for _ in 0..STEPS {
        if shell.rest.is_empty() {
            break;
        }
        shell.step();
        shell.drain();
        if let Err(why) = shell.ib.check() {
            panic!("{why}");
        }
    }
    shell.ib.stop(shell.now);
    shell.drain();
    for _ in 0..3 {
        shell.now += Duration::from_secs(1000);
        shell.ib.handle_timeout(shell.now);
        shell.drain();
    }
    assert!(shell.ib.is_stopped(), "something is left");
    assert!(shell.out.is_empty() && shell.receiving.is_empty(), "messages without end");
    assert_eq!(shell.ib.poll_timeout(), None);
}

impl Shell<'_> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.rest.split_first().map_or((0, self.rest), |(b, rest)| (*b, rest));
        self.rest = rest;
        byte
    }

    fn number(&mut self) -> u64 {
        let kind = self.byte();
        let low = u64::from(self.byte()) << 8 | u64::from(self.byte());
        match kind % 4 {
            0 => low,
            1 => low << 24,
            2 => u64::MAX - low,
            _ => *pick(&self.cookies, kind).unwrap_or(&low),
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        bytes.to_vec()
    }

    fn conn(&mut self) -> Option<ConnId> {
        let choice = self.byte();
        pick(&self.conns, choice).copied()
    }

    fn step(&mut self) {
        let now = self.now;
        match self.byte() % 14 {
            0 => {
                let body = Body::ConnReq(self.params());
                let private =
                    if self.byte().is_multiple_of(4) { self.bytes() } else { self.message(body) };
                self.ib.connect_request(now, RequestId(1), &private);
            }
            1 | 2 => self.cm_event(),
            3 | 4 => {
                let bytes = match self.byte() % 8 {
                    0 => Err(()),
                    1 => Ok(self.bytes()),
                    _ => {
                        let body = self.body();
                        Ok(self.message(body))
                    }
                };
                if let Some(conn) = self.conn() {
                    let slot = self.byte().into();
                    self.ib.received(now, conn, slot, bytes.as_deref().map_err(|_| ()));
                }
            }
            5 | 6 => {
                let choice = self.byte();
                if let Some(&work) = pick(&self.works, choice) {
                    self.works.retain(|w| *w != work);
                    let outcome = if self.byte().is_multiple_of(8) { Err(()) } else { Ok(()) };
                    self.ib.work_done(now, work, outcome);
                }
            }
            7 => {
                let choice = self.byte();
                if let Some(&map) = pick(&self.maps, choice) {
                    self.maps.retain(|m| *m != map);
                    let bad = self.byte().is_multiple_of(8);
                    let outcome = if bad { Err(Errno::ENOMEM) } else { Ok(self.desc()) };
                    self.ib.mapped(now, map, outcome);
                }
            }
            8 => self.verdict(),
            9 | 10 => self.order(),
            11 => {
                let span = Duration::from_millis(self.number() & 0xffff);
                self.now += span;
                self.ib.handle_timeout(self.now);
            }
            12 => {
                let event = match self.byte() % 16 {
                    0 => DeviceEvent::Removed,
                    1 => DeviceEvent::CompletionQueue,
                    2 => DeviceEvent::Fatal,
                    3 => DeviceEvent::PortActive,
                    n => DeviceEvent::Rate(n.into()),
                };
                self.ib.device_event(now, event);
            }
            _ => {
                let choice = self.byte();
                let msgs: Vec<_> = self.out.iter().copied().collect();
                let Some(msg) = pick(&msgs, choice) else { return };
                if self.byte().is_multiple_of(2) {
                    // It ends with an event of its own.
                    self.ib.withdraw(now, *msg);
                } else if self.ib.recall(*msg) {
                    self.out.remove(msg);
                }
            }
        }
    }

    fn params(&mut self) -> ConnParams {
        let depth = [8, 1, 2, 0, 9][usize::from(self.byte() % 5)];
        let max_frags = [257, 1, 0, 258][usize::from(self.byte() % 4)];
        ConnParams { queue_depth: depth, max_frags, max_msg_size: MSG_MAX as u32 }
    }

    fn desc(&mut self) -> RdmaDesc {
        let frags =
            (0..=self.byte() % 4).map(|_| Frag { addr: self.number(), nob: self.number() as u32 });
        let frags = frags.collect();
        RdmaDesc { key: 7, frags }
    }

    fn hdr(&mut self) -> Hdr {
        let handle = Handle { interface: 1, object: u64::from(self.byte() % 4) };
        let kind = match self.byte() % 4 {
            0 => Kind::Put { ack: handle, match_bits: 0, hdr_data: 0, portal: 0, offset: 0 },
            1 => {
                let sink_len = self.number() as u32 & 0xf_ffff;
                Kind::Get {
                    ret: handle,
                    match_bits: 0,
                    portal: 0,
                    offset: 0,
                    sink_len,
                    pad: [0; 4],
                }
            }
            2 => Kind::Reply { dst: handle, pad: [0; 24] },
            _ => Kind::Ack { dst: handle, match_bits: 0, mlength: 0, pad: [0; 12] },
        };
        let payload_len = self.number() as u32 & 0xf_ffff;
        Hdr {
            dst: OURS,
            src: THEIRS,
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind,
        }
    }

    fn body(&mut self) -> Body {
        let done =
            |shell: &mut Self| Done { cookie: shell.number(), status: shell.number() as i32 };
        match self.byte() % 9 {
            0 => Body::Noop,
            1 => Body::Immediate(self.hdr()),
            2 => Body::PutReq { hdr: self.hdr(), cookie: self.number() },
            3 => Body::PutNak(done(self)),
            4 => Body::PutAck {
                src_cookie: self.number(),
                dst_cookie: self.number(),
                rd: self.desc(),
            },
            5 => Body::PutDone(done(self)),
            6 => Body::GetReq { hdr: self.hdr(), cookie: self.number(), rd: self.desc() },
            7 => Body::GetDone(done(self)),
            _ => Body::ConnAck(self.params()),
        }
    }

    /// A message of the peer's, with a mistake now and then.
    fn message(&mut self, body: Body) -> Vec<u8> {
        let choice = self.byte();
        let old = self.ib.config().version == Version::V11;
        let head = MsgHead {
            order: if choice & 1 == 0 { ByteOrder::Little } else { ByteOrder::Big },
            version: if old != (choice & 0xf0 == 0x10) { Version::V11 } else { Version::V12 },
            credits: if choice & 2 == 0 { 0 } else { self.byte() % 10 },
            src: THEIRS,
            src_stamp: if choice & 0xf0 == 0x20 { 3 } else { 2 },
            dst: OURS,
            dst_stamp: if choice & 0xf0 == 0x30 { 3 } else { 1 },
        };
        let mut out = vec![0; MSG_MAX];
        let payload = if matches!(body, Body::Immediate(_)) { usize::from(choice) } else { 0 };
        let len = Msg { head, body }.emit(payload, &mut out).expect("it fits");
        out.truncate(len + payload);
        out
    }

    fn cm_event(&mut self) {
        let Some(conn) = self.conn() else { return };
        let choice = self.byte();
        let private = match choice >> 6 {
            0 => self.bytes(),
            1 => {
                let why = RejectReason(self.byte() % 12);
                let depth = self.byte().into();
                let reject =
                    Reject { queue_depth: depth, max_frags: 9, ..Reject::new(why, 0x11, 2) };
                reject.to_bytes().to_vec()
            }
            _ => {
                let body = Body::ConnAck(self.params());
                self.message(body)
            }
        };
        let private = &private[..];
        let event = match choice % 16 {
            0 | 1 => CmEvent::AddrResolved,
            2 | 3 => CmEvent::RouteResolved,
            4..=8 => CmEvent::Established { private },
            9 => CmEvent::Rejected { why: CmRejection::Consumer, private },
            10 => CmEvent::Rejected { why: CmRejection::Stale, private },
            11 => CmEvent::Disconnected,
            12 => CmEvent::Unreachable,
            13 => CmEvent::DeviceRemoval,
            14 => CmEvent::AddrError,
            _ => CmEvent::TimewaitExit,
        };
        self.ib.cm_event(self.now, conn, event);
    }

    fn verdict(&mut self) {
        let choice = self.byte();
        let Some(&rx) = pick(&self.rxs, choice) else { return };
        self.rxs.retain(|r| *r != rx);
        let verdict = match self.byte() % 8 {
            0 => Verdict::Drop(DropReason::NoMatch),
            1 => Verdict::Close(PeerMisbehaved::PayloadTooLong(7)),
            2 => {
                self.rxs.push(rx);
                Verdict::Defer
            }
            n => {
                let len = self.number() as u32 & 0xf_ffff;
                let sink = if n == 3 { Sink::Bytes(len) } else { Sink::Spans(span(len)) };
                let msg = self.ids.insert(());
                self.receiving.insert(msg);
                Verdict::Deliver { msg, sink }
            }
        };
        self.ib.verdict(self.now, rx, verdict);
    }

    fn order(&mut self) {
        let mut hdr = self.hdr();
        (hdr.src, hdr.dst) = (OURS, THEIRS);
        let msg = self.ids.insert(());
        let has_payload = matches!(hdr.kind, Kind::Put { .. } | Kind::Reply { .. });
        if !has_payload {
            hdr.payload_len = 0;
        }
        let sink = match hdr.kind {
            Kind::Get { sink_len, .. } if !self.byte().is_multiple_of(4) => span(sink_len),
            _ => IoVec::new(),
        };
        let transmit = Transmit {
            msg,
            ni: NiId::default(),
            to: ProcessId::lustre(THEIRS),
            peer_ni: None,
            hdr,
            payload: Payload::Spans(span(hdr.payload_len)),
            sink,
            timeout: Duration::from_secs(u64::from(self.byte() % 64)),
            retention: None,
            repeats: false,
        };
        if self.ib.send(self.now, transmit).is_ok() {
            self.out.insert(msg);
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.ib.poll_output() {
            match output {
                Output::Cm(CmCall::Resolve { conn, .. } | CmCall::Accept { conn, .. }) => {
                    self.conns.push(conn)
                }
                Output::Cm(CmCall::Destroy { conn }) => self.conns.retain(|c| *c != conn),
                Output::Cm(_) | Output::Receive { .. } | Output::Unmap { .. } => {}
                Output::Copy { at, len, .. } | Output::Keep { at, len, .. } => {
                    assert!(at + len as usize <= MSG_MAX);
                }
                Output::Release { .. } => {}
                Output::Post(post) => {
                    let (msg, nob) =
                        Msg::parse(&padded(&post.head)).expect("what is sent is a message");
                    assert!(nob <= MSG_MAX && self.conns.contains(&post.conn));
                    match msg.body {
                        Body::PutReq { cookie, .. }
                        | Body::GetReq { cookie, .. }
                        | Body::PutAck { dst_cookie: cookie, .. } => self.cookies.push(cookie),
                        _ => {}
                    }
                    self.works.push(post.work);
                }
                Output::Map { map, .. } => self.maps.push(map),
                Output::Scatter { map, .. } => assert!(self.maps.contains(&map)),
                Output::Reopen => {
                    assert!(self.conns.is_empty(), "a device is opened under connections");
                    self.ib.reopened(self.now);
                }
                Output::Event(Event::Header { rx, .. }) => self.rxs.push(rx.id),
                Output::Event(Event::RxGone { rx }) => self.rxs.retain(|r| *r != rx),
                Output::Event(Event::TxDone { msg, .. }) => {
                    assert!(self.out.remove(&msg), "a message ends twice");
                }
                Output::Event(Event::Asked { msg } | Event::RxDone { msg, .. }) => {
                    assert!(self.receiving.remove(&msg), "a message is received twice");
                }
                // What the machine does then, an event of the device of its own shows.
                Output::Look | Output::Event(_) => {}
            }
        }
    }
}

/// A message with room behind it for the payload that it announces.
fn padded(head: &[u8]) -> Vec<u8> {
    let mut all = head.to_vec();
    all.resize(MSG_MAX, 0);
    all
}

fn span(len: u32) -> IoVec {
    let all = [Span { region: RegionId(0), len, offset: 0 }];
    all.into_iter().filter(|span| span.len > 0).collect()
}

fn pick<T>(all: &[T], choice: u8) -> Option<&T> {
    all.get(usize::from(choice) % all.len().max(1))
}

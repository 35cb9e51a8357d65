//! The TCP driver, fed by a peer that sends any bytes: cut anywhere, on a connection that it opened
//! or that we opened, with or without a good handshake before them.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::collections::BTreeMap;
use std::io::IoSlice;

use lnd_sock::{
    Accepted, ListenerId, NiStart, Origin, SockConfig, SockDriver, Source, Stop, StreamId,
    StreamOptions, Streams, Transport, Upper,
};
use lnet::{Doubt, DropReason, Payload, PeerMisbehaved, Ready, Rx, Sink, Transmit, Verdict};
use lnet_types::{
    Errno, Fault, Instant, Memory, MsgId, Net, NiId, Nid, PeerNiId, Pid, Prng, ProcessId, RegionId,
    RxId, Span,
};
use lnet_wire::acceptor::Request;
use lnet_wire::sock::{ConnType, Hello, Version};
use lnet_wire::{ByteOrder, Handle, Hdr, Kind};
use slotmap::KeyData;

const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 2));
const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 3));
/// Bytes of memory that payload may land in.
const MEM_LEN: u32 = 4096;

/// The one stream that carries the input. Others can be opened, and say nothing.
struct Script<'a> {
    bytes: &'a [u8],
    prng: Prng,
    /// Connections that wait to be accepted.
    coming: u32,
    streams: u32,
    /// The stream that the input comes on.
    speaks: u32,
}

impl Streams for Script<'_> {
    fn source(&self, token: usize) -> Option<Source> {
        match token {
            0 => Some(Source::Listener(ListenerId(0))),
            n => Some(Source::Stream(StreamId(n as u32))),
        }
    }
    fn listen(&mut self, _: SocketAddr, _: Option<&str>) -> Result<ListenerId, Errno> {
        Ok(ListenerId(0))
    }
    fn unlisten(&mut self, _: ListenerId) {}
    fn accept(&mut self, _: ListenerId, _: &StreamOptions) -> Result<Accepted, Stop> {
        self.coming = self.coming.checked_sub(1).ok_or(Stop::WouldBlock)?;
        self.streams += 1;
        let stream = StreamId(self.streams);
        Ok(Accepted { stream, local: (OWN, 988).into(), remote: (PEER, 1023).into() })
    }
    fn connect(
        &mut self,
        _: Origin<'_>,
        _: SocketAddr,
        _: &StreamOptions,
    ) -> Result<StreamId, Errno> {
        if self.streams >= 8 {
            return Err(Errno::EADDRINUSE);
        }
        self.streams += 1;
        Ok(StreamId(self.streams))
    }
    fn connected(&mut self, _: StreamId) -> Result<SocketAddr, Stop> {
        Ok((OWN, 1023).into())
    }
    fn read(
        &mut self,
        stream: StreamId,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Stop> {
        if stream.0 != self.speaks {
            return Err(Stop::WouldBlock);
        }
        let room = first.len() + second.len();
        let most = self.bytes.len().min(room);
        if most == 0 {
            return Ok(0);
        }
        let n = 1 + self.prng.below(most as u64) as usize;
        let (now, later) = self.bytes.split_at(n);
        self.bytes = later;
        let (a, b) = now.split_at(n.min(first.len()));
        first[..a.len()].copy_from_slice(a);
        second[..b.len()].copy_from_slice(b);
        Ok(n)
    }
    fn write(&mut self, _: StreamId, slices: &[IoSlice<'_>]) -> Result<usize, Stop> {
        let all: usize = slices.iter().map(|s| s.len()).sum();
        if self.prng.one_in(4) { Err(Stop::WouldBlock) } else { Ok(all) }
    }
    fn unacked(&self, _: StreamId) -> u64 {
        0
    }
    fn transport(&self, _: StreamId) -> Option<Transport> {
        None
    }
    fn take_error(&mut self, _: StreamId) -> Option<Errno> {
        None
    }
    fn buffers(&self, _: StreamId) -> (u32, u32) {
        (0, 0)
    }
    fn finish(&mut self, _: StreamId) {}
    fn close(&mut self, _: StreamId, _: bool) {}
}

/// A node's stand-in that decides by chance, and counts.
struct Upstairs {
    prng: Prng,
    next: u64,
    /// Messages that are arriving.
    arriving: BTreeMap<MsgId, ()>,
    /// Messages that are out.
    out: BTreeMap<MsgId, ()>,
    deferred: Vec<RxId>,
}

impl Upstairs {
    fn name(&mut self) -> MsgId {
        self.next += 1;
        MsgId::from(KeyData::from_ffi(1 << 32 | self.next))
    }

    fn deliver(&mut self) -> Verdict {
        let msg = self.name();
        self.arriving.insert(msg, ());
        let len = self.prng.below(u64::from(MEM_LEN)) as u32;
        let sink = if self.prng.one_in(2) {
            Sink::Bytes(len)
        } else {
            let one = Span { region: RegionId(0), len: len / 2, offset: 0 };
            Sink::Spans([one, Span { offset: 2048, ..one }].into_iter().collect())
        };
        Verdict::Deliver { msg, sink }
    }
}

impl Upper for Upstairs {
    fn rx_header(&mut self, _: Instant, rx: Rx, hdr: &Hdr) -> Verdict {
        match self.prng.below(16) {
            0 => Verdict::Close(PeerMisbehaved::WrongNid(hdr.dst)),
            1 | 2 => Verdict::Drop(DropReason::NoMatch),
            3 => {
                self.deferred.push(rx.id);
                Verdict::Defer
            }
            _ => self.deliver(),
        }
    }
    fn peer_ni(&self, _known: Option<PeerNiId>, _nid: Nid) -> Option<PeerNiId> {
        None
    }

    fn rx_done(&mut self, _: Instant, msg: MsgId, _: Result<&[u8], Fault>) {
        assert!(self.arriving.remove(&msg).is_some(), "a message was done twice");
    }
    fn rx_gone(&mut self, _: Instant, _: NiId, rx: RxId) {
        let before = self.deferred.len();
        self.deferred.retain(|other| *other != rx);
        assert!(self.deferred.len() < before, "what is gone was not there");
    }
    fn tx_done(&mut self, _: Instant, msg: MsgId, _: Result<(), Fault>) {
        assert!(self.out.remove(&msg).is_some(), "a message ended twice");
    }
    fn peer_down(&mut self, _: Instant, _: NiId, _: Nid, _: Instant) {}
    fn written_lost(&mut self, _: Instant, _: NiId, _: Nid) {}
    fn tx_in_doubt(&mut self, _: Instant, _: Vec<lnet::InDoubt>) {}
    fn rail_changed(&mut self, _: Instant, _: NiId, _: Nid, _: Doubt) {}
}

struct Mem(Vec<u8>);

impl Memory for Mem {
    fn bytes(&self, s: Span) -> &[u8] {
        &self.0[s.offset as usize..][..s.len as usize]
    }
    fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
        &mut self.0[s.offset as usize..][..s.len as usize]
    }
}

/// The peer's half of a good handshake.
fn handshake(active: bool, version: Version) -> Vec<u8> {
    let nid = |ip| Nid::from_ip(Net::TCP, ip);
    let hello = Hello {
        order: ByteOrder::Little,
        version,
        src: nid(PEER),
        dst: nid(OWN),
        src_pid: Pid::LUSTRE,
        dst_pid: Pid(0),
        src_incarnation: 1,
        dst_incarnation: 0,
        conn_type: ConnType::CONTROL,
        ips: Default::default(),
    };
    let mut bytes = vec![0; Request::LEN_MAX + Hello::LEN_MAX];
    let n = if active { 0 } else { Request::to(nid(OWN)).emit(&mut bytes).expect("it fits") };
    let m = hello.emit(&mut bytes[n..]).expect("it fits");
    bytes.truncate(n + m);
    bytes
}

/// A connection of the TCP driver. The first byte says who opens it (bit 0), whether a good handshake
/// comes first (bit 1) and in which version (bits 2 and 3), the second is the seed of cuts and
/// verdicts, the rest is what the peer sends. Nothing panics, and each message ends exactly once.
pub fn conn(input: &[u8]) {
    let [how, seed, rest @ ..] = input else { return };
    let active = how & 1 != 0;
    let version = [Version::V1, Version::V2, Version::V3, Version::V4][usize::from(how >> 2 & 3)];
    let mut bytes = if how & 2 != 0 { handshake(active, version) } else { Vec::new() };
    bytes.extend(rest);
    let mut prng = Prng::new(u64::from(*seed));
    let script = Script {
        bytes: &bytes,
        prng: prng.split(),
        coming: u32::from(!active),
        streams: 0,
        speaks: 1,
    };
    let mut driver = SockDriver::new(SockConfig::default(), script, 1);
    let mut up = Upstairs {
        prng: prng.split(),
        next: 0,
        arriving: BTreeMap::new(),
        out: BTreeMap::new(),
        deferred: Vec::new(),
    };
    let mut mem = Mem(vec![0; MEM_LEN as usize]);
    let mut now = Instant::from_secs(1);
    let ni = NiId::from(KeyData::from_ffi(1 << 32 | 1));
    let nid = Nid::from_ip(Net::TCP, OWN);
    let to = Nid::from_ip(Net::TCP, PEER);
    let start = NiStart {
        namespace: None,
        ni,
        nid,
        addr: OWN,
        interface: None,
        incarnation: 9,
        conns_per_peer: 1,
        tos: -1,
        lnd_timeout: Duration::from_secs(50),
    };
    driver.ni_start(now, start).expect("good settings");
    for round in 0..64 {
        if round % 8 == 0 {
            let msg = up.name();
            let payload = [0; 3][..].into();
            let kind = Kind::Reply { dst: Handle::NONE, pad: [0; 24] };
            let pid = Pid::LUSTRE;
            let hdr = Hdr { dst: to, src: nid, dst_pid: pid, src_pid: pid, payload_len: 3, kind };
            up.out.insert(msg, ());
            let to = ProcessId::lustre(to);
            let payload = Payload::Bytes(payload);
            let timeout = Duration::from_secs(100);
            let transmit = Transmit {
                msg,
                ni,
                to,
                peer_ni: None,
                hdr,
                payload,
                sink: lnet_types::IoVec::new(),
                timeout,
                retention: None,
                repeats: false,
            };
            if driver.send(now, &transmit).is_err() {
                up.out.remove(&msg);
            }
        }
        let ready: Vec<Ready> =
            (0..9).map(|token| Ready { token, readable: true, writable: true }).collect();
        driver.turn(now, &ready, round % 3 == 0, &mut up, &mut mem);
        driver.flush(now, &mut up, &mut mem);
        if let Some(rx) = up.deferred.pop() {
            let verdict =
                if up.prng.one_in(3) { Verdict::Drop(DropReason::NotLazy) } else { up.deliver() };
            driver.resume(now, rx, verdict, &mut up, &mut mem);
        }
        now += Duration::from_millis(prng.below(3000));
        if driver.poll_timeout().is_some_and(|at| at <= now) {
            driver.handle_timeout(now, &mut up, &mut mem);
        }
    }
    driver.ni_stop(now, ni, &mut up);
    driver.flush(now, &mut up, &mut mem);
    assert!(up.arriving.is_empty(), "messages that never ended: {:?}", up.arriving);
    assert!(up.out.is_empty(), "messages that never ended: {:?}", up.out);
    assert!(driver.connections().is_empty() && driver.peers().is_empty());
    assert_eq!(driver.poll_timeout(), None, "nothing is left to wait for");
}

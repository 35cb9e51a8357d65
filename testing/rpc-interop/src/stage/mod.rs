//! Where a recording is played: a node of ours, and a wire whose other end is the recording. In
//! virtual time (`virtual_time.rs`), or with real sockets between the two (`sockets.rs`, `peer.rs`).

mod peer;
mod sockets;
mod virtual_time;

use core::time::Duration;

use lnet::upper::{Below, Upper};
use lnet::{Event as LnetEvent, Report};
use lnet_types::{Instant, IoVec, Nid, Pid};
use lnet_wire::ping::{Features, NiStatus, PingEntry, PingInfo};
use lnet_wire::{Hdr, Kind};
use ptlrpc::{Config, Event, Ptlrpc, Rpc, Tunables};

pub(crate) use peer::Peer;
pub use sockets::Sockets;
pub use virtual_time::VirtualTime;

/// Time at which recordings begin: late enough for whatever came before.
pub const START: Instant = Instant::from_secs(100_000);

/// An import pings this long after its last request: 25 s (P-100) by the recorded kernel's timers,
/// which run late by a fortieth, and sometimes by a second more. Pings came after 25.6 and 26.6 s.
pub const PING: Duration = Duration::from_secs(26);
/// The same of the machines on which recoveries were recorded: most of what their pings come late by are
/// passes of the pinger, which ours makes as they do (P-101).
pub const PING_OF_CLIENTS: Duration = Duration::from_millis(25_300);

/// A message that our node has sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Instant,
    /// Header.
    pub hdr: Hdr,
    /// Payload.
    pub payload: Vec<u8>,
    /// It was sent to a server that was dead, or not reached.
    pub unheard: bool,
}

/// A node of ours with its wire.
pub trait Stage: Sized {
    /// A message that does not come within this time is missing.
    const PATIENCE: Duration;
    /// Whether its times are those of the recording.
    const TIMED: bool;

    /// The node that a player begins with, at this time.
    fn begin(&mut self, now: Instant);
    /// The node dies, and another one starts.
    fn restart(&mut self);
    /// The time, as recordings count it from [`START`].
    fn now(&self) -> Instant;
    /// Calls the request layer as its program.
    fn rpc<R>(&mut self, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R;
    /// Looks at the request layer.
    fn look<R>(&mut self, f: impl FnOnce(&Ptlrpc) -> R) -> R;
    /// What the request layer has reported since the last call.
    fn events(&mut self) -> Vec<Event>;
    /// What the node has sent and the caller has not taken.
    fn sent(&mut self) -> &mut Vec<Sent>;
    /// Memory of the program with these bytes.
    fn memory(&mut self, bytes: Vec<u8>) -> IoVec;
    /// A message arrives.
    ///
    /// # Errors
    /// Why LNet dropped it, where that is seen.
    fn arrive(&mut self, hdr: &Hdr, payload: &[u8]) -> Result<(), String>;
    /// Waits up to `end` or until the node has sent something.
    fn wait(&mut self, end: Instant);
    /// Lets the time up to `end` pass, in which nothing is waited for.
    fn pass(&mut self, end: Instant);
    /// Requests with this handle reach no server from now on, or do again. Only where times count.
    fn silence(&mut self, handle: u64, silent: bool);
    /// LNet finds out that it can't deliver what was sent with this handle. Only
    /// where times count.
    fn fail(&mut self, handle: u64);
}

/// The request layer with a program that keeps what it hears.
struct Party {
    ptlrpc: Ptlrpc,
    events: Vec<Event>,
}

impl Party {
    fn new(seed: u64, tunables: Tunables) -> Self {
        let wall = Duration::from_secs(1_795_000_000 + seed);
        let ptlrpc = Ptlrpc::new(Config { seed, wall, tunables });
        Self { ptlrpc, events: Vec::new() }
    }

    fn drain(&mut self, below: &mut Below<'_>) {
        while let Some(event) = self.ptlrpc.poll_event() {
            match event {
                // The program stores records of clients at once.
                Event::Joining { export, .. } => self.ptlrpc.rpc(below).admit(export, Ok(())),
                event => {
                    if let Event::Disconnected { export, .. } = event {
                        self.ptlrpc.rpc(below).left(export);
                    }
                    self.events.push(event);
                }
            }
        }
    }
}

impl Upper for Party {
    fn event(&mut self, event: &LnetEvent, below: &mut Below<'_>) {
        self.ptlrpc.event(event, below);
        self.drain(below);
    }

    fn spent(&mut self, user: u64) {
        self.ptlrpc.spent(user);
    }

    fn report(&mut self, report: &Report, below: &mut Below<'_>) {
        self.ptlrpc.report(report, below);
        self.drain(below);
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        self.ptlrpc.handle_timeout(below);
        self.drain(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ptlrpc.poll_timeout()
    }
}

/// LNet's tunables of our node. Discovery is a subject of the captures of LNet, and so are its
/// resends.
fn lnet_tunables() -> lnet::Tunables {
    let kernel = lnet::Tunables::new(lnet::Profile::Kernel);
    lnet::Tunables { discovery: 0, retry_count: 0, ..kernel }
}

/// The answer of a peer with one interface to a ping.
pub(crate) fn pong(ping: &Hdr) -> Option<(Hdr, Vec<u8>)> {
    let Kind::Get { portal: 0, ret, .. } = ping.kind else { return None };
    let entry = |nid| PingEntry { nid, status: NiStatus::UP };
    let info = PingInfo {
        features: Features::BASE | Features::NI_STATUS,
        pid: Pid::LUSTRE,
        seq: 1,
        entries: vec![entry(Nid::LOOPBACK), entry(ping.dst)],
    };
    let bytes = info.emit();
    let hdr = Hdr {
        dst: ping.src,
        src: ping.dst,
        payload_len: bytes.len() as u32,
        kind: Kind::Reply { dst: ret, pad: [0; 24] },
        ..*ping
    };
    Some((hdr, bytes))
}

/// A time of the recording as one of the node.
pub fn instant(at: Duration) -> Instant {
    START + at
}

//! A node of `lnet-rt` whose peers are recorded nodes on TCP: what it does is a matter of order here,
//! not of time. Recorded pauses are skipped; what follows from a deadline of ours is waited for.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant as Wall;

use lnet::upper::UpperId;
use lnet_rt::{Buffer, NodeBuilder, Stack, Wait};
use lnet_types::{Instant, IoVec, Nid, Span};
use lnet_wire::Hdr;
use ptlrpc::{Event, Ptlrpc, Rpc, Tunables};

use super::peer::Peer;
use super::{Party, START, Sent, Stage, lnet_tunables, pong};

/// Nothing more follows at once when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(10);
/// Our node looks after its sockets at least so often.
const GLANCE: Duration = Duration::from_millis(1);

/// A node on TCP, with its peers.
pub struct Sockets {
    nid: Nid,
    port: u16,
    tunables: Tunables,
    seed: u64,
    peers: BTreeMap<Nid, Peer>,
    stack: Option<(Stack, UpperId)>,
    /// The time is that of the recording, as it goes on while the wall's does.
    at: Instant,
    since: Wall,
    sent: Vec<Sent>,
}

fn ip(nid: Nid) -> IpAddr {
    nid.ip().expect("a NID with an address")
}

impl Sockets {
    /// A node with this NID among peers with these. All have addresses of this machine.
    pub fn new(nid: Nid, peers: &BTreeSet<Nid>, port: u16, tunables: Tunables) -> Self {
        let peer = |nid: &Nid| (*nid, Peer::listen(*nid, ip(*nid), port));
        let peers = peers.iter().filter(|peer| **peer != nid).map(peer).collect();
        let (at, since) = (START, Wall::now());
        Self { nid, port, tunables, seed: 7, peers, stack: None, at, since, sent: Vec::new() }
    }

    fn parts(&mut self) -> (&mut Stack, UpperId) {
        let (stack, upper) = self.stack.as_mut().expect("a node that has begun");
        (stack, *upper)
    }

    fn start(&mut self) {
        // The sockets of the one before are closed first.
        self.stack = None;
        let builder = NodeBuilder::new().seed(self.seed).tunables(lnet_tunables());
        let mut stack = builder.tcp(ip(self.nid), self.port).build().expect("a node");
        let party = Party::new(self.seed, self.tunables.clone());
        let upper = stack.add_upper(Box::new(party)).expect("an upper");
        self.stack = Some((stack, upper));
        self.seed += 1;
        // A ping connects; then each side can send.
        for nid in self.peers.keys().copied().collect::<Vec<_>>() {
            self.rpc(|rpc| rpc.below().discover(nid));
        }
        let end = Wall::now() + Self::PATIENCE;
        while !self.peers.values().all(Peer::is_connected) {
            assert!(Wall::now() < end, "our node connects to its peers");
            self.turn();
        }
        self.quiet();
        self.sent.clear();
    }

    /// One turn of our node and its peers. `true` if something was sent.
    fn turn(&mut self) -> bool {
        let (stack, _) = self.parts();
        stack.turn(Wait::Until(GLANCE));
        let at = self.now();
        let before = self.sent.len();
        let mut came = false;
        for peer in self.peers.values_mut() {
            for (hdr, payload) in peer.poll() {
                came = true;
                match pong(&hdr) {
                    Some((hdr, payload)) => peer.send(&hdr, &payload),
                    None => self.sent.push(Sent { at, hdr, payload, unheard: false }),
                }
            }
        }
        came || self.sent.len() > before
    }

    /// Until nothing more follows.
    fn quiet(&mut self) {
        let mut last = Wall::now();
        while last.elapsed() < QUIET {
            if self.turn() {
                last = Wall::now();
            }
        }
    }
}

impl Stage for Sockets {
    const PATIENCE: Duration = Duration::from_secs(30);
    const TIMED: bool = false;

    fn begin(&mut self, now: Instant) {
        (self.at, self.since) = (now, Wall::now());
        self.start();
    }

    fn restart(&mut self) {
        self.start();
    }

    fn now(&self) -> Instant {
        self.at + self.since.elapsed()
    }

    fn rpc<R>(&mut self, f: impl FnOnce(&mut Rpc<'_, '_>) -> R) -> R {
        let (stack, upper) = self.parts();
        let result = stack.with_upper(upper, |party: &mut Party, below| {
            let result = f(&mut party.ptlrpc.rpc(below));
            party.drain(below);
            result
        });
        self.quiet();
        result.expect("the upper")
    }

    fn look<R>(&mut self, f: impl FnOnce(&Ptlrpc) -> R) -> R {
        let (stack, upper) = self.parts();
        let result = stack.with_upper(upper, |party: &mut Party, _| f(&party.ptlrpc));
        result.expect("the upper")
    }

    fn events(&mut self) -> Vec<Event> {
        let (stack, upper) = self.parts();
        let take =
            |party: &mut Party, _: &mut lnet::upper::Below<'_>| core::mem::take(&mut party.events);
        stack.with_upper(upper, take).expect("the upper")
    }

    fn sent(&mut self) -> &mut Vec<Sent> {
        &mut self.sent
    }

    fn memory(&mut self, bytes: Vec<u8>) -> IoVec {
        let len = bytes.len() as u32;
        let (stack, _) = self.parts();
        let Ok(region) = stack.lend(Buffer::from(bytes)) else { panic!("no room for a region") };
        IoVec::from([Span { region, len, offset: 0 }])
    }

    fn arrive(&mut self, hdr: &Hdr, payload: &[u8]) -> Result<(), String> {
        let peer = self.peers.get_mut(&hdr.src).ok_or("no such peer")?;
        peer.send(hdr, payload);
        self.quiet();
        Ok(())
    }

    fn wait(&mut self, end: Instant) {
        while self.sent.is_empty() && self.now() < end {
            self.turn();
        }
        self.quiet();
    }

    fn pass(&mut self, end: Instant) {
        self.quiet();
        let now = self.now();
        if end > now {
            (self.at, self.since) = (end, Wall::now());
        }
    }

    fn silence(&mut self, _: u64, _: bool) {}

    fn fail(&mut self, _: u64) {}
}

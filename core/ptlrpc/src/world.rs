//! A node with its loopback driver, the protocols on it, and a clock that a test moves: what tests of
//! this crate and of those above run in. Behind the feature `world`; no program has it.

use core::time::Duration;

use lnet::upper::{Arena, Below, Upper, UpperId, Uppers};
use lnet::{Driver, Loopback, Node, NodeConfig, Output, Transmit};
use lnet_types::{Errno, Fault, HealthStatus, Instant, IoVec, Memory, RegionId, Span};

/// Memory of a node.
#[derive(Debug, Default)]
pub struct Heap {
    regions: Vec<Vec<u8>>,
    held: i64,
}

impl Heap {
    /// Memory of a program with these bytes.
    pub fn memory(&mut self, bytes: Vec<u8>) -> IoVec {
        let len = bytes.len() as u32;
        self.regions.push(bytes);
        IoVec::from([Span { region: RegionId(self.regions.len() as u32 - 1), len, offset: 0 }])
    }
}

impl Memory for Heap {
    fn bytes(&self, span: Span) -> &[u8] {
        &self.regions[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }

    fn bytes_mut(&mut self, span: Span) -> &mut [u8] {
        &mut self.regions[span.region.0 as usize][span.offset as usize..][..span.len as usize]
    }
}

impl Arena for Heap {
    fn register(&mut self, len: u32) -> Result<RegionId, Errno> {
        self.regions.push(vec![0; len as usize]);
        Ok(RegionId(self.regions.len() as u32 - 1))
    }

    fn unregister(&mut self, region: RegionId) {
        self.regions[region.0 as usize] = Vec::new();
    }

    fn contains(&self, spans: &[Span]) -> bool {
        let has = |s: &Span| self.regions.get(s.region.0 as usize).map_or(0, Vec::len) as u64;
        spans.iter().all(|s| s.offset + u64::from(s.len) <= has(s))
    }

    fn hold(&mut self, spans: &[Span]) {
        self.held += spans.len() as i64;
    }

    fn release(&mut self, spans: &[Span]) {
        self.held -= spans.len() as i64;
    }
}

/// What a driver says to a message that it refuses. No health follows, so LNet does not try again.
const REFUSED: Fault = Fault::new(HealthStatus::Ok, Errno::EIO);

/// Whether a message gets lost.
pub type Loss = Box<dyn FnMut(&Transmit) -> bool>;

/// The node, what is on it, and its time.
pub struct World {
    /// The node.
    pub node: Node,
    lo: Loopback,
    /// Its memory.
    pub heap: Heap,
    uppers: Uppers,
    /// The time.
    pub now: Instant,
    /// Which messages get lost.
    pub loses: Option<Loss>,
    /// Which messages the driver refuses.
    pub refuses: Option<Loss>,
    /// Messages that have left.
    pub sent: u64,
}

impl Default for World {
    fn default() -> Self {
        let config = NodeConfig {
            seed: 1,
            interface_cookie: 1,
            ping_seq: 0,
            tunables: lnet::Tunables::default(),
        };
        let now = Instant::from_secs(1000);
        Self {
            node: Node::new(config, now),
            lo: Loopback::new(),
            heap: Heap::default(),
            uppers: Uppers::default(),
            now,
            loses: None,
            refuses: None,
            sent: 0,
        }
    }
}

impl World {
    /// Puts a protocol on the node.
    ///
    /// # Panics
    /// There are as many as a node may have.
    pub fn add(&mut self, upper: Box<dyn Upper>) -> UpperId {
        self.uppers.add(upper).expect("a node has room for the protocols of a test")
    }

    /// A protocol's process dies.
    ///
    /// # Panics
    /// There is none of this name.
    pub fn kill(&mut self, upper: UpperId) -> Box<dyn Upper> {
        let removed = self.uppers.remove(upper, self.now, &mut self.node);
        self.settle();
        removed.expect("a protocol that was added")
    }

    /// Calls a protocol.
    ///
    /// # Panics
    /// There is none of this name and type.
    pub fn with<T: Upper, R>(
        &mut self,
        id: UpperId,
        f: impl FnOnce(&mut T, &mut Below<'_>) -> R,
    ) -> R {
        let Self { node, heap, uppers, now, .. } = self;
        uppers.with(id, *now, node, heap, f).expect("a protocol of this type")
    }

    /// Until nothing happens without time.
    pub fn settle(&mut self) {
        let Self { node, lo, heap, uppers, now, loses, refuses, sent } = self;
        loop {
            let mut more = false;
            while let Some(mut event) = node.poll_event() {
                uppers.event(*now, &mut event, node, heap);
                more = true;
            }
            while let Some(output) = node.poll_output() {
                let transmit = match output {
                    Output::Send(transmit) => transmit,
                    // It has waited for a buffer of a lazy portal.
                    Output::Resume { rx, verdict, .. } => {
                        lo.resume(*now, rx, verdict, node, heap);
                        more = true;
                        continue;
                    }
                    _ => continue,
                };
                *sent += 1;
                let msg = transmit.msg;
                if loses.as_mut().is_some_and(|loses| loses(&transmit)) {
                    // It left, and never arrived.
                    node.tx_done(*now, msg, Ok(()));
                } else if refuses.as_mut().is_some_and(|refuses| refuses(&transmit)) {
                    node.tx_refused(*now, msg, REFUSED);
                } else if let Err(fault) = lo.send(*now, &transmit, heap) {
                    node.tx_refused(*now, msg, fault);
                }
                more = true;
            }
            lo.flush(*now, node, heap);
            if !more {
                return;
            }
        }
    }

    /// Lets `span` of time pass.
    pub fn pass(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.settle();
            let due = [self.node.poll_timeout(), self.uppers.poll_timeout()];
            let Some(next) = due.into_iter().flatten().min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = next.max(self.now);
            self.node.handle_timeout(self.now);
            self.uppers.handle_timeout(self.now, &mut self.node, &mut self.heap);
        }
    }

    /// Lets seconds pass.
    pub fn secs(&mut self, secs: u64) {
        self.pass(Duration::from_secs(secs));
    }

    /// The host does not run for so long, then does everything that is due.
    pub fn sleep(&mut self, span: Duration) {
        self.now += span;
        self.node.handle_timeout(self.now);
        self.uppers.handle_timeout(self.now, &mut self.node, &mut self.heap);
        self.settle();
    }
}

//! A network of two: a driver that hands messages over to its twin in another stack, on any thread,
//! and does to them what a test asks for.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use lnet::{
    Driver, NI_STOPPED, NetTunables, NiSpec, Node, Payload, Ready, Rx, Sink, Transmit, Verdict,
};
use lnet_rt::{NodeBuilder, NodeHandle, Spin, Stack};
use lnet_types::{Errno, Fault, HealthStatus, Instant, Memory, NiId, Nid, Pid, RxId, Span};
use lnet_wire::Hdr;
use mio::net::UnixStream;
use mio::{Interest, Token};

pub(crate) fn nid(n: u32) -> Nid {
    format!("10.0.0.{n}@tcp").parse().unwrap()
}

/// What happens on the way from one side; shared with the test.
#[derive(Default)]
pub(crate) struct Weather {
    /// Messages leave and never arrive.
    pub(crate) lost: AtomicBool,
    /// The driver refuses one message in so many; 0 refuses none.
    pub(crate) refuse_one_in: AtomicU64,
    /// Transmission fails for one message in so many; 0 for none.
    pub(crate) fail_one_in: AtomicU64,
    sent: AtomicU64,
}

impl Weather {
    fn strikes(&self, one_in: &AtomicU64) -> bool {
        match one_in.load(Relaxed) {
            0 => false,
            n => self.sent.fetch_add(1, Relaxed) % n == n - 1,
        }
    }
}

type Pipe = Arc<Mutex<VecDeque<(Hdr, Vec<u8>)>>>;

/// One end.
pub(crate) struct Wire {
    peer: Nid,
    ni: Arc<OnceLock<NiId>>,
    stopped: bool,
    weather: Arc<Weather>,
    outgoing: Vec<Transmit>,
    tx: Pipe,
    rx: Pipe,
    bell: UnixStream,
    deferred: Vec<(RxId, Vec<u8>)>,
}

impl Wire {
    fn deliver(
        &mut self,
        now: Instant,
        id: RxId,
        bytes: Vec<u8>,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        match verdict {
            Verdict::Deliver { msg, sink: Sink::Bytes(max) } => {
                let n = bytes.len().min(max as usize);
                node.rx_done(now, msg, Ok(&bytes[..n]));
            }
            Verdict::Deliver { msg, sink: Sink::Spans(iov) } => {
                let mut rest = bytes.as_slice();
                for span in iov {
                    let (here, later) = rest.split_at(rest.len().min(span.len as usize));
                    mem.bytes_mut(Span { len: here.len() as u32, ..span }).copy_from_slice(here);
                    rest = later;
                }
                node.rx_done(now, msg, Ok(&[]));
            }
            Verdict::Defer => self.deferred.push((id, bytes)),
            Verdict::Drop(_) => {}
            Verdict::Close(sin) => panic!("peer misbehaved: {sin}"),
        }
    }
}

impl Driver for Wire {
    fn turn(
        &mut self,
        now: Instant,
        _ready: &[Ready],
        _spin: bool,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        let mut rung = [0; 64];
        while matches!(self.bell.read(&mut rung), Ok(n) if n > 0) {}
        loop {
            let Some((hdr, bytes)) = self.rx.lock().unwrap().pop_front() else { return };
            let Some(&ni) = self.ni.get().filter(|_| !self.stopped) else { continue };
            // A connection's, which is used again when it has nothing in hand.
            let taken = |id: &RxId| self.deferred.iter().any(|(rx, _)| rx == id);
            let id = (0..).map(RxId).find(|id| !taken(id)).unwrap();
            let rx = Rx { ni, from: self.peer, from_pid: Pid::LUSTRE, peer_ni: None, id };
            let verdict = node.rx_header(now, rx, &hdr);
            self.deliver(now, id, bytes, verdict, node, mem);
        }
    }

    fn send(&mut self, _: Instant, transmit: &Transmit, _: &dyn Memory) -> Result<(), Fault> {
        if self.weather.strikes(&self.weather.refuse_one_in) {
            return Err(Fault::new(HealthStatus::LocalNoRoute, Errno::EHOSTUNREACH));
        }
        self.outgoing.push(transmit.clone());
        Ok(())
    }

    fn resume(
        &mut self,
        now: Instant,
        id: RxId,
        verdict: Verdict,
        node: &mut Node,
        mem: &mut dyn Memory,
    ) {
        if let Some(at) = self.deferred.iter().position(|(rx, _)| *rx == id) {
            let (_, bytes) = self.deferred.remove(at);
            self.deliver(now, id, bytes, verdict, node, mem);
        }
    }

    fn flush(&mut self, now: Instant, node: &mut Node, mem: &mut dyn Memory) {
        for t in core::mem::take(&mut self.outgoing) {
            if self.weather.strikes(&self.weather.fail_one_in) {
                let fault = Fault::new(HealthStatus::LocalError, Errno::ECONNRESET);
                node.tx_done(now, t.msg, Err(fault));
                continue;
            }
            let mut bytes = Vec::new();
            match &t.payload {
                Payload::Spans(iov) => {
                    iov.iter().for_each(|s| bytes.extend_from_slice(mem.bytes(*s)));
                }
                Payload::Bytes(b) => bytes.extend_from_slice(b),
            }
            if !self.weather.lost.load(Relaxed) {
                self.tx.lock().unwrap().push_back((t.hdr, bytes));
                // A full socket has rung already.
                let _ = self.bell.write(&[1]);
            }
            node.tx_done(now, t.msg, Ok(()));
        }
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut Node, _: &mut dyn Memory) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn ni_stop(&mut self, now: Instant, ni: NiId, node: &mut Node, _: &mut dyn Memory) {
        for t in self.outgoing.drain(..) {
            node.tx_done(now, t.msg, Err(NI_STOPPED));
        }
        for (id, _) in self.deferred.drain(..) {
            node.rx_gone(now, ni, id);
        }
        self.stopped = true;
    }

    fn lnd_timeout(&self, _: NiId) -> Option<Duration> {
        None
    }
}

/// Two stacks with one wire between them: `10.0.0.1@tcp` and `10.0.0.2@tcp`.
pub(crate) fn stacks() -> [(Stack, Arc<Weather>); 2] {
    let (a, b) = UnixStream::pair().unwrap();
    let (ab, ba) = (Pipe::default(), Pipe::default());
    let ends = [(1, a, ab.clone(), ba.clone()), (2, b, ba, ab)];
    ends.map(|(n, mut bell, tx, rx)| {
        let weather = Arc::new(Weather::default());
        let mut stack = NodeBuilder::new().seed(u64::from(n)).build().unwrap();
        let shared = Arc::clone(&weather);
        let ni = Arc::new(OnceLock::new());
        let ni_of_driver = Arc::clone(&ni);
        let driver = stack
            .add_driver(|registry, tokens| {
                let interest = Interest::READABLE | Interest::WRITABLE;
                registry.register(&mut bell, Token(tokens.start), interest)?;
                Ok(Box::new(Wire {
                    peer: nid(3 - n),
                    ni: ni_of_driver,
                    stopped: false,
                    weather: shared,
                    outgoing: Vec::new(),
                    tx,
                    rx,
                    bell,
                    deferred: Vec::new(),
                }))
            })
            .unwrap();
        let spec =
            NiSpec { nid: nid(n), interface: None, tunables: NetTunables::SOCK, lnd_timeout: None };
        ni.set(stack.add_ni(driver, spec).unwrap()).unwrap();
        (stack, weather)
    })
}

/// The same, each on its own thread.
pub(crate) fn nodes() -> [(NodeHandle, Arc<Weather>); 2] {
    stacks().map(|(stack, weather)| (stack.spawn("node", Spin::default()).unwrap(), weather))
}

/// Runs a future on this thread, with nothing of the crate under test.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Operations, attachments and regions that the node still has in hand.
pub(crate) fn left(handle: &NodeHandle) -> (usize, usize) {
    handle.call(|stack, _| stack.in_use()).blocking().unwrap()
}

/// Waits until nothing is in hand any more.
pub(crate) fn settles(handle: &NodeHandle) {
    while left(handle) != (0, 0) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

//! Runs the selftest machine (`lnet-selftest`) on a node's thread: carries out its actions as PUTs,
//! GETs and posted buffers, and tells it how they ended.
//!
//! Everything happens inside the handlers of descriptors, so an answer needs no second thread. Only
//! time-outs have one, which sleeps while there is no session. Memory is in `selftest/pool.rs`.

mod pool;

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lnet_rt::{
    Errno, Event, EventKind, Get, Instant, IoVec, MatchEntry, MdId, MdOptions, MdSpec, MemoryError,
    Nid, NodeHandle, OpError, ProcessId, Put, Span, Stack, Unlink,
};
use lnet_selftest::{
    Action, Answer, Command, CommandId, Done, Here, LnetCounters, Offered, Selftest as Machine,
    Settings, Sink, Token, Wanted,
};
use lnet_wire::selftest::{LEN, PORTAL_FRAMEWORK, PORTAL_REPLY, PORTAL_TEST, Service};

use pool::{Piece, Pool};

/// The ticker looks at least so often while anything is under way.
const TICK: Duration = Duration::from_secs(1);
/// And not more often than this.
const TICK_MIN: Duration = Duration::from_millis(5);

/// LNet selftest on a node: the responder, and a console that obeys [`Selftest::command`].
///
/// It ends when this is dropped, or with the node.
#[derive(Debug)]
pub struct Selftest {
    shared: Arc<Shared>,
    handle: NodeHandle,
}

#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// The ticker is wanted earlier than it has planned.
    earlier: Condvar,
}

#[derive(Debug)]
struct Inner {
    machine: Machine,
    /// Descriptors of actions in hand.
    open: BTreeMap<Token, MdId>,
    pool: Pool,
    listening: BTreeMap<Service, Listening>,
    waiting: BTreeMap<CommandId, Sender<Result<Answer, Errno>>>,
    next_command: u64,
    /// When the ticker comes next.
    planned: Option<Instant>,
    ending: bool,
}

/// Buffers for requests of a service.
#[derive(Debug, Default)]
struct Listening {
    wanted: u32,
    posted: BTreeMap<u64, MdId>,
    next: u64,
}

/// What an action's descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Put,
    Get,
    Source,
    Sink,
}

impl Selftest {
    /// Starts it on a node.
    ///
    /// # Errors
    /// The node has stopped, memory for the pattern could not be registered, or the system refused
    /// a thread.
    pub fn start(handle: &NodeHandle, settings: Settings) -> Result<Self, OpError> {
        let (shared, observer) = handle
            .call(move |stack, now| {
                let shared = Shared::new(stack, now, settings)?;
                Ok::<_, OpError>((shared, stack.handle()))
            })
            .blocking()??;
        let ticker = Arc::clone(&shared);
        thread::Builder::new()
            .name("selftest-tick".to_owned())
            .spawn(move || tick(&ticker, &observer))
            .map_err(|e| OpError::Failed(Errno(e.raw_os_error().unwrap_or(Errno::EAGAIN.0))))?;
        Ok(Self { shared, handle: handle.clone() })
    }

    /// Gives the console a command in the name of the holder of `key`, and waits for its answer.
    ///
    /// # Errors
    /// The console's refusal; ETIMEDOUT after `limit`; the node has stopped.
    pub fn command(&self, key: u32, command: Command, limit: Duration) -> Result<Answer, Errno> {
        let (tx, rx) = channel();
        let shared = Arc::clone(&self.shared);
        let given = self.handle.call(move |stack, now| {
            let mut inner = shared.lock();
            let id = CommandId(inner.next_command);
            inner.next_command += 1;
            inner.waiting.insert(id, tx);
            let here = Here { nid: own_nid(stack), stamp_ms: millis() };
            inner.machine.command(now, here, id, key, command);
            shared.pump(&mut inner, stack, now);
            id
        });
        let id = given.blocking().map_err(|e| e.errno())?;
        match rx.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                let mut inner = self.shared.lock();
                inner.waiting.remove(&id);
                inner.machine.forget(id);
                Err(Errno::ETIMEDOUT)
            }
            Err(RecvTimeoutError::Disconnected) => Err(Errno::ESHUTDOWN),
        }
    }

    /// Ends sessions and waits, at most for `grace`, until others know.
    pub fn stop(&self, grace: Duration) {
        let shared = Arc::clone(&self.shared);
        let stopped = self.handle.call(move |stack, now| {
            let mut inner = shared.lock();
            inner.machine.stop(now);
            shared.pump(&mut inner, stack, now);
        });
        if stopped.blocking().is_err() {
            return;
        }
        let deadline = std::time::Instant::now() + grace;
        while !self.shared.lock().machine.is_idle() && std::time::Instant::now() < deadline {
            thread::sleep(TICK_MIN);
        }
        // Commands that still wait get no answer any more.
        self.shared.lock().waiting.clear();
    }
}

impl Drop for Selftest {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.earlier.notify_all();
        let shared = Arc::clone(&self.shared);
        // A node that has stopped has nothing of ours any more.
        drop(self.handle.call(move |stack, now| shared.close(stack, now)));
    }
}

/// Runs time-outs until the end.
fn tick(shared: &Arc<Shared>, handle: &NodeHandle) {
    let mut wait = Duration::ZERO;
    loop {
        {
            let mut inner = shared.lock();
            if wait.is_zero() && !inner.ending {
                // Nothing is planned: until something is.
                inner = shared
                    .earlier
                    .wait_while(inner, |i| !i.ending && i.machine.poll_timeout().is_none())
                    .unwrap_or_else(PoisonError::into_inner);
            } else if !inner.ending {
                (inner, _) = shared
                    .earlier
                    .wait_timeout(inner, wait)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if inner.ending {
                return;
            }
        }
        let ticked = Arc::clone(shared);
        let next = handle.call(move |stack, now| ticked.tick(stack, now)).blocking();
        match next {
            Ok(Some(next)) => wait = next.clamp(TICK_MIN, TICK),
            Ok(None) => wait = Duration::ZERO,
            // The node has stopped; too much to do is a reason to wait.
            Err(OpError::Busy(_)) => wait = TICK,
            Err(_) => return,
        }
    }
}

fn millis() -> i64 {
    // A clock before 1970 is a machine without a clock.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The first NID that a session can be named by.
fn own_nid(stack: &Stack) -> Option<Nid> {
    let nets = stack.node().net_views();
    let nids = nets.iter().flat_map(|net| net.nis.iter().map(|ni| ni.nid));
    nids.into_iter().find(|nid| !nid.is_loopback() && !nid.is_large())
}

fn counters(stack: &Stack) -> LnetCounters {
    let s = stack.node().stats();
    LnetCounters {
        msgs_alloc: s.msgs_alloc,
        msgs_max: s.msgs_max,
        errors: s.errors,
        send_count: s.send_count,
        recv_count: s.recv_count,
        route_count: s.route_count,
        drop_count: s.drop_count,
        send_length: s.send_length,
        recv_length: s.recv_length,
        route_length: s.route_length,
        drop_length: s.drop_length,
    }
}

fn errno(e: &MemoryError) -> Errno {
    match e {
        MemoryError::Attach(e) => e.errno(),
        _ => Errno::ENOMEM,
    }
}

impl Shared {
    fn new(stack: &mut Stack, now: Instant, settings: Settings) -> Result<Arc<Self>, OpError> {
        for portal in [PORTAL_FRAMEWORK, PORTAL_TEST] {
            stack.node_mut().set_lazy(now, portal, true)?;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = since.saturating_sub(Duration::from_nanos(now.as_nanos()));
        let inner = Inner {
            machine: Machine::new(settings, epoch),
            open: BTreeMap::new(),
            pool: Pool::new(stack).map_err(|failed| failed.error)?,
            listening: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next_command: 1,
            planned: None,
            ending: false,
        };
        let shared = Arc::new(Self { inner: Mutex::new(inner), earlier: Condvar::new() });
        shared.pump(&mut shared.lock(), stack, now);
        Ok(shared)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // What a panic left half-done is at worst a test that does not end.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs time-outs; gives how long there is nothing to do.
    fn tick(self: &Arc<Self>, stack: &mut Stack, now: Instant) -> Option<Duration> {
        let mut inner = self.lock();
        if inner.machine.poll_timeout().is_some_and(|at| at <= now) {
            inner.machine.handle_timeout(now);
            self.pump(&mut inner, stack, now);
        }
        if inner.machine.is_idle() {
            inner.pool.shrink(stack);
        }
        inner.planned = inner.machine.poll_timeout();
        inner.planned.map(|at| at.saturating_since(now))
    }

    /// Takes everything away from the node.
    fn close(&self, stack: &mut Stack, now: Instant) {
        let mut inner = self.lock();
        inner.machine.stop(now);
        inner.waiting.clear();
        for portal in [PORTAL_FRAMEWORK, PORTAL_TEST] {
            // There are such portals.
            let _ = stack.node_mut().set_lazy(now, portal, false);
        }
        let posted = core::mem::take(&mut inner.listening);
        let open = core::mem::take(&mut inner.open);
        drop(inner);
        let posted = posted.into_values().flat_map(|l| l.posted.into_values());
        for md in posted.chain(open.into_values()) {
            // The end of a piece that is gone is already reported.
            let _ = stack.unlink(md);
        }
    }

    /// Carries out what the machine wants, until it wants nothing more.
    fn pump(self: &Arc<Self>, inner: &mut Inner, stack: &mut Stack, now: Instant) {
        while let Some(action) = inner.machine.poll_action() {
            if inner.ending {
                continue;
            }
            if let Err((token, errno)) = self.carry_out(inner, stack, action) {
                let failed = Done { status: Err(errno), len: 0, bytes: &[] };
                inner.machine.done(now, token, failed);
            }
        }
        while let Some((id, answer)) = inner.machine.poll_answer() {
            if let Some(waiter) = inner.waiting.remove(&id) {
                // The waiter may be gone.
                let _ = waiter.send(answer);
            }
        }
        let next = inner.machine.poll_timeout();
        if next.is_some_and(|next| inner.planned.is_none_or(|planned| next < planned)) {
            inner.planned = next;
            self.earlier.notify_all();
        }
    }

    fn carry_out(
        self: &Arc<Self>,
        inner: &mut Inner,
        stack: &mut Stack,
        action: Action,
    ) -> Result<(), (Token, Errno)> {
        match action {
            Action::Listen { service, buffers } => {
                inner.listening.entry(service).or_default().wanted = buffers;
                self.listen(inner, stack, service);
                Ok(())
            }
            Action::Withdraw { token } => {
                if let Some(md) = inner.open.remove(&token) {
                    // Its memory is free with its last event.
                    let _ = stack.unlink(md);
                }
                Ok(())
            }
            Action::Put { token, from, to, portal, match_bits, data } => {
                let piece = inner.pool.source(stack, &data).map_err(|e| (token, e))?;
                let spec = MdSpec { threshold: Some(1), ..spec(piece.span) };
                let md = self.bind(inner, stack, token, Use::Put, piece, spec)?;
                let put = Put {
                    md,
                    ack: false,
                    src: source(stack, from, to),
                    target: to,
                    portal,
                    match_bits,
                    offset: 0,
                    hdr_data: 0,
                    timeout: None,
                };
                let begun = stack.put(put).map_err(|e| e.errno());
                self.begun(inner, stack, token, md, begun)
            }
            Action::Get { token, from, to, match_bits, sink } => {
                let piece = inner.pool.sink(stack, &sink).map_err(|e| (token, e))?;
                let spec = MdSpec { threshold: Some(2), ..spec(piece.span) };
                let md = self.bind(inner, stack, token, Use::Get, piece, spec)?;
                let get = Get {
                    md,
                    src: source(stack, from, to),
                    target: to,
                    portal: PORTAL_REPLY,
                    match_bits,
                    offset: 0,
                    timeout: None,
                };
                let begun = stack.get(get).map_err(|e| e.errno());
                self.begun(inner, stack, token, md, begun)
            }
            Action::Offer { token, peer, match_bits, buffer } => {
                let (piece, options, how) = match &buffer {
                    Offered::Source(data) => {
                        (inner.pool.source(stack, data), MdOptions::OP_GET, Use::Source)
                    }
                    Offered::Sink(sink) => {
                        (inner.pool.sink(stack, sink), MdOptions::OP_PUT, Use::Sink)
                    }
                };
                let piece = piece.map_err(|e| (token, e))?;
                // A GET may ask for less than there is, a PUT must not bring more.
                let spec = MdSpec { threshold: Some(1), options, ..spec(piece.span) };
                let me = MatchEntry { from: peer, ..MatchEntry::bits(match_bits) };
                let handler = self.handler(token, how, piece);
                match stack.attach_handler(PORTAL_REPLY, me, spec, handler) {
                    Ok(md) => {
                        inner.open.insert(token, md);
                        Ok(())
                    }
                    Err(e) => {
                        inner.pool.give(piece);
                        Err((token, errno(&e)))
                    }
                }
            }
        }
    }

    fn bind(
        self: &Arc<Self>,
        inner: &mut Inner,
        stack: &mut Stack,
        token: Token,
        how: Use,
        piece: Piece,
        spec: MdSpec,
    ) -> Result<MdId, (Token, Errno)> {
        match stack.bind_handler(spec, self.handler(token, how, piece)) {
            Ok(md) => {
                inner.open.insert(token, md);
                Ok(md)
            }
            Err(e) => {
                inner.pool.give(piece);
                Err((token, errno(&e)))
            }
        }
    }

    /// An operation that could not be begun is over; its descriptor goes.
    fn begun(
        &self,
        inner: &mut Inner,
        stack: &mut Stack,
        token: Token,
        md: MdId,
        begun: Result<(), Errno>,
    ) -> Result<(), (Token, Errno)> {
        begun.map_err(|errno| {
            inner.open.remove(&token);
            let _ = stack.unlink(md);
            (token, errno)
        })
    }

    /// What happens with the events of an action.
    fn handler(
        self: &Arc<Self>,
        token: Token,
        how: Use,
        piece: Piece,
    ) -> impl FnMut(&mut Stack, &Event) + Send + 'static {
        let shared = Arc::clone(self);
        move |stack, event| {
            let now = stack.tick();
            let inner = &mut *shared.lock();
            let ends = match event.kind {
                EventKind::Send => how == Use::Put || event.status.is_err(),
                EventKind::Reply | EventKind::Get | EventKind::Put => true,
                EventKind::Ack | EventKind::Unlink => false,
            };
            if ends && inner.open.remove(&token).is_some() {
                let bytes = if matches!(how, Use::Get | Use::Sink) && piece.wanted {
                    let len = event.mlength.min(piece.span.len);
                    stack.bytes(Span { len, ..piece.span })
                } else {
                    &[]
                };
                let done = Done { status: event.status, len: event.mlength, bytes };
                inner.machine.done(now, token, done);
                if !event.unlinked {
                    let _ = stack.unlink(event.md);
                }
            }
            if event.unlinked {
                inner.pool.give(piece);
            }
            shared.pump(inner, stack, now);
        }
    }

    /// Posts as many buffers for requests as are wanted, or takes away those that are too many.
    fn listen(self: &Arc<Self>, inner: &mut Inner, stack: &mut Stack, service: Service) {
        let Some(listening) = inner.listening.get_mut(&service) else { return };
        while listening.posted.len() > listening.wanted as usize {
            if let Some((_, md)) = listening.posted.pop_last() {
                let _ = stack.unlink(md);
            }
        }
        while listening.posted.len() < listening.wanted as usize {
            let sink = Sink { len: LEN as u32, wanted: Wanted::Edges };
            let Ok(piece) = inner.pool.sink(stack, &sink) else { return };
            let number = listening.next;
            listening.next += 1;
            let spec =
                MdSpec { threshold: Some(1), options: MdOptions::OP_PUT, ..spec(piece.span) };
            let me = MatchEntry::bits(service.id());
            let handler = self.listener(service, number, piece);
            match stack.attach_handler(service.portal(), me, spec, handler) {
                Ok(md) => _ = listening.posted.insert(number, md),
                Err(e) => {
                    tracing::warn!(%service, "selftest: buffers for requests: {e}");
                    inner.pool.give(piece);
                    return;
                }
            }
        }
    }

    /// What happens when a request arrives.
    fn listener(
        self: &Arc<Self>,
        service: Service,
        number: u64,
        piece: Piece,
    ) -> impl FnMut(&mut Stack, &Event) + Send + 'static {
        let shared = Arc::clone(self);
        move |stack, event| {
            let now = stack.tick();
            let inner = &mut *shared.lock();
            if event.kind == EventKind::Put && event.status.is_ok() {
                let len = event.mlength.min(piece.span.len);
                let lnet = counters(stack);
                let bytes = stack.bytes(Span { len, ..piece.span });
                let (who, at): (ProcessId, Nid) = (event.source, event.target.nid);
                inner.machine.request(now, service, who, at, bytes, &lnet);
            }
            if event.unlinked {
                inner.pool.give(piece);
                if let Some(listening) = inner.listening.get_mut(&service) {
                    listening.posted.remove(&number);
                    shared.listen(inner, stack, service);
                }
            }
            shared.pump(inner, stack, now);
        }
    }
}

/// A descriptor over `span` that goes away when it has been used.
/// The interface that a message of `from` is bound to: the one that its request came to, unless a silent
/// rail would hold it up.
fn source(stack: &Stack, from: Option<Nid>, to: ProcessId) -> Option<Nid> {
    from.filter(|from| !stack.node().may_answer_by_any(*from, to.nid))
}

fn spec(span: Span) -> MdSpec {
    MdSpec { unlink: Unlink::Auto, ..MdSpec::new(IoVec::from([span]), 0) }
}

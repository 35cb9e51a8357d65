//! The machine on a node: an [`Upper`] that carries out its actions as PUTs, GETs and posted buffers,
//! and reports how they ended. Everything happens in the turn of the node that it stands on. Memory is
//! in `pool.rs`.
//!
//! ```text
//!   Runner::command ─► Selftest ─► Action ─► Below: attach, bind, put, get, unlink
//!                         ▲                                   │
//!                         ╰──── request, done ◄──── event ◄───╯
//! ```

mod pool;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lnet::upper::{Below, BelowError, Upper};
use lnet::{Event, EventKind, Get, MatchEntry, MdOptions, MdSpec, Node, Put, Report, Unlink};
use lnet_types::{Errno, Instant, IoVec, MdId, Nid, ProcessId, Span};
use lnet_wire::selftest::{LEN, PORTAL_FRAMEWORK, PORTAL_REPLY, PORTAL_TEST, Service};

use crate::{
    Action, Answer, Command, CommandId, Done, Here, LnetCounters, Offered, Selftest, Settings,
    Sink, Token, Wanted,
};

use pool::{Piece, Pool, give};

/// Marks user words of buffers for requests; those of actions are their tokens.
const REQUESTS: u64 = 1 << 52;
/// Buffers for requests that the node refused are posted again after this.
const POST_AGAIN: Duration = Duration::from_secs(1);

/// Selftest on a node: the responder, and a console that obeys [`Runner::command`].
#[derive(Debug)]
pub struct Runner {
    machine: Selftest,
    /// Descriptors by user word, until their last event.
    open: BTreeMap<u64, Open>,
    pool: Pool,
    listening: BTreeMap<Service, Listening>,
    next_buffer: u64,
    /// When to begin, or to post what was refused.
    again: Option<Instant>,
    /// Whether memory may be left from a session.
    used: bool,
}

/// A descriptor.
#[derive(Debug)]
struct Open {
    md: MdId,
    what: Use,
    piece: Piece,
    /// Whether its action is in hand, or its buffer waits for a request.
    live: bool,
}

/// What a descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Put,
    Get,
    Source,
    Sink,
    Request(Service),
}

/// Buffers for requests of a service.
#[derive(Debug, Default)]
struct Listening {
    wanted: u32,
    posted: BTreeSet<u64>,
}

impl Runner {
    /// Selftest for a node. `epoch` is the time since 1970 at instant zero, as for [`Selftest::new`].
    pub fn new(settings: Settings, epoch: Duration) -> Self {
        Self {
            machine: Selftest::new(settings, epoch),
            open: BTreeMap::new(),
            pool: Pool::default(),
            listening: BTreeMap::new(),
            next_buffer: REQUESTS,
            again: Some(Instant::ZERO),
            used: false,
        }
    }

    /// Gives the console a command in the name of the program that holds `key`. `stamp_ms` is a number
    /// that no other session of this node has: milliseconds of some clock. The answer comes from
    /// [`Runner::poll_answer`].
    pub fn command(
        &mut self,
        id: CommandId,
        key: u32,
        stamp_ms: i64,
        command: Command,
        below: &mut Below<'_>,
    ) {
        let here = Here { nid: own_nid(below.node()), stamp_ms };
        self.machine.command(below.now(), here, id, key, command);
        self.pump(below);
    }

    /// The next answer to a command.
    pub fn poll_answer(&mut self) -> Option<(CommandId, Result<Answer, Errno>)> {
        self.machine.poll_answer()
    }

    /// No program waits for the answer to this command any more.
    pub fn forget(&mut self, id: CommandId) {
        self.machine.forget(id);
    }

    /// Ends sessions, of the console and of this node.
    pub fn stop(&mut self, below: &mut Below<'_>) {
        self.machine.stop(below.now());
        self.pump(below);
    }

    /// Whether there is no session, and nothing is in hand.
    pub fn is_idle(&self) -> bool {
        self.machine.is_idle()
    }

    /// The portals of selftest are no longer kept for it: before it is removed from a node that goes
    /// on. Those of LNet keep no message without a buffer.
    pub fn close(&mut self, below: &mut Below<'_>) {
        set_lazy(false, below);
    }

    /// Carries out what the machine wants, until it wants nothing more.
    fn pump(&mut self, below: &mut Below<'_>) {
        while let Some(action) = self.machine.poll_action() {
            if let Err((token, errno)) = self.carry_out(action, below) {
                let failed = Done { status: Err(errno), len: 0, bytes: &[] };
                self.machine.done(below.now(), token, failed);
            }
        }
        let in_hand = self.open.keys().next().is_some_and(|user| *user < REQUESTS);
        if !in_hand && self.machine.is_idle() {
            if core::mem::take(&mut self.used) {
                below.trim();
            }
        } else {
            self.used = true;
        }
    }

    fn carry_out(&mut self, action: Action, below: &mut Below<'_>) -> Result<(), (Token, Errno)> {
        match action {
            Action::Listen { service, buffers } => {
                self.listening.entry(service).or_default().wanted = buffers;
                self.listen(service, below);
                Ok(())
            }
            Action::Withdraw { token } => {
                if let Some(open) = self.open.get_mut(&token.0) {
                    // Its memory is free with its last event.
                    open.live = false;
                    let _ = below.unlink(open.md);
                }
                Ok(())
            }
            Action::Put { token, from, to, portal, match_bits, data } => {
                let piece = self.pool.source(&data, below).map_err(|e| (token, e))?;
                let src = source(below.node(), from, to);
                let md = self.bind(token, Use::Put, piece, (1, src), below)?;
                let put = Put {
                    md,
                    ack: false,
                    src,
                    target: to,
                    portal,
                    match_bits,
                    offset: 0,
                    hdr_data: 0,
                    timeout: None,
                };
                let begun = below.put(put).map_err(|e| e.errno());
                self.begun(token, begun, below)
            }
            Action::Get { token, from, to, match_bits, sink } => {
                let piece = self.pool.sink(sink, below).map_err(|e| (token, e))?;
                let src = source(below.node(), from, to);
                let md = self.bind(token, Use::Get, piece, (2, src), below)?;
                let get = Get {
                    md,
                    src,
                    target: to,
                    portal: PORTAL_REPLY,
                    match_bits,
                    offset: 0,
                    timeout: None,
                };
                let begun = below.get(get).map_err(|e| e.errno());
                self.begun(token, begun, below)
            }
            Action::Offer { token, peer, match_bits, buffer } => {
                let (piece, options, what) = match buffer {
                    Offered::Source(data) => {
                        (self.pool.source(&data, below), MdOptions::OP_GET, Use::Source)
                    }
                    Offered::Sink(sink) => {
                        (self.pool.sink(sink, below), MdOptions::OP_PUT, Use::Sink)
                    }
                };
                let piece = piece.map_err(|e| (token, e))?;
                // A GET may ask for less than there is, a PUT must not bring more.
                let spec = MdSpec { options, ..once(piece.span, token.0) };
                let me = MatchEntry { from: peer, ..MatchEntry::bits(match_bits) };
                let made = below.attach(PORTAL_REPLY, me, spec);
                self.keep(token.0, made, what, piece, below).map_err(|e| (token, e)).map(|_| ())
            }
        }
    }

    /// Binds what is sent; a message with a source answers a request.
    fn bind(
        &mut self,
        token: Token,
        what: Use,
        piece: Piece,
        (threshold, src): (u32, Option<Nid>),
        below: &mut Below<'_>,
    ) -> Result<MdId, (Token, Errno)> {
        let options = if src.is_some() { MdOptions::ANSWERS } else { MdOptions::empty() };
        let spec = MdSpec { threshold: Some(threshold), options, ..once(piece.span, token.0) };
        let made = below.bind(spec);
        self.keep(token.0, made, what, piece, below).map_err(|e| (token, e))
    }

    /// Notes a descriptor that was made, or frees the memory for one that was not.
    fn keep(
        &mut self,
        user: u64,
        made: Result<MdId, BelowError>,
        what: Use,
        piece: Piece,
        below: &mut Below<'_>,
    ) -> Result<MdId, Errno> {
        match made {
            Ok(md) => {
                self.open.insert(user, Open { md, what, piece, live: true });
                Ok(md)
            }
            Err(e) => {
                give(piece, below);
                Err(e.errno())
            }
        }
    }

    /// An operation that could not be begun is over; its descriptor goes.
    fn begun(
        &mut self,
        token: Token,
        begun: Result<(), Errno>,
        below: &mut Below<'_>,
    ) -> Result<(), (Token, Errno)> {
        begun.map_err(|errno| {
            if let Some(open) = self.open.get_mut(&token.0) {
                open.live = false;
                let _ = below.unlink(open.md);
            }
            (token, errno)
        })
    }

    /// Posts as many buffers for requests as are wanted, or takes away those that are too many.
    fn listen(&mut self, service: Service, below: &mut Below<'_>) {
        let Some(listening) = self.listening.get_mut(&service) else { return };
        while listening.posted.len() > listening.wanted as usize {
            let last = listening.posted.pop_last();
            if let Some(open) = last.and_then(|user| self.open.get_mut(&user)) {
                open.live = false;
                let _ = below.unlink(open.md);
            }
        }
        let missing = listening.wanted as usize - listening.posted.len();
        for _ in 0..missing {
            match self.post(service, below) {
                Ok(()) => {}
                Err(Errno::ESHUTDOWN) => return,
                Err(_) => {
                    self.again.get_or_insert_with(|| below.now() + POST_AGAIN);
                    return;
                }
            }
        }
    }

    /// Posts one buffer for a request.
    fn post(&mut self, service: Service, below: &mut Below<'_>) -> Result<(), Errno> {
        let sink = Sink { len: LEN as u32, wanted: Wanted::Edges };
        let piece = self.pool.sink(sink, below)?;
        let user = self.next_buffer;
        self.next_buffer += 1;
        let spec = MdSpec { options: MdOptions::OP_PUT, ..once(piece.span, user) };
        let made = below.attach(service.portal(), MatchEntry::bits(service.id()), spec);
        self.keep(user, made, Use::Request(service), piece, below)?;
        self.listening.entry(service).or_default().posted.insert(user);
        Ok(())
    }

    /// An event of an action's descriptor.
    fn action_event(&mut self, event: &Event, below: &mut Below<'_>) {
        let Some(open) = self.open.get_mut(&event.user) else { return };
        let ends = match event.kind {
            EventKind::Send => open.what == Use::Put || event.status.is_err(),
            EventKind::Reply | EventKind::Get | EventKind::Put => true,
            EventKind::Ack | EventKind::Unlink => false,
        };
        if ends && core::mem::take(&mut open.live) {
            let looked_at = open.piece.own && matches!(open.what, Use::Get | Use::Sink);
            let bytes = if looked_at { arrived(open.piece, event, below) } else { &[] };
            let done = Done { status: event.status, len: event.mlength, bytes };
            self.machine.done(below.now(), Token(event.user), done);
            if !event.unlinked {
                let _ = below.unlink(event.md);
            }
        }
        if event.unlinked
            && let Some(open) = self.open.remove(&event.user)
        {
            give(open.piece, below);
        }
    }

    /// An event of a buffer for requests.
    fn request_event(&mut self, service: Service, event: &Event, below: &mut Below<'_>) {
        let Some(open) = self.open.get(&event.user) else { return };
        if event.kind == EventKind::Put && event.status.is_ok() {
            let lnet = counters(below.node());
            let bytes = arrived(open.piece, event, below);
            let (who, at): (ProcessId, Nid) = (event.source, event.target.nid);
            self.machine.request(below.now(), service, who, at, bytes, &lnet);
        }
        if !event.unlinked {
            return;
        }
        if let Some(open) = self.open.remove(&event.user) {
            give(open.piece, below);
        }
        if let Some(listening) = self.listening.get_mut(&service) {
            listening.posted.remove(&event.user);
            self.listen(service, below);
        }
    }
}

impl Upper for Runner {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        match self.open.get(&event.user).map(|open| open.what) {
            Some(Use::Request(service)) => self.request_event(service, event, below),
            _ => self.action_event(event, below),
        }
        self.pump(below);
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {
        // It asks for no discovery.
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        let now = below.now();
        if self.again.is_some_and(|at| at <= now) {
            self.again = None;
            set_lazy(true, below);
            for service in Service::ALL {
                self.listen(service, below);
            }
        }
        if self.machine.poll_timeout().is_some_and(|at| at <= now) {
            self.machine.handle_timeout(now);
        }
        self.pump(below);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.again, self.machine.poll_timeout()].into_iter().flatten().min()
    }
}

/// Whether requests wait on the portals of selftest until there is a buffer.
fn set_lazy(lazy: bool, below: &mut Below<'_>) {
    for portal in [PORTAL_FRAMEWORK, PORTAL_TEST] {
        // There are such portals.
        let _ = below.set_lazy(portal, lazy);
    }
}

/// The bytes that an event brought to its piece.
fn arrived<'a>(piece: Piece, event: &Event, below: &'a Below<'_>) -> &'a [u8] {
    let len = event.mlength.min(piece.span.len);
    below.bytes(Span { len, ..piece.span })
}

/// A descriptor over `span` that goes away when it has been used.
fn once(span: Span, user: u64) -> MdSpec {
    let spec = MdSpec::new(IoVec::from([span]), user);
    MdSpec { unlink: Unlink::Auto, threshold: Some(1), ..spec }
}

/// The first NID that a session can be named by.
fn own_nid(node: &Node) -> Option<Nid> {
    let nets = node.net_views();
    let nids = nets.iter().flat_map(|net| net.nis.iter().map(|ni| ni.nid));
    nids.into_iter().find(|nid| !nid.is_loopback() && !nid.is_large())
}

/// The interface that an answer to `to` is bound to: the one that its request came to, `from`.
fn source(node: &Node, from: Option<Nid>, to: ProcessId) -> Option<Nid> {
    from.filter(|_| !node.may_answer_by_any(to.nid))
}

fn counters(node: &Node) -> LnetCounters {
    let s = node.stats();
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

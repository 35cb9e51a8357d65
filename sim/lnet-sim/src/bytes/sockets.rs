//! The streams of one host, as its driver has them: what is asked of them is answered from what is
//! here, and segments for others wait to be taken away ([`Sockets::take_out`]).

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;

use lnd_sock::{
    Accepted, ListenerId, Origin, Source, Stop, StreamId, StreamOptions, Streams, Transport,
};
use lnet::Ready;
use lnet_types::{Errno, Instant, Prng};

use super::segment::Segment;
use super::tcp::{Cut, End, Holder, News, State, Wishes};

/// The name is not open.
const EBADF: Stop = Stop::Failed(Errno(9));
/// Connections that may wait to be accepted, as in the kernel.
const BACKLOG: usize = 127;
/// Reads of a few bytes, where a stream begins with such.
const CRUMBS: u32 = 64;

#[derive(Debug)]
enum Place {
    Free,
    Listener { at: SocketAddr, waiting: VecDeque<u32> },
    End(Box<End>),
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Sockets {
    rng: Prng,
    /// The world's time, set before each use.
    now: Instant,
    places: Vec<Place>,
    /// Free places, the lowest last.
    free: Vec<u32>,
    listeners: BTreeMap<SocketAddr, u32>,
    /// Ends by both their addresses, the own one first.
    by_addresses: BTreeMap<(SocketAddr, SocketAddr), u32>,
    /// What the driver may want to look at.
    ready: BTreeMap<u32, News>,
    /// Ends that may have something to send.
    talking: BTreeSet<u32>,
    due: BTreeSet<(Instant, u32)>,
    out: Vec<(Option<u32>, Segment)>,
    next_port: u16,
}

impl Sockets {
    pub(super) fn new(rng: Prng) -> Self {
        Self {
            rng,
            now: Instant::ZERO,
            places: Vec::new(),
            free: Vec::new(),
            listeners: BTreeMap::new(),
            by_addresses: BTreeMap::new(),
            ready: BTreeMap::new(),
            talking: BTreeSet::new(),
            due: BTreeSet::new(),
            out: Vec::new(),
            next_port: 0,
        }
    }

    pub(super) const fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// What the driver is to look at.
    pub(super) fn take_ready(&mut self) -> Vec<Ready> {
        core::mem::take(&mut self.ready)
            .into_iter()
            .map(|(id, news)| Ready {
                token: id as usize,
                readable: news.readable,
                writable: news.writable,
            })
            .collect()
    }

    /// Segments for others, with the end that they come from.
    pub(super) fn take_out(&mut self) -> Vec<(Option<u32>, Segment)> {
        let mut sent = Vec::new();
        for id in core::mem::take(&mut self.talking) {
            let Some(Place::End(end)) = self.places.get_mut(id as usize) else { continue };
            end.send(self.now, &mut self.rng, &mut sent);
            self.out.extend(sent.drain(..).map(|segment| (Some(id), segment)));
            self.settle(id);
        }
        core::mem::take(&mut self.out)
    }

    /// A segment of `end` is with the other host at `at`, or should have been.
    pub(super) fn departed(&mut self, end: u32, seq: u64, at: Instant) {
        self.with(end, |end| end.departed(seq, at));
    }

    /// When [`Self::expire`] is to be called.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Ends that have waited long enough.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.due.pop_first() else { return };
            self.with(id, |end| end.expire(now));
        }
    }

    /// A segment has arrived.
    pub(super) fn receive(&mut self, segment: Segment) {
        if let Some(&id) = self.by_addresses.get(&(segment.dst, segment.src)) {
            return self.receive_at(id, segment);
        }
        let listener = self.listeners.get(&segment.dst).copied();
        let opening = segment.kind.syn && !segment.kind.ack && !segment.kind.rst;
        match listener {
            Some(listener) if opening => {
                if let Some(Place::Listener { waiting, .. }) = self.places.get(listener as usize)
                    && waiting.len() >= BACKLOG
                {
                    // It will be asked again.
                    return;
                }
                let (start, cut) = (self.start(), self.cut());
                let end = End::accept(self.now, &segment, start, cut);
                self.add_end(end);
            }
            _ => self.out.extend(segment.refusal().map(|answer| (None, answer))),
        }
    }

    fn receive_at(&mut self, id: u32, segment: Segment) {
        let Some(Place::End(end)) = self.places.get_mut(id as usize) else { return };
        let (now, before) = (self.now, end.state);
        let (news, answer) = end.receive(now, segment);
        let opened = before == State::SynReceived && end.state == State::Open;
        let local = end.local;
        self.out.extend(answer.map(|answer| (None, answer)));
        self.talking.insert(id);
        self.notify(id, news);
        self.settle(id);
        if opened {
            let listener = self.listeners.get(&local).copied();
            match listener.and_then(|l| Some((l, self.places.get_mut(l as usize)?))) {
                Some((listener, Place::Listener { waiting, .. })) => {
                    waiting.push_back(id);
                    self.ready.entry(listener).or_default().readable = true;
                }
                _ => self.let_go(id, true),
            }
        }
    }

    /// Breaks the connections that are meant, without a cause that a host could see.
    pub(super) fn break_those(&mut self, is_meant: impl Fn(SocketAddr, SocketAddr) -> bool) {
        let all: Vec<u32> = self
            .by_addresses
            .iter()
            .filter(|((local, remote), _)| is_meant(*local, *remote))
            .map(|(_, id)| *id)
            .collect();
        for id in all {
            self.with(id, End::broken);
        }
    }

    /// The process has died: its kernel resets every connection.
    pub(super) fn reset_all(&mut self) {
        let all: Vec<u32> = self.by_addresses.values().copied().collect();
        for id in all {
            self.let_go(id, true);
        }
    }

    /// Does something with an end, and what follows from it.
    fn with(&mut self, id: u32, what: impl FnOnce(&mut End) -> News) {
        let Some(Place::End(end)) = self.places.get_mut(id as usize) else { return };
        let news = what(end);
        self.talking.insert(id);
        self.notify(id, news);
        self.settle(id);
    }

    fn notify(&mut self, id: u32, news: News) {
        let Some(Place::End(end)) = self.places.get(id as usize) else { return };
        if end.holder == Holder::Driver && news != News::default() {
            let ready = self.ready.entry(id).or_default();
            ready.readable |= news.readable;
            ready.writable |= news.writable;
        }
    }

    /// Keeps the tables as the end is; forgets one that is over.
    fn settle(&mut self, id: u32) {
        let Some(Place::End(end)) = self.places.get_mut(id as usize) else { return };
        if end.listed != end.due {
            self.due.remove(&(end.listed, id));
            end.listed = end.due;
            if end.due != Instant::FAR_FUTURE {
                self.due.insert((end.due, id));
            }
        }
        if end.is_over() {
            let (local, remote, was_waiting) =
                (end.local, end.remote, end.holder == Holder::Listener);
            self.due.remove(&(end.listed, id));
            self.by_addresses.remove(&(local, remote));
            if was_waiting
                && let Some(listener) = self.listeners.get(&local)
                && let Some(Place::Listener { waiting, .. }) =
                    self.places.get_mut(*listener as usize)
            {
                waiting.retain(|w| *w != id);
            }
            self.free_place(id);
        }
    }

    fn free_place(&mut self, id: u32) {
        self.ready.remove(&id);
        self.talking.remove(&id);
        self.places[id as usize] = Place::Free;
        self.free.push(id);
    }

    fn add(&mut self, place: Place) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.places[id as usize] = place;
                id
            }
            None => {
                self.places.push(place);
                self.places.len() as u32 - 1
            }
        }
    }

    fn add_end(&mut self, end: End) -> u32 {
        let addresses = (end.local, end.remote);
        let id = self.add(Place::End(Box::new(end)));
        self.by_addresses.insert(addresses, id);
        self.talking.insert(id);
        id
    }

    /// Where a sequence begins: so that what is left of an old connection fits into no new one.
    fn start(&mut self) -> u64 {
        1 + self.rng.below(1 << 48)
    }

    fn cut(&mut self) -> Cut {
        match self.rng.below(4) {
            0 | 1 => Cut::Whole,
            2 => Cut::Parts,
            _ => Cut::Crumbs(CRUMBS),
        }
    }

    fn end_mut(&mut self, stream: StreamId) -> Option<&mut End> {
        match self.places.get_mut(stream.0 as usize)? {
            Place::End(end) if end.holder == Holder::Driver => Some(end),
            _ => None,
        }
    }

    fn end(&self, stream: StreamId) -> Option<&End> {
        match self.places.get(stream.0 as usize)? {
            Place::End(end) if end.holder == Holder::Driver => Some(end),
            _ => None,
        }
    }

    /// The end has no holder any more.
    fn let_go(&mut self, id: u32, reset: bool) {
        let Some(Place::End(end)) = self.places.get_mut(id as usize) else { return };
        let last = end.close(reset);
        self.out.extend(last.map(|segment| (None, segment)));
        self.ready.remove(&id);
        self.talking.insert(id);
        self.settle(id);
    }
}

fn wishes(options: &StreamOptions) -> Wishes {
    let StreamOptions { even_retries, keepalive, rto_max, .. } = *options;
    Wishes { even_retries, keepalive, rto_max }
}

fn stop(errno: Option<Errno>) -> Stop {
    errno.map_or(Stop::WouldBlock, Stop::Failed)
}

impl Streams for Sockets {
    fn source(&self, token: usize) -> Option<Source> {
        match self.places.get(token)? {
            Place::Free => None,
            Place::Listener { .. } => Some(Source::Listener(ListenerId(token as u32))),
            Place::End(end) if end.holder == Holder::Driver => {
                Some(Source::Stream(StreamId(token as u32)))
            }
            Place::End(_) => None,
        }
    }

    fn listen(&mut self, at: SocketAddr, _interface: Option<&str>) -> Result<ListenerId, Errno> {
        if self.listeners.contains_key(&at) {
            return Err(Errno::EADDRINUSE);
        }
        let id = self.add(Place::Listener { at, waiting: VecDeque::new() });
        self.listeners.insert(at, id);
        Ok(ListenerId(id))
    }

    fn unlisten(&mut self, listener: ListenerId) {
        let Some(Place::Listener { at, waiting }) = self.places.get_mut(listener.0 as usize) else {
            return;
        };
        let (at, waiting) = (*at, core::mem::take(waiting));
        self.listeners.remove(&at);
        for id in waiting {
            self.let_go(id, true);
        }
        self.free_place(listener.0);
    }

    fn accept(&mut self, listener: ListenerId, options: &StreamOptions) -> Result<Accepted, Stop> {
        loop {
            let Some(Place::Listener { waiting, .. }) = self.places.get_mut(listener.0 as usize)
            else {
                return Err(EBADF);
            };
            let id = waiting.pop_front().ok_or(Stop::WouldBlock)?;
            // It may have been reset meanwhile.
            if let Some(Place::End(end)) = self.places.get_mut(id as usize)
                && end.holder == Holder::Listener
            {
                end.holder = Holder::Driver;
                end.wish(wishes(options));
                let (local, remote) = (end.local, end.remote);
                self.ready.insert(id, News { readable: true, writable: true });
                return Ok(Accepted { stream: StreamId(id), local, remote });
            }
        }
    }

    fn connect(
        &mut self,
        from: Origin<'_>,
        to: SocketAddr,
        options: &StreamOptions,
    ) -> Result<StreamId, Errno> {
        if from.addr.is_unspecified() || from.addr.is_ipv4() != to.is_ipv4() {
            return Err(Errno::ENETUNREACH);
        }
        let taken = |port: u16| {
            let local = SocketAddr::new(from.addr, port);
            self.by_addresses.contains_key(&(local, to))
        };
        let port = if from.privileged {
            (512..1024).rev().find(|port| !taken(*port)).ok_or(Errno::EADDRINUSE)?
        } else {
            const FIRST: u16 = 32_768;
            const COUNT: u16 = 28_000;
            let at = self.next_port;
            let mut ports = (0..COUNT).map(|n| FIRST + (at + n) % COUNT);
            let port = ports.find(|port| !taken(*port)).ok_or(Errno::EADDRINUSE)?;
            self.next_port = (port - FIRST + 1) % COUNT;
            port
        };
        let (start, cut) = (self.start(), self.cut());
        let mut end = End::connect(SocketAddr::new(from.addr, port), to, start, cut);
        end.wish(wishes(options));
        Ok(StreamId(self.add_end(end)))
    }

    fn connected(&mut self, stream: StreamId) -> Result<SocketAddr, Stop> {
        match self.end(stream).ok_or(EBADF)?.connected() {
            None => Err(Stop::WouldBlock),
            Some(Ok(local)) => Ok(local),
            Some(Err(errno)) => Err(Stop::Failed(errno)),
        }
    }

    fn read(
        &mut self,
        stream: StreamId,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Stop> {
        self.talking.insert(stream.0);
        let mut rng = self.rng.clone();
        let got = self.end_mut(stream).ok_or(EBADF)?.read(&mut rng, first, second);
        self.rng = rng;
        got.map_err(stop)
    }

    fn write(&mut self, stream: StreamId, slices: &[IoSlice<'_>]) -> Result<usize, Stop> {
        self.talking.insert(stream.0);
        let all = slices.iter().map(|s| s.len()).sum();
        let mut rng = self.rng.clone();
        let end = self.end_mut(stream).ok_or(EBADF)?;
        let written = end.write(&mut rng, all, slices.iter().map(|s| &**s));
        self.rng = rng;
        let (n, news) = written.map_err(stop)?;
        self.notify(stream.0, news);
        Ok(n)
    }

    fn unacked(&self, stream: StreamId) -> u64 {
        self.end(stream).map_or(0, End::unacked)
    }

    fn transport(&self, stream: StreamId) -> Option<Transport> {
        self.end(stream).map(End::transport)
    }

    fn take_error(&mut self, stream: StreamId) -> Option<Errno> {
        self.end(stream)?.error()
    }

    fn buffers(&self, _stream: StreamId) -> (u32, u32) {
        super::tcp::BUFFERS
    }

    fn finish(&mut self, stream: StreamId) {
        if let Some(end) = self.end_mut(stream) {
            end.finish();
            self.talking.insert(stream.0);
        }
    }

    fn close(&mut self, stream: StreamId, reset: bool) {
        if self.end(stream).is_some() {
            self.let_go(stream.0, reset);
        }
    }
}

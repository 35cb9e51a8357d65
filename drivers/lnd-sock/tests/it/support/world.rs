//! Byte streams in virtual time: any number of hosts, all in one value, everything by seed. Streams
//! split as they like, can be stalled, broken and refused.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use lnd_sock::{
    Accepted, ListenerId, NiStart, Origin, SockConfig, SockDriver, Source, Stop, StreamId,
    StreamOptions, Streams, Transport,
};
use lnet::Ready;
use lnet_types::{Errno, Fault, Instant, Nid, Prng};

use super::upstairs::{Decision, Mem, Received, Upstairs, number_of};
use core::time::Duration;

/// What the network does to those who use it.
#[derive(Clone, Debug)]
pub(crate) struct Weather {
    /// Reads and writes move a random part of what they could.
    pub(crate) splits: bool,
    /// Bytes that a stream holds in each direction.
    pub(crate) window: usize,
    /// Nothing moves, nothing connects, nothing is reported.
    pub(crate) dead: bool,
    /// Attempts to connect that begin now are lost on the way without a report.
    pub(crate) lost: bool,
    /// Systems acknowledge what arrives at once, whether or not it is read.
    pub(crate) taken: bool,
    /// Addresses that refuse connections.
    pub(crate) refusing: BTreeSet<IpAddr>,
    /// Source ports are given out from here, downwards.
    pub(crate) privileged: bool,
    /// What every stream's transport says of itself, but for `unacked`.
    pub(crate) transport: Transport,
}

impl Default for Weather {
    fn default() -> Self {
        Self {
            splits: false,
            window: 1 << 20,
            dead: false,
            lost: false,
            taken: false,
            refusing: BTreeSet::new(),
            privileged: true,
            transport: Transport::default(),
        }
    }
}

#[derive(Debug)]
struct End {
    host: usize,
    /// Its name at its host; `None` before it is accepted and after it is closed.
    id: Option<u32>,
    addr: SocketAddr,
    /// Bytes on their way to this end.
    inbox: VecDeque<u8>,
    /// Bytes that were on their way when the stream broke: the other end's system has them unacknowledged
    /// for ever.
    broken: u64,
    /// The other end will send no more.
    eof: bool,
    /// The stream is broken.
    error: Option<Errno>,
}

#[derive(Debug)]
struct Pipe {
    ends: [End; 2],
    /// The attempt has ended.
    connected: bool,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Listener,
    Stream { pipe: usize, end: usize },
}

#[derive(Debug, Default)]
struct Place {
    entries: Vec<Option<Entry>>,
    /// Streams that may be worth a look: readable, writable.
    ready: BTreeMap<u32, (bool, bool)>,
    next_port: u16,
}

impl Place {
    fn add(&mut self, entry: Entry) -> u32 {
        let at = self.entries.iter().position(Option::is_none).unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[at] = Some(entry);
        self.ready.insert(at as u32, (true, true));
        at as u32
    }
}

#[derive(Debug)]
struct Net {
    prng: Prng,
    weather: Weather,
    places: Vec<Place>,
    pipes: Vec<Pipe>,
    listeners: BTreeMap<SocketAddr, (usize, u32, VecDeque<usize>)>,
}

impl Net {
    fn notify(&mut self, pipe: usize, end: usize, readable: bool, writable: bool) {
        let End { host, id: Some(id), .. } = &self.pipes[pipe].ends[end] else { return };
        let ready = self.places[*host].ready.entry(*id).or_default();
        ready.0 |= readable;
        ready.1 |= writable;
    }

    fn part(&mut self, n: usize) -> usize {
        if self.weather.splits && n > 1 { 1 + self.prng.below(n as u64) as usize } else { n }
    }

    fn finish(&mut self, pipe: usize, end: usize) {
        self.pipes[pipe].ends[1 - end].eof = true;
        self.notify(pipe, 1 - end, true, true);
    }

    fn close(&mut self, pipe: usize, end: usize, reset: bool) {
        let unread = !self.pipes[pipe].ends[end].inbox.is_empty();
        self.pipes[pipe].ends[end].id = None;
        let other = &mut self.pipes[pipe].ends[1 - end];
        if reset || unread {
            // What has arrived before the reset can still be read.
            other.error.get_or_insert(Errno::ECONNRESET);
        }
        other.eof = true;
        self.notify(pipe, 1 - end, true, true);
    }
}

/// The streams of one host.
#[derive(Clone, Debug)]
pub(crate) struct SimStreams {
    net: Rc<RefCell<Net>>,
    host: usize,
}

impl SimStreams {
    fn stream(&self, net: &Net, id: StreamId) -> Option<(usize, usize)> {
        match net.places[self.host].entries.get(id.0 as usize)? {
            Some(Entry::Stream { pipe, end }) => Some((*pipe, *end)),
            _ => None,
        }
    }
}

const EBADF: Stop = Stop::Failed(Errno(9));

impl Streams for SimStreams {
    fn source(&self, token: usize) -> Option<Source> {
        match (*self.net.borrow().places[self.host].entries.get(token)?)? {
            Entry::Listener => Some(Source::Listener(ListenerId(token as u32))),
            Entry::Stream { .. } => Some(Source::Stream(StreamId(token as u32))),
        }
    }

    fn listen(&mut self, at: SocketAddr, _: Option<&str>) -> Result<ListenerId, Errno> {
        let mut net = self.net.borrow_mut();
        if net.listeners.contains_key(&at) {
            return Err(Errno::EADDRINUSE);
        }
        let id = net.places[self.host].add(Entry::Listener);
        net.listeners.insert(at, (self.host, id, VecDeque::new()));
        Ok(ListenerId(id))
    }

    fn unlisten(&mut self, listener: ListenerId) {
        let mut net = self.net.borrow_mut();
        let host = self.host;
        let found = net.listeners.iter().find(|(_, (h, id, _))| (*h, *id) == (host, listener.0));
        if let Some(at) = found.map(|(at, _)| *at)
            && let Some((_, _, waiting)) = net.listeners.remove(&at)
        {
            for pipe in waiting {
                net.close(pipe, 1, true);
            }
        }
        net.places[host].entries[listener.0 as usize] = None;
    }

    fn accept(&mut self, listener: ListenerId, _: &StreamOptions) -> Result<Accepted, Stop> {
        let mut net = self.net.borrow_mut();
        let host = self.host;
        let Some((_, _, waiting)) =
            net.listeners.values_mut().find(|(h, id, _)| (*h, *id) == (host, listener.0))
        else {
            return Err(EBADF);
        };
        let pipe = waiting.pop_front().ok_or(Stop::WouldBlock)?;
        let id = net.places[host].add(Entry::Stream { pipe, end: 1 });
        let ends = &mut net.pipes[pipe].ends;
        ends[1].id = Some(id);
        Ok(Accepted { stream: StreamId(id), local: ends[1].addr, remote: ends[0].addr })
    }

    fn connect(
        &mut self,
        from: Origin<'_>,
        to: SocketAddr,
        _: &StreamOptions,
    ) -> Result<StreamId, Errno> {
        let mut net = self.net.borrow_mut();
        if from.privileged && !net.weather.privileged {
            return Err(Errno::EACCES);
        }
        let place = &mut net.places[self.host];
        place.next_port = place.next_port.wrapping_add(1);
        let n = place.next_port;
        let port = if from.privileged { 1023 - n % 512 } else { 32768 + n % 20000 };
        let pipe = net.pipes.len();
        let id = net.places[self.host].add(Entry::Stream { pipe, end: 0 });
        let refused = net.weather.refusing.contains(&to.ip());
        let there = net.listeners.get_mut(&to).filter(|_| !refused);
        let host = there.as_ref().map_or(usize::MAX, |l| l.0);
        let end = |host, id, addr, error| End {
            host,
            id,
            addr,
            inbox: VecDeque::new(),
            broken: 0,
            eof: false,
            error,
        };
        let local = SocketAddr::new(from.addr, port);
        let lost = net.weather.lost;
        let there = net.listeners.get_mut(&to).filter(|_| !refused);
        let error = there.is_none().then_some(Errno::ECONNREFUSED);
        if let Some((_, listener, waiting)) = there.filter(|_| !lost) {
            waiting.push_back(pipe);
            let listener = *listener;
            net.places[host].ready.insert(listener, (true, false));
        }
        let ends = [end(self.host, Some(id), local, error), end(host, None, to, None)];
        net.pipes.push(Pipe { ends, connected: !lost });
        Ok(StreamId(id))
    }

    fn connected(&mut self, stream: StreamId) -> Result<SocketAddr, Stop> {
        let net = self.net.borrow();
        let (pipe, end) = self.stream(&net, stream).ok_or(EBADF)?;
        if net.weather.dead {
            return Err(Stop::WouldBlock);
        }
        let pipe = &net.pipes[pipe];
        match pipe.ends[end].error {
            Some(errno) => Err(Stop::Failed(errno)),
            None if pipe.connected => Ok(pipe.ends[end].addr),
            None => Err(Stop::WouldBlock),
        }
    }

    fn read(
        &mut self,
        stream: StreamId,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Stop> {
        let mut net = self.net.borrow_mut();
        let (pipe, end) = self.stream(&net, stream).ok_or(EBADF)?;
        if net.weather.dead {
            return Err(Stop::WouldBlock);
        }
        let have = net.pipes[pipe].ends[end].inbox.len().min(first.len() + second.len());
        let n = net.part(have);
        let me = &mut net.pipes[pipe].ends[end];
        if n == 0 {
            return match (me.error, me.eof) {
                (Some(errno), _) => Err(Stop::Failed(errno)),
                (None, true) => Ok(0),
                (None, false) => Err(Stop::WouldBlock),
            };
        }
        for (to, byte) in first.iter_mut().chain(second).zip(me.inbox.drain(..n)) {
            *to = byte;
        }
        net.notify(pipe, 1 - end, false, true);
        Ok(n)
    }

    fn write(&mut self, stream: StreamId, slices: &[IoSlice<'_>]) -> Result<usize, Stop> {
        let mut net = self.net.borrow_mut();
        let (pipe, end) = self.stream(&net, stream).ok_or(EBADF)?;
        if let Some(errno) = net.pipes[pipe].ends[end].error {
            return Err(Stop::Failed(errno));
        }
        if net.pipes[pipe].ends[end].eof {
            // The other end is closed for good, as TCP finds out with the first bytes.
            net.pipes[pipe].ends[end].error = Some(Errno::EPIPE);
            return Err(Stop::Failed(Errno::EPIPE));
        }
        let all: usize = slices.iter().map(|s| s.len()).sum();
        let room = net.weather.window.saturating_sub(net.pipes[pipe].ends[1 - end].inbox.len());
        let n = net.part(all.min(room));
        if n == 0 {
            return Err(Stop::WouldBlock);
        }
        let bytes = slices.iter().flat_map(|s| s.iter().copied()).take(n);
        net.pipes[pipe].ends[1 - end].inbox.extend(bytes);
        net.notify(pipe, 1 - end, true, false);
        if n < all && n < room {
            // There is room: say so, since nothing else will.
            net.notify(pipe, end, false, true);
        }
        Ok(n)
    }

    fn unacked(&self, stream: StreamId) -> u64 {
        let net = self.net.borrow();
        let Some((pipe, end)) = self.stream(&net, stream) else { return 0 };
        if net.weather.taken {
            return 0;
        }
        // The window is the receiver's; what it holds is not read and counts as on the way.
        let there = &net.pipes[pipe].ends[1 - end];
        there.broken + there.inbox.len() as u64
    }

    fn transport(&self, stream: StreamId) -> Option<Transport> {
        let said = self.net.borrow().weather.transport;
        let unacked = self.unacked(stream);
        Some(Transport { unacked, unsent: said.unsent.min(unacked), ..said })
    }

    fn take_error(&mut self, stream: StreamId) -> Option<Errno> {
        let net = self.net.borrow();
        let (pipe, end) = self.stream(&net, stream)?;
        net.pipes[pipe].ends[end].error
    }

    fn buffers(&self, _: StreamId) -> (u32, u32) {
        (1 << 16, 1 << 17)
    }

    fn finish(&mut self, stream: StreamId) {
        let mut net = self.net.borrow_mut();
        if let Some((pipe, end)) = self.stream(&net, stream) {
            net.finish(pipe, end);
        }
    }

    fn close(&mut self, stream: StreamId, reset: bool) {
        let mut net = self.net.borrow_mut();
        let Some((pipe, end)) = self.stream(&net, stream) else { return };
        net.close(pipe, end, reset);
        net.places[self.host].entries[stream.0 as usize] = None;
        net.places[self.host].ready.remove(&stream.0);
    }
}

/// A peer that follows a script: it sends bytes as it likes, and looks at what comes.
pub(crate) struct Raw {
    streams: SimStreams,
    listener: Option<ListenerId>,
    stream: Option<StreamId>,
    /// All bytes that came.
    pub(crate) got: Vec<u8>,
}

/// How a stream stands, seen by a scripted peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    Open,
    Eof,
    Reset,
}

const OPTIONS: StreamOptions = StreamOptions {
    nodelay: true,
    keepalive: None,
    tos: None,
    send_buffer: None,
    recv_buffer: None,
    even_retries: false,
    rto_max: Duration::ZERO,
};

impl Raw {
    pub(crate) fn new(world: &World) -> Self {
        Self { streams: world.streams(), listener: None, stream: None, got: Vec::new() }
    }

    /// Connects from `from` to `to`, port 988.
    pub(crate) fn connect(world: &World, from: IpAddr, to: IpAddr, privileged: bool) -> Self {
        let mut raw = Self::new(world);
        let origin =
            Origin { addr: from, interface: None, privileged, namespace: None, device: None };
        let to = SocketAddr::new(to, 988);
        raw.stream = Some(raw.streams.connect(origin, to, &OPTIONS).expect("connected"));
        raw
    }

    /// Listens at `at`, port 988.
    pub(crate) fn listen(world: &World, at: IpAddr) -> Self {
        let mut raw = Self::new(world);
        let at = SocketAddr::new(at, 988);
        raw.listener = Some(raw.streams.listen(at, None).expect("a free address"));
        raw
    }

    /// Takes the next connection; what came on the one before is forgotten.
    pub(crate) fn accept(&mut self) -> bool {
        let Some(listener) = self.listener else { return false };
        match self.streams.accept(listener, &OPTIONS) {
            Ok(accepted) => {
                self.stream = Some(accepted.stream);
                self.got.clear();
                true
            }
            Err(_) => false,
        }
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        let stream = self.stream.expect("connected");
        while !bytes.is_empty() {
            match self.streams.write(stream, &[IoSlice::new(bytes)]) {
                Ok(n) => bytes = &bytes[n..],
                Err(_) => return,
            }
        }
    }

    /// Reads what there is.
    pub(crate) fn look(&mut self) -> Stands {
        let stream = self.stream.expect("connected");
        let mut buf = [0; 4096];
        loop {
            match self.streams.read(stream, &mut buf, &mut []) {
                Ok(0) => return Stands::Eof,
                Ok(n) => self.got.extend(&buf[..n]),
                Err(Stop::WouldBlock) => return Stands::Open,
                Err(Stop::Failed(_)) => return Stands::Reset,
            }
        }
    }

    pub(crate) fn close(&mut self) {
        if let Some(stream) = self.stream.take() {
            self.streams.close(stream, false);
        }
    }
}

/// A driver with its node's stand-in.
pub(crate) struct Host {
    pub(crate) driver: SockDriver<SimStreams>,
    pub(crate) up: Upstairs,
    pub(crate) mem: Mem,
    /// Its first interface.
    pub(crate) nid: Nid,
    at: usize,
}

/// All hosts, the network between them, and the clock.
pub(crate) struct World {
    net: Rc<RefCell<Net>>,
    pub(crate) now: Instant,
    pub(crate) hosts: Vec<Host>,
    /// Rounds in which something was done, for those who suspect idling.
    pub(crate) rounds: u64,
}

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let net = Net {
            prng: Prng::new(seed),
            weather: Weather::default(),
            places: Vec::new(),
            pipes: Vec::new(),
            listeners: BTreeMap::new(),
        };
        Self {
            net: Rc::new(RefCell::new(net)),
            now: Instant::from_secs(1000),
            hosts: Vec::new(),
            rounds: 0,
        }
    }

    /// Two drivers with default settings, at `10.0.0.1` and `10.0.0.2`.
    pub(crate) fn pair(seed: u64) -> Self {
        let mut world = Self::new(seed);
        world.host(SockConfig::default(), super::ni_start(1));
        world.host(SockConfig::default(), super::ni_start(2));
        world
    }

    /// Streams for one more host.
    pub(crate) fn streams(&self) -> SimStreams {
        let mut net = self.net.borrow_mut();
        net.places.push(Place::default());
        SimStreams { net: self.net.clone(), host: net.places.len() - 1 }
    }

    /// One more driver.
    pub(crate) fn host(&mut self, config: SockConfig, start: NiStart) -> usize {
        let streams = self.streams();
        let (at, nid) = (streams.host, start.nid);
        let mut driver = SockDriver::new(config, streams, 1);
        driver.ni_start(self.now, start).expect("a free address");
        self.hosts.push(Host { driver, up: Upstairs::default(), mem: Mem::default(), nid, at });
        self.hosts.len() - 1
    }

    pub(crate) fn weather<T>(&self, change: impl FnOnce(&mut Weather) -> T) -> T {
        change(&mut self.net.borrow_mut().weather)
    }

    /// Lets all hosts poll all streams, for instance after `dead` weather.
    pub(crate) fn wake(&self) {
        for place in &mut self.net.borrow_mut().places {
            for (at, entry) in place.entries.iter().enumerate() {
                if entry.is_some() {
                    place.ready.insert(at as u32, (true, true));
                }
            }
        }
    }

    /// Breaks every stream that is open.
    pub(crate) fn break_all(&self, errno: Errno) {
        let mut net = self.net.borrow_mut();
        for pipe in 0..net.pipes.len() {
            for end in 0..2 {
                if net.pipes[pipe].ends[end].id.is_some() {
                    net.pipes[pipe].ends[end].error = Some(errno);
                    let lost = net.pipes[pipe].ends[end].inbox.drain(..).count() as u64;
                    net.pipes[pipe].ends[end].broken += lost;
                    net.notify(pipe, end, true, true);
                }
            }
        }
    }

    /// A PUT from one host to another, on their first interfaces.
    pub(crate) fn send(&mut self, from: usize, to: usize, number: u64, payload: &[u8]) {
        let to = self.hosts[to].nid;
        self.send_with(from, to, number, payload, |_| ());
    }

    pub(crate) fn send_with(
        &mut self,
        from: usize,
        to: Nid,
        number: u64,
        payload: &[u8],
        change: impl FnOnce(&mut lnet::Transmit),
    ) {
        let now = self.now;
        let Host { driver, up, mem, nid, .. } = &mut self.hosts[from];
        let mut transmit = up.transmit(mem, super::ni(1), *nid, to, number, payload);
        change(&mut transmit);
        let msg = transmit.msg;
        if let Err(fault) = driver.send(now, &transmit) {
            up.refused(msg, fault);
        }
    }

    /// One turn of every host. Tells whether there is more to do now.
    pub(crate) fn turn(&mut self) -> bool {
        self.rounds += 1;
        let mut more = false;
        for host in &mut self.hosts {
            let ready: Vec<Ready> = if self.net.borrow().weather.dead {
                Vec::new()
            } else {
                core::mem::take(&mut self.net.borrow_mut().places[host.at].ready)
                    .into_iter()
                    .map(|(id, (readable, writable))| Ready {
                        token: id as usize,
                        readable,
                        writable,
                    })
                    .collect()
            };
            more |= !ready.is_empty();
            let Host { driver, up, mem, .. } = host;
            driver.turn(self.now, &ready, false, up, mem);
            driver.flush(self.now, up, mem);
            if driver.poll_timeout().is_some_and(|at| at <= self.now) {
                more = true;
                driver.handle_timeout(self.now, up, mem);
                driver.flush(self.now, up, mem);
            }
        }
        let net = self.net.borrow();
        let waits = |host: &Host| !net.places[host.at].ready.is_empty();
        more || !net.weather.dead && self.hosts.iter().any(waits)
    }

    /// Turns until nothing is left to do at this moment.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.turn() {
                return;
            }
        }
        panic!("the world never comes to rest");
    }

    /// Lets time pass, from deadline to deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            self.settle();
            let next = self.hosts.iter().filter_map(|h| h.driver.poll_timeout()).min();
            match next {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = end;
        self.settle();
    }

    /// Decides on the deferred message at `at` of a host's `received`.
    pub(crate) fn resume(&mut self, host: usize, at: usize, decision: &Decision) {
        let now = self.now;
        let Host { driver, up, mem, .. } = &mut self.hosts[host];
        let rx = up.received[at].rx.id;
        let verdict = up.verdict(at, decision);
        driver.resume(now, rx, verdict, up, mem);
        self.settle();
    }

    /// Calls a driver with its node's stand-in.
    pub(crate) fn call<T>(
        &mut self,
        host: usize,
        call: impl FnOnce(&mut SockDriver<SimStreams>, &mut Upstairs) -> T,
    ) -> T {
        let Host { driver, up, .. } = &mut self.hosts[host];
        call(driver, up)
    }

    /// The payload of message `number` as it arrived at `host`.
    pub(crate) fn payload(&self, host: usize, number: u64) -> Option<Vec<u8>> {
        let Host { up, mem, .. } = &self.hosts[host];
        let arrived =
            |r: &&Received| number_of(&r.hdr) == number && matches!(r.outcome, Some(Ok(_)));
        let r = up.received.iter().find(arrived)?;
        if r.place.is_empty() { r.outcome.clone()?.ok() } else { Some(mem.read(&r.place)) }
    }

    /// The one fault that message `number` of `host` ended with.
    pub(crate) fn fault(&self, host: usize, number: u64) -> Fault {
        self.hosts[host].up.outcome(number).expect("it has ended").expect_err("it failed")
    }
}

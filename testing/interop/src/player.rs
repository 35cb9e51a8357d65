//! Plays the other side of a capture to a running node, over real sockets: opens the connections
//! that the other side opened, from the same addresses and ports, accepts those that the node
//! opens, sends what the other side sent, and waits for each message that the capture shows from
//! the node before it goes on.
//!
//! Waiting is on one connection at a time, in captured order; messages on other connections may
//! come earlier or later, as between kernel nodes, and so may answers to what went by other
//! connections. Nothing here judges time: a wait that runs out is a message that did not come.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use netns::Host;
use socket2::{Domain, Socket, Type};

use crate::capture::{Capture, Conn, Event, What};
use crate::compare::Values;
use crate::layout::{Class, End, Item, Kind, Pool, Splitter};

/// How long a message or an end may take that has to come: generous, because other tests run too.
pub const WAIT: Duration = Duration::from_secs(10);
/// How long is looked, at the end, for what must not come.
const SETTLE: Duration = Duration::from_millis(500);
/// How long a write may block: a node may have stopped to read on purpose.
const WRITE: Duration = Duration::from_secs(5);

/// A command that is given to the node in the course of a conversation.
#[derive(Clone, Debug)]
pub struct Trigger<C> {
    /// Index of the connection.
    pub conn: usize,
    /// Before which message of the node on it, counted from 1; 0 is before it is opened.
    pub message: usize,
    /// What is asked of the node.
    pub command: C,
}

/// How the node's side of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Fin,
    Reset,
}

/// What came of one connection.
#[derive(Clone, Debug)]
pub struct Row {
    /// The two ends, client first.
    pub conn: Conn,
    /// Messages of the node, and ends of connections by it, that were compared.
    pub compared: usize,
    /// Messages of the node that this case leaves out.
    pub left_out: usize,
    /// Where the node did not do what the kernel did.
    pub differences: Vec<String>,
}

/// Bytes that went over a connection.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When, since the start.
    pub at: Duration,
    /// Index of the connection.
    pub conn: usize,
    /// Who sent them.
    pub from: End,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Connections that end, and their readers with them, when this goes away.
#[derive(Debug)]
struct Held(Vec<TcpStream>);

impl Drop for Held {
    fn drop(&mut self) {
        for stream in &self.0 {
            // One that is closed already cannot be shut down.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// What came of a capture.
#[derive(Debug)]
pub struct Outcome {
    /// One for each connection of the capture that the node takes part in.
    pub rows: Vec<Row>,
    /// Which end of each connection the node was; `None` where it takes no part.
    pub node_ends: Vec<Option<End>>,
    /// Everything that was sent, in order.
    pub traffic: Vec<Sent>,
    /// Keeps the connections open; it is never read.
    _held: Held,
}

/// Who plays against what.
#[derive(Debug)]
pub struct Setting<'a> {
    /// The script.
    pub capture: &'a Capture,
    /// Addresses of the node under test.
    pub node: &'a [IpAddr],
    /// The host that plays all other nodes; it has all their addresses.
    pub host: &'a Host,
    /// Port of the acceptors.
    pub port: u16,
    /// How long a message or an end may take that has to come ([`WAIT`] unless there is a reason).
    pub wait: Duration,
}

enum Input {
    Accepted { local: SocketAddr, stream: TcpStream },
    Data { conn: usize, bytes: Vec<u8> },
    Ended { conn: usize, how: Ended },
}

/// A connection that is or was up.
struct Live {
    /// Gone after a reset by us.
    stream: Option<TcpStream>,
    splitter: Splitter,
    came: VecDeque<Item>,
    ended: Option<Ended>,
}

/// Zero-copy acknowledgements between a pair of addresses: cookie and type of the connection. They
/// may come on any connection of that type, several in one NOOP (wire.md 3.10).
type Acks = BTreeSet<(IpAddr, IpAddr, u32, u64)>;

/// The same that ride on messages that go out anyway, on whatever connection: the kernel's do not in
/// these captures, ours do if there is such a message in time, and either is right (wire.md 3.10).
type Riders = BTreeSet<(IpAddr, IpAddr, u64)>;

/// What a message asks with, or answers: handles and match bits that the asking side has chosen.
type Names = Vec<(Pool, u64)>;

/// The names in a message that are of this class.
fn names(item: &Item, class: fn(Pool) -> Class) -> Names {
    let fields = item.fields();
    let of_it = [Pool::Object, Pool::Selftest].into_iter().flat_map(|pool| {
        let values = fields.iter().filter(move |field| field.class == class(pool));
        values.map(move |field| (pool, item.value(field)))
    });
    of_it.filter(|(pool, value)| !pool.is_reserved(*value)).collect()
}

/// A player that listens wherever the node will connect to.
pub struct Player<'a, C> {
    setting: &'a Setting<'a>,
    triggers: Vec<Trigger<C>>,
    command: &'a mut (dyn FnMut(&C) + Send),
    leave_out: fn(&Item) -> bool,
    node_ends: Vec<Option<End>>,
    live: Vec<Option<Live>>,
    accepted: Vec<(SocketAddr, TcpStream)>,
    awaited: Vec<usize>,
    /// Connections on which something has failed to come: the rest is not waited for as long.
    missed: BTreeSet<usize>,
    rows: Vec<Row>,
    values: Values,
    /// By which connection the other side has asked.
    asked: BTreeMap<(Pool, u64), usize>,
    /// Bytes that go out with the next ones, on the same connection.
    unsent: Vec<u8>,
    acks_awaited: Acks,
    acks_came: Acks,
    riders: Riders,
    inputs: (Sender<Input>, Receiver<Input>),
    traffic: Vec<Sent>,
    started: Instant,
}

impl<'a, C: Clone> Player<'a, C> {
    /// A player for a capture, listening. `command` gives the node a command without waiting for
    /// its end; `leave_out` names messages of the kernel node that this node is not asked to send.
    ///
    /// # Errors
    /// An address to listen on is not there.
    pub fn new(
        setting: &'a Setting<'a>,
        triggers: Vec<Trigger<C>>,
        command: &'a mut (dyn FnMut(&C) + Send),
        leave_out: fn(&Item) -> bool,
    ) -> io::Result<Self> {
        let capture = setting.capture;
        let is_node = |addr: SocketAddr| setting.node.contains(&addr.ip());
        let node_end = |conn: &Conn| match (is_node(conn.client), is_node(conn.server)) {
            (true, _) => Some(End::Client),
            (_, true) => Some(End::Server),
            _ => None,
        };
        let row = |conn: &Conn| Row { conn: *conn, compared: 0, left_out: 0, differences: vec![] };
        let count = capture.conns.len();
        let player = Self {
            setting,
            triggers,
            command,
            leave_out,
            node_ends: capture.conns.iter().map(node_end).collect(),
            live: (0..count).map(|_| None).collect(),
            accepted: Vec::new(),
            awaited: vec![0; count],
            missed: BTreeSet::new(),
            rows: capture.conns.iter().map(row).collect(),
            values: Values::default(),
            asked: BTreeMap::new(),
            unsent: Vec::new(),
            acks_awaited: Acks::new(),
            acks_came: Acks::new(),
            riders: Riders::new(),
            inputs: channel(),
            traffic: Vec::new(),
            started: Instant::now(),
        };
        player.listen()?;
        Ok(player)
    }

    /// Plays. The connections stay as they are until the outcome goes away.
    pub fn play(mut self) -> Outcome {
        let events = &self.setting.capture.events;
        for (event, next) in events.iter().zip(events.iter().skip(1).map(Some).chain([None])) {
            if let Some(node_end) = self.node_ends[event.conn] {
                let more = next.is_some_and(|next| {
                    let goes_on = next.conn == event.conn && next.from == event.from;
                    goes_on && matches!(next.what, What::Item(_))
                });
                self.step(event, node_end, more);
            }
        }
        self.settle();
        let Self { rows, node_ends, traffic, live, .. } = self;
        let rows = rows.into_iter().zip(&node_ends).filter(|(_, end)| end.is_some());
        let rows = rows.map(|(row, _)| row).collect();
        let held = Held(live.into_iter().flatten().filter_map(|live| live.stream).collect());
        Outcome { rows, node_ends, traffic, _held: held }
    }

    /// Listens wherever the node connected to in the capture.
    fn listen(&self) -> io::Result<()> {
        let conns = self.setting.capture.conns.iter().zip(&self.node_ends);
        let mut addresses: Vec<SocketAddr> = conns
            .filter(|(_, end)| **end == Some(End::Client))
            .map(|(conn, _)| SocketAddr::new(conn.server.ip(), self.setting.port))
            .collect();
        addresses.sort();
        addresses.dedup();
        for address in addresses {
            let listener = self.setting.host.enter(|| TcpListener::bind(address))?;
            let inputs = self.inputs.0.clone();
            // Ends with the process: the listener is in a namespace that goes away before.
            thread::spawn(move || {
                while let Ok((stream, _)) = listener.accept() {
                    let Ok(local) = stream.local_addr() else { continue };
                    if inputs.send(Input::Accepted { local, stream }).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(())
    }

    fn step(&mut self, event: &Event, node_end: End, more: bool) {
        let conn = event.conn;
        if event.from == node_end {
            self.fire(conn, event);
            match &event.what {
                What::Open => self.await_open(conn),
                What::Item(item) if (self.leave_out)(item) => {
                    self.rows[conn].left_out += 1;
                    self.values.leave_out(item);
                }
                What::Item(item) if !item.acknowledged().is_empty() => self.await_acks(conn, item),
                What::Item(item) => self.await_item(conn, item),
                What::Fin => self.await_end(conn, Ended::Fin),
                What::Reset => self.await_end(conn, Ended::Reset),
            }
        } else {
            self.fire(conn, event);
            match &event.what {
                What::Open => self.open(conn),
                What::Item(item) => self.send(conn, item, more),
                What::Fin | What::Reset => {
                    self.linger(event);
                    self.close(conn, event.what == What::Reset);
                }
            }
        }
    }

    /// Where the capture shows that nothing came for long before the other side closed, that is
    /// looked for here as well, if not for as long.
    fn linger(&mut self, event: &Event) {
        let events = &self.setting.capture.events;
        let before = events.iter().filter(|e| e.conn == event.conn && e.at < event.at);
        let quiet = before.map(|e| event.at - e.at).min().unwrap_or_default();
        let deadline = Instant::now() + quiet.min(SETTLE);
        while self.pump(deadline) {}
    }

    /// Gives the commands that are due before this event.
    fn fire(&mut self, conn: usize, event: &Event) {
        let message = match &event.what {
            What::Open => 0,
            _ if Some(event.from) == self.node_ends[conn] => self.awaited[conn] + 1,
            _ => return,
        };
        let due = |t: &Trigger<C>| t.conn == conn && t.message == message;
        let (due, later): (Vec<_>, Vec<_>) = self.triggers.drain(..).partition(due);
        self.triggers = later;
        for trigger in due {
            (self.command)(&trigger.command);
        }
    }

    fn differ(&mut self, conn: usize, difference: impl Into<String>) {
        self.rows[conn].differences.push(difference.into());
    }

    /// Connects to the node as the captured client did.
    fn open(&mut self, conn: usize) {
        let Conn { client, server } = self.setting.capture.conns[conn];
        let server = SocketAddr::new(server.ip(), self.setting.port);
        let connect = || -> io::Result<TcpStream> {
            let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
            socket.set_reuse_address(true)?;
            socket.bind(&client.into())?;
            socket.connect_timeout(&server.into(), WAIT)?;
            Ok(socket.into())
        };
        match self.setting.host.enter(connect) {
            Ok(stream) => self.up(conn, stream, End::Server),
            Err(e) => self.differ(conn, format!("cannot connect to the node: {e}")),
        }
    }

    /// Waits for the node to connect as the captured node did.
    fn await_open(&mut self, conn: usize) {
        let Conn { client, server } = self.setting.capture.conns[conn];
        let wanted = |(local, stream): &(SocketAddr, TcpStream)| {
            local.ip() == server.ip()
                && stream.peer_addr().is_ok_and(|peer| peer.ip() == client.ip())
        };
        let deadline = Instant::now() + self.setting.wait;
        while !self.accepted.iter().any(wanted) && self.pump(deadline) {}
        let Some(at) = self.accepted.iter().position(wanted) else {
            return self.differ(conn, format!("the node did not connect to {}", server.ip()));
        };
        let (_, stream) = self.accepted.remove(at);
        if let Ok(peer) = stream.peer_addr()
            && peer.port() != client.port()
        {
            let (want, got) = (client.port(), peer.port());
            self.differ(conn, format!("source port: expected {want}, got {got}"));
        }
        self.up(conn, stream, End::Client);
    }

    /// A connection is there: reads it from now on.
    fn up(&mut self, conn: usize, stream: TcpStream, node_end: End) {
        // Without these a test could hang; that they fail on a fresh socket is not to be expected.
        let _ = stream.set_write_timeout(Some(WRITE));
        let _ = stream.set_nodelay(true);
        match stream.try_clone() {
            Ok(reader) => {
                let inputs = self.inputs.0.clone();
                thread::spawn(move || read_all(conn, reader, &inputs));
            }
            Err(e) => self.differ(conn, format!("cannot read: {e}")),
        }
        let splitter = Splitter::new(node_end);
        let stream = Some(stream);
        self.live[conn] = Some(Live { stream, splitter, came: VecDeque::new(), ended: None });
    }

    /// Sends a message to the node; with `more` together with the next one, so that what the node
    /// finds there does not depend on how fast it looks.
    fn send(&mut self, conn: usize, item: &Item, more: bool) {
        self.asked.extend(names(item, Class::Own).into_iter().map(|name| (name, conn)));
        self.unsent.extend(self.values.translate(item).unwrap_or_default());
        if more {
            return;
        }
        let bytes = std::mem::take(&mut self.unsent);
        let Some(stream) = self.live[conn].as_mut().and_then(|live| live.stream.as_mut()) else {
            return;
        };
        // The node may have closed already: whether it should have is judged by how it ended.
        if stream.write_all(&bytes).is_ok() {
            let from = self.node_ends[conn].map_or(End::Client, End::other);
            self.traffic.push(Sent { at: self.started.elapsed(), conn, from, bytes });
        }
    }

    fn close(&mut self, conn: usize, reset: bool) {
        let Some(live) = &mut self.live[conn] else { return };
        let Some(stream) = &live.stream else { return };
        if !reset {
            // The node may have been faster.
            let _ = stream.shutdown(Shutdown::Write);
            return;
        }
        // Closing without lingering resets; but only the last owner of a socket closes it, so the
        // reader has to end first.
        let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
        let _ = stream.shutdown(Shutdown::Read);
        let deadline = Instant::now() + self.setting.wait;
        while self.live[conn].as_ref().is_some_and(|l| l.ended.is_none()) && self.pump(deadline) {}
        if let Some(live) = &mut self.live[conn] {
            (live.stream, live.ended) = (None, None);
        }
    }

    /// Waits for all acknowledgements that a NOOP of the kernel node holds.
    fn await_acks(&mut self, conn: usize, kernel: &Item) {
        self.awaited[conn] += 1;
        self.rows[conn].compared += 1;
        let awaited = self.acks(conn, kernel);
        self.acks_awaited.extend(&awaited);
        let deadline = Instant::now() + self.wait(conn);
        let came = |player: &Self, ack: &(IpAddr, IpAddr, u32, u64)| {
            let (own, other, _, cookie) = *ack;
            player.acks_came.contains(ack) || player.riders.contains(&(own, other, cookie))
        };
        while !awaited.iter().all(|ack| came(self, ack)) && self.pump(deadline) {}
        for ack @ (own, other, _, cookie) in awaited {
            if self.acks_came.contains(&ack) {
                continue;
            }
            self.acks_awaited.remove(&ack);
            if self.riders.remove(&(own, other, cookie)) {
                continue;
            }
            self.missed.insert(conn);
            self.differ(conn, format!("did not acknowledge zero-copy cookie {cookie:#x}"));
        }
    }

    /// The acknowledgements in a message of the node.
    fn acks(&self, conn: usize, item: &Item) -> Acks {
        let Some(node_end) = self.node_ends[conn] else { return Acks::new() };
        let ends = &self.setting.capture.conns[conn];
        let (own, other) = (ends.addr(node_end).ip(), ends.addr(node_end.other()).ip());
        let conn_type = self.setting.capture.events.iter().find_map(|event| match &event.what {
            What::Item(hello) if event.conn == conn && event.from == node_end => hello.conn_type(),
            _ => None,
        });
        let conn_type = conn_type.unwrap_or_default();
        item.acknowledged().into_iter().map(|cookie| (own, other, conn_type, cookie)).collect()
    }

    fn await_item(&mut self, conn: usize, kernel: &Item) {
        self.awaited[conn] += 1;
        let deadline = Instant::now() + self.wait(conn);
        let answered = names(kernel, Class::Echo);
        let same = |item: &Item| {
            let alike = item.kind == kernel.kind && item.portal() == kernel.portal();
            alike && names(item, Class::Echo) == answered
        };
        let done = |live: &Option<Live>| {
            live.as_ref().is_none_or(|live| live.came.iter().any(same) || live.ended.is_some())
        };
        while !done(&self.live[conn]) && self.pump(deadline) {}
        let Some(live) = &mut self.live[conn] else { return };
        // The one that was expected, if it came at all; else whatever came in its place.
        let at = live.came.iter().position(same).unwrap_or(0);
        let by = |names: &Names| names.iter().find_map(|name| self.asked.get(name));
        let goes_first = |item: &&Item| match (by(&names(item, Class::Echo)), by(&answered)) {
            (Some(its), Some(ours)) => its == ours,
            _ => true,
        };
        let before: Vec<String> =
            live.came.iter().take(at).filter(goes_first).map(Item::describe).collect();
        match live.came.remove(at) {
            Some(ours) => {
                self.rows[conn].compared += 1;
                let differences = self.values.compare(kernel, &ours);
                self.rows[conn].differences.extend(differences);
                if !before.is_empty() {
                    let before = before.join(", ");
                    self.differ(conn, format!("order: {before} before {}", kernel.describe()));
                }
            }
            None => {
                let what = if live.ended.is_some() { "closed instead of" } else { "did not send" };
                let line = format!("{what} {}", kernel.describe());
                self.missed.insert(conn);
                self.differ(conn, line);
            }
        }
    }

    /// How long is waited for the next message on a connection.
    fn wait(&self, conn: usize) -> Duration {
        if self.missed.contains(&conn) { SETTLE } else { self.setting.wait }
    }

    fn await_end(&mut self, conn: usize, kernel: Ended) {
        let deadline = Instant::now() + self.setting.wait;
        let done = |live: &Option<Live>| live.as_ref().is_none_or(|live| live.ended.is_some());
        while !done(&self.live[conn]) && self.pump(deadline) {}
        self.rows[conn].compared += 1;
        match self.live[conn].as_ref().and_then(|live| live.ended) {
            Some(ours) if ours == kernel => {}
            Some(ours) => self.differ(conn, format!("end: expected {kernel:?}, got {ours:?}")),
            None => self.differ(conn, format!("end: expected {kernel:?}, still open")),
        }
    }

    /// Looks a little longer for what must not come.
    fn settle(&mut self) {
        let deadline = Instant::now() + SETTLE;
        while self.pump(deadline) {}
        for conn in 0..self.live.len() {
            let Some(node_end) = self.node_ends[conn] else { continue };
            let Some(live) = &self.live[conn] else { continue };
            let surplus: Vec<String> = live.came.iter().map(Item::describe).collect();
            let events = &self.setting.capture.events;
            let may_end = events.iter().any(|event| {
                let ends = matches!(event.what, What::Fin | What::Reset);
                event.conn == conn && event.from == node_end && ends
            });
            let ended = live.ended;
            let reset = live.stream.is_none();
            surplus.into_iter().for_each(|item| self.differ(conn, format!("surplus: {item}")));
            if let (false, false, Some(how)) = (may_end, reset, ended) {
                self.differ(conn, format!("end: expected open, got {how:?}"));
            }
        }
        let surplus: Vec<_> = self.acks_came.difference(&self.acks_awaited).copied().collect();
        let surplus = surplus.into_iter().map(|(own, other, _, cookie)| (own, other, cookie));
        for (own, other, cookie) in surplus.chain(self.riders.clone()).collect::<Riders>() {
            let between = |conn: &Conn| {
                let ips = [conn.client.ip(), conn.server.ip()];
                ips == [own, other] || ips == [other, own]
            };
            if let Some(conn) = self.setting.capture.conns.iter().position(between) {
                let line = format!("surplus: acknowledgement of zero-copy cookie {cookie:#x}");
                self.differ(conn, line);
            }
        }
        let strangers: Vec<String> = self
            .accepted
            .iter()
            .filter_map(|(local, stream)| Some(format!("{} to {local}", stream.peer_addr().ok()?)))
            .collect();
        let ours = self.node_ends.iter().position(Option::is_some);
        if let (Some(row), false) = (ours, strangers.is_empty()) {
            self.differ(row, format!("surplus connections: {}", strangers.join(", ")));
        }
    }

    /// Takes one input; false if none came before the deadline.
    fn pump(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(input) = self.inputs.1.recv_timeout(left) else { return false };
        match input {
            Input::Accepted { local, stream } => self.accepted.push((local, stream)),
            Input::Data { conn, bytes } => {
                let from = self.node_ends[conn].unwrap_or(End::Client);
                let items = self.live[conn].as_mut().map(|live| live.splitter.push(&bytes));
                for mut item in items.into_iter().flatten() {
                    let ends = self.setting.capture.conns[conn];
                    let (own, other) = (ends.addr(from).ip(), ends.addr(from.other()).ip());
                    self.riders.extend(item.take_rider().map(|cookie| (own, other, cookie)));
                    let acks = self.acks(conn, &item);
                    if acks.is_empty() {
                        self.live[conn]
                            .iter_mut()
                            .for_each(|live| live.came.push_back(item.clone()));
                    }
                    self.acks_came.extend(acks);
                }
                self.traffic.push(Sent { at: self.started.elapsed(), conn, from, bytes });
            }
            Input::Ended { conn, how } => {
                if let Some(live) = &mut self.live[conn] {
                    live.came.extend(live.splitter.finish());
                    live.ended = Some(how);
                }
            }
        }
        true
    }
}

fn read_all(conn: usize, mut stream: TcpStream, inputs: &Sender<Input>) {
    let mut buffer = vec![0; 256 << 10];
    let how = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break Ended::Fin,
            Ok(len) => {
                if inputs.send(Input::Data { conn, bytes: buffer[..len].to_vec() }).is_err() {
                    return;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break Ended::Reset,
        }
    };
    // The player may be done already.
    let _ = inputs.send(Input::Ended { conn, how });
}

/// Whether a message belongs to LNet selftest: sent to its portals, 50 to 52, or the data of a GET
/// there, which is no ping info.
pub fn is_selftest(item: &Item) -> bool {
    match item.kind {
        Kind::Put | Kind::Get => item.portal().is_some_and(|p| (50..=52).contains(&p)),
        Kind::Reply => !item.fields().iter().any(|field| field.name == "ping.magic"),
        _ => false,
    }
}

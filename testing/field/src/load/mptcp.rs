//! The same load over a kernel's multipath TCP: two connections, one for requests and replies, one
//! for bulk and its acknowledgements, each over as many subflows as the hosts' path managers make.
//!
//! A frame is a tag, a length, and so many bytes. A connection that ends fails what is under way
//! on it, and is made anew.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::client::Accounts;
use super::ledger::Ledger;
use super::pattern::Pattern;
use super::talk::{Answer, BULK, Command, Load, REPLY, REQUEST, ServerReport, tag, untag};
use super::{listen, say, say_done};
use crate::clock::Micros;

/// How long after the last message a reply may still come.
const PATIENCE: Micros = 7_000_000;
/// How long a connection may take, and how long it is waited for at the beginning.
const CONNECT: Duration = Duration::from_secs(5);

fn socket(of: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(of), Type::STREAM, Some(Protocol::MPTCP))?;
    socket.set_reuse_address(true)?;
    Ok(socket)
}

fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(to)?;
    socket.connect_timeout(&SockAddr::from(to), CONNECT)?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn write_frame(mut to: &TcpStream, tag: u64, bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(12 + bytes.len());
    frame.extend_from_slice(&tag.to_le_bytes());
    frame.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    frame.extend_from_slice(bytes);
    to.write_all(&frame)
}

/// The next frame, of `most` bytes at most.
fn read_frame(mut from: &TcpStream, most: usize, bytes: &mut Vec<u8>) -> io::Result<u64> {
    let mut head = [0; 12];
    from.read_exact(&mut head)?;
    let [a, b, c, d, e, f, g, h, i, j, k, l] = head;
    let len = u32::from_le_bytes([i, j, k, l]) as usize;
    if len > most {
        return Err(io::Error::from(io::ErrorKind::InvalidData));
    }
    bytes.resize(len, 0);
    from.read_exact(bytes)?;
    Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

enum Note {
    /// A frame of the server: its tag and whether its bytes are right.
    Frame(u64, bool),
    /// The connection in this slot, in its so-manieth life, ended.
    Gone(usize, u64, i32),
    /// It is there again.
    There(usize, u64, TcpStream),
    Command(Command),
}

/// One of the two connections.
struct Line {
    life: u64,
    /// To the thread that writes; `None` while there is no connection.
    writer: Option<Sender<(u64, Vec<u8>)>>,
    /// What waits for a connection.
    waiting: Vec<(u64, Vec<u8>)>,
    /// Numbers under way.
    open: BTreeSet<u64>,
}

struct Client {
    server: SocketAddr,
    pattern: Arc<Pattern>,
    queue: Sender<Note>,
    lines: [Line; 2],
    accounts: Accounts,
}

/// Runs the client to its end.
pub(super) fn client(server: SocketAddr, load: Load) -> anyhow::Result<()> {
    let longest = load.request.max(load.reply).max(load.bulk) as usize;
    let pattern = Arc::new(Pattern::new(load.seed, longest));
    let (queue, notes) = channel();
    let line = || Line { life: 0, writer: None, waiting: Vec::new(), open: BTreeSet::new() };
    let lines = [line(), line()];
    let mut client = Client { server, pattern, queue, lines, accounts: Accounts::new(load) };
    let end = Instant::now() + CONNECT;
    for at in 0..client.lines.len() {
        let stream = loop {
            match connect(server) {
                Ok(stream) => break stream,
                Err(e) if Instant::now() >= end => {
                    return Err(e).with_context(|| format!("connecting to {server}"));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        client.there(at, stream);
    }
    listen(client.queue.clone(), Note::Command);
    say(&Answer::Ready);
    client.run(&notes);
    say(&Answer::Client(Box::new(client.accounts.report)));
    Ok(())
}

impl Client {
    fn run(&mut self, notes: &Receiver<Note>) {
        let mut give_up: Option<Micros> = None;
        loop {
            while let Some((number, kind, len)) = self.accounts.due() {
                let tag = tag(kind, number);
                let bytes = self.pattern.of(tag, len).to_vec();
                self.send(usize::from(kind == BULK), number, tag, bytes);
            }
            if let Some(at) = give_up
                && (self.accounts.clock.now() >= at || self.accounts.is_settled())
            {
                return;
            }
            let wait = match self.accounts.wake_at() {
                Some(at) => self.accounts.clock.until(at),
                None => Duration::from_millis(20),
            };
            let first = match notes.recv_timeout(wait) {
                Ok(note) => note,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            for note in core::iter::once(first).chain(notes.try_iter().take(64)) {
                if self.take(note) {
                    self.accounts.end();
                    give_up = Some(self.accounts.clock.now() + PATIENCE);
                }
            }
        }
    }

    fn send(&mut self, at: usize, number: u64, tag: u64, bytes: Vec<u8>) {
        let Some(line) = self.lines.get_mut(at) else { return };
        line.open.insert(number);
        match &line.writer {
            // A writer that has just ended leaves the number open; its end fails it.
            Some(writer) => _ = writer.send((tag, bytes)),
            None => line.waiting.push((tag, bytes)),
        }
    }

    fn there(&mut self, at: usize, stream: TcpStream) {
        let Some(line) = self.lines.get_mut(at) else { return };
        line.life += 1;
        let (life, queue, pattern) = (line.life, self.queue.clone(), Arc::clone(&self.pattern));
        let (writer, frames) = channel::<(u64, Vec<u8>)>();
        for frame in line.waiting.drain(..) {
            let _ = writer.send(frame);
        }
        line.writer = Some(writer);
        let most = self.accounts.load.reply as usize;
        let reading = stream.try_clone();
        std::thread::spawn(move || {
            for (tag, bytes) in frames {
                if write_frame(&stream, tag, &bytes).is_err() {
                    // The reader says so.
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                    return;
                }
            }
        });
        std::thread::spawn(move || {
            let errno = |e: io::Error| e.raw_os_error().unwrap_or(104);
            let mut bytes = Vec::new();
            let end = match reading {
                Err(e) => errno(e),
                Ok(stream) => loop {
                    match read_frame(&stream, most, &mut bytes) {
                        Ok(tag) => {
                            let good = bytes.is_empty() || pattern.is(tag, bytes.len(), &bytes);
                            let _ = queue.send(Note::Frame(tag, good));
                        }
                        Err(e) => break errno(e),
                    }
                },
            };
            let _ = queue.send(Note::Gone(at, life, end));
        });
    }

    /// Deals with a note; true if it says that this is the end.
    fn take(&mut self, note: Note) -> bool {
        match note {
            Note::Frame(tag, good) => {
                let (kind, number) = untag(tag);
                let at = usize::from(kind == BULK);
                if self.lines.get_mut(at).is_some_and(|line| line.open.remove(&number)) {
                    self.accounts.ended(number, None);
                }
                if kind == REPLY {
                    self.accounts.replied(number, self.accounts.clock.now(), good);
                }
            }
            Note::Gone(at, life, errno) => self.gone(at, life, errno),
            Note::There(at, life, stream) => {
                if self.lines.get(at).is_some_and(|line| line.life == life) {
                    self.there(at, stream);
                }
            }
            Note::Command(Command::Begin(at)) => {
                self.accounts.begin(at);
                say_done(Ok(()));
            }
            // The kernel's path manager sees for itself what addresses there are.
            Note::Command(Command::AddNi(_) | Command::DelNi(_)) => say_done(Ok(())),
            Note::Command(Command::Finish) => return true,
        }
        false
    }

    fn gone(&mut self, at: usize, life: u64, errno: i32) {
        let Some(line) = self.lines.get_mut(at).filter(|line| line.life == life) else { return };
        line.writer = None;
        for number in core::mem::take(&mut line.open) {
            self.accounts.ended(number, Some(errno));
        }
        let (server, queue) = (self.server, self.queue.clone());
        std::thread::spawn(move || {
            loop {
                if let Ok(stream) = connect(server) {
                    let _ = queue.send(Note::There(at, life, stream));
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    }
}

/// Runs the server to its end.
pub(super) fn server(
    address: SocketAddr,
    ledger: &Path,
    life: u8,
    load: Load,
) -> anyhow::Result<()> {
    let longest = load.request.max(load.reply).max(load.bulk) as usize;
    let pattern = Arc::new(Pattern::new(load.seed, longest));
    let ledger = Arc::new(Mutex::new(Ledger::open(ledger, life)?));
    let report = Arc::new(Mutex::new(ServerReport::default()));
    let listening = socket(address)?;
    listening.bind(&SockAddr::from(address))?;
    listening.listen(16)?;
    let listening = TcpListener::from(listening);
    let (queue, commands) = channel();
    listen(queue, |command| command);
    say(&Answer::Ready);
    let shared = Arc::clone(&report);
    std::thread::spawn(move || {
        for stream in listening.incoming().flatten() {
            let (pattern, ledger, report) =
                (Arc::clone(&pattern), Arc::clone(&ledger), Arc::clone(&shared));
            std::thread::spawn(move || serve(&stream, load, &pattern, &ledger, &report));
        }
    });
    for command in commands {
        match command {
            Command::Finish => break,
            Command::Begin(_) | Command::AddNi(_) | Command::DelNi(_) => say_done(Ok(())),
        }
    }
    let report = report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    say(&Answer::Server(report));
    Ok(())
}

fn serve(
    stream: &TcpStream,
    load: Load,
    pattern: &Pattern,
    ledger: &Mutex<Ledger>,
    report: &Mutex<ServerReport>,
) {
    // Without it replies are late, not wrong.
    let _ = stream.set_nodelay(true);
    let mut bytes = Vec::new();
    let most = load.request.max(load.bulk) as usize;
    while let Ok(asked) = read_frame(stream, most, &mut bytes) {
        let (kind, number) = untag(asked);
        let size = if kind == REQUEST { load.request } else { load.bulk } as usize;
        let noted = || {
            // Nothing panics under the locks.
            ledger.lock().unwrap_or_else(PoisonError::into_inner).enter(number).is_ok()
        };
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        if !(pattern.is(asked, size, &bytes) && noted()) {
            report.corrupt += 1;
            continue;
        }
        let sent = if kind == REQUEST {
            report.replies += 1;
            drop(report);
            let answer = tag(REPLY, number);
            write_frame(stream, answer, pattern.of(answer, load.reply as usize))
        } else {
            drop(report);
            write_frame(stream, asked, &[])
        };
        if sent.is_err() {
            return;
        }
    }
}

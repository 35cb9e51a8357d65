//! The client: sends at fixed times, and writes down what became of each message.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use lnet_rt::{Nid, NodeHandle};

use super::node::{self, Arrival, BULKS, Landing, REPLIES, REQUESTS, Spent, Spot};
use super::ops::Ops;
use super::pattern::Pattern;
use super::talk::{
    Answer, BULK, ClientReport, Command, Load, NodeSpec, REPLY, REQUEST, Sample, tag, untag,
};
use super::{listen, say, say_done};
use crate::clock::{Clock, Micros};

/// How long after the last message a reply may still come.
const PATIENCE: Micros = 7_000_000;

enum Note {
    Look(u64),
    Arrived(Micros, Arrival),
    Spent(Spent),
    Command(Command),
}

/// The accounts: what is the same whatever the messages go over.
pub(super) struct Accounts {
    pub(super) clock: Clock,
    pub(super) load: Load,
    pub(super) report: ClientReport,
    /// When the next request and the next bulk message are due; `None` before the beginning and
    /// after the end.
    next: Option<(Micros, Micros)>,
    /// Requests under way, and bulk messages.
    requests: u32,
    bulks: u32,
}

impl Accounts {
    pub(super) fn new(load: Load) -> Self {
        let report = ClientReport::default();
        Self { clock: Clock::new(), load, report, next: None, requests: 0, bulks: 0 }
    }

    /// From `at` on there is something to send.
    pub(super) fn begin(&mut self, at: Micros) {
        self.next = Some((at, at));
    }

    /// No more.
    pub(super) fn end(&mut self) {
        self.next = None;
    }

    /// When to look again; `None` if nothing will be due.
    pub(super) fn wake_at(&self) -> Option<Micros> {
        let (request, bulk) = self.next?;
        let request = self.request_may_go().then_some(request);
        let bulk = self.bulk_may_go().then_some(bulk);
        request.into_iter().chain(bulk).min()
    }

    fn request_may_go(&self) -> bool {
        self.requests < self.load.window
    }

    fn bulk_may_go(&self) -> bool {
        self.load.bulk > 0 && self.bulks < self.load.bulk_window
    }

    /// The next message that is due: its number, kind and length.
    pub(super) fn due(&mut self) -> Option<(u64, u64, usize)> {
        let now = self.clock.now();
        let (may_request, may_bulk) = (self.request_may_go(), self.bulk_may_go());
        let (request, bulk) = self.next.as_mut()?;
        let number = self.report.samples.len() as u64;
        let (due, is_request) = if may_request && *request <= now {
            let due = *request;
            *request += self.load.every.max(1);
            self.requests += 1;
            (due, true)
        } else if may_bulk && *bulk <= now {
            // A window that was full is no reason to catch up.
            let due = (*bulk).max(now.saturating_sub(self.load.bulk_every));
            *bulk = due + self.load.bulk_every.max(1);
            self.bulks += 1;
            (due, false)
        } else {
            return None;
        };
        self.report.samples.push(Sample {
            number,
            request: is_request,
            due,
            begun: now,
            ended: None,
            error: None,
            replied: None,
            replies: 0,
        });
        let (kind, size) =
            if is_request { (REQUEST, self.load.request) } else { (BULK, self.load.bulk) };
        Some((number, kind, size as usize))
    }

    /// The caller got the outcome of message `number`.
    pub(super) fn ended(&mut self, number: u64, error: Option<i32>) {
        let now = self.clock.now();
        if let Some(sample) = self.report.samples.get_mut(number as usize) {
            let was_over = sample.is_over();
            sample.ended = Some(now);
            sample.error = error;
            if !was_over && sample.is_over() {
                let under_way = if sample.request { &mut self.requests } else { &mut self.bulks };
                *under_way = under_way.saturating_sub(1);
            }
        }
    }

    /// A reply came.
    pub(super) fn replied(&mut self, number: u64, at: Micros, good: bool) {
        match self.report.samples.get_mut(number as usize) {
            Some(sample) if good && sample.request => {
                let was_over = sample.is_over();
                sample.replies += 1;
                sample.replied.get_or_insert(at);
                if !was_over && sample.is_over() {
                    self.requests = self.requests.saturating_sub(1);
                }
            }
            _ => self.report.corrupt += 1,
        }
    }

    /// Whether every request that its caller knows as taken has its reply.
    pub(super) fn is_settled(&self) -> bool {
        // What is open is at the end.
        self.report.samples.iter().rev().all(Sample::is_over)
    }
}

struct Client {
    node: NodeHandle,
    server: Nid,
    pattern: Arc<Pattern>,
    ops: Ops<Note>,
    replies: Landing<Note>,
    accounts: Accounts,
}

/// Runs to the end.
pub(super) fn run(spec: &NodeSpec, server: Nid, load: Load) -> anyhow::Result<()> {
    let (queue, notes) = channel();
    let node = node::start(spec)?;
    let longest = load.request.max(load.reply).max(load.bulk) as usize;
    let pattern = Arc::new(Pattern::new(load.seed, longest));
    let accounts = Accounts::new(load);
    let clock = accounts.clock;
    // The time is taken on the node's thread, where the reply has just come in.
    let arrived = move |arrival| Note::Arrived(clock.now(), arrival);
    let spot = Spot { portal: REPLIES, size: load.reply };
    let replies = Landing::new(&node, spot, &pattern, queue.clone(), arrived, Note::Spent)?;
    node::find(&node, server)?;
    listen(queue.clone(), Note::Command);
    let ops = Ops::new(queue, Note::Look);
    let watch = node::watch(&node, clock);
    let mut client = Client { node, server, pattern, ops, replies, accounts };
    say(&Answer::Ready);
    client.run(&notes);
    let mut report = client.accounts.report;
    report.counters = node::counters(&client.node);
    report.noticed = node::noticed(&watch);
    say(&Answer::Client(Box::new(report)));
    Ok(())
}

impl Client {
    fn run(&mut self, notes: &Receiver<Note>) {
        let mut give_up: Option<Micros> = None;
        loop {
            while let Some((number, kind, len)) = self.accounts.due() {
                self.send(number, kind, len);
            }
            let now = self.accounts.clock.now();
            if let Some(at) = give_up
                && (now >= at || (self.ops.len() == 0 && self.accounts.is_settled()))
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

    fn send(&mut self, number: u64, kind: u64, len: usize) {
        let portal = if kind == REQUEST { REQUESTS } else { BULKS };
        let tag = tag(kind, number);
        let bytes = self.pattern.of(tag, len).to_vec();
        let mut put = self.node.put(self.server, portal, u64::from(portal), bytes);
        put = put.hdr_data(tag);
        let load = &self.accounts.load;
        if if kind == REQUEST { load.ack } else { load.bulk_ack } {
            put = put.ack();
        }
        if let Some(limit) = load.timeout {
            put = put.timeout(Duration::from_micros(limit));
        }
        if let Some(outcome) = self.ops.begin(number, put.into_future()) {
            self.ended(number, outcome);
        }
    }

    fn ended(&mut self, number: u64, outcome: Result<lnet_rt::Moved, lnet_rt::OpFailed>) {
        self.accounts.ended(number, outcome.err().map(|e| e.errno().0));
    }

    /// Deals with a note; true if it says that this is the end.
    fn take(&mut self, note: Note) -> bool {
        match note {
            Note::Look(number) => {
                if let Some(outcome) = self.ops.look(number) {
                    self.ended(number, outcome);
                }
            }
            Note::Arrived(at, arrival) => {
                let (kind, number) = untag(arrival.tag);
                self.accounts.replied(number, at, arrival.good && kind == REPLY);
            }
            Note::Spent(spent) => {
                if let Err(e) = self.replies.renew(spent) {
                    tracing::error!("no buffer for replies: {e:#}");
                }
            }
            Note::Command(Command::Begin(at)) => {
                self.accounts.begin(at);
                say_done(Ok(()));
            }
            Note::Command(Command::AddNi(nid)) => say_done(node::add_ni(&self.node, &nid)),
            Note::Command(Command::DelNi(nid)) => say_done(node::del_ni(&self.node, &nid)),
            Note::Command(Command::Finish) => return true,
        }
        false
    }
}

//! The server: notes what it gets, on the node's own thread and before anything else happens to it,
//! and answers requests.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lnet_rt::{Moved, NodeHandle, OpFailed};

use super::ledger::Ledger;
use super::node::{self, Arrival, BULKS, Landing, REPLIES, REQUESTS, Spent, Spot};
use super::ops::Ops;
use super::pattern::Pattern;
use super::talk::{Answer, Command, Load, NodeSpec, REPLY, REQUEST, ServerReport, tag, untag};
use super::{listen, say, say_done};
use crate::clock::{Clock, Micros};

enum Note {
    Look(u64),
    Arrived(Arrival),
    Spent(Spent),
    Command(Command),
}

struct Server {
    node: NodeHandle,
    load: Load,
    pattern: Arc<Pattern>,
    ops: Ops<Note>,
    clock: Clock,
    /// When each reply under way was begun.
    begun: BTreeMap<u64, Micros>,
    requests: Landing<Note>,
    bulks: Option<Landing<Note>>,
    report: ServerReport,
}

/// Runs to the end.
pub(super) fn run(spec: &NodeSpec, ledger: &Path, life: u8, load: Load) -> anyhow::Result<()> {
    let (queue, notes) = channel();
    let node = node::start(spec)?;
    let longest = load.request.max(load.reply).max(load.bulk) as usize;
    let pattern = Arc::new(Pattern::new(load.seed, longest));
    let ledger = Arc::new(Mutex::new(Ledger::open(ledger, life)?));
    let landing = |portal, size| {
        let ledger = Arc::clone(&ledger);
        let arrived = move |mut arrival: Arrival| {
            // Nothing panics under the lock.
            let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
            arrival.good = arrival.good && ledger.enter(untag(arrival.tag).1).is_ok();
            Note::Arrived(arrival)
        };
        let spot = Spot { portal, size };
        Landing::new(&node, spot, &pattern, queue.clone(), arrived, Note::Spent)
    };
    let requests = landing(REQUESTS, load.request)?;
    let bulks = (load.bulk > 0).then(|| landing(BULKS, load.bulk)).transpose()?;
    listen(queue.clone(), Note::Command);
    let ops = Ops::new(queue, Note::Look);
    let report = ServerReport::default();
    let mut server = Server {
        node,
        load,
        pattern,
        ops,
        clock: Clock::new(),
        begun: BTreeMap::new(),
        requests,
        bulks,
        report,
    };
    let watch = node::watch(&server.node, server.clock);
    say(&Answer::Ready);
    server.run(&notes);
    server.report.noticed = node::noticed(&watch);
    server.report.counters = node::counters(&server.node);
    say(&Answer::Server(server.report));
    Ok(())
}

impl Server {
    fn run(&mut self, notes: &Receiver<Note>) {
        while let Ok(note) = notes.recv() {
            match note {
                Note::Look(number) => {
                    if let Some(outcome) = self.ops.look(number) {
                        self.ended(number, outcome);
                    }
                }
                Note::Arrived(arrival) => self.arrived(&arrival),
                Note::Spent(spent) => {
                    let portal = spent.portal;
                    let landing = if portal == BULKS {
                        self.bulks.as_mut()
                    } else {
                        Some(&mut self.requests)
                    };
                    if let Some(Err(e)) = landing.map(|landing| landing.renew(spent)) {
                        tracing::error!("no buffer for portal {portal}: {e:#}");
                    }
                }
                Note::Command(Command::Begin(_)) => say_done(Ok(())),
                Note::Command(Command::AddNi(nid)) => say_done(node::add_ni(&self.node, &nid)),
                Note::Command(Command::DelNi(nid)) => say_done(node::del_ni(&self.node, &nid)),
                Note::Command(Command::Finish) => return,
            }
        }
    }

    fn arrived(&mut self, arrival: &Arrival) {
        let (kind, number) = untag(arrival.tag);
        if !arrival.good {
            self.report.corrupt += 1;
            return;
        }
        if kind != REQUEST {
            return;
        }
        let tag = tag(REPLY, number);
        let bytes = self.pattern.of(tag, self.load.reply as usize).to_vec();
        let put = self.node.put(arrival.from, REPLIES, u64::from(REPLIES), bytes);
        self.report.replies += 1;
        // Numbered by themselves: a request that came twice is answered twice.
        let mut put = put.hdr_data(tag);
        if self.load.ack {
            put = put.ack();
        }
        // As requests of real services do, this one says how long its sender waits.
        if let Some(limit) = self.load.timeout {
            put = put.timeout(Duration::from_micros(limit));
        }
        let op = put.into_future();
        self.begun.insert(self.report.replies, self.clock.now());
        if let Some(outcome) = self.ops.begin(self.report.replies, op) {
            self.ended(self.report.replies, outcome);
        }
    }

    fn ended(&mut self, reply: u64, outcome: Result<Moved, OpFailed>) {
        let begun = self.begun.remove(&reply);
        if let (Err(e), Some(begun)) = (outcome, begun) {
            self.report.failed.push((begun, e.errno().0));
        }
    }
}

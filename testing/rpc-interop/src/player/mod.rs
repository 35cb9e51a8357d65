//! Plays a recording to one node of ours: what the others sent arrives at the recorded times, what
//! the recorded program did our program does, and each message that the recorded node sent is
//! compared with ours.
//!
//! Numbers that a node chooses for itself are replaced by relation on the way in: export cookies in
//! requests, match bits in replies and bulk data, handles of descriptors in acknowledgements.
//!
//! `past.rs` makes what was there before the recording. `client.rs` and `server.rs` are the two roles
//! of our node, `recovery.rs` is the client's part after a crash; `pings.rs` answers what it sends at
//! times of its own, `outage.rs` plays what LNet did and no capture shows. `compare.rs` finds our message
//! for a recorded one.

mod client;
mod compare;
mod locks;
mod outage;
mod own_locks;
mod past;
mod pings;
mod recovery;
mod server;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use lnet_types::{Instant, Nid};
use lnet_wire::{Handle, Kind};
use ptlrpc::{CallId, Event, ImportId, Served, TargetId, Tunables};

use locks::Locks;
use outage::Unseen;

use crate::exchange::Index;
use crate::judge::Relations;
use crate::recording::{Message, Role};
use crate::stage::{START, Stage, instant};

/// Ours is within this of the recording where a recording is a matter of time.
const NEAR: Duration = Duration::from_secs(1);

/// Role of our node for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// It serves.
    Server,
    /// It asks.
    Client,
}

/// What is known of a recording beside its messages.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Tunables of the nodes.
    pub tunables: Tunables,
    /// The whole server dies in it, and starts again.
    pub dies: bool,
    /// A server of ours serves the locks of objects by `ldlm`, not with recorded bodies.
    pub locks: bool,
}

/// What came of one recorded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the table says.
    Equal,
    /// Sent, with these differences.
    Differs(Vec<String>),
    /// Not to be played, for this reason.
    Open(&'static str),
}

/// One recorded message of the node that ours stands for.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its frame.
    pub frame: u32,
    /// Role of our node.
    pub side: Side,
    /// What the message is.
    pub what: String,
    /// It was made by `ldlm`.
    pub of_locks: bool,
    /// What came of it.
    pub verdict: Verdict,
}

/// A play that is over.
#[derive(Clone, Debug, Default)]
pub struct Played {
    /// All recorded messages of the node.
    pub outcomes: Vec<Outcome>,
    /// All that our node sent.
    pub sent: Vec<Message>,
    /// What it sent beside.
    pub extra: Vec<(Side, String)>,
    /// What was recorded and could not be handed to our node: the message and why.
    pub kept_back: Vec<(Side, String)>,
}

struct Produced {
    message: Message,
    at: Instant,
    paired: bool,
    /// No node was there to record it.
    unheard: bool,
    /// A ping that was dealt with outside of the recording.
    answered: bool,
}

/// The player.
pub struct Player<'a, S> {
    messages: &'a [Message],
    index: &'a Index,
    me: Nid,
    stage: S,
    produced: Vec<Produced>,
    /// Recorded message to ours.
    pairs: BTreeMap<usize, usize>,
    imports: BTreeMap<usize, ImportId>,
    calls: BTreeMap<usize, CallId>,
    targets: BTreeMap<usize, TargetId>,
    served: BTreeMap<(Nid, u64), Served>,
    /// Memory of bulk reads of the server, and exchanges whose bulk data have begun.
    moving: BTreeSet<usize>,
    injected: BTreeSet<usize>,
    learned: BTreeSet<(usize, u32)>,
    relations: Relations,
    played: Played,
    /// What was not recorded, and when it was.
    unseen: Vec<(Duration, Unseen)>,
    /// Pings that were recorded and that our node has yet to send, each with its reply once that was due.
    awaited: BTreeMap<usize, Option<usize>>,
    setup: Setup,
    /// Our server has died and started again.
    restarted: bool,
    /// Targets of ours that have started again, by uuid.
    reborn: BTreeSet<String>,
    /// Cookies of our imports.
    handles: BTreeMap<usize, u64>,
    /// The locks of objects, where `ldlm` serves them.
    locks: Option<Locks>,
}

impl<'a, S: Stage> Player<'a, S> {
    /// Plays a recording to a node that stands for `me`.
    pub fn play(
        messages: &'a [Message],
        index: &'a Index,
        me: Nid,
        setup: &Setup,
        mut stage: S,
    ) -> Played {
        stage.begin(START - Duration::from_secs(100));
        let mut player = Self {
            messages,
            index,
            me,
            stage,
            setup: setup.clone(),
            produced: Vec::new(),
            pairs: BTreeMap::new(),
            imports: BTreeMap::new(),
            calls: BTreeMap::new(),
            targets: BTreeMap::new(),
            served: BTreeMap::new(),
            moving: BTreeSet::new(),
            injected: BTreeSet::new(),
            learned: BTreeSet::new(),
            relations: Relations::default(),
            played: Played::default(),
            unseen: Vec::new(),
            awaited: BTreeMap::new(),
            restarted: false,
            reborn: BTreeSet::new(),
            handles: BTreeMap::new(),
            locks: setup.locks.then(|| Locks::new(setup.tunables.ldlm_enqueue_min, false)),
        };
        player.prelude();
        for (at, message) in messages.iter().enumerate() {
            player.unseen_until(message.at);
            if message.to() == me {
                player.run_to(instant(message.at));
                player.input(at);
            } else if message.from() == me {
                player.output(at);
            }
        }
        player.take();
        player.await_pings();
        player.played.sent = player.produced.iter().map(|p| p.message.clone()).collect();
        for produced in player.produced.iter().filter(|p| !p.paired && !p.unheard) {
            let at = produced.at.saturating_since(START).as_secs_f64();
            let message = &produced.message;
            let side = if message.role == Role::Request { Side::Client } else { Side::Server };
            player.played.extra.push((side, format!("{} at {at:.1} s", describe(message))));
        }
        player.played
    }

    fn run_to(&mut self, end: Instant) {
        if !S::TIMED {
            self.stage.pass(end);
            return self.take();
        }
        while end > self.stage.now() {
            let step = (self.stage.now() + NEAR).min(end);
            self.stage.pass(step);
            self.take();
            self.answer_pings();
            self.pair_pings();
        }
        self.take();
    }

    /// Takes what our node has sent, and what its request layer reports.
    fn take(&mut self) {
        for sent in core::mem::take(self.stage.sent()) {
            let (at, unheard) = (sent.at.saturating_since(START), sent.unheard);
            if let Some(message) = Message::new(0, at, sent.hdr, sent.payload) {
                self.produced.push(Produced {
                    message,
                    at: sent.at,
                    paired: false,
                    unheard,
                    answered: unheard,
                });
            }
        }
        self.lock_timers();
        self.unlock_its_own();
        let mut more = false;
        for event in self.stage.events() {
            let Some(event) = self.lock_event(event) else {
                more = true;
                continue;
            };
            match event {
                Event::Served(served) => {
                    self.served.insert((served.from, served.xid), *served);
                }
                Event::Ended { .. } | Event::Import { .. } => {}
                _ => {}
            }
        }
        if more {
            self.take();
        }
    }

    fn kept_back(&mut self, at: usize, why: &str) {
        // What arrives is for the other role than what it would be if it left.
        let side = match self.side(at) {
            Side::Server => Side::Client,
            Side::Client => Side::Server,
        };
        self.played.kept_back.push((side, format!("{}: {why}", describe(&self.messages[at]))));
    }

    fn input(&mut self, at: usize) {
        if self.waits_for_ping(at) {
            return;
        }
        let mut message = self.messages[at].clone();
        let ready = match message.role {
            Role::Request => self.request_in(at, &mut message),
            Role::Reply | Role::Early => self.reply_in(at, &mut message),
            Role::BulkPut | Role::BulkGet => self.bulk_in(at, &mut message),
            Role::Ack | Role::Data => self.answer_in(at, &mut message),
        };
        if let Err(why) = ready {
            return self.kept_back(at, why);
        }
        match self.stage.arrive(&message.hdr, &message.payload) {
            Ok(()) => {
                self.injected.insert(at);
            }
            Err(why) => self.kept_back(at, &why),
        }
        self.take();
    }

    fn pair(&self, at: usize) -> Result<&Message, &'static str> {
        let pair = self.pairs.get(&at).and_then(|pair| self.produced.get(*pair));
        pair.map(|pair| &pair.message).ok_or(UNSENT)
    }

    fn sending_of(&self, at: usize) -> Result<usize, &'static str> {
        let exchange = self.index.of.get(&at).ok_or("no exchange")?;
        let exchange = &self.index.exchanges[*exchange];
        let all = exchange.replies.iter().chain(&exchange.bulk);
        let found = all.into_iter().find(|(other, _)| *other == at);
        found.map(|(_, sending)| *sending).ok_or("no sending")
    }

    fn answer_in(&self, at: usize, message: &mut Message) -> Result<(), &'static str> {
        let first = self.index.answers.get(&at).ok_or("answers nothing that was recorded")?;
        let ours = match self.pair(*first)?.hdr.kind {
            Kind::Put { ack, .. } => ack,
            Kind::Get { ret, .. } => ret,
            Kind::Ack { .. } | Kind::Reply { .. } => Handle::NONE,
        };
        if ours == Handle::NONE {
            return Err("ours wanted no acknowledgement");
        }
        match &mut message.hdr.kind {
            Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => *dst = ours,
            Kind::Put { .. } | Kind::Get { .. } => {}
        }
        Ok(())
    }

    fn output(&mut self, at: usize) {
        let message = &self.messages[at];
        self.run_to(instant(message.at));
        let open = match message.role {
            Role::Request | Role::Reply if self.is_of_locks(at) => {
                self.lock_for_itself(at);
                None
            }
            Role::Request => self.request_out(at),
            Role::Reply => self.reply_out(at),
            Role::Early => None,
            Role::BulkPut | Role::BulkGet => self.bulk_out(at),
            Role::Ack | Role::Data => self.answer_out(at),
        };
        let verdict = match open {
            Some(why) => Verdict::Open(why),
            None if self.put_off_ping(at) => return,
            None => self.expect(at),
        };
        self.came_of(at, verdict);
    }

    fn came_of(&mut self, at: usize, verdict: Verdict) {
        let (message, side) = (&self.messages[at], self.side(at));
        let what = describe(message);
        let of_locks = side == Side::Server && self.is_of_locks(at);
        self.played.outcomes.push(Outcome { frame: message.frame, side, what, of_locks, verdict });
    }

    /// Whether our node serves or asks with this message.
    fn side(&self, at: usize) -> Side {
        let message = &self.messages[at];
        let callback = match self.index.answers.get(&at) {
            Some(first) => self.messages[*first].is_callback(),
            None => message.is_callback(),
        };
        let serves =
            matches!(message.role, Role::Reply | Role::Early | Role::BulkPut | Role::BulkGet);
        if serves != callback { Side::Server } else { Side::Client }
    }

    fn answer_out(&self, at: usize) -> Option<&'static str> {
        let Some(first) = self.index.answers.get(&at) else { return Some(UNRECORDED) };
        (!self.injected.contains(first)).then_some("what it answers could not be handed on")
    }
}

const UNSENT: &str = "ours has not sent what it belongs to";
const UNRECORDED: &str = "what it belongs to was not recorded";

/// A message in a few words.
pub fn describe(message: &Message) -> String {
    let body = message.body();
    match message.role {
        Role::Request => format!("{} {}", body.kind, body.opcode),
        Role::Reply => format!("{} {}", body.kind, body.opcode),
        Role::Early => format!("EARLY {}", body.opcode),
        Role::BulkPut => "bulk PUT".to_owned(),
        Role::BulkGet => "bulk GET".to_owned(),
        Role::Ack => "ACK".to_owned(),
        Role::Data => "REPLY".to_owned(),
    }
}

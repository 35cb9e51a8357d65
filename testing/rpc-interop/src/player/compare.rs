//! Which of our messages stands for a recorded one, and whether it is equal and in time.

use core::time::Duration;

use lnet_types::Instant;
use lnet_wire::{Handle, Hdr, Kind};
use lustre_wire::{BodyFlags, Opcode};

use super::{NEAR, Player, Produced, Verdict};
use crate::exchange::base;
use crate::judge::Context;
use crate::recording::{Message, Role};
use crate::stage::{Stage, instant};

/// Timers of the recorded kernel run late by up to a fortieth of what was waited for: pings of 25 s
/// come after 25.6 and 26.6 s.
const COARSE: f64 = 1.0 / 40.0;

impl<S: Stage> Player<'_, S> {
    pub(super) fn candidate(&self, at: usize) -> Option<usize> {
        let recorded = &self.messages[at];
        let fits = |produced: &Produced| {
            let ours = &produced.message;
            !produced.paired
                && ours.role == recorded.role
                && ours.to() == recorded.to()
                && match recorded.role {
                    Role::Request => self.same_request(recorded, ours),
                    Role::Reply | Role::Early | Role::BulkPut | Role::BulkGet => {
                        ours.bits() == recorded.bits()
                    }
                    Role::Ack | Role::Data => answered(&ours.hdr) == answered(&recorded.hdr),
                }
        };
        // Connects and pings before the last one were lost on the wire, if they were not recorded.
        let body = recorded.body();
        let repeats = recorded.role == Role::Request
            && (body.opcode.is_connect() || body.opcode == Opcode::OBD_PING);
        if repeats {
            self.produced.iter().rposition(fits)
        } else {
            self.produced.iter().position(fits)
        }
    }

    /// How much later than the recorded message ours came, counted from what both followed: the
    /// request before on the same connection, or the early reply before.
    fn late(&self, at: usize, link: usize, sent: Instant) -> (f64, f64) {
        let seconds = |instant: Instant| instant.as_nanos() as f64 / 1e9;
        let before = match self.messages[at].role {
            Role::Request => self.before(at, |other| self.index.channel(other) == Some(link)),
            Role::Early => self.before(at, |other| {
                self.messages[other].role == Role::Early
                    && self.index.of.get(&other) == self.index.of.get(&at)
            }),
            _ => None,
        };
        let skew = seconds(sent) - seconds(instant(self.messages[at].at));
        let Some((recorded, ours)) = before else { return (skew, 0.0) };
        let waited = (self.messages[at].at - self.messages[recorded].at).as_secs_f64();
        let drift = seconds(ours) - seconds(instant(self.messages[recorded].at));
        (skew - drift, waited)
    }

    /// The last message before `at` that fits and has one of ours in its place.
    fn before(&self, at: usize, fits: impl Fn(usize) -> bool) -> Option<(usize, Instant)> {
        let (recorded, ours) = self.pairs.range(..at).rev().find(|(other, _)| fits(**other))?;
        Some((*recorded, self.produced[*ours].at))
    }

    fn same_request(&self, recorded: &Message, ours: &Message) -> bool {
        let (a, b) = (recorded.body(), ours.body());
        let xid = match self.relations.xids.ours(base(recorded.bits())) {
            Some(xid) => xid == base(ours.bits()),
            None => self.relations.xids.recorded(base(ours.bits())).is_none(),
        };
        let target = |m: &Message| crate::exchange::asked(m).map(|asked| asked.target);
        a.opcode == b.opcode
            && xid
            && if a.opcode.is_connect() {
                target(recorded) == target(ours)
            } else if recorded.is_callback() {
                self.relations.clients.ours(a.handle).is_none_or(|handle| handle == b.handle)
            } else {
                self.relations.exports.ours(a.handle).unwrap_or(a.handle) == b.handle
            }
    }

    /// How long our message may take that stands for a recorded one.
    pub(super) fn patience(&self, at: usize) -> Instant {
        let from = if S::TIMED { instant(self.messages[at].at) } else { self.stage.now() };
        from + S::PATIENCE
    }

    /// Waits for our message in place of a recorded one, and compares them.
    pub(super) fn expect(&mut self, at: usize) -> Verdict {
        let due = instant(self.messages[at].at);
        let mut found = self.candidate(at);
        let patience = self.patience(at);
        while found.is_none() && self.stage.now() < patience {
            let end = (self.stage.now() + Duration::from_millis(100)).min(patience);
            self.stage.wait(end);
            self.take();
            found = self.candidate(at);
        }
        let Some(place) = found else {
            self.stage.pass(due);
            return Verdict::Differs(vec!["not sent".to_owned()]);
        };
        self.pairs.insert(at, place);
        self.produced[place].paired = true;
        let sent = self.produced[place].at;
        let mut ours = self.produced[place].message.clone();
        self.relate_cookies(at, &mut ours);
        let link = self.index.channel(at).unwrap_or_default();
        let portal = self.messages[at].portal().unwrap_or_default();
        let learned = self.learned.contains(&(link, portal));
        let skew = (sent.as_nanos() as f64 - due.as_nanos() as f64) / 1e9;
        let counted = if ours.role == Role::Request { 0.0 } else { skew };
        let oldest = self.oldest(at, link);
        let context = Context { link, learned, oldest, skew: counted, timed: S::TIMED };
        let mut differences = self.relations.compare(&self.messages[at], &ours, context);
        let (late, waited) = self.late(at, link, sent);
        let near = |late: f64, waited: f64| late.abs() <= NEAR.as_secs_f64() + waited * COARSE;
        if S::TIMED && !near(skew, 0.0) && !near(late, waited) {
            differences.push(format!("time: {late:+.1} s"));
        }
        if differences.is_empty() { Verdict::Equal } else { Verdict::Differs(differences) }
    }

    /// Lowest xid of a connection without a reply before this place.
    fn oldest(&self, at: usize, link: usize) -> u64 {
        let unanswered = self.index.exchanges.iter().enumerate().filter(|(place, exchange)| {
            let Some(first) = exchange.sendings.first().copied() else { return false };
            let body = self.messages[first].body();
            // What was answered before the recording is unanswered again once it is repeated.
            let repeats = first > at && body.flags.contains(BodyFlags::REPLAY);
            // A ping without an answer has ended by the next connect, and goes no second time.
            let connected = |later: usize| {
                self.messages[later].body().opcode.is_connect()
                    && self.index.channel(later) == Some(link)
            };
            let ping = body.opcode == Opcode::OBD_PING;
            let over = ping && (first + 1..=at).any(connected);
            // Ours go at times of their own.
            let unsent = ping && !self.pairs.contains_key(&first);
            !repeats
                && !over
                && !unsent
                && (first <= at || self.calls.contains_key(place))
                && self.index.channel(first) == Some(link)
                && !body.opcode.is_connect()
                && !body.opcode.is_disconnect()
                && !exchange.replies.iter().any(|(reply, _)| {
                    *reply < at
                        && self.messages[*reply].role == Role::Reply
                        && self.injected.contains(reply)
                })
        });
        let lowest =
            unanswered.map(|(_, exchange)| self.messages[exchange.sendings[0]].bits()).min();
        lowest.unwrap_or_else(|| self.messages[at].bits())
    }
}

/// Whether a PUT asks for an acknowledgement.
pub(super) fn wants_ack(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { ack, .. } if ack != Handle::NONE)
}

/// The handle that an acknowledgement or data message answers.
fn answered(hdr: &Hdr) -> Option<Handle> {
    match hdr.kind {
        Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => Some(dst),
        Kind::Put { .. } | Kind::Get { .. } => None,
    }
}

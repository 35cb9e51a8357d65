//! Compares a message that was recorded with the one that our node has sent in its place.

use std::collections::BTreeMap;

use crate::exchange::base;
use crate::fields::{Names, Rule, Value, fields, rule};
use crate::recording::Message;

/// Numbers of the recording and ours, one to one.
#[derive(Debug, Default)]
pub struct Bijection {
    ours: BTreeMap<u64, u64>,
    recorded: BTreeMap<u64, u64>,
}

impl Bijection {
    /// Relates two numbers; `false` if either is related to another.
    pub fn relate(&mut self, recorded: u64, ours: u64) -> bool {
        if recorded == 0 || ours == 0 {
            return recorded == ours;
        }
        *self.ours.entry(recorded).or_insert(ours) == ours
            && *self.recorded.entry(ours).or_insert(recorded) == recorded
    }

    /// Our number for one of the recording.
    pub fn ours(&self, recorded: u64) -> Option<u64> {
        self.ours.get(&recorded).copied()
    }

    /// The recording's number for one of ours.
    pub fn recorded(&self, ours: u64) -> Option<u64> {
        self.recorded.get(&ours).copied()
    }

    /// A number related to none: a new life of what has the number.
    pub fn forget(&mut self, recorded: u64) {
        if let Some(ours) = self.ours.remove(&recorded) {
            self.recorded.remove(&ours);
        }
    }
}

/// All relations of one play.
#[derive(Debug, Default)]
pub struct Relations {
    /// Cookies of exports.
    pub exports: Bijection,
    /// Cookies of clients.
    pub clients: Bijection,
    /// Handles of descriptors.
    pub descriptors: Bijection,
    /// Bases of match bits: xids, and the fresh numbers of resends.
    pub xids: Bijection,
    /// Last `conn_cnt` of each connection, in the recording and ours.
    pub counts: BTreeMap<usize, (u64, u64)>,
}

/// What a comparison needs to know beside the two messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// The connection of a request.
    pub link: usize,
    /// A reply on the portal of this request was recorded before.
    pub learned: bool,
    /// Lowest recorded xid of the connection that is unanswered, by what was recorded before.
    pub oldest: u64,
    /// Seconds by which ours came later than the recorded one.
    pub skew: f64,
    /// Whether times count.
    pub timed: bool,
}

impl Relations {
    /// The fields that differ, in words. None: the messages are equal as far as the table says.
    pub fn compare(&mut self, recorded: &Message, ours: &Message, context: Context) -> Vec<String> {
        let (left, right) = (fields(recorded), fields(ours));
        let mut differences = Vec::new();
        for (name, value) in &left {
            let other = right.iter().find(|(other, _)| other == name).map(|(_, value)| value);
            let equal = match (value, other) {
                (_, None) => false,
                (Value::Number(a), Some(Value::Number(b))) => {
                    self.number(recorded, ours, name, (*a, *b), context)
                }
                (a, Some(b)) => a == b || matches!(rule(recorded, name), Rule::Free(_)),
            };
            if !equal {
                let (value, other) = match other {
                    Some(other) => (value.beside(other), other.beside(value)),
                    None => (value.to_string(), "nothing".to_owned()),
                };
                differences.push(format!("{name}: recorded {value}, ours {other}"));
            }
        }
        for (name, value) in &right {
            if !left.iter().any(|(other, _)| other == name) {
                differences.push(format!("{name}: not recorded, ours {value}"));
            }
        }
        differences
    }

    fn number(
        &mut self,
        recorded: &Message,
        ours: &Message,
        name: &str,
        (a, b): (u64, u64),
        context: Context,
    ) -> bool {
        match rule(recorded, name) {
            Rule::Equal => a == b,
            Rule::Alike(Names::Export) => self.exports.relate(a, b),
            Rule::Alike(Names::Client) => self.clients.relate(a, b),
            Rule::Alike(Names::Descriptor) => self.descriptors.relate(a, b),
            Rule::Bits => a - base(a) == b - base(b) && self.xids.relate(base(a), base(b)),
            Rule::Replied => self.replied(recorded, ours, (a, b), context.oldest),
            Rule::Count => {
                // After a difference the count goes on from there: it is reported once.
                let (last, last_ours) = self.counts.insert(context.link, (a, b)).unwrap_or((a, b));
                a.wrapping_sub(last) == b.wrapping_sub(last_ours)
            }
            Rule::Learned => a == b || !context.learned,
            // Both count from the arrival of a request, which came at the recorded time.
            Rule::Second => !context.timed || ((a as f64 + context.skew) - b as f64).abs() < 2.0,
            Rule::Masked(mask, _) => a & mask == b & mask,
            Rule::Free(_) => true,
        }
    }

    /// The recorded node knows of a reply once its program has taken it, ours at once. It says 0 in a
    /// request that had to wait for its connect.
    fn replied(&self, recorded: &Message, ours: &Message, (a, b): (u64, u64), oldest: u64) -> bool {
        let opcode = recorded.body().opcode;
        if opcode.is_connect() || opcode.is_disconnect() {
            return a == b;
        }
        let lowest = if b + 1 == ours.bits() { Some(oldest) } else { self.xids.recorded(b + 1) };
        lowest.is_some_and(|lowest| lowest == a + 1 || (lowest == oldest && oldest > a))
    }
}

//! What selection writes down while it chooses, and what callers get to read: choices, candidates, and
//! the values by which they were ranked. The questions are answered in `explain.rs`.

use core::fmt;
use std::collections::VecDeque;

use lnet_types::{Errno, HealthStatus, Instant, Net, Nid};
use lnet_wire::MsgType;

use crate::send::key::{Criterion, Fact, Key};

/// The most candidates of one choice that are written down.
const CANDIDATES_MAX: usize = 256;

/// How many resends are kept with their reasons.
pub const RESENDS_KEPT: usize = 32;

/// Where the reasons go, if a caller asked for them.
pub(crate) type Recorder<'a> = Option<&'a mut Trace>;

/// What was to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[derive(serde::Serialize, serde::Deserialize)]
pub enum Step {
    /// The network, among those that both sides have (S-35).
    Network,
    /// Our interface on that network (S-41).
    Interface,
    /// The peer's interface on that network (S-43).
    PeerInterface,
    /// The gateway, where no network is common, by the interface that it would be sent to (S-55).
    Gateway,
}

impl Step {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Interface => "interface",
            Self::PeerInterface => "peer interface",
            Self::Gateway => "gateway",
        }
    }
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Named {
    /// A network.
    Net(Net),
    /// An interface, ours or the peer's.
    Nid(Nid),
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net(net) => net.fmt(f),
            Self::Nid(nid) => nid.fmt(f),
        }
    }
}

/// One candidate of a choice.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Candidate {
    /// What it is.
    pub name: Named,
    /// By what it stands behind the one before it; of the first, by what it stands before the
    /// second. `None` if it is the only one.
    pub decided: Option<Criterion>,
    /// The values that were compared, most important first. Those that say nothing are absent.
    pub facts: Vec<Fact>,
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Choice {
    /// What was to be chosen.
    pub step: Step,
    /// By rank: the first is what was chosen.
    pub candidates: Vec<Candidate>,
    /// How many more there are, behind these.
    pub more: usize,
}

/// How freely the path could be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Freedom {
    /// Network and interfaces of both sides (S-35).
    #[default]
    All,
    /// Our interface only: the peer is not Multi-Rail, or this very interface of it is meant.
    Source,
    /// Nothing: the caller gave the source (S-20).
    None,
    /// Nothing: a peer that is not Multi-Rail has one NID for this node (S-31).
    Known,
    /// Less than it seems: the peer was never heard, and what is known of its interfaces was configured
    /// or guessed.
    Unheard,
    /// Nothing: the message is for this node (S-5).
    Loopback,
}

impl Freedom {
    /// A sentence for tables.
    pub const fn text(self) -> &'static str {
        match self {
            Self::All => "any interface of both sides",
            Self::Source => "any interface of ours, this one of the peer",
            Self::None => "the source is given",
            Self::Known => "the peer knows us by this NID alone",
            Self::Unheard => "the peer was never reached: its state is unknown",
            Self::Loopback => "this node itself",
        }
    }
}

/// What becomes of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Outcome {
    /// It goes from the first NID to the second.
    Path(Nid, Nid),
    /// Nothing is known of the peer: it is discovered first, and then there is a choice.
    DiscoverFirst,
    /// It fails.
    NoPath(Errno),
}

/// Why a message goes where it goes. Displays as a table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Explanation {
    /// When.
    pub at: Instant,
    /// Kind of the message, if it was one and not a question.
    pub kind: Option<MsgType>,
    /// Its target.
    pub target: Nid,
    /// The source that was asked for.
    pub src: Option<Nid>,
    /// Bytes of payload.
    pub size: u64,
    /// Attempts before this one.
    pub retries: u32,
    /// How the attempt before this one failed.
    pub failed: Option<HealthStatus>,
    /// How much there was to choose.
    pub freedom: Freedom,
    /// Whether the peer is discovered first; the choice may be another one then.
    pub discovers: bool,
    /// The choices, in the order in which they were made.
    pub choices: Vec<Choice>,
    /// What came of it.
    pub outcome: Outcome,
}

/// The recorder.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) freedom: Freedom,
    pub(super) choices: Vec<Choice>,
}

impl Trace {
    pub(crate) fn record<K: Key>(&mut self, step: Step, mut candidates: Vec<(Named, K)>) {
        if candidates.is_empty() {
            // No choice was made: no network in common, say, but perhaps a gateway.
            return;
        }
        // Stable, as the choice is: of equal ones the first stays first.
        candidates.sort_by(|(_, a), (_, b)| a.cmp(b));
        let more = candidates.len().saturating_sub(CANDIDATES_MAX);
        let listed = candidates.iter().take(CANDIDATES_MAX).enumerate();
        let candidates = listed
            .map(|(i, (name, key))| {
                let other = candidates.get(if i == 0 { 1 } else { i - 1 });
                let decided = other.map(|(_, other)| key.decides(other));
                Candidate { name: *name, decided, facts: key.facts() }
            })
            .collect();
        self.choices.push(Choice { step, candidates, more });
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Some(kind) => write!(f, "{} {kind:?} of {} bytes", self.at, self.size)?,
            None => write!(f, "message of {} bytes", self.size)?,
        }
        write!(f, " to {}", self.target)?;
        if let Some(src) = self.src {
            write!(f, " from {src}")?;
        }
        if self.retries > 0 {
            write!(f, ", attempt {}", self.retries + 1)?;
        }
        if let Some(failed) = self.failed {
            write!(f, " after {}", failed.name())?;
        }
        writeln!(f, ": {}", self.freedom.text())?;
        for choice in &self.choices {
            for (i, c) in choice.candidates.iter().enumerate() {
                let step = if i == 0 { choice.step.name() } else { "" };
                write!(f, "  {step:<15} {:>3}  {:<24}", i + 1, c.name.to_string())?;
                match (c.decided, i) {
                    (None, _) => write!(f, "  the only one")?,
                    (Some(by), 0) => write!(f, "  first by {by}")?,
                    (Some(by), _) => write!(f, "  next by {by}")?,
                }
                for (i, (criterion, value)) in c.facts.iter().enumerate() {
                    let before = if i == 0 { ": " } else { ", " };
                    write!(f, "{before}{criterion} {value}")?;
                }
                writeln!(f)?;
            }
            if choice.more > 0 {
                writeln!(f, "  and {} more", choice.more)?;
            }
        }
        match self.outcome {
            Outcome::Path(from, to) => write!(f, "  goes from {from} to {to}")?,
            Outcome::DiscoverFirst => write!(f, "  the peer is unknown")?,
            Outcome::NoPath(errno) => write!(f, "  fails: {errno}")?,
        }
        if self.discovers {
            write!(f, ", after a discovery of the peer")?;
        }
        writeln!(f)
    }
}

/// The explanations that are kept, oldest first.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Explanations {
    last: VecDeque<Explanation>,
    /// The last resends, whatever `explain_last` says.
    resends: VecDeque<Explanation>,
}

impl Explanations {
    /// Keeps one more. `limit` is `explain_last`.
    pub(crate) fn keep(&mut self, explanation: Explanation, limit: i64) {
        if explanation.retries > 0 {
            if self.resends.len() == RESENDS_KEPT {
                self.resends.pop_front();
            }
            self.resends.push_back(explanation.clone());
        }
        if limit != 0 {
            self.last.push_back(explanation);
            self.trim(limit);
        }
    }

    /// Keeps the last `limit` explanations.
    pub(crate) fn trim(&mut self, limit: i64) {
        let limit = usize::try_from(limit).unwrap_or(0);
        self.last.drain(..self.last.len().saturating_sub(limit));
    }

    pub(crate) fn last(&self) -> impl ExactSizeIterator<Item = &Explanation> {
        self.last.iter()
    }

    pub(crate) fn resends(&self) -> impl ExactSizeIterator<Item = &Explanation> {
        self.resends.iter()
    }
}

//! Where an import would connect now, and why: what [`Import::decide`](super::import::Import::decide)
//! decides for a connect, with its reasons written down (P-60 to P-62).

use core::fmt;
use core::time::Duration;

use lnet_types::Nid;

use super::connect::UNREADY;
use super::connections::{ChoiceReason, Readiness};
use super::{Client, ImportState};
use crate::common::Cx;
use crate::error::CallError;
use crate::table::ImportId;
use crate::timers::Timer;

/// Where an import would connect now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Uuid of the target.
    pub target: String,
    /// Uuid of this client.
    pub client: String,
    /// State.
    pub state: ImportState,
    /// Why it does not connect by itself; `None`: it does when its connection breaks.
    pub never: Option<Never>,
    /// When the next connect is due; `None` while it is connected, or does not connect.
    pub due: Option<Duration>,
    /// Whether all nodes were tried since the last success: the round is complete (P-61).
    pub all_tried: bool,
    /// Whether the connect is sent; one to a node that LNet has not discovered is not (P-62).
    pub sent: bool,
    /// The server's part of its deadline.
    pub server: Duration,
    /// The net's part of its deadline.
    pub net: Duration,
    /// The nodes that may serve the target, in the order in which they are looked at.
    pub nodes: Vec<ExplainedNode>,
}

/// Why an import does not connect by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Never {
    /// It is a server's way to its client, which has to connect (P-130).
    Callback,
    /// The server has refused this client for good.
    Refused(Option<CallError>),
    /// It is being closed.
    Closing,
}

/// A node that may serve a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExplainedNode {
    /// The node.
    pub nid: Nid,
    /// Whether it is the next one.
    pub next: bool,
    /// Why it is, or is not.
    pub reason: ChoiceReason,
    /// What LNet knows of it.
    pub ready: Readiness,
    /// How long ago it was tried; `None` for never.
    pub tried: Option<Duration>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it answered.
    pub replies: u32,
}

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callback => f.write_str("a server's way to its client: the client connects"),
            Self::Refused(Some(e)) => write!(f, "refused for good: {e}"),
            Self::Refused(None) => f.write_str("refused for good"),
            Self::Closing => f.write_str("it is being closed"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, client, state, .. } = self;
        writeln!(f, "import {target} of client {client}: {}", state.name())?;
        let next = self.nodes.iter().find(|node| node.next).map(|node| node.nid);
        match (self.never, next) {
            (Some(why), _) => writeln!(f, "next: none; {why}")?,
            (None, None) => writeln!(f, "next: none; the import has no node")?,
            (None, Some(nid)) => {
                write!(f, "next: {nid}")?;
                match self.due {
                    Some(due) => writeln!(f, ", in {} s", Secs(due))?,
                    None => match state {
                        ImportState::New | ImportState::Idle => {
                            writeln!(f, ", with the next call")?
                        }
                        ImportState::Connecting => {
                            writeln!(f, ", when the connect under way fails")?;
                        }
                        _ => writeln!(f, ", when the connection breaks")?,
                    },
                }
                let (server, net) = (Secs(self.server), Secs(self.net));
                if self.sent {
                    let whole = Secs(self.server + self.net);
                    writeln!(
                        f,
                        "deadline: {whole} s ({server} s for the server, {net} s for the net)"
                    )?;
                } else {
                    let wait = Secs(UNREADY);
                    writeln!(
                        f,
                        "not sent: LNet has not discovered it; the one after it in {wait} s"
                    )?;
                }
                f.write_str(if self.all_tried {
                    "pace: all nodes were tried since the last success; each round is slower\n"
                } else {
                    "pace: a node is left that was not tried since the last success; fast\n"
                })?;
            }
        }
        for node in &self.nodes {
            let mark = if node.next { '*' } else { ' ' };
            let ExplainedNode { nid, reason, ready, attempts, replies, .. } = node;
            write!(
                f,
                "{mark} {nid}: {reason}; LNet: {ready}; {replies} of {attempts} attempts answered"
            )?;
            match node.tried {
                Some(ago) => writeln!(f, ", the last {} s ago", Secs(ago))?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

/// A time in seconds, to a tenth.
struct Secs(Duration);

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1}", self.0.as_secs_f64())
    }
}

impl Client {
    /// Where an import would connect now, and why.
    pub(crate) fn explain(&self, cx: &Cx<'_, '_>, import: ImportId) -> Option<Explanation> {
        let im = self.imports.get(import)?;
        let (now, tunables) = (cx.below.now(), &cx.common.tunables);
        let decision = im.decide(cx.below.node(), Self::now(cx), tunables)?;
        let never = if im.callback.is_some() {
            Some(Never::Callback)
        } else if im.closing {
            Some(Never::Closing)
        } else {
            im.deactivated.then_some(Never::Refused(im.refusal.as_deref().copied()))
        };
        let waits = never.is_none() && im.state == ImportState::Disconnected;
        let due = if waits { cx.common.timers.at(Timer::Import(import)) } else { None };
        let nodes = decision.connections.iter().zip(&decision.choice.reasons).enumerate();
        let node =
            |(index, (c, reason)): (usize, (&super::Connection, &ChoiceReason))| ExplainedNode {
                nid: c.nid,
                next: never.is_none() && index == decision.choice.index,
                reason: *reason,
                ready: c.ready,
                tried: c.last_attempt.map(|at| now.saturating_since(at)),
                attempts: c.attempts,
                replies: c.replies,
            };
        Some(Explanation {
            target: im.config.target.to_string(),
            client: im.config.client.to_string(),
            state: im.state,
            never,
            due: due.map(|at| at.saturating_since(now)),
            all_tried: decision.choice.all_tried,
            sent: !decision.is_held(tunables),
            server: tunables.initial_connect(),
            net: decision.net.get(&tunables.bounds()),
            nodes: nodes.map(node).collect(),
        })
    }
}

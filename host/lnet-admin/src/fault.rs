//! Fault rules (C-fault-1): messages lost, failed or held back on purpose.

use core::num::NonZeroU32;

use lnet_config::text;
use lnet_types::Nid;
use serde::{Deserialize, Serialize};

use crate::KindCounts;

/// The two lists of fault rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Rules that lose messages, or make them fail.
    Drop,
    /// Rules that hold messages back.
    Delay,
}

/// A fault rule. NIDs are as kernels store them: [`Nid::ANY`] is any, an address of all ones is any
/// on its network (C-fault-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultRule {
    /// The originator.
    #[serde(with = "text::nid")]
    pub src: Nid,
    /// The final destination.
    #[serde(with = "text::nid")]
    pub dst: Nid,
    /// Only through this local NI.
    #[serde(default, with = "text::nid_option")]
    pub local: Option<Nid>,
    /// Only for these portals: a bit for each, 0 for no such limit.
    pub portals: u64,
    /// Only these kinds: ACK 1, PUT 2, GET 4, REPLY 8; 0 means all four.
    pub kinds: u32,
    /// One of so many messages; 0 if there is an interval.
    pub rate: u32,
    /// One message per so many seconds; 0 if there is a rate.
    pub interval_s: u32,
    /// So many times, then no more.
    #[serde(default)]
    pub times: Option<NonZeroU32>,
    /// What happens to them.
    pub action: FaultAction,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultAction {
    /// Messages are lost.
    Drop {
        /// At random inside the interval.
        random: bool,
        /// All of the kinds, whatever rate and interval say.
        all: bool,
        /// Messages that leave fail with one of these: bit n is health status n. 0: messages that
        /// arrive are lost in silence.
        errors: u32,
    },
    /// Messages are held back.
    Delay {
        /// For so many seconds, more than 0.
        latency_s: u32,
    },
}

impl FaultAction {
    /// The list that the rule is in.
    pub const fn kind(&self) -> FaultKind {
        match self {
            Self::Drop { .. } => FaultKind::Drop,
            Self::Delay { .. } => FaultKind::Delay,
        }
    }
}

/// Fault rules to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultDel {
    /// Of which list.
    pub kind: FaultKind,
    /// Those about exactly this source; any: of every source (F-13).
    #[serde(with = "text::nid")]
    pub src: Nid,
    /// The same for the destination.
    #[serde(with = "text::nid")]
    pub dst: Nid,
}

/// A fault rule in force and what it has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultSnapshot {
    /// The rule.
    pub rule: FaultRule,
    /// Messages that matched; not counted by rules that are random.
    pub matched: u32,
    /// Messages dropped or delayed.
    pub acted: u32,
    /// The same by kind.
    pub kinds: KindCounts,
}

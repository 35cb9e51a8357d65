//! Fault rules as an administrator writes them: which messages, when, and what happens to them
//! (behaviour.md 10; lnetctl.md 3.15).

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use lnet_types::{Errno, HealthStatus, Net, Nid, ParseNetError, ParseNidError};
use lnet_wire::{Hdr, Kind, MsgType};
use thiserror::Error;

bitflags::bitflags! {
    /// Kinds of messages (S-fault-1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Kinds: u32 {
        /// ACKs.
        const ACK = 1;
        /// PUTs.
        const PUT = 2;
        /// GETs.
        const GET = 4;
        /// REPLYs.
        const REPLY = 8;
    }

    /// What a failure is reported as: bit n stands for the status of value n (F-5).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[derive(serde::Serialize, serde::Deserialize)]
    pub struct Errors: u32 {
        /// The local interface was interrupted.
        const LOCAL_INTERRUPT = 1 << 1;
        /// Dropped locally.
        const LOCAL_DROPPED = 1 << 2;
        /// Aborted locally.
        const LOCAL_ABORTED = 1 << 3;
        /// No local route.
        const LOCAL_NO_ROUTE = 1 << 4;
        /// Another local error.
        const LOCAL_ERROR = 1 << 5;
        /// Not handed to the transport in time (HL-dbg-005).
        const LOCAL_TIMEOUT = 1 << 6;
        /// The peer reported an error.
        const REMOTE_ERROR = 1 << 7;
        /// The peer certainly did not get it.
        const REMOTE_DROPPED = 1 << 8;
        /// The peer did not take it in time (HL-dbg-010).
        const REMOTE_TIMEOUT = 1 << 9;
        /// Handed to the transport, never confirmed (HL-dbg-015).
        const NETWORK_TIMEOUT = 1 << 10;
        /// Any of them.
        const RANDOM = u32::MAX;
    }
}

impl Kinds {
    /// The bit of one kind.
    pub const fn of(kind: MsgType) -> Self {
        match kind {
            MsgType::Ack => Self::ACK,
            MsgType::Put => Self::PUT,
            MsgType::Get => Self::GET,
            MsgType::Reply => Self::REPLY,
        }
    }
}

impl Errors {
    /// One status by the name that commands use, such as `local_timeout`, or `random` for all.
    pub fn named(name: &str) -> Option<Self> {
        if name == "random" {
            return Some(Self::RANDOM);
        }
        let status = HealthStatus::ALL.into_iter().find(|s| s.name() == name)?;
        (status != HealthStatus::Ok).then(|| Self::from_bits_retain(1 << status as u32))
    }

    /// The status to report, if `drawn` (0 … 10) was drawn (F-11). 0 counts as 1, so that the first
    /// status is drawn twice as often; what was not asked for gives way to a near one that was.
    pub(crate) fn pick(self, drawn: u32) -> HealthStatus {
        let mut pick = drawn.clamp(1, 10);
        // Nothing was asked for by a rule that drops all.
        if !self.is_empty() && self.bits() & 1 << pick == 0 {
            let mut nearest = u32::MAX;
            for n in (1..=10).rev().filter(|n| self.bits() & 1 << n != 0) {
                // The distance is that to the current pick, which moves (Z-10).
                if pick.abs_diff(n) < nearest {
                    nearest = pick.abs_diff(n);
                    pick = n;
                }
            }
        }
        HealthStatus::ALL.get(pick as usize).copied().unwrap_or(HealthStatus::LocalError)
    }
}

/// Whose messages (F-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum NidMatch {
    /// Any NID: `*`.
    Any,
    /// Those of a network: `*@tcp`, shown as `255.255.255.255@tcp`.
    Net(Net),
    /// One NID.
    Nid(Nid),
}

/// Why a text is no [`NidMatch`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNidMatchError {
    /// The network of a pattern.
    #[error("'{text}': {source}")]
    Net {
        /// The text.
        text: String,
        /// What is wrong with it.
        source: ParseNetError,
    },
    /// Neither pattern nor NID.
    #[error("{0}; or '*' for any, '*@NETWORK' for all of one network")]
    Nid(ParseNidError),
}

impl NidMatch {
    /// Whether it means `nid`.
    pub fn matches(self, nid: Nid) -> bool {
        match self {
            Self::Any => true,
            Self::Net(net) => nid.net() == net,
            Self::Nid(this) => nid == this,
        }
    }

    /// Whether this, in a request to delete, means a rule about `other` (F-13).
    pub(crate) fn selects(self, other: Self) -> bool {
        self == Self::Any || self == other
    }

    /// The NID by which the kernel stores all of a network.
    fn stand_in(net: Net) -> Nid {
        Nid::new(net, u32::MAX)
    }
}

impl From<Nid> for NidMatch {
    fn from(nid: Nid) -> Self {
        if nid.is_any() {
            Self::Any
        } else if nid == Self::stand_in(nid.net()) {
            Self::Net(nid.net())
        } else {
            Self::Nid(nid)
        }
    }
}

impl FromStr for NidMatch {
    type Err = ParseNidMatchError;

    fn from_str(s: &str) -> Result<Self, ParseNidMatchError> {
        if matches!(s, "*" | "any") {
            return Ok(Self::Any);
        }
        match s.strip_prefix("*@") {
            Some(net) => net
                .parse()
                .map(Self::Net)
                .map_err(|source| ParseNidMatchError::Net { text: s.to_owned(), source }),
            None => s.parse::<Nid>().map(Self::from).map_err(ParseNidMatchError::Nid),
        }
    }
}

impl fmt::Display for NidMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => Nid::ANY.fmt(f),
            Self::Net(net) => Self::stand_in(*net).fmt(f),
            Self::Nid(nid) => nid.fmt(f),
        }
    }
}

/// Which messages a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Traffic {
    /// The originator, as the header says.
    pub src: NidMatch,
    /// The final destination, as the header says.
    pub dst: NidMatch,
    /// Only through this interface of ours. In the `kernel` profile such a rule matches no message
    /// that leaves, and as a delay rule none at all (F-3, F-20).
    pub local: Option<Nid>,
    /// Only PUTs and GETs for these portals: a bit for each, 0 for no such limit.
    pub portals: u64,
    /// Only these kinds; none means all four.
    pub kinds: Kinds,
}

impl Traffic {
    /// All messages.
    pub const ALL: Self = Self {
        src: NidMatch::Any,
        dst: NidMatch::Any,
        local: None,
        portals: 0,
        kinds: Kinds::all(),
    };

    /// F-2.
    pub(crate) fn checked(mut self) -> Result<Self, FaultRuleError> {
        if self.kinds.is_empty() {
            self.kinds = Kinds::all();
        }
        if self.portals != 0 {
            self.kinds &= Kinds::PUT | Kinds::GET;
        }
        if self.kinds.is_empty() { Err(FaultRuleError::NoKinds) } else { Ok(self) }
    }

    /// Whether it means a message; `own` is the interface of ours that it came in on or leaves by,
    /// `None` where that does not count.
    pub(crate) fn matches(&self, hdr: &Hdr, own: Option<Nid>) -> bool {
        let portal = match hdr.kind {
            Kind::Put { portal, .. } | Kind::Get { portal, .. } => Some(portal),
            Kind::Ack { .. } | Kind::Reply { .. } => None,
        };
        let of_portal =
            portal.is_some_and(|p| 1u64.checked_shl(p).is_some_and(|bit| self.portals & bit != 0));
        self.kinds.contains(Kinds::of(hdr.kind.msg_type()))
            && self.src.matches(hdr.src)
            && self.dst.matches(hdr.dst)
            && (self.portals == 0 || of_portal)
            && self.local.is_none_or(|nid| own == Some(nid))
    }
}

/// Which of the messages that match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum When {
    /// One of so many (F-7).
    Rate(NonZeroU32),
    /// About one per so many seconds (F-8).
    Interval(NonZeroU32),
    /// Every second one on average; the number of seconds is only shown (F-9).
    Random(NonZeroU32),
}

impl When {
    /// Every message.
    pub const ALWAYS: Self = Self::Rate(NonZeroU32::MIN);

    /// From the options of a command: `rate` or `interval`, the other 0 (F-2).
    ///
    /// # Errors
    /// Both or neither; `random` without interval.
    pub const fn new(rate: u32, interval: u32, random: bool) -> Result<Self, FaultRuleError> {
        match (NonZeroU32::new(rate), NonZeroU32::new(interval)) {
            (Some(_), None) if random => Err(FaultRuleError::RandomRate),
            (Some(n), None) => Ok(Self::Rate(n)),
            (None, Some(s)) if random => Ok(Self::Random(s)),
            (None, Some(s)) => Ok(Self::Interval(s)),
            (None, None) | (Some(_), Some(_)) => {
                Err(FaultRuleError::RateOrInterval { rate, interval })
            }
        }
    }

    /// The rate to be shown; 0 if there is none.
    pub const fn rate(self) -> u32 {
        match self {
            Self::Rate(n) => n.get(),
            Self::Interval(_) | Self::Random(_) => 0,
        }
    }

    /// The interval to be shown, seconds; 0 if there is none.
    pub const fn interval(self) -> u32 {
        match self {
            Self::Rate(_) => 0,
            Self::Interval(s) | Self::Random(s) => s.get(),
        }
    }
}

/// A rule that loses messages, or makes them fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DropRule {
    /// Which messages.
    pub traffic: Traffic,
    /// Which of them.
    pub when: When,
    /// All of them after all, arriving or leaving (F-10).
    pub all: bool,
    /// None: messages that arrive are lost, in silence. Some: messages that leave fail with one of
    /// these (F-6).
    pub errors: Errors,
    /// So many times, then no more; without end if `None`.
    pub times: Option<NonZeroU32>,
}

impl DropRule {
    /// Loses every message of `traffic` that arrives: with [`Kinds::ACK`] or [`Kinds::REPLY`] the lost
    /// ACK and REPLY of HL-dbg-030 and HL-dbg-035, at the node that waits for them.
    pub const fn lose(traffic: Traffic) -> Self {
        Self { traffic, when: When::ALWAYS, all: false, errors: Errors::empty(), times: None }
    }

    /// Makes every message of `traffic` that leaves fail with one of `errors`.
    pub const fn fail(traffic: Traffic, errors: Errors) -> Self {
        Self { traffic, when: When::ALWAYS, all: false, errors, times: None }
    }
}

/// A rule that holds messages back (F-20).
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DelayRule {
    /// Which messages, arriving or leaving.
    pub traffic: Traffic,
    /// Which of them; not [`When::Random`].
    pub when: When,
    /// How long.
    pub latency: Duration,
    /// So many times, then no more; without end if `None`.
    pub times: Option<NonZeroU32>,
}

/// Why a fault rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultRuleError {
    /// Not exactly one of them.
    #[error("rate {rate}, interval {interval}: expected one of them, the other 0")]
    RateOrInterval {
        /// As given.
        rate: u32,
        /// As given.
        interval: u32,
    },
    /// Random is a matter of intervals.
    #[error("random needs an interval, not a rate")]
    RandomRate,
    /// Portals are for PUTs and GETs.
    #[error("a portal filter requires PUT or GET among the rule's message types")]
    NoKinds,
    /// No delay.
    #[error("latency cannot be zero")]
    NoLatency,
    /// Delay rules know no random.
    #[error("a delay rule takes a rate or an interval, not random")]
    RandomDelay,
    /// There are as many as may be.
    #[error("limit of {0} fault rules reached")]
    NoSpace(usize),
}

impl FaultRuleError {
    /// The error number that kernel LNet returns.
    pub const fn errno(self) -> Errno {
        match self {
            Self::NoSpace(_) => Errno::ENOSPC,
            Self::RateOrInterval { .. }
            | Self::RandomRate
            | Self::NoKinds
            | Self::NoLatency
            | Self::RandomDelay => Errno::EINVAL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nids_and_wildcards_are_parsed_and_shown_as_the_kernel_stores_them() {
        let table = [
            ("*@tcp", "255.255.255.255@tcp"),
            ("255.255.255.255@tcp", "255.255.255.255@tcp"),
            ("*@o2ib3", "255.255.255.255@o2ib3"),
            ("*", "<?>"),
            ("any", "<?>"),
            ("10.0.0.1@tcp", "10.0.0.1@tcp"),
        ];
        for (given, shown) in table {
            let m: NidMatch = given.parse().unwrap();
            assert_eq!(m.to_string(), shown);
            assert_eq!(shown.parse(), Ok(m));
        }
        for bad in ["*@tpc", "*@", "10.0.0@tcp", "**"] {
            let e = bad.parse::<NidMatch>().unwrap_err().to_string();
            assert!(e.contains(bad), "{e}");
        }
        let net: NidMatch = "*@tcp".parse().unwrap();
        assert!(net.matches("10.0.0.1@tcp".parse().unwrap()));
        assert!(!net.matches("10.0.0.1@tcp1".parse().unwrap()));
    }

    #[test]
    fn a_fault_rule_with_one_error_gives_that_error_for_every_draw() {
        for status in HealthStatus::ALL.into_iter().skip(1) {
            let errors = Errors::named(status.name()).unwrap();
            for drawn in 0..=10 {
                assert_eq!(errors.pick(drawn), status);
            }
        }
        assert_eq!(Errors::named("ok"), None);
        assert_eq!(Errors::named("local_timeOut"), None);
    }

    #[test]
    fn a_drawn_error_outside_of_the_rules_set_becomes_the_nearest_in_it() {
        let table = [
            (Errors::RANDOM, 0, HealthStatus::LocalInterrupt),
            (Errors::RANDOM, 1, HealthStatus::LocalInterrupt),
            (Errors::RANDOM, 10, HealthStatus::NetworkTimeout),
            (Errors::empty(), 4, HealthStatus::LocalNoRoute),
            (Errors::LOCAL_TIMEOUT | Errors::NETWORK_TIMEOUT, 6, HealthStatus::LocalTimeout),
            // From 10 on downwards: 10 is 3 from 7; then 6 is 4 from 10.
            (Errors::LOCAL_TIMEOUT | Errors::NETWORK_TIMEOUT, 7, HealthStatus::NetworkTimeout),
            // 10 is 8 from 2; 9 is 1 from 10; then 1 is 8 from 9.
            (
                Errors::LOCAL_INTERRUPT | Errors::REMOTE_TIMEOUT | Errors::NETWORK_TIMEOUT,
                2,
                HealthStatus::RemoteTimeout,
            ),
        ];
        for (errors, drawn, status) in table {
            assert_eq!(errors.pick(drawn), status, "{errors:?} {drawn}");
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        assert!(When::new(0, 0, false).is_err());
        assert!(When::new(1, 1, false).is_err());
        assert_eq!(When::new(1, 0, true), Err(FaultRuleError::RandomRate));
        assert_eq!(When::new(0, 3, true).map(When::interval), Ok(3));
        let acks = Traffic { kinds: Kinds::ACK, portals: 1, ..Traffic::ALL };
        assert_eq!(acks.checked(), Err(FaultRuleError::NoKinds));
        let some = Traffic { kinds: Kinds::empty(), portals: 1, ..Traffic::ALL };
        assert_eq!(some.checked().unwrap().kinds, Kinds::PUT | Kinds::GET);
    }
}

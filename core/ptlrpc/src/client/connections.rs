//! Which of a target's NIDs is tried next, and why (P-59 … P-62, P-68), as a pure function. Whether
//! LNet can reach a NID comes in from `connect.rs`.

use core::fmt;
use core::time::Duration;

use lnet_types::{Instant, Nid};

use crate::error::CallError;
use crate::tunables::Reconnect;

/// What LNet knows of a node (P-59).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readiness {
    /// Nothing.
    #[default]
    Unknown,
    /// It was discovered, and a NID of it is usable.
    Ready,
    /// No NID of it is usable.
    Unreachable,
}

impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "not discovered",
            Self::Ready => "reachable",
            Self::Unreachable => "unreachable",
        })
    }
}

/// One way to a target: a node that serves it, or may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The node.
    pub nid: Nid,
    /// When it was tried last.
    pub last_attempt: Option<Instant>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often it answered.
    pub replies: u32,
    /// What LNet knew of it when that mattered last.
    pub ready: Readiness,
    /// It has become ready since it was tried.
    pub turned: bool,
    /// Since when it has been left because it was silent, without an answer since (DEC-48).
    pub silent: Option<Instant>,
    /// Why the last attempt has failed; `None`: it has not, or has not ended.
    pub failure: Option<Box<CallError>>,
    /// Why it was chosen for the last connect, or was not (P-60); `None` before the first.
    pub reason: Option<ChoiceReason>,
}

impl Connection {
    pub(crate) const fn new(nid: Nid) -> Self {
        let ready = Readiness::Unknown;
        Self {
            nid,
            last_attempt: None,
            attempts: 0,
            replies: 0,
            ready,
            turned: false,
            silent: None,
            failure: None,
            reason: None,
        }
    }

    /// Takes in what LNet knows now.
    pub(crate) fn refresh(&mut self, ready: Readiness) {
        let turned = ready == Readiness::Ready && self.ready != ready;
        self.turned = ready == Readiness::Ready && (self.turned || turned);
        self.ready = ready;
    }

    /// Whether it was not tried for so long that it may be tried without a pause (P-67, P-68).
    pub(crate) fn is_rested(&self, now: Instant, pause: Duration) -> bool {
        self.last_attempt.is_none_or(|at| now.saturating_since(at) >= pause)
    }

    /// An attempt begins.
    pub(crate) fn tried(&mut self, now: Instant) {
        self.last_attempt = Some(now);
        self.failure = None;
        self.attempts += 1;
        self.turned = false;
    }
}

/// Why a connection is the next one, or is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChoiceReason {
    /// Next: the server has said that it will soon be ready for us (P-60.1), or another one that the target
    /// is here, or the node before is silent and this one is not (DEC-48).
    Kept,
    /// Next: LNet reaches it again (P-60.2).
    TurnedReady,
    /// Next: first in the list that was not tried since the last success; after a success that is the
    /// one that succeeded (P-60.4).
    Untried,
    /// Next: all were tried, this one longest ago (P-60.5).
    LeastRecent,
    /// Next: LNet reaches none, and this is the first (P-60.5).
    NoneReachable,
    /// Not next: LNet reaches none of its NIDs (P-60.3).
    Unreachable,
    /// Not next: LNet has not discovered it (P-60.4).
    NotReady,
    /// Not next: tried since the last success, and later than another.
    Tried,
    /// Not next: another one goes before it.
    Behind,
}

impl fmt::Display for ChoiceReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => {
                "next: out of turn; its server asked for it, the target was reported here, or the node before \
                 is silent"
            }
            Self::TurnedReady => "next: LNet reaches it again",
            Self::Untried => "next: not tried since the last success",
            Self::LeastRecent => "next: all were tried, this one longest ago",
            Self::NoneReachable => "next: LNet reaches none, and this one is first in the list",
            Self::Unreachable => "LNet reaches none of its NIDs",
            Self::NotReady => "LNet has not discovered it",
            Self::Tried => "tried later than the next one",
            Self::Behind => "behind the next one",
        })
    }
}

/// The connection to be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) index: usize,
    /// Whether all have been tried since the last success.
    pub(crate) all_tried: bool,
    /// Why, for each connection of the list.
    pub(crate) reasons: Vec<ChoiceReason>,
}

/// The next connection (P-60). `keep`: stay at this one. `None` if there is none at all.
pub(crate) fn choose(
    list: &[Connection],
    last_success: Option<Instant>,
    keep: Option<usize>,
    rule: Reconnect,
) -> Option<Choice> {
    let mut reasons = vec![ChoiceReason::Behind; list.len()];
    let next = |reasons: &mut Vec<ChoiceReason>, index: usize, all_tried, why| {
        *reasons.get_mut(index)? = why;
        Some(Choice { index, all_tried, reasons: core::mem::take(reasons) })
    };
    if let Some(index) = keep {
        return next(&mut reasons, index, false, ChoiceReason::Kept);
    }
    // What the rule lets count of what LNet knows.
    let unreachable =
        |c: &Connection| rule != Reconnect::Interval && c.ready == Readiness::Unreachable;
    let unready = |c: &Connection| rule == Reconnect::Readiness && c.ready != Readiness::Ready;
    let untried = |c: &Connection| match (c.last_attempt, last_success) {
        (None, _) => true,
        (Some(attempt), Some(success)) => attempt <= success,
        (Some(_), None) => false,
    };
    let mut all_tried = true;
    let mut oldest: Option<usize> = None;
    for (index, c) in list.iter().enumerate() {
        if rule != Reconnect::Interval && c.turned {
            return next(&mut reasons, index, !untried(c) && all_tried, ChoiceReason::TurnedReady);
        }
        let why = if unreachable(c) {
            ChoiceReason::Unreachable
        } else {
            let older = |at: usize| list.get(at).is_none_or(|o| c.last_attempt < o.last_attempt);
            if oldest.is_none_or(older) {
                oldest = Some(index);
            }
            match (untried(c), unready(c)) {
                (true, false) => return next(&mut reasons, index, false, ChoiceReason::Untried),
                (true, true) => {
                    all_tried = false;
                    ChoiceReason::NotReady
                }
                (false, _) => ChoiceReason::Tried,
            }
        };
        *reasons.get_mut(index)? = why;
    }
    match oldest {
        Some(index) => next(&mut reasons, index, all_tried, ChoiceReason::LeastRecent),
        None => next(&mut reasons, 0, false, ChoiceReason::NoneReachable),
    }
}

/// The net's estimate after a choice (P-61): a fast first round, then each round slower. `None`: as it
/// is; `Some((estimate, false))`: begin anew with it; `Some((estimate, true))`: measure it.
pub(crate) fn pace(
    choice: &Choice,
    net: Duration,
    step: Duration,
    slowest: Duration,
) -> Option<(Duration, bool)> {
    if !choice.all_tried {
        return (net > step).then_some((step, false));
    }
    (choice.index == 0 && net < slowest).then_some((net + step, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Reconnect::{Interval, OnNotice, Readiness as Kernel};

    /// A list from a text: for each connection its last attempt or `-`, and `r`eady, `u`nreachable,
    /// `?` unknown, `t`urned ready.
    fn list(text: &str) -> Vec<Connection> {
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let made = |word: &str| {
            let (at, ready) = word.split_at(word.len() - 1);
            let mut c = Connection::new(nid);
            c.last_attempt = at.parse().ok().map(Instant::from_secs);
            c.ready = match ready {
                "r" | "t" => Readiness::Ready,
                "u" => Readiness::Unreachable,
                _ => Readiness::Unknown,
            };
            c.turned = ready == "t";
            c
        };
        text.split_whitespace().map(made).collect()
    }

    #[test]
    fn p60_each_row_of_the_choice() {
        use ChoiceReason as R;
        for (row, rule, text, success, keep, index, all_tried, why) in [
            ("1: the present entry is kept", Kernel, "5r -r", None, Some(1), 1, false, R::Kept),
            (
                "2: one that turned ready is first",
                Kernel,
                "5r 6t",
                Some(5),
                None,
                0,
                false,
                R::Untried,
            ),
            ("2: even one that was tried", Kernel, "7r 6t", Some(5), None, 1, true, R::TurnedReady),
            ("3: unreachable ones are skipped", Kernel, "-u -r", None, None, 1, false, R::Untried),
            ("4: the last good one first", Kernel, "10r 5r", Some(10), None, 0, false, R::Untried),
            ("4: then each other", Kernel, "20r 5r", Some(10), None, 1, false, R::Untried),
            ("4: one not ready is passed over", Kernel, "-? -r", None, None, 1, false, R::Untried),
            ("5: all tried", Kernel, "20r 25r", Some(10), None, 0, true, R::LeastRecent),
            (
                "5: all tried, the second longer ago",
                Kernel,
                "26r 25r",
                None,
                None,
                1,
                true,
                R::LeastRecent,
            ),
            ("5: none ready", Kernel, "20? -?", None, None, 1, false, R::LeastRecent),
            ("5: none reachable", Kernel, "20u 5u", None, None, 0, false, R::NoneReachable),
            ("without knowledge of LNet", OnNotice, "-? -r", None, None, 0, false, R::Untried),
            ("with a notice of LNet", OnNotice, "20u 25t", None, None, 1, true, R::TurnedReady),
            ("unreachable is unreachable", OnNotice, "-u 25?", None, None, 1, true, R::LeastRecent),
            ("by turns", Interval, "20u 25t", None, None, 0, true, R::LeastRecent),
            ("by turns, untried", Interval, "20r -u", None, None, 1, false, R::Untried),
        ] {
            let choice = choose(&list(text), success.map(Instant::from_secs), keep, rule).unwrap();
            assert_eq!((choice.index, choice.all_tried), (index, all_tried), "{row}");
            assert_eq!(choice.reasons[index], why, "{row}");
        }
        assert_eq!(choose(&[], None, None, Kernel), None);
    }

    #[test]
    fn a_choice_gives_a_reason_for_each_connection() {
        let choice = choose(&list("20u -? 25r -r -r"), None, None, Kernel).unwrap();
        use ChoiceReason as R;
        let wanted = [R::Unreachable, R::NotReady, R::Tried, R::Untried, R::Behind];
        assert_eq!((choice.index, choice.reasons), (3, wanted.to_vec()));
        assert_eq!(R::Untried.to_string(), "next: not tried since the last success");
    }

    #[test]
    fn p61_the_first_round_is_fast_and_each_further_one_slower_up_to_the_slowest() {
        let secs = Duration::from_secs;
        let (step, slowest) = (secs(5), secs(50));
        for (row, index, all_tried, net, wanted) in [
            ("first round: slow becomes fast", 0, false, 30, Some((5, false))),
            ("first round: fast stays", 1, false, 5, None),
            ("round complete", 0, true, 5, Some((10, true))),
            ("within a round", 1, true, 10, None),
            ("almost slowest", 0, true, 49, Some((54, true))),
            ("slowest", 0, true, 50, None),
        ] {
            let choice = Choice { index, all_tried, reasons: Vec::new() };
            let wanted = wanted.map(|(n, measure)| (secs(n), measure));
            assert_eq!(pace(&choice, secs(net), step, slowest), wanted, "{row}");
        }
    }

    #[test]
    fn p59_a_connection_has_turned_ready_until_it_is_tried() {
        let mut c = Connection::new("10.0.0.1@tcp".parse().unwrap());
        c.refresh(Readiness::Unreachable);
        assert!(!c.turned);
        c.refresh(Readiness::Ready);
        c.refresh(Readiness::Ready);
        assert!(c.turned);
        c.tried(Instant::from_secs(1));
        c.refresh(Readiness::Ready);
        assert!(!c.turned);
    }

    #[test]
    fn one_that_was_not_tried_for_five_seconds_may_be_tried_at_once() {
        let now = Instant::from_secs(30);
        let rested = |c: &Connection| c.is_rested(now, Duration::from_secs(5));
        let found: Vec<bool> = list("-r 25r 26r 29r").iter().map(rested).collect();
        assert_eq!(found, [true, true, false, false]);
    }
}

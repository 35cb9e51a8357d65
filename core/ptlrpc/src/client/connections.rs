//! Which of a target's NIDs is tried next (P-59 … P-61, P-68), as a pure function.

use core::time::Duration;

use lnet_types::{Instant, Nid};

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
}

impl Connection {
    pub(crate) const fn new(nid: Nid) -> Self {
        Self { nid, last_attempt: None, attempts: 0, replies: 0 }
    }
}

/// The connection to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) index: usize,
    /// Whether all have been tried since the last success.
    pub(crate) all_tried: bool,
}

/// The first that was not tried since the last success; else the one that was tried longest ago.
/// `None` if there is none at all.
pub(crate) fn choose(list: &[Connection], last_success: Option<Instant>) -> Option<Choice> {
    let untried = |c: &Connection| match (c.last_attempt, last_success) {
        (None, _) => true,
        (Some(attempt), Some(success)) => attempt <= success,
        (Some(_), None) => false,
    };
    if let Some(index) = list.iter().position(untried) {
        return Some(Choice { index, all_tried: false });
    }
    let oldest = list.iter().enumerate().min_by_key(|(_, c)| c.last_attempt);
    oldest.map(|(index, _)| Choice { index, all_tried: true })
}

/// Whether a connection was not tried for so long that it may be tried without a pause (P-67).
pub(crate) fn rested(list: &[Connection], now: Instant, pause: Duration) -> bool {
    let rested = |c: &Connection| c.last_attempt.is_none_or(|at| now.saturating_since(at) >= pause);
    list.iter().any(rested)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(attempts: &[Option<u64>]) -> Vec<Connection> {
        let nid = "10.0.0.1@tcp".parse().unwrap();
        let made = |at: &Option<u64>| Connection {
            last_attempt: at.map(Instant::from_secs),
            ..Connection::new(nid)
        };
        attempts.iter().map(made).collect()
    }

    #[test]
    fn the_last_good_one_is_first_then_each_other_then_the_one_that_rested_longest() {
        for (attempts, success, index, all_tried) in [
            (&[None, None][..], None, 0, false),
            (&[Some(10), None], None, 1, false),
            (&[Some(10), Some(5)], None, 1, true),
            (&[Some(10), Some(5)], Some(10), 0, false),
            (&[Some(20), Some(5)], Some(10), 1, false),
            (&[Some(20), Some(25)], Some(10), 0, true),
        ] {
            let choice = choose(&list(attempts), success.map(Instant::from_secs));
            assert_eq!(choice, Some(Choice { index, all_tried }), "{attempts:?} {success:?}");
        }
        assert_eq!(choose(&[], None), None);
    }

    #[test]
    fn one_that_was_not_tried_for_five_seconds_may_be_tried_at_once() {
        let now = Instant::from_secs(30);
        let pause = Duration::from_secs(5);
        assert!(rested(&list(&[Some(29), None]), now, pause));
        assert!(rested(&list(&[Some(29), Some(25)]), now, pause));
        assert!(!rested(&list(&[Some(29), Some(26)]), now, pause));
    }
}

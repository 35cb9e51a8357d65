//! The last recovery of a target as its clients have seen it, from the states of their imports: from
//! the first that began to replay until the last that was in use again.

use core::fmt;
use std::time::Duration;

use lnet_rt::Instant;
use lustre_rt::{ImportState, ImportView};

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Recovery {
    /// Clients that came back through a recovery.
    pub(super) clients: u32,
    all: u32,
    /// Connections made or tried after the first.
    pub(super) reconnects: u32,
    span: Option<(Instant, Instant)>,
}

/// When an import last began to replay, and was in use after that.
fn last(history: &[(Instant, ImportState)]) -> Option<(Instant, Instant)> {
    let is = |state: ImportState| move |(_, s): &&(Instant, ImportState)| *s == state;
    let replay = history.iter().rfind(is(ImportState::Replay))?.0;
    let full = history.iter().rfind(is(ImportState::Full))?.0;
    (full >= replay).then_some((replay, full))
}

impl Recovery {
    /// Another client, at its end.
    pub(super) fn add(&mut self, view: Option<&ImportView>) {
        self.all += 1;
        let Some(view) = view else { return };
        self.reconnects += view.conn_cnt.saturating_sub(1);
        let Some((replay, full)) = last(&view.history) else { return };
        self.clients += 1;
        let (first, end) = self.span.unwrap_or((replay, full));
        self.span = Some((first.min(replay), end.max(full)));
    }

    /// How long it took.
    pub(super) fn took(&self) -> Option<Duration> {
        self.span.map(|(first, end)| end.saturating_since(first))
    }
}

impl fmt::Display for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.clients, self.all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_of_a_recovery_is_from_replay_to_use_and_a_reconnect_is_none() {
        use ImportState as S;
        let history = |states: &[(u64, S)]| -> Vec<(Instant, S)> {
            states.iter().map(|(secs, state)| (Instant::from_secs(*secs), *state)).collect()
        };
        let again = [(1, S::Connecting), (1, S::Full), (5, S::Disconnected), (6, S::Connecting)];
        let reconnect = [&again[..], &[(6, S::Recover), (6, S::Full)]].concat();
        let through = [&again[..], &[(6, S::Replay), (8, S::Recover), (9, S::Full)]].concat();
        assert_eq!(last(&history(&reconnect)), None);
        assert_eq!(last(&history(&again)), None);
        let span = (Instant::from_secs(6), Instant::from_secs(9));
        assert_eq!(last(&history(&through)), Some(span));
        assert_eq!(last(&history(&through[..6])), None, "it is not over");
    }
}

//! The states of an import, and the table of their changes (P-55, P-57). Pure: `mod.rs` applies it,
//! `connect.rs` and `recover.rs` say what happened.

/// The states of an import; their numbers are those that tools print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ImportState {
    /// For good.
    Closed = 1,
    /// Never connected.
    New = 2,
    /// The connection is lost; the next attempt waits for its time.
    Disconnected = 3,
    /// A connect or a disconnect is under way.
    Connecting = 4,
    /// What the server lost is repeated.
    Replay = 5,
    /// Locks are repeated.
    ReplayLocks = 6,
    /// The server recovers, with or without our part.
    ReplayWait = 7,
    /// What was not answered is sent again.
    Recover = 8,
    /// In use.
    Full = 9,
    /// The server has dropped this client.
    Evicted = 10,
    /// Disconnected for want of use; the next call connects (P-103).
    Idle = 11,
}

impl ImportState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 11] = [
        Self::Closed,
        Self::New,
        Self::Disconnected,
        Self::Connecting,
        Self::Replay,
        Self::ReplayLocks,
        Self::ReplayWait,
        Self::Recover,
        Self::Full,
        Self::Evicted,
        Self::Idle,
    ];

    /// The name that tools print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::New => "NEW",
            Self::Disconnected => "DISCONN",
            Self::Connecting => "CONNECTING",
            Self::Replay => "REPLAY",
            Self::ReplayLocks => "REPLAY_LOCKS",
            Self::ReplayWait => "REPLAY_WAIT",
            Self::Recover => "RECOVER",
            Self::Full => "FULL",
            Self::Evicted => "EVICTED",
            Self::Idle => "IDLE",
        }
    }

    /// Whether the target takes what repeats its past, and nothing else.
    pub(crate) const fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayLocks | Self::ReplayWait)
    }
}

/// What happens to an import. The letters are the rows of P-57.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A connect starts: the first one, the next one after a loss, or because recovery failed
    /// (a, c, p).
    Connect,
    /// A request over the connection failed (b).
    Lost,
    /// The connect failed, or was refused for good (d, e).
    ConnectFailed,
    /// The server speaks another version (e).
    Incompatible,
    /// First connect to a server in use (f).
    Fresh,
    /// First connect to a server that recovers (g).
    FreshRecovering,
    /// Reconnect to the same export (h).
    SameExport,
    /// Reconnect to the same export of a server that recovers: on from the stage that was reached
    /// (i).
    SameRecovering {
        /// Requests had all been replayed.
        locks: bool,
    },
    /// Reconnect to a server that recovers and has a new export for us (j).
    NewRecovering,
    /// A new export, and something was cached (k).
    Dropped,
    /// A new export, and nothing was cached (l).
    DroppedEmpty,
    /// No request is left to be replayed (m).
    Replayed,
    /// No lock is left to be replayed (n).
    LocksReplayed,
    /// The final ping was answered (o).
    RecoveryEnded,
    /// What was not answered is on its way again (q).
    Resent,
    /// Nothing of the time before the eviction is left (r).
    Invalidated,
    /// A disconnect starts (s, t).
    Leave,
    /// The disconnect of an idle import has ended (t).
    LeftIdle,
    /// A call came to an idle import (P-81).
    Wake,
    /// The import ends (s, u).
    Close,
}

/// The state after a change; `None` if the change is not for this state, which then stays.
pub(crate) const fn next(state: ImportState, change: Change) -> Option<ImportState> {
    use ImportState as S;
    Some(match (state, change) {
        // P-55: final.
        (S::Closed, _) => return None,
        (_, Change::Close) => S::Closed,
        // P-63: not when there is a connection, or one is being made, or must end first.
        (
            S::New
            | S::Idle
            | S::Disconnected
            | S::Replay
            | S::ReplayLocks
            | S::ReplayWait
            | S::Recover,
            Change::Connect,
        ) => S::Connecting,
        (S::Full, Change::Lost) => S::Disconnected,
        // P-57 has it for a connection in use. A server that recovers takes it too (P-150).
        (S::Full | S::Replay | S::ReplayLocks | S::ReplayWait, Change::Leave) => S::Connecting,
        (S::Connecting, Change::ConnectFailed) => S::Disconnected,
        (S::Connecting, Change::Incompatible) => S::Closed,
        (S::Connecting, Change::Fresh | Change::DroppedEmpty) => S::Full,
        (S::Connecting, Change::FreshRecovering | Change::SameRecovering { locks: true }) => {
            S::ReplayLocks
        }
        (S::Connecting, Change::SameExport) => S::Recover,
        (S::Connecting, Change::SameRecovering { locks: false } | Change::NewRecovering) => {
            S::Replay
        }
        (S::Connecting, Change::Dropped) => S::Evicted,
        (S::Connecting, Change::LeftIdle) => S::Idle,
        (S::Replay, Change::Replayed) => S::ReplayLocks,
        (S::ReplayLocks, Change::LocksReplayed) => S::ReplayWait,
        (S::ReplayWait, Change::RecoveryEnded) => S::Recover,
        (S::Recover, Change::Resent) => S::Full,
        (S::Evicted, Change::Invalidated) => S::Recover,
        (S::Idle, Change::Wake) => S::New,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// P-57 whole: a row for each change, a column for each state. A dot: the change is not for it.
    #[rustfmt::skip]
    const TABLE: &[(Change, &str)] = &[
        //                                         CLOSED NEW DISCONN CONNECTING REPLAY LOCKS WAIT RECOVER FULL EVICTED IDLE
        (Change::Connect,                         "     .   4       4          .      4     4    4       4    .       .    4"),
        (Change::Lost,                            "     .   .       .          .      .     .    .       .    3       .    ."),
        (Change::ConnectFailed,                   "     .   .       .          3      .     .    .       .    .       .    ."),
        (Change::Incompatible,                    "     .   .       .          1      .     .    .       .    .       .    ."),
        (Change::Fresh,                           "     .   .       .          9      .     .    .       .    .       .    ."),
        (Change::FreshRecovering,                 "     .   .       .          6      .     .    .       .    .       .    ."),
        (Change::SameExport,                      "     .   .       .          8      .     .    .       .    .       .    ."),
        (Change::SameRecovering { locks: false }, "     .   .       .          5      .     .    .       .    .       .    ."),
        (Change::SameRecovering { locks: true },  "     .   .       .          6      .     .    .       .    .       .    ."),
        (Change::NewRecovering,                   "     .   .       .          5      .     .    .       .    .       .    ."),
        (Change::Dropped,                         "     .   .       .         10      .     .    .       .    .       .    ."),
        (Change::DroppedEmpty,                    "     .   .       .          9      .     .    .       .    .       .    ."),
        (Change::Replayed,                        "     .   .       .          .      6     .    .       .    .       .    ."),
        (Change::LocksReplayed,                   "     .   .       .          .      .     7    .       .    .       .    ."),
        (Change::RecoveryEnded,                   "     .   .       .          .      .     .    8       .    .       .    ."),
        (Change::Resent,                          "     .   .       .          .      .     .    .       9    .       .    ."),
        (Change::Invalidated,                     "     .   .       .          .      .     .    .       .    .       8    ."),
        (Change::Leave,                           "     .   .       .          .      4     4    4       .    4       .    ."),
        (Change::LeftIdle,                        "     .   .       .         11      .     .    .       .    .       .    ."),
        (Change::Wake,                            "     .   .       .          .      .     .    .       .    .       .    2"),
        (Change::Close,                           "     .   1       1          1      1     1    1       1    1       1    1"),
    ];

    #[test]
    fn p57_each_change_in_each_state_leads_where_the_table_says() {
        let mut pairs = 0;
        for (change, row) in TABLE {
            let cells: Vec<&str> = row.split_whitespace().collect();
            assert_eq!(cells.len(), ImportState::ALL.len(), "{change:?}");
            for (state, cell) in ImportState::ALL.iter().zip(cells) {
                let wanted = cell.parse::<u8>().ok();
                let got = next(*state, *change).map(|state| state as u8);
                assert_eq!(got, wanted, "{} {change:?}", state.name());
                pairs += 1;
            }
        }
        assert_eq!(pairs, 21 * 11);
    }

    #[test]
    fn states_have_the_numbers_that_tools_print() {
        let numbers: Vec<u8> = ImportState::ALL.iter().map(|state| *state as u8).collect();
        assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    }
}

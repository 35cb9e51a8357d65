//! Why a peer is queried, or what we have is announced to it, as a table: each [`Cause`] has a row that
//! says when, and what is wanted of the two directions (`sync.rs`). `query.rs` acts on it.

/// Why a peer is queried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Cause {
    /// An operator asks for it (D-80); with `force` a query under way does not count.
    User { force: bool },
    /// A message for it is about to leave (S-6).
    Used,
    /// Its data have come, by a push or in the answer to a question of ours.
    Announced,
    /// A push from it was malformed, or cut (D-53).
    Unreadable,
    /// News of it contradict what is known, or come from a NID that is not known to be its own.
    Contradicted,
    /// A NID that it claims does not answer.
    Unconfirmed,
    /// Its last discovery has failed.
    Failed,
    /// A message to it has failed, and without health nothing else follows from that.
    Undelivered,
    /// An interface of it does not respond. Its node may have come back without that one, and does not
    /// know us any more.
    Silent,
    /// The recovery of one of its interfaces fails while another one is healthy.
    Gone,
    /// It is in use. News can be lost in ways that leave no trace, so it is queried now and then
    /// without any other reason.
    Refresh,
    /// It is a gateway whose check is due.
    RouterCheck,
    /// Discovery is on again: what was missed meanwhile is exchanged.
    SwitchedOn,
    /// Our own data have changed (D-60); `force`: also where discovery is off.
    Changed { force: bool },
    /// Its record was reduced to its primary NID (O-37).
    Reset,
}

/// When a cause has its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At once.
    Now,
    /// At once, if the peer lacks something of ours.
    IfOwed,
    /// With the next use.
    NextUse,
    /// With the next retry, which counts as a try (`retry.rs`).
    Retry,
    /// After `peer_refresh_interval`.
    Refresh,
}

/// Of which peers a cause counts; of others it is no reason for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// All.
    Any,
    /// Multi-Rail peers.
    MultiRail,
    /// Those with several interfaces.
    Several,
    /// The same, where health does not tell which of them fails.
    Unwatched,
    /// The same, if one of them is healthy: its node can answer.
    OneHealthy,
}

/// Without which conduct a cause is no reason for a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// None: kernel nodes do so, too.
    Nothing,
    /// `retries_discovery`.
    Retries,
    /// `queries_after_switch_on`.
    SwitchOn,
}

pub(super) struct Row {
    pub(super) when: When,
    pub(super) of: Of,
    pub(super) learn: Wish,
    pub(super) teach: Wish,
    /// The row of the conduct table that it needs.
    pub(super) needs: Needs,
}

impl Cause {
    #[rustfmt::skip]
    pub(super) const fn row(self) -> Row {
        use Wish::{Any, Fresh, Nothing};
        let (when, of, learn, teach, needs) = match self {
            Self::User { force: false }    => (When::Now,     Of::Any,       Any,     Nothing, Needs::Nothing),
            Self::User { force: true }     => (When::Now,     Of::Any,       Fresh,   Fresh,   Needs::Nothing),
            Self::RouterCheck              => (When::Now,     Of::Any,       Fresh,   Fresh,   Needs::Nothing),
            Self::SwitchedOn               => (When::Now,     Of::Any,       Fresh,   Fresh,   Needs::SwitchOn),
            Self::Used                     => (When::Now,     Of::Any,       Nothing, Nothing, Needs::Nothing),
            Self::Announced                => (When::Now,     Of::Any,       Nothing, Nothing, Needs::Nothing),
            Self::Unreadable               => (When::Now,     Of::Any,       Fresh,   Nothing, Needs::Nothing),
            Self::Contradicted             => (When::Now,     Of::Any,       Fresh,   Nothing, Needs::Nothing),
            Self::Failed                   => (When::Retry,   Of::MultiRail, Nothing, Nothing, Needs::Retries),
            Self::Unconfirmed              => (When::Retry,   Of::MultiRail, Any,     Nothing, Needs::Retries),
            Self::Silent                   => (When::Retry,   Of::Several,   Any,     Nothing, Needs::Retries),
            Self::Gone                     => (When::Retry,   Of::OneHealthy, Any,    Nothing, Needs::Retries),
            Self::Undelivered              => (When::Retry,   Of::Unwatched, Any,     Nothing, Needs::Retries),
            Self::Refresh                  => (When::Refresh, Of::Any,       Any,     Nothing, Needs::Nothing),
            Self::Changed { force: false } => (When::IfOwed,  Of::MultiRail, Nothing, Nothing, Needs::Nothing),
            Self::Changed { force: true }  => (When::IfOwed,  Of::MultiRail, Nothing, Fresh,   Needs::Nothing),
            Self::Reset                    => (When::NextUse, Of::Any,       Any,     Nothing, Needs::Nothing),
        };
        Row { when, of, learn, teach, needs }
    }

    /// Whether the peer's interfaces are learnt anew on its account.
    pub(crate) fn learns(self) -> bool {
        self.row().learn != Wish::Nothing
    }
}

/// What a wish asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing in this direction.
    Nothing,
    /// A round trip, or the one under way.
    Any,
    /// A round trip that begins after the wish.
    Fresh,
}

//! Why a peer is queried, or what we have is announced to it. [`Node::query`] is the only way in: each
//! [`Cause`] has a row that says when, and what is wanted of the two directions (`sync.rs`). What is
//! not due at once waits in `retry.rs`; a discovery that begins is carried out in `discovery.rs`.

use lnet_types::{Instant, PeerId};

use crate::Node;
use crate::local::HEALTH_MAX;
use crate::node::Work;
use crate::peer::Peer;
use crate::peer::sync::{Ours, Wish};
use crate::router::alive;

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
enum When {
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
enum Of {
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
enum Needs {
    /// None: kernel nodes do so, too.
    Nothing,
    /// `retries_discovery`.
    Retries,
    /// `queries_after_switch_on`.
    SwitchOn,
}

struct Row {
    when: When,
    of: Of,
    learn: Wish,
    teach: Wish,
    /// The row of the conduct table that it needs.
    needs: Needs,
}

impl Cause {
    #[rustfmt::skip]
    const fn row(self) -> Row {
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

impl Node {
    /// Queries peer `id`, or plans to: the row of `cause` says what is wanted, and when.
    pub(crate) fn query(&mut self, now: Instant, id: PeerId, cause: Cause) {
        if !self.is_worth_a_query(id, cause) {
            return;
        }
        match cause.row().when {
            When::Now => {
                self.want(id, cause);
                self.begin_discovery(id);
            }
            When::IfOwed => {
                self.want(id, cause);
                if let Some(peer) = self.peers.peers.get_mut(id) {
                    peer.disc.retry.restart_backoff();
                }
                if self.peers.peers.get(id).is_some_and(|p| self.owes_push(p)) {
                    self.begin_discovery(id);
                }
            }
            When::NextUse => self.want(id, cause),
            When::Retry => self.plan_retry(now, id, cause),
            When::Refresh => self.plan_refresh(now, id),
        }
    }

    /// Queries all peers, the oldest first.
    pub(crate) fn query_all(&mut self, now: Instant, cause: Cause) {
        let ids: Vec<PeerId> = self.peers.by_age.values().copied().collect();
        for id in ids {
            self.query(now, id, cause);
        }
    }

    fn is_worth_a_query(&self, id: PeerId, cause: Cause) -> bool {
        let Some(peer) = self.peers.peers.get(id) else { return false };
        let conduct = &self.tunables.conduct;
        let may = match cause.row().needs {
            Needs::Nothing => true,
            Needs::Retries => conduct.retries_discovery,
            Needs::SwitchOn => conduct.queries_after_switch_on,
        };
        if !may {
            return false;
        }
        let has_several = || peer.is_mr() && peer.ni_count() > 1;
        match cause.row().of {
            Of::Any => true,
            Of::MultiRail => peer.is_mr(),
            Of::Several => has_several(),
            Of::Unwatched => has_several() && self.tunables.health_sensitivity == 0,
            Of::OneHealthy => has_several() && self.has_healthy_ni(peer),
        }
    }

    pub(crate) fn has_healthy_ni(&self, peer: &Peer) -> bool {
        peer.nis().any(|ni| self.peers.nis.get(ni).is_some_and(|ni| ni.port.health == HEALTH_MAX))
    }

    /// Records what `cause` requires of peer `id`.
    pub(crate) fn want(&mut self, id: PeerId, cause: Cause) {
        let Row { learn, teach, .. } = cause.row();
        if let Some(peer) = self.peers.peers.get_mut(id) {
            peer.disc.learn.want(learn);
            peer.disc.teach.want(teach);
        }
    }

    /// Lets the discovery of peer `id` begin, or go on (D-11, D-13).
    pub(crate) fn begin_discovery(&mut self, id: PeerId) {
        let Some(peer) = self.peers.peers.get_mut(id) else { return };
        if !peer.disc.is_running || peer.disc.received.is_some() {
            peer.disc.is_running = true;
            self.work.push_back(Work::Discover(id));
        }
    }

    /// O-21.
    pub(crate) fn is_up_to_date(&self, id: PeerId) -> bool {
        self.peers.peers.get(id).is_some_and(|p| p.disc.is_up_to_date(self.ours_for(p)))
    }

    /// What of our data a peer receives.
    pub(crate) fn ours_for(&self, peer: &Peer) -> Ours {
        if !peer.is_mr() {
            Ours::Withheld
        } else if alive::is_discovery_off(&self.tunables, peer) {
            Ours::OnDemand
        } else {
            Ours::Shared(self.ping_seq)
        }
    }

    /// Whether a push to a peer is due.
    fn owes_push(&self, peer: &Peer) -> bool {
        !peer.disc.rebuild && peer.disc.owes(self.ours_for(peer))
    }
}

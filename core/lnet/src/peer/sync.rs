//! Two directions of knowledge between this node and a peer, as pure state: what it has announced to us
//! (`learn`) and what we have announced to it (`teach`).
//!
//! Each direction counts generations. A wish raises `wanted`; a round trip, while in `flight`, carries
//! the generation that was wanted when it left; its success makes that one `done`. So a wish that is
//! made while a round trip is under way survives it, and no flag has to say so. What is to be done next
//! follows from this state alone: [`Discovery::next`].
//!
//! The causes of queries are in `query.rs`; how a step is carried out, in `discovery.rs`.

use std::collections::VecDeque;

use lnet_types::{Errno, MdId, MsgId, Nid, PeerId};
use lnet_wire::ping::PingInfo;

use crate::OpId;
use crate::budget::Budget;
use crate::peer::backoff::Retry;
use crate::peer::cause::Wish;

/// One direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Sync {
    /// The newest generation that is wanted.
    wanted: u32,
    /// The newest one that has succeeded.
    done: u32,
    /// The descriptor of the round trip under way, and its generation.
    flight: Option<(MdId, u32)>,
}

impl Sync {
    pub(crate) fn want(&mut self, wish: Wish) {
        let covered = match (wish, self.flight) {
            (Wish::Nothing, _) => return,
            (Wish::Fresh, Some((_, flying))) => flying,
            (Wish::Any | Wish::Fresh, _) => self.done,
        };
        if self.wanted == covered {
            self.wanted = self.wanted.wrapping_add(1);
        }
    }

    /// Whether something is wanted that has not succeeded yet.
    pub(crate) const fn is_behind(self) -> bool {
        self.done != self.wanted
    }

    /// Whether something is wanted that the round trip under way does not bring.
    pub(crate) fn is_wanted_again(self) -> bool {
        self.is_behind() && self.flight.is_none_or(|(_, flying)| flying != self.wanted)
    }

    /// The newest generation that is wanted.
    pub(crate) const fn generation(self) -> u32 {
        self.wanted
    }

    pub(crate) fn depart(&mut self, md: MdId) {
        self.flight = Some((md, self.wanted));
    }

    /// The descriptor of the round trip under way.
    pub(crate) fn in_flight(self) -> Option<MdId> {
        self.flight.map(|(md, _)| md)
    }

    /// Ends the round trip under way and returns its generation. Only [`Sync::succeed`] says that it
    /// was of use.
    pub(crate) fn land(&mut self) -> Option<u32> {
        self.flight.take().map(|(_, generation)| generation)
    }

    /// What was wanted up to `generation` is done.
    pub(crate) fn succeed(&mut self, generation: u32) {
        if is_later(generation, self.done) {
            self.done = generation;
        }
    }

    /// Something is wanted, or nothing.
    pub(crate) const fn set(&mut self, is_behind: bool) {
        self.done = self.wanted;
        if is_behind {
            self.wanted = self.wanted.wrapping_add(1);
        }
    }

    /// What is wanted is not wanted any more.
    pub(crate) const fn drop_wishes(&mut self) {
        self.done = self.wanted;
    }
}

/// Ping data of a peer that wait to be merged.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Announcement {
    /// The NID that announced them.
    pub(crate) by: Nid,
    pub(crate) info: PingInfo,
    /// What was wanted when they came: their merge fulfils it.
    pub(crate) generation: u32,
}

/// What is done next for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: a discovery that was under way has succeeded.
    Idle,
    /// Nothing yet: a round trip is under way, or the peer's data exceed its rate.
    Wait,
    /// Its record is made anew (D-48).
    Rebuild,
    /// Its data are merged (D-40).
    Merge,
    /// It is asked for its data (D-30).
    Ping,
    /// Our data are pushed to it (D-50).
    Push,
}

/// What of our data a peer receives (D-21).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ours {
    /// Nothing: it is not Multi-Rail.
    Withheld,
    /// Pushes that are wanted expressly: discovery is off, here or there.
    OnDemand,
    /// Each new version; this is the newest.
    Shared(u32),
}

/// What discovery keeps for each peer.
#[derive(Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Discovery {
    /// A discovery is under way (DISCOVERING).
    pub(crate) is_running: bool,
    /// Its record is to be made anew (MARK_DELETION).
    pub(crate) rebuild: bool,
    /// A discovery has succeeded once (DISCOVERED).
    pub(crate) discovered: bool,
    /// What it has announced to us.
    pub(crate) learn: Sync,
    /// What we have announced to it, beyond what the version of our data says.
    pub(crate) teach: Sync,
    /// Ping or push data not yet merged (DATA_PRESENT).
    pub(crate) received: Option<Announcement>,
    /// The error of the last round (REDISCOVER).
    pub(crate) error: Option<Errno>,
    /// Bytes that its ping data need.
    pub(crate) need: u32,
    /// Its sequence number, as last received.
    pub(crate) peer_seq: u32,
    /// The same when the ping on its way was sent.
    pub(crate) seq_before: u32,
    /// Our sequence number, as last acknowledged by it.
    pub(crate) acked_seq: u32,
    /// The sequence number in the push on its way.
    pub(crate) pushed_seq: u32,
    /// Own NID and its NID that the last ping used: the push takes the same path (D-32).
    pub(crate) via: Option<(Nid, Nid)>,
    /// Messages that wait for the end of this.
    pub(crate) parked: VecDeque<MsgId>,
    /// Operations of users that wait for the end of this, and for the answers to `questions`.
    pub(crate) waiters: Vec<OpId>,
    /// Pings under way to NIDs that it claims.
    pub(crate) questions: Vec<MdId>,
    /// The owner of the last claimed NID whose ping had no answer.
    pub(crate) silent: Option<PeerId>,
    /// NIDs of other peers that its newest data list (`claims.rs`).
    pub(crate) claims: Vec<Nid>,
    /// Rate limit of the pings on account of them.
    pub(crate) asks: Budget,
    /// Rate limit of merges. Its timer is set while its data wait on account of it.
    pub(crate) merges: Budget,
    /// Useless replies in a row (bounded, unlike the kernel's: Z-8).
    pub(crate) bad_replies: u8,
    /// When it is queried again.
    pub(crate) retry: Retry,
}

impl Discovery {
    /// That of a new peer: what it has is not known.
    pub(crate) fn of_new_peer(merges: Budget) -> Self {
        let learn = Sync { wanted: 1, ..Sync::default() };
        Self { learn, merges, ..Self::default() }
    }

    /// What is done next (D-14), if the peer is to receive `ours`. `is_held`: its data wait.
    pub(crate) fn next(&self, is_held: bool, ours: Ours) -> Step {
        if self.rebuild && self.is_running {
            return if is_held { Step::Wait } else { Step::Rebuild };
        }
        if self.received.is_some() {
            return if is_held { Step::Wait } else { Step::Merge };
        }
        if !self.is_running {
            return Step::Idle;
        }
        if self.learn.in_flight().or_else(|| self.teach.in_flight()).is_some() {
            return Step::Wait;
        }
        if self.learn.is_behind() {
            return Step::Ping;
        }
        if self.owes(ours) { Step::Push } else { Step::Idle }
    }

    /// Whether it has not received what it is to receive.
    pub(crate) fn owes(&self, ours: Ours) -> bool {
        match ours {
            Ours::Withheld => false,
            Ours::OnDemand => self.teach.is_behind(),
            Ours::Shared(newest) => self.teach.is_behind() || self.acked_seq != newest,
        }
    }

    /// O-21.
    pub(crate) fn is_up_to_date(&self, ours: Ours) -> bool {
        self.discovered
            && self.error.is_none()
            && !self.is_running
            && self.received.is_none()
            && !self.learn.is_behind()
            && !self.teach.is_behind()
            && !self.owes(ours)
    }
}

/// Whether a generation or sequence number is later than another; both wrap.
pub(crate) const fn is_later(seq: u32, than: u32) -> bool {
    let ahead = seq.wrapping_sub(than);
    ahead != 0 && ahead < 1 << 31
}

#[cfg(test)]
mod tests {
    use lnet_types::Pid;
    use lnet_wire::ping::Features;

    use super::*;

    const NEWEST: u32 = 7;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum At {
        Done,
        Behind,
        Flying,
        FlyingAndBehind,
    }

    impl At {
        const ALL: [Self; 4] = [Self::Done, Self::Behind, Self::Flying, Self::FlyingAndBehind];

        fn sync(self) -> Sync {
            let mut sync = Sync::default();
            match self {
                Self::Done => {}
                Self::Behind => sync.want(Wish::Any),
                Self::Flying | Self::FlyingAndBehind => {
                    sync.want(Wish::Any);
                    sync.depart(MdId::default());
                }
            }
            if self == Self::FlyingAndBehind {
                sync.want(Wish::Fresh);
            }
            sync
        }

        fn is_flying(self) -> bool {
            matches!(self, Self::Flying | Self::FlyingAndBehind)
        }
    }

    /// Each state is in one row: the first that it fits.
    fn expected(
        (is_running, rebuild, received, is_held): (bool, bool, bool, bool),
        (learn, teach): (At, At),
        (ours, is_acked): (Ours, bool),
    ) -> Step {
        match (is_running, rebuild, received, is_held) {
            (true, true, _, true) => return Step::Wait,
            (true, true, _, false) => return Step::Rebuild,
            (_, _, true, true) => return Step::Wait,
            (_, _, true, false) => return Step::Merge,
            (false, _, false, _) => return Step::Idle,
            (true, false, false, _) => {}
        }
        match (learn, teach, ours, is_acked) {
            (l, t, ..) if l.is_flying() || t.is_flying() => Step::Wait,
            (At::Behind, ..) => Step::Ping,
            (_, _, Ours::Withheld, _) => Step::Idle,
            (_, At::Behind, Ours::OnDemand | Ours::Shared(_), _) => Step::Push,
            (_, _, Ours::Shared(_), false) => Step::Push,
            (_, _, Ours::OnDemand, _) | (_, _, Ours::Shared(_), true) => Step::Idle,
        }
    }

    #[test]
    fn each_state_of_discovery_has_the_step_of_its_row() {
        let mut seen = std::collections::BTreeMap::new();
        for bits in 0..32 {
            let bit = |n: u32| bits >> n & 1 == 1;
            let (is_running, rebuild, received, is_held) = (bit(0), bit(1), bit(2), bit(3));
            let is_acked = bit(4);
            for learn in At::ALL {
                for teach in At::ALL {
                    for ours in [Ours::Withheld, Ours::OnDemand, Ours::Shared(NEWEST)] {
                        let info = PingInfo {
                            features: Features::MULTI_RAIL,
                            pid: Pid::LUSTRE,
                            seq: 1,
                            entries: Vec::new(),
                        };
                        let said = Announcement { by: Nid::ANY, info, generation: 0 };
                        let disc = Discovery {
                            is_running,
                            rebuild,
                            received: received.then_some(said),
                            learn: learn.sync(),
                            teach: teach.sync(),
                            acked_seq: if is_acked { NEWEST } else { NEWEST - 1 },
                            ..Discovery::default()
                        };
                        let step = disc.next(is_held, ours);
                        let of = (is_running, rebuild, received, is_held);
                        let want = expected(of, (learn, teach), (ours, is_acked));
                        assert_eq!(step, want, "{of:?} {learn:?} {teach:?} {ours:?} {is_acked}");
                        *seen.entry(format!("{step:?}")).or_insert(0) += 1;
                    }
                }
            }
        }
        assert_eq!(seen.len(), 6, "{seen:?}");
    }

    #[test]
    fn a_query_for_fresh_data_made_during_a_round_trip_survives_it() {
        for (wish, survives) in [(Wish::Nothing, false), (Wish::Any, false), (Wish::Fresh, true)] {
            let mut sync = Sync { wanted: 1, ..Sync::default() };
            sync.depart(MdId::default());
            sync.want(wish);
            sync.want(wish);
            assert_eq!(sync.is_wanted_again(), survives, "{wish:?}");
            let generation = sync.land().unwrap();
            sync.succeed(generation);
            assert_eq!(sync.is_behind(), survives, "{wish:?}");
            sync.succeed(sync.generation());
            assert!(!sync.is_behind(), "several such wishes are one");
        }
    }

    #[test]
    fn a_discovery_round_trip_that_fails_stays_wanted() {
        let mut sync = Sync { wanted: 1, ..Sync::default() };
        sync.depart(MdId::default());
        sync.land();
        assert!(sync.is_behind() && sync.in_flight().is_none());
        sync.drop_wishes();
        assert!(!sync.is_behind());
    }

    #[test]
    fn a_success_of_an_older_generation_takes_nothing_back() {
        let mut sync = Sync { wanted: 2, done: u32::MAX, flight: None };
        sync.succeed(2);
        sync.succeed(0);
        assert!(!sync.is_behind());
    }

    #[test]
    fn sequence_numbers_are_later_across_their_wrap() {
        for (seq, than, later) in [
            (2, 1, true),
            (1, 1, false),
            (1, 2, false),
            (0, u32::MAX, true),
            (u32::MAX, 0, false),
            (5, u32::MAX - 5, true),
        ] {
            assert_eq!(is_later(seq, than), later, "{seq} after {than}");
        }
    }
}

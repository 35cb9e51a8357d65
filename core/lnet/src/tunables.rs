//! The node's tunables: one table from which come the struct, the defaults of each profile, the
//! bounds, the checks and the help that commands print. A profile is a column of that table; what
//! it chooses besides numbers is a column of the table in `conduct.rs`. Rules between several
//! tunables are in [`Tunables::set`].

use core::time::Duration;

use lnet_types::{Errno, HealthStatus, HealthStatuses, RETRY_PATHS};
use thiserror::Error;

use crate::conduct::{AttemptLimit, Conduct, RecoveryPace};

/// A consistent set of defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Profile {
    /// What we believe is best.
    #[default]
    Default,
    /// The letter of the requirement documents.
    Documents,
    /// As kernel LNet 2.17 behaves.
    Kernel,
    /// As kernels before 2.13 behaved.
    Pre213,
    /// No health, no retries.
    Off,
}

impl Profile {
    /// All profiles, in the order of the table's columns.
    pub const ALL: [Self; 5] =
        [Self::Default, Self::Documents, Self::Kernel, Self::Pre213, Self::Off];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Documents => "documents",
            Self::Kernel => "kernel",
            Self::Pre213 => "pre-2.13",
            Self::Off => "off",
        }
    }

    /// The profile of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }
}

/// How often a message that failed goes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Retries {
    /// So many times at most.
    Count(u32),
    /// Until it has been tried once on every path: every interface of ours that shares a network
    /// with the peer, with every interface of the peer there (DEC-11, MR-snd-055).
    Paths,
}

/// When a tunable may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Writable {
    /// Any time.
    Always,
    /// Accepted, warned about and without effect, as in the kernel (V-10).
    Deprecated,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub struct Row {
    /// Name, as `lnetctl set` and `global show` spell it.
    pub name: &'static str,
    /// Unit, empty for plain numbers.
    pub unit: &'static str,
    /// Smallest value accepted.
    pub min: i64,
    /// Largest value accepted.
    pub max: i64,
    /// Defaults, a column per [`Profile::ALL`].
    pub defaults: [i64; 5],
    /// When it may change.
    pub writable: Writable,
    /// One line of help.
    pub help: &'static str,
}

macro_rules! tunables {
    ($($(#[$doc:meta])* $name:ident [$unit:literal] $min:literal ..= $max:expr,
        [$($default:expr),*], $writable:ident, $help:literal;)*) => {
        /// The node's tunables. Units and bounds: [`Tunables::TABLE`].
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub struct Tunables {
            /// Which defaults are in force.
            pub profile: Profile,
            /// What the node does, where profiles differ in more than numbers.
            pub conduct: Conduct,
            $(#[doc = $help] pub $name: i64,)*
        }

        impl Tunables {
            /// One row per tunable.
            pub const TABLE: &'static [Row] = &[$(Row {
                name: stringify!($name),
                unit: $unit,
                min: $min,
                max: $max,
                defaults: [$($default),*],
                writable: Writable::$writable,
                help: $help,
            },)*];

            /// The defaults of `profile`.
            pub const fn new(profile: Profile) -> Self {
                let column = profile as usize;
                Self { profile, conduct: Conduct::new(profile), $($name: [$($default),*][column],)* }
            }

            /// The value of the tunable called `name`.
            pub fn value(&self, name: &str) -> Option<i64> {
                match name { $(stringify!($name) => Some(self.$name),)* _ => None }
            }

            fn store(&mut self, name: &str, value: i64) {
                match name { $(stringify!($name) => self.$name = value,)* _ => {} }
            }
        }
    };
}

const U32: i64 = u32::MAX as i64;
const I32: i64 = i32::MAX as i64;
/// Failures after which the message is provably not with the peer's LNet (H-10, H-11).
const UNDELIVERED: i64 = HealthStatuses::of(&[
    HealthStatus::LocalInterrupt,
    HealthStatus::LocalDropped,
    HealthStatus::LocalAborted,
    HealthStatus::LocalNoRoute,
    HealthStatus::LocalTimeout,
    HealthStatus::RemoteDropped,
])
.bits();
/// Failures after which delivery is unknown.
const UNKNOWN: i64 =
    HealthStatuses::of(&[HealthStatus::RemoteTimeout, HealthStatus::NetworkTimeout]).bits();

tunables! {
    numa_range [""] 0 ..= U32, [0, 0, 0, 0, 0], Always,
        "NUMA distance below which interfaces count as equally near";
    max_interfaces [""] 0 ..= I32, [4096, 4096, 4096, 4096, 4096], Always,
        "most interfaces of this node or of one peer; below 16 means the default";
    discovery [""] 0 ..= I32, [1, 1, 1, 1, 1], Always,
        "whether peers' interfaces are discovered and ours are announced (0 or 1)";
    drop_asym_route [""] 0 ..= I32, [0, 0, 0, 0, 0], Always,
        "whether messages through routers that we would not use are dropped (0 or 1)";
    retry_count [""] 0 ..= I32, [2, 2, 2, 2, 0], Always,
        "how often a message that failed is sent again; paths: once on each path";
    // HL-lnt-040 to the letter: the documents send again after all three kinds of timeout.
    resend_on [""] 0 ..= 0x7FF,
        [UNDELIVERED, UNDELIVERED | UNKNOWN, UNDELIVERED, UNDELIVERED, UNDELIVERED], Always,
        "failures after which a message is sent again to any peer (DEC-6, DEC-7)";
    transaction_timeout ["s"] 1 ..= I32, [150, 5, 150, 5, 5], Always,
        "time limit of an operation, retries and response included: when it is abandoned";
    ping_timeout ["s"] 0 ..= I32, [5, 0, 0, 0, 0], Always,
        "time limit of a ping or push of this node's own, and of lnetctl ping; 0: transaction_timeout";
    connect_timeout ["ms"] 0 ..= 3_600_000, [1500, 0, 0, 0, 0], Always,
        "how long a peer may leave connection attempts unanswered before it counts as unreachable; 0: the LND timeout";
    reconnect_timeout ["ms"] 0 ..= 3_600_000, [1500, 0, 0, 0, 0], Always,
        "how long a connection to a peer that suppresses duplicates may stay unacknowledged before it is replaced; 0: the LND timeout (DEC-47)";
    answer_overdue_after ["ms"] 0 ..= 3_600_000, [1500, 0, 0, 0, 0], Always,
        "age of a request through routers, to a peer that suppresses duplicates, at which it is sent again; 0: the share of one attempt";
    forward_timeout ["s"] 0 ..= I32, [5, 0, 0, 0, 0], Always,
        "router: how long a message that passes through may take, attempts included; 0: transaction_timeout";
    routing_stop_time ["s"] 0 ..= I32, [5, 5, 0, 5, 5], Always,
        "how long a router that is switched off goes on forwarding while its peers turn to others; 0: as long as its networks may be silent";
    previous_nid_time ["s"] 0 ..= I32, [5, 5, 0, 5, 5], Always,
        "how long messages for a NID that a peer has given up still go to that peer; 0: not at all";
    tcp_rto_max ["ms"] 0 ..= 120_000, [1000, 1000, 1000, 1000, 1000], Always,
        "longest retransmission timeout of TCP, at least 1000, where the system has that option; 0: the system's";
    retained_per_connection ["bytes"] 65_536 ..= 1 << 30, [8 << 20, 8 << 20, 8 << 20, 8 << 20, 8 << 20], Always,
        "bytes in doubt that one connection to a peer that suppresses duplicates retains; at the limit it writes no more until some are acknowledged";
    health_sensitivity [""] 0 ..= 1000, [100, 100, 100, 1, 0], Always,
        "health that a failure costs and a success returns; 0 switches health off";
    recovery_interval ["s"] 0 ..= I32, [1, 1, 1, 1, 1], Deprecated,
        "deprecated, without effect: recovery pings follow max_recovery_ping_interval";
    router_sensitivity ["%"] 0 ..= 100, [100, 100, 100, 100, 100], Always,
        "kept for compatibility: nothing consults it";
    response_tracking [""] 0 ..= 3, [3, 3, 3, 3, 3], Always,
        "whose responses are timed: 0 internal only, 1 GETs, 2 PUTs, 3 both";
    suppress_duplicates [""] 0 ..= 1, [1, 1, 0, 0, 0], Always,
        "whether duplicates are suppressed: peers of this kind may then repeat messages in doubt (DEC-6)";
    recovery_limit ["s"] 0 ..= I32, [0, 0, 0, 0, 0], Always,
        "how long after it was last heard from a peer is pinged for recovery; 0 for ever";
    max_recovery_ping_interval ["s"] 1 ..= I32, [5, 1, 900, 1, 900], Always,
        "longest time between recovery pings of one interface";
    udsp_first [""] 0 ..= 1, [0, 0, 0, 0, 0], Always,
        "whether priorities by rules come before health (DEC-12)";
    exclude_at_zero [""] 0 ..= 1, [0, 0, 0, 0, 0], Always,
        "whether interfaces at health 0 carry nothing but our own pings (DEC-14)";
    explain_last [""] 0 ..= 4096, [0, 0, 0, 0, 0], Always,
        "how many messages sent are kept with the reasons for their path";
    health_on_success [""] 0 ..= 1, [1, 0, 1, 0, 0], Always,
        "whether ordinary messages that succeed raise health too, not only recovery pings (DEC-4)";
    recovery_step [""] 0 ..= 1000, [0, 0, 0, 0, 0], Always,
        "health that a successful recovery ping returns; 0 means health_sensitivity (DEC-3)";
    health_range [""] 0 ..= I32, [0, 0, 0, 0, 0], Always,
        "health difference up to which interfaces count as equally healthy; from 1000 on all do (DEC-13)";
    flap_hold_down ["s"] 0 ..= 3600, [10, 10, 0, 0, 0], Always,
        "half-life of the penalty of an interface that goes down; 0: flapping ones are as good as others";
    alive_router_check_interval ["s"] -1 ..= I32, [60, 60, 60, 60, 60], Always,
        "time between two pings of a gateway; 0 or below: gateways are not checked";
    live_router_check_interval ["s"] 0 ..= I32, [0, 60, 0, 60, 0], Always,
        "the same for gateways that answer; 0 follows alive_router_check_interval, as the kernel does";
    dead_router_check_interval ["s"] 0 ..= I32, [0, 60, 0, 60, 0], Always,
        "the same for gateways that do not answer; 0 follows alive_router_check_interval";
    router_ping_timeout ["s"] 0 ..= I32, [50, 50, 50, 50, 50], Always,
        "how long a gateway may take to answer, and a router's network may be silent beyond the interval";
    check_routers_before_use [""] 0 ..= 1, [0, 0, 0, 0, 0], Always,
        "whether a new gateway is used only after it has answered (0 or 1)";
    avoid_asym_router_failure [""] 0 ..= 1, [1, 1, 1, 1, 1], Always,
        "whether a gateway is left whose interface on the far side is down (0 or 1)";
    auto_down [""] 0 ..= 1, [1, 1, 1, 1, 1], Always,
        "whether drivers' reports of lost peers are acted on (0 or 1)";
    legacy_route_rr [""] 0 ..= 1, [0, 0, 0, 1, 0], Always,
        "whether equal routes take plain turns, without regard to health and to what failed (0 or 1)";
    peer_buffer_credits [""] 0 ..= I32, [0, 0, 0, 0, 0], Always,
        "router: messages of one peer interface in hand at once; 0 means its network's peer_credits";
    tiny_buffers [""] 0 ..= 4_194_304, [0, 0, 0, 0, 0], Always,
        "router: buffers for messages without payload; 0 means 2048";
    small_buffers [""] 0 ..= 4_194_304, [0, 0, 0, 0, 0], Always,
        "router: buffers of 4 KiB; 0 means 16384";
    large_buffers [""] 0 ..= 65_536, [0, 0, 0, 0, 0], Always,
        "router: buffers of 1 MiB; 0 means 1024";
    peer_refresh_interval ["s"] 0 ..= 86_400, [60, 0, 0, 0, 0], Always,
        "how long a peer is used before it is asked again what it has; 0: only when there is reason to";
    rail_suspicion [""] 0 ..= 1, [1, 0, 0, 0, 0], Always,
        "whether rails that fall silent, lose or lag are avoided before anything has failed (DEC-31)";
    suspect_after_min ["ms"] 1 ..= 60_000, [50, 50, 50, 50, 50], Always,
        "how long a rail may leave bytes unacknowledged, or a connection unanswered, at least";
    suspect_after_rtts [""] 1 ..= 1000, [8, 8, 8, 8, 8], Always,
        "the same in round trips of the rail; the longer time counts";
    peers_max [""] 1 ..= I32, [1 << 18, 1 << 18, 1 << 18, 1 << 18, 1 << 18], Always,
        "most peer interfaces that this node keeps a record of";
    messages_max [""] 1 ..= I32, [1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20], Always,
        "most messages that this node has in hand at once";
    parked_max [""] 1 ..= I32, [4096, 4096, 4096, 4096, 4096], Always,
        "most messages that wait for the discovery of one peer";
    delayed_max [""] 1 ..= I32, [4096, 4096, 4096, 4096, 4096], Always,
        "most messages that wait for a buffer on one lazy portal";
}

/// Why a value was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TunableError {
    /// No such name.
    #[error("no tunable is called '{0}'")]
    Unknown(String),
    /// Out of bounds.
    #[error("{name} {value}: expected {min} to {max}")]
    Bounds {
        /// The tunable.
        name: &'static str,
        /// The value.
        value: i64,
        /// Smallest accepted.
        min: i64,
        /// Largest accepted.
        max: i64,
    },
    /// It would contradict another one.
    #[error("{name} {}: {rule}", shown(name, *value))]
    Rule {
        /// The tunable.
        name: &'static str,
        /// The value.
        value: i64,
        /// What must hold.
        rule: &'static str,
    },
}

/// A value as its tunable is written.
fn shown(name: &str, value: i64) -> String {
    match (name, value) {
        ("retry_count", RETRY_PATHS) => "paths".to_owned(),
        ("resend_on", bits) => HealthStatuses::from_bits(bits).to_string(),
        _ => value.to_string(),
    }
}

impl TunableError {
    /// The error number that kernel LNet returns.
    pub const fn errno(&self) -> Errno {
        match self {
            Self::Unknown(_) => Errno::ENOENT,
            Self::Bounds { .. } | Self::Rule { .. } => Errno::EINVAL,
        }
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Self::new(Profile::Default)
    }
}

impl Tunables {
    /// The smallest meaningful `max_interfaces`; lower values mean the default (V-10).
    const INTERFACES_FLOOR: i64 = 16;

    /// The row of `name`.
    pub fn row(name: &str) -> Option<&'static Row> {
        Self::TABLE.iter().find(|row| row.name == name)
    }

    /// Sets one tunable, or refuses and changes nothing (V-10).
    ///
    /// # Errors
    /// Unknown name, value out of bounds, or a contradiction to another tunable.
    pub fn set(&mut self, name: &str, value: i64) -> Result<(), TunableError> {
        self.set_all(&[(name, value)])
    }

    /// Sets several tunables at once: the rules between them are applied to the end state, so that
    /// their order does not matter. All or nothing.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn set_all(&mut self, changes: &[(&str, i64)]) -> Result<(), TunableError> {
        let mut next = self.clone();
        for &(name, value) in changes {
            let Some(row) = Self::row(name) else {
                return Err(TunableError::Unknown(name.to_owned()));
            };
            let paths = row.name == "retry_count" && value == RETRY_PATHS;
            if !paths && (value < row.min || value > row.max) {
                let (name, min, max) = (row.name, row.min, row.max);
                return Err(TunableError::Bounds { name, value, min, max });
            }

            if row.writable == Writable::Deprecated {
                // An export holds the default: an import of it has no news for anybody.
                if next.value(row.name) == Some(value) {
                    continue;
                }
                tracing::warn!("{} is deprecated and has no effect", row.name);
                continue;
            }
            let value = match row.name {
                "discovery" | "drop_asym_route" => i64::from(value != 0),
                "max_interfaces" if value < Self::INTERFACES_FLOOR => row.defaults[0],
                _ => value,
            };
            next.store(row.name, value);
        }
        let given = |name: &str| changes.iter().any(|&(n, _)| n == name);
        if next.resend_on & !(UNDELIVERED | UNKNOWN) != 0 {
            return Err(TunableError::Rule {
                name: "resend_on",
                value: next.resend_on,
                rule: "local_error and remote_error are never sent again",
            });
        }
        if next.health_sensitivity == 0 && next.retry_count != 0 {
            if given("retry_count") {
                return Err(TunableError::Rule {
                    name: "retry_count",
                    value: next.retry_count,
                    rule: "must be 0 while health_sensitivity is 0",
                });
            }
            next.retry_count = 0;
        }
        // retry_count may equal transaction_timeout, transaction_timeout must exceed retry_count
        // which one is being set decides. Given together they may be equal: whatever single
        // settings lead to can be given as a whole, as an export does.
        let alone = given("transaction_timeout") && !given("retry_count");
        if alone && next.transaction_timeout <= next.retry_count {
            return Err(TunableError::Rule {
                name: "transaction_timeout",
                value: next.transaction_timeout,
                rule: "must exceed retry_count",
            });
        }
        if next.retry_count > next.transaction_timeout {
            return Err(TunableError::Rule {
                name: "retry_count",
                value: next.retry_count,
                rule: "must not exceed transaction_timeout",
            });
        }
        *self = next;
        Ok(())
    }

    /// The limit on a whole operation.
    pub fn transaction(&self) -> Duration {
        Duration::from_secs(self.transaction_timeout as u64)
    }

    /// How often a message that failed goes again (DEC-11).
    pub const fn retries(&self) -> Retries {
        match self.retry_count {
            RETRY_PATHS => Retries::Paths,
            n => Retries::Count(n as u32),
        }
    }

    /// The time limit of one transmission, derived (DEC-9, DEC-46, V-10), of a message that has one
    /// path: in whole seconds, one less than the transaction's, where both are long.
    pub fn lnd_timeout(&self) -> Duration {
        let transaction = self.transaction();
        match (self.conduct.attempt_limit, self.retries()) {
            (AttemptLimit::PerAttempt, Retries::Count(retries)) => {
                whole_share(transaction, retries)
            }
            _ => self.attempt_of(transaction, 1),
        }
    }

    /// The time limit of a ping or push of the node's own (DEC-46).
    pub fn ping_limit(&self) -> Duration {
        match self.ping_timeout {
            0 => self.transaction(),
            secs => Duration::from_secs(secs as u64),
        }
    }

    /// The time limit of a message that passes through a router (DEC-46).
    pub fn forward_limit(&self) -> Duration {
        match self.forward_timeout {
            0 => self.transaction(),
            secs => Duration::from_secs(secs as u64),
        }
    }

    /// When a request that went through routers is sent again for want of an answer, where one attempt
    /// has `share`.
    pub fn overdue_after(&self, share: Duration) -> Duration {
        match self.answer_overdue_after {
            0 => share,
            ms => share.min(Duration::from_millis(ms as u64)),
        }
    }

    /// The share that one attempt has of the time for all of them (DEC-9, HL-lnt-080). The number of
    /// the message's `paths` matters only where that is how often it may go.
    pub fn attempt_of(&self, whole: Duration, paths: usize) -> Duration {
        let retries = match self.retries() {
            Retries::Count(n) => u64::from(n),
            Retries::Paths => (paths as u64).saturating_sub(1),
        };
        let part = |n: u64| {
            // One division of words: every message asks.
            let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
            Duration::from_nanos(nanos / n.max(1))
        };
        match self.conduct.attempt_limit {
            AttemptLimit::WholeSeconds => {
                whole_share(whole, u32::try_from(retries).unwrap_or(u32::MAX))
            }
            AttemptLimit::PerRetry => part(retries),
            AttemptLimit::PerAttempt => part(retries + 1),
            AttemptLimit::Whole => whole,
        }
    }

    /// Time from one recovery ping of an interface to the next, after `failed` pings in a row and
    /// `sent` pings in all (DEC-5, H-41). `None`: no recovery.
    pub fn recovery_interval_after(&self, failed: u32, sent: u32) -> Option<Duration> {
        let max = self.max_recovery_ping_interval as u64;
        let secs = match self.conduct.recovery_pace {
            RecoveryPace::Off => return None,
            RecoveryPace::Constant => 1,
            RecoveryPace::Adaptive => 1u64.checked_shl(failed).map_or(max, |s| s.min(max)),
            RecoveryPace::Exponential => {
                if u64::from(sent) <= u64::from(max.ilog2()) {
                    1 << sent
                } else {
                    max
                }
            }
        };
        Some(Duration::from_secs(secs))
    }

    /// Whether a node announces that it deduplicates, and marks messages to peers that do (DEC-6).
    pub const fn deduplicates(&self) -> bool {
        self.suppress_duplicates != 0 && self.discovery != 0
    }

    /// Whether a message that failed so may go again to any peer (DEC-6, DEC-7).
    pub const fn resends(&self, status: HealthStatus) -> bool {
        HealthStatuses::from_bits(self.resend_on).contains(status)
    }
}

/// The share of one attempt in whole seconds, with a second to spare for all (V-10).
fn whole_share(whole: Duration, retries: u32) -> Duration {
    let attempts = u64::from(retries).saturating_add(1);
    Duration::from_secs((whole.as_secs().saturating_sub(1) / attempts).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_lies_within_its_bounds_and_keeps_the_rules() {
        for profile in Profile::ALL {
            let t = Tunables::new(profile);
            for row in Tunables::TABLE {
                let v = t.value(row.name).unwrap();
                assert!(row.min <= v && v <= row.max, "{} of {}", row.name, profile.name());
            }
            assert!(t.retry_count < t.transaction_timeout);
            assert_eq!(t.resend_on & !(UNDELIVERED | UNKNOWN), 0);
            assert!(t.health_sensitivity != 0 || t.retry_count == 0);
        }
    }

    #[test]
    fn x41_bounds_between_retry_count_and_transaction_timeout() {
        let mut t = Tunables::new(Profile::Kernel);
        assert_eq!(t.lnd_timeout().as_secs(), 49);
        t.set("retry_count", 150).unwrap();
        assert!(t.set("transaction_timeout", 150).is_err());
        t.set("retry_count", 2).unwrap();
        assert!(t.set("transaction_timeout", 2).is_err());
        for (tt, lnd) in [(4, 1), (10, 3), (50, 16)] {
            t.set("transaction_timeout", tt).unwrap();
            assert_eq!(t.lnd_timeout().as_secs(), lnd);
        }
        assert_eq!(t.set("retry_count", 51).unwrap_err().errno(), Errno::EINVAL);
        assert_eq!(t.retry_count, 2);
    }

    #[test]
    fn x40_sensitivity_zero_takes_retries_along() {
        let mut t = Tunables::new(Profile::Kernel);
        t.set("health_sensitivity", 0).unwrap();
        assert_eq!((t.retry_count, t.lnd_timeout().as_secs()), (0, 149));
        assert!(t.set("retry_count", 1).is_err());
    }

    #[test]
    fn pairs_are_judged_by_their_end_state() {
        let mut t = Tunables::new(Profile::Default);
        t.set_all(&[("retry_count", 20), ("transaction_timeout", 50)]).unwrap();
        assert_eq!((t.retry_count, t.transaction_timeout), (20, 50));
        let before = t.clone();
        assert!(t.set_all(&[("numa_range", 5), ("retry_count", 99)]).is_err());
        assert_eq!(t, before);
    }

    #[test]
    fn values_reached_by_single_settings_are_accepted_as_a_whole() {
        let mut random = lnet_types::Prng::new(0x16_A1);
        for case in 0..2_000 {
            let profile = Profile::ALL[random.below(5) as usize];
            let mut t = Tunables::new(profile);
            for _ in 0..random.below(12) {
                let row = &Tunables::TABLE[random.below(Tunables::TABLE.len() as u64) as usize];
                let near = i64::try_from(random.below(6)).unwrap();
                let value = match random.below(4) {
                    0 => row.min + near,
                    1 => row.max - near,
                    2 => row.defaults[0] + near - 2,
                    _ => near,
                };
                // A refusal changes nothing.
                let _ = t.set(row.name, value);
            }
            let rows = Tunables::TABLE.iter();
            let all: Vec<(&str, i64)> = rows.map(|r| (r.name, t.value(r.name).unwrap())).collect();
            let mut copy = Tunables::new(profile);
            copy.set_all(&all).unwrap_or_else(|e| panic!("case {case}: {e}: {t:?}"));
            assert_eq!(copy, t, "case {case}");
        }
    }

    #[test]
    fn deprecated_tunables_are_accepted_and_ignored() {
        let mut t = Tunables::new(Profile::Kernel);
        t.set("recovery_interval", 5).unwrap();
        assert_eq!(t, Tunables::new(Profile::Kernel));
        assert!(t.set("recovery_interval", -1).is_err());
    }

    #[test]
    fn dec6_only_failures_that_may_be_sent_again_are_taken_for_resend_on() {
        let mut t = Tunables::new(Profile::Default);
        for bad in [HealthStatus::LocalError, HealthStatus::RemoteError, HealthStatus::Ok] {
            let bits = UNDELIVERED | HealthStatuses::of(&[bad]).bits();
            assert!(t.set("resend_on", bits).is_err(), "{bad}");
        }
        let text = t.set("resend_on", HealthStatuses::of(&[HealthStatus::LocalError]).bits());
        let text = text.unwrap_err().to_string();
        assert_eq!(
            text,
            "resend_on local_error: local_error and remote_error are never sent again"
        );
        t.set("resend_on", 0).unwrap();
        assert!(HealthStatus::ALL.into_iter().all(|s| !t.resends(s)));
        let documents = Tunables::new(Profile::Documents);
        assert!(documents.resends(HealthStatus::NetworkTimeout));
        assert!(!Tunables::new(Profile::Kernel).resends(HealthStatus::NetworkTimeout));
    }

    #[test]
    fn dec11_paths_is_a_value_of_retry_count_alone() {
        let mut t = Tunables::new(Profile::Default);
        t.set("retry_count", RETRY_PATHS).unwrap();
        assert_eq!(t.retries(), Retries::Paths);
        assert_eq!(t.attempt_of(Duration::from_secs(8), 4).as_secs(), 2);
        for bad in [-1, RETRY_PATHS + 1] {
            assert!(t.set("retry_count", bad).is_err(), "{bad}");
        }
        assert!(t.set("discovery", RETRY_PATHS).is_err());
        let mut off = Tunables::new(Profile::Off);
        let text = off.set("retry_count", RETRY_PATHS).unwrap_err().to_string();
        assert_eq!(text, "retry_count paths: must be 0 while health_sensitivity is 0");
    }

    #[test]
    fn lnd_timeouts_follow_their_profile() {
        let of = |p| Tunables::new(p).lnd_timeout().as_millis();
        assert_eq!(of(Profile::Default), of(Profile::Kernel));
        assert_eq!(of(Profile::Default), 49_000);
        assert_eq!(of(Profile::Documents), 2500);
        assert_eq!(of(Profile::Off), 5000);
    }

    #[test]
    fn recovery_pings_back_off_as_the_profile_says() {
        let kernel = Tunables::new(Profile::Kernel);
        let secs = |t: &Tunables, f, s| t.recovery_interval_after(f, s).map(|d| d.as_secs());
        assert_eq!(secs(&kernel, 0, 0), Some(1));
        assert_eq!(secs(&kernel, 0, 9), Some(512));
        assert_eq!(secs(&kernel, 0, 10), Some(900));
        let adaptive = Tunables::new(Profile::Default);
        assert_eq!(secs(&adaptive, 0, 9), Some(1));
        assert_eq!(secs(&adaptive, 2, 9), Some(4));
        assert_eq!(secs(&adaptive, 70, 9), Some(5));
        assert_eq!(secs(&Tunables::new(Profile::Off), 0, 0), None);
    }
}

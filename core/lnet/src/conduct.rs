//! Conduct: what a node does where kernel LNet, the requirement documents and this project differ.
//! One table of behaviours, a value per profile each; the numbers that differ stand in
//! `tunables.rs`. Code asks for a row (`self.tunables.conduct.retries_discovery`), never for a profile.
//!
//! The page `docs/reference/profiles.md` is generated from the table. Scenario files set single rows
//! (`[conduct]`), and the swarm draws them.

use thiserror::Error;

use crate::Profile;

/// A type of row: its values and their names.
trait Choice: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    const NAMES: &'static [&'static str];

    fn name(self) -> &'static str {
        let at = Self::ALL.iter().position(|c| *c == self);
        at.and_then(|at| Self::NAMES.get(at)).copied().unwrap_or_default()
    }

    fn named(name: &str) -> Option<Self> {
        let at = Self::NAMES.iter().position(|n| *n == name)?;
        Self::ALL.get(at).copied()
    }
}

impl Choice for bool {
    const ALL: &'static [Self] = &[false, true];
    const NAMES: &'static [&'static str] = &["no", "yes"];
}

macro_rules! choice {
    ($(#[$doc:meta])* $type:ident { $($(#[$each:meta])* $value:ident $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $type { $($(#[$each])* $value,)* }

        impl Choice for $type {
            const ALL: &'static [Self] = &[$(Self::$value,)*];
            const NAMES: &'static [&'static str] = &[$($name,)*];
        }
    };
}

choice! {
    /// The share of a message's time that one attempt may use (DEC-9, V-10).
    AttemptLimit {
        /// The time divided by the number of attempts.
        PerAttempt "per attempt",
        /// The time divided by the number of retries.
        PerRetry "per retry",
        /// The time less one second, divided by the number of attempts, in whole seconds.
        WholeSeconds "whole seconds",
        /// All of it.
        Whole "whole",
    }
}

choice! {
    /// The interval of recovery pings (DEC-5, H-41).
    RecoveryPace {
        /// A second while they are answered, doubled after each that is not.
        Adaptive "adaptive",
        /// A second.
        Constant "constant",
        /// Doubled with each ping, answered or not.
        Exponential "exponential",
        /// No recovery.
        Off "off",
    }
}

choice! {
    /// The time limit of a router checker's ping (R-38, PA-134).
    RouterPingLimit {
        /// That of any other ping.
        AsOthers "as others",
        /// `router_ping_timeout`, at most that of other pings.
        Bounded "bounded",
        /// `router_ping_timeout`.
        Full "full",
    }
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConductRow {
    /// Name.
    pub name: &'static str,
    /// Statements that it implements, or departs from.
    pub statements: &'static str,
    /// What a node does whose value is `yes`, or what the value chooses.
    pub help: &'static str,
    /// Values that it may have.
    pub choices: &'static [&'static str],
}

/// Why a row was not set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConductError {
    /// No such row.
    #[error("conduct '{0}': must be the name of a row")]
    Unknown(String),
    /// No such value.
    #[error("conduct {row} '{value}': must be one of {}", choices.join(", "))]
    Choice {
        /// The row.
        row: &'static str,
        /// The value.
        value: String,
        /// Its values.
        choices: &'static [&'static str],
    },
}

macro_rules! conduct {
    ($($name:ident: $type:ident [$($value:expr),*], $statements:literal, $help:literal;)*) => {
        /// What a node does, row by row. Values by profile: [`Conduct::new`], rows:
        /// [`Conduct::TABLE`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub struct Conduct {
            $(#[doc = concat!($help, " (", $statements, ").")] pub $name: $type,)*
        }

        impl Conduct {
            /// All rows.
            pub const TABLE: &'static [ConductRow] = &[$(ConductRow {
                name: stringify!($name),
                statements: $statements,
                help: $help,
                choices: <$type as Choice>::NAMES,
            },)*];

            /// The conduct of `profile`.
            pub const fn new(profile: Profile) -> Self {
                let column = profile as usize;
                Self { $($name: { const ROW: [$type; 5] = [$($value),*]; ROW[column] },)* }
            }

            /// The value of a row, by its name.
            pub fn get(&self, name: &str) -> Option<&'static str> {
                match name { $(stringify!($name) => Some(self.$name.name()),)* _ => None }
            }

            /// Sets one row to the value of that name.
            ///
            /// # Errors
            /// Unknown row or value; nothing is changed.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), ConductError> {
                match name {
                    $(stringify!($name) => {
                        self.$name = Choice::named(value).ok_or_else(|| ConductError::Choice {
                            row: stringify!($name),
                            value: value.to_owned(),
                            choices: <$type as Choice>::NAMES,
                        })?;
                    })*
                    _ => return Err(ConductError::Unknown(name.to_owned())),
                }
                Ok(())
            }
        }
    };
}

use AttemptLimit::{PerAttempt, PerRetry, Whole, WholeSeconds};
use RecoveryPace::{Adaptive, Constant, Exponential};
use RouterPingLimit::{AsOthers, Bounded, Full};

const YES: bool = true;
const NO: bool = false;

// Columns as in `Profile::ALL`: default, documents, kernel, pre-2.13, off.
conduct! {
    // Attempts and deadlines.
    attempt_limit: AttemptLimit [PerAttempt, PerRetry, WholeSeconds, PerRetry, Whole],
        "DEC-9, V-10", "The share of a message's time that one attempt may use";
    deadline_per_attempt: bool [NO, NO, YES, NO, NO],
        "H-30, H-31", "Each attempt has a deadline of its own, derived from the driver's time limit, instead of one deadline for the message";
    expires_waiting: bool [YES, YES, NO, YES, YES],
        "C-6, DEC-10", "A message that waits for a credit ends at its deadline, not when its turn comes";
    spreads_attempts: bool [YES, NO, NO, NO, NO],
        "DEC-10", "Attempts that fail at once, with no untried path left, are spread over the message's time";
    resends_refused: bool [YES, YES, NO, YES, YES],
        "S-4", "A message that the driver refuses at once is resent as after any other failure";
    counts_every_path: bool [YES, YES, NO, YES, YES],
        "H-20, RS-002", "Another gateway, or another local interface to the same peer interface, is reason enough to resend";
    avoids_tried_paths: bool [YES, YES, NO, YES, YES],
        "S-71, DEC-24", "A resend prefers paths that the message has not been tried on";
    moves_responses: bool [YES, YES, NO, YES, YES],
        "DEC-15", "A response to a Multi-Rail peer may leave by another pair of interfaces than its request came by";
    queues_by_age: bool [YES, YES, NO, YES, YES],
        "C-5", "Messages that wait for a credit are queued by age, not by arrival in the queue";
    queues_own_first: bool [YES, YES, NO, YES, YES],
        "C-5, D-45", "Pings and pushes of LNet itself wait for a credit before other messages";
    moves_waiting: bool [YES, YES, NO, YES, YES],
        "MR-snd-085", "Messages that wait for a credit leave a path that has lost its link, gateway or reputation";

    // Selection.
    counts_queued_bytes: bool [YES, YES, NO, YES, YES],
        "S-43, MR-snd-060", "Bytes queued at a peer interface rank before its credits";
    ranks_dead_networks: bool [YES, YES, NO, YES, YES],
        "S-35", "Networks without a link, and interfaces cut off by a lost link nearer to the peer, rank below those of health 0";
    prefers_heard: bool [YES, NO, NO, NO, NO],
        "S-43, D-45", "What LNet itself sends goes by a pair of interfaces by which the peer was heard last";
    ranks_pair_rules: bool [YES, YES, NO, YES, YES],
        "U-41, S-43", "Pair rules also rank local interfaces, and a pair that a rule excludes ranks below one without rule";
    takes_all_rules: bool [YES, YES, NO, YES, YES],
        "U-4, U-26", "Pair and router rules may have a priority, and networks as src and rte";
    matches_faults_by_interface: bool [YES, YES, NO, YES, YES],
        "F-3", "Fault rules may ask for the local interface of a message";

    // Responses.
    times_response_from_call: bool [NO, NO, YES, NO, NO],
        "H-60, DEC-10", "The time of a response begins with the call, not when the driver has taken the request";
    scans_responses: bool [NO, NO, YES, NO, NO],
        "H-63", "Overdue responses are found by a scan, twice per transaction time, instead of at their deadline";

    // Health and recovery.
    charges_late_failures: bool [YES, YES, NO, YES, YES],
        "H-4", "A failure after the message's deadline costs health as well";
    charges_bystanders: bool [NO, NO, YES, NO, NO],
        "H-10, H-66, S-3", "A node's own ping to a peer that is already in doubt, a router's try of an interface known to be down, and a response that finds no path cost the health of interfaces on the way";
    recovery_pace: RecoveryPace [Adaptive, Constant, Exponential, Constant, RecoveryPace::Off],
        "DEC-5, H-41", "The interval of recovery pings";
    hastens_recovery: bool [YES, YES, NO, YES, YES],
        "DEC-5, H-45", "A sign of life, a link that is up, or the end of the last ping moves the next recovery ping forward";
    recovers_unheard: bool [YES, YES, NO, YES, YES],
        "H-42", "Interfaces of near peers are pinged for recovery before anything was received from them";
    announces_recovery: bool [YES, YES, NO, YES, YES],
        "H-92", "Peers are notified when an interface announced as down is at full health again";
    announces_cut_off: bool [YES, NO, NO, NO, NO],
        "DEC-31, D-45", "An interface whose rail to a peer that does not suppress duplicates stays silent or slow is announced to that peer as down";
    repeats_announcements: bool [YES, NO, NO, NO, NO],
        "D-45, H-7, H-9", "What is announced as down to peers that do not suppress duplicates is announced again, since what was on its way undoes the first announcement";
    limits_announcements: bool [YES, YES, NO, YES, YES],
        "H-92", "Announcements for a flapping link are limited to one per second";

    // Discovery.
    believes_last_claim: bool [NO, NO, YES, NO, NO],
        "O-35", "A NID belongs to the peer that listed it last; otherwise its owner is queried first";
    follows_moved_nids: bool [YES, YES, NO, YES, YES],
        "D-48", "For `previous_nid_time`, messages to a NID that a peer has given up are sent to that peer";
    queries_unknown_pushers: bool [YES, YES, NO, YES, YES],
        "D-52", "A push from an unknown interface is reason to query the node that it names";
    rejects_stale_data: bool [YES, YES, NO, YES, YES],
        "D-53, D-36", "Ping data with a lower sequence number than those on record are not accepted";
    keeps_configured: bool [YES, YES, NO, YES, YES],
        "DEC-28, D-53", "A configured peer that announces that discovery is off there keeps its record; otherwise that is made anew";
    believes_reported_health: bool [YES, YES, NO, YES, YES],
        "D-45", "A peer interface that was never heard is at full health when its node reports it up";
    retries_discovery: bool [YES, YES, NO, YES, YES],
        "D-51, D-60", "A discovery that failed is retried with exponential backoff, not only when the peer is used";
    sends_during_rediscovery: bool [YES, YES, NO, YES, YES],
        "S-6", "Messages wait for a peer's first discovery only, not for later ones, and not on routers";
    queries_after_switch_on: bool [YES, YES, NO, YES, YES],
        "D-71", "Peers are queried and notified when discovery is switched on";

    // Routing.
    opens_routing_at_once: bool [YES, YES, NO, YES, YES],
        "R-23, DEC-36", "A router forwards as soon as it is switched on";
    reopens_routing: bool [YES, YES, NO, YES, YES],
        "R-22", "Routing that is stopping can be switched on again";
    announces_routing_stop: bool [YES, YES, NO, YES, YES],
        "R-25", "Peers are notified when forwarding stops";
    reports_status_in_place: bool [NO, NO, YES, NO, NO],
        "H-92", "A router announces a change of a link by a refreshed buffer pushed to all peers";
    separates_check_intervals: bool [YES, YES, NO, YES, YES],
        "R-32, R-40, PA-133", "Gateways that answer and gateways that do not have check intervals of their own";
    router_ping_limit: RouterPingLimit [Bounded, Full, AsOthers, Full, Bounded],
        "R-38, PA-134", "The time limit of a router checker's ping";
    repeats_failed_checks: bool [YES, YES, NO, YES, YES],
        "R-34", "A failed check of a gateway is repeated once by another local interface before the gateway counts as dead";
    acts_on_gateway_news: bool [YES, YES, NO, YES, YES],
        "R-36, PA-092, PA-098", "Reports about a gateway, and messages from one that counts as dead, cause a check, a recovery or a change of path at once, not at the next check";
    hears_any_message: bool [YES, YES, NO, YES, YES],
        "R-41, PA-066", "Any message received keeps a router's interface up, not only pings";
    tries_dead_hops: bool [YES, YES, NO, YES, YES],
        "C-8", "A router forwards one message now and then to an interface known to be down";
    rehomes_dead_gateways: bool [YES, YES, NO, YES, YES],
        "D-42, D-48", "A route whose dead gateway gave up the NID goes to a peer of its own for that NID";
    trusts_neighbours_after_link: bool [YES, YES, NO, YES, YES],
        "C-8", "A router whose link is back takes the neighbours behind it for up";

    // The border.
    closes_on_wrong_interface: bool [NO, NO, YES, NO, NO],
        "S-81", "A forwarded message for another local interface closes the connection that brought it";
    keeps_driver_timeout: bool [NO, NO, YES, YES, NO],
        "K-1, V-13", "The socket driver has a time limit of its own, 50 s, instead of the one derived from the node's";
    patient_user_pings: bool [NO, NO, YES, NO, NO],
        "D-82", "An operator's ping waits 180 s, as the kernel's does, instead of the time of the node's own pings";
    closes_with_legacy_status: bool [NO, NO, YES, NO, NO],
        "K-30a, K-40", "Messages on a connection that the peer closes fail with the kernel's choice of error";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_set_by_name_reads_back_and_changes_no_other() {
        let original = Conduct::new(Profile::Default);
        for row in Conduct::TABLE {
            for choice in row.choices {
                let mut conduct = original;
                conduct.set(row.name, choice).unwrap();
                assert_eq!(conduct.get(row.name), Some(*choice));
                conduct.set(row.name, original.get(row.name).unwrap()).unwrap();
                assert_eq!(conduct, original, "{}", row.name);
            }
        }
    }

    #[test]
    fn an_unknown_row_or_value_is_rejected_and_changes_nothing() {
        let mut conduct = Conduct::new(Profile::Kernel);
        let row = conduct.set("is_nice", "yes").unwrap_err().to_string();
        assert_eq!(row, "conduct 'is_nice': must be the name of a row");
        let value = conduct.set("recovery_pace", "fast").unwrap_err().to_string();
        assert_eq!(
            value,
            "conduct recovery_pace 'fast': must be one of adaptive, constant, exponential, off"
        );
        assert_eq!(conduct, Conduct::new(Profile::Kernel));
    }

    #[test]
    fn every_row_differs_between_some_two_profiles() {
        for row in Conduct::TABLE {
            let values = Profile::ALL.map(|p| Conduct::new(p).get(row.name));
            assert!(values.iter().any(|v| *v != values[0]), "{} is no difference", row.name);
        }
    }
}

//! Commands: global settings and what they are.

use crate::args::{Arg, Opt};
use crate::command::{global, routing, set};

use super::{Command, Entry, Group, NO_OPERANDS};

macro_rules! settings {
    ($($run:path { $($name:literal: $summary:literal;)* })*) => {
        &[$($(Entry::Command(Command {
            name: $name,
            path: concat!("set ", $name),
            options: &[],
            operands: ("VALUE", 1),
            summary: $summary,
            help_code: 1,
            run: $run,
        }),)*)*]
    };
}

pub(super) const SET: Entry = Entry::Group(Group {
    name: "set",
    entries: settings! {
        routing::set_buffers {
            "tiny_buffers": "router buffers for messages without payload; 0 is the default";
            "small_buffers": "router buffers of 4 KiB; 0 is the default";
            "large_buffers": "router buffers of 1 MiB; 0 is the default";
        }
        routing::set {
            "routing": "whether this node forwards messages of others: 0 or 1";
        }
        set::set {
        "numa_range": "NUMA distance within which interfaces count as equally near";
        "max_interfaces": "most interfaces of a peer, at least 16";
        "discovery": "whether peers are discovered: 0 or 1";
        "drop_asym_route": "whether messages on asymmetric routes are dropped: 0 or 1";
        "retry_count": "how often a failed message is sent again; paths: once on each path";
        "transaction_timeout": "time limit of an operation, in seconds";
        "health_sensitivity": "health that a failure costs, 0 to 1000; 0 switches health off";
        "recovery_interval": "deprecated, without effect";
        "router_sensitivity": "deprecated, without effect: percentage, 0 to 100";
        "response_tracking": "which responses are timed: 0 LNet's own, 1 GETs, 2 PUTs, 3 both";
        "recovery_limit": "how long a silent peer is pinged for recovery, in seconds; 0 for ever";
        "max_recovery_ping_interval": "longest time between recovery pings, in seconds";
        "health_range": "health difference below which interfaces count as equally healthy";
        "health_on_success": "whether ordinary messages heal too, not only recovery pings: 0 or 1";
        "recovery_step": "health that a recovery ping returns; 0 means health_sensitivity";
        "udsp_first": "whether selection rules go before health: 0 or 1";
        "exclude_at_zero": "whether interfaces at health 0 are left out: 0 or 1";
        "resend_on": "which failures are sent again: causes joined by +, or none";
        "explain_last": "how many choices `explain --last` can show; 0 keeps none";
        "flap_hold_down": "seconds in which the penalty of an interface that went down halves; 0: none";
        "peer_refresh_interval": "seconds of use after which a peer is asked what it has; 0: never";
        "rail_suspicion": "whether rails that fall silent, lose or lag are avoided: 0 or 1";
        "suppress_duplicates": "whether peers of this kind are asked to tell copies apart: 0 or 1";
        "suspect_after_min": "silence after which a rail is suspected, at least, in milliseconds";
        "suspect_after_rtts": "the same in round trips; the longer time counts";
        "ping_timeout": "seconds that a ping or push of this node may take; 0: transaction_timeout";
        "connect_timeout": "milliseconds of unanswered attempts to connect; 0: the LND timeout";
        "reconnect_timeout": "milliseconds without acknowledgement before a connection is replaced; 0: the LND timeout";
        "answer_overdue_after": "milliseconds after which a request through routers is repeated; 0: a share of its time";
        "forward_timeout": "seconds that a message may take which a router passes on; 0: transaction_timeout";
        "routing_stop_time": "seconds that a router which is switched off goes on forwarding";
        "previous_nid_time": "seconds that messages for a NID which a peer has given up still go to it";
        "tcp_rto_max": "longest retransmission timeout of TCP, in milliseconds; 0: the system's";
        "retained_per_connection": "bytes that a connection retains until they are acknowledged";
        "alive_router_check_interval": "seconds between two pings of a router; 0: none";
        "live_router_check_interval": "the same for routers that answer; 0 follows the former";
        "dead_router_check_interval": "the same for routers that do not; 0 follows the first";
        "router_ping_timeout": "seconds that a router may take to answer a ping";
        "check_routers_before_use": "whether a new router must answer before it is used: 0 or 1";
        "avoid_asym_router_failure": "whether a router without its far side is left: 0 or 1";
        "auto_down": "whether lost connections mark a router down at once: 0 or 1";
        "legacy_route_rr": "whether equal routes take plain turns: 0 or 1";
        "peer_buffer_credits": "router buffers one peer may hold; 0 follows its network";
        "peers_max": "most peer interfaces that are remembered";
        "messages_max": "most messages in hand at once";
        "parked_max": "most messages that wait for the discovery of one peer";
        "delayed_max": "most messages that wait for a buffer on one lazy portal";
        }
    },
});

pub(super) const GLOBAL: Entry = Entry::Group(Group {
    name: "global",
    entries: &[Entry::Command(Command {
        name: "show",
        path: "global show",
        options: &[Opt {
            long: "verbose",
            short: Some('v'),
            arg: Arg::Level,
            help: "5 adds the tunables that are ours alone; less is as without",
        }],
        operands: NO_OPERANDS,
        summary: "show the tunables",
        help_code: 1,
        run: global::show,
    })],
});

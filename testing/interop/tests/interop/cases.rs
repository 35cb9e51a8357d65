//! Which captures are played, in whose part, and the node's configuration and commands; and the one
//! table of differences that we mean.
//!
//! Not played: A's part of `failover`, whose interface goes down; the `o2ib-*` captures, another
//! transport; A's part of `acceptor-magic-mismatch`, which sends a wrong magic on purpose; A's part of
//! `interop-2.17-2.15`, the same as in `discovery-push`.

use std::time::Duration;

use interop::layout::Item;
use interop::player::is_selftest;
use interop::report::ByDesign;
use lnet::Profile;

use crate::node::{Command, run};
use crate::script;

/// One capture in one part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// The capture.
    pub(crate) capture: &'static str,
    /// A or B, as the captures call their nodes.
    pub(crate) part: char,
    /// The node's NIDs, in the order in which they are configured.
    pub(crate) nids: &'static [&'static str],
    /// Whether it discovers and pushes.
    pub(crate) discovery: bool,
    /// Whose conduct and defaults it has.
    pub(crate) profile: Profile,
    /// Tunables that are not at their defaults.
    pub(crate) tunables: &'static [(&'static str, i64)],
    /// Connections per peer.
    pub(crate) conns_per_peer: u8,
    /// Whether it puts checksums into version 2 frames.
    pub(crate) checksum: bool,
    /// A shorter keepalive than the 30 seconds of the captures.
    pub(crate) keepalive: Option<Duration>,
    /// Whether it has selftest.
    pub(crate) selftest: bool,
    /// Lazy portals, beside 0.
    pub(crate) lazy: &'static [u32],
    /// Its commands: connection, message on it before which, command.
    pub(crate) commands: &'static [(usize, usize, Command)],
    /// How many of the connections are played; the rest follow from what is left out.
    pub(crate) conns: usize,
    /// Messages of the kernel node that it is not asked to send.
    pub(crate) leave_out: fn(&Item) -> bool,
    /// The other side is a node of version 0.1: no message may be dropped, refused, failed or sent
    /// again, and none of ours may bear a mark.
    pub(crate) peer_is_0_1: bool,
}

const PLAIN: Case = Case {
    capture: "",
    part: 'B',
    nids: &[],
    discovery: true,
    profile: Profile::Kernel,
    tunables: &[],
    conns_per_peer: 1,
    checksum: false,
    keepalive: None,
    selftest: false,
    lazy: &[],
    commands: &[],
    conns: usize::MAX,
    leave_out: |_| false,
    peer_is_0_1: false,
};

const A: Case = Case { part: 'A', nids: &["10.77.0.2@tcp", "10.77.1.2@tcp"], ..PLAIN };
const A_ONE: Case = Case { part: 'A', nids: &["10.77.0.2@tcp"], ..PLAIN };
const B: Case = Case { nids: &["10.77.0.3@tcp", "10.77.1.3@tcp"], ..PLAIN };
const B_ONE: Case = Case { nids: &["10.77.0.3@tcp"], ..PLAIN };
/// The part of a server, and that of a console which is its own client.
const SERVER: Case = Case { selftest: true, ..B_ONE };
const CONSOLE: Case = Case { selftest: true, ..A_ONE };
const SELFTEST: Case = Case { leave_out: is_selftest, ..B_ONE };
/// A node as it is by default, beside one of the version before.
const BESIDE_0_1: Case =
    Case { profile: Profile::Default, conns_per_peer: 2, peer_is_0_1: true, ..SERVER };

/// Differences that we mean, each with its reason.
pub(crate) const BY_DESIGN: &[ByDesign] = &[
    ByDesign {
        case: "",
        peer: "",
        words: "PUT selftest.running_ms",
        reason: "the time since the session was made",
    },
    ByDesign {
        case: "",
        peer: "",
        words: "PUT selftest.time",
        reason: "the clock of the pinging node",
    },
    ByDesign {
        case: "",
        peer: "",
        words: "PUT selftest.msgs_max",
        reason: "how many messages were in hand at a time is a matter of time",
    },
    ByDesign {
        case: "selftest-brw-small.A",
        peer: "",
        words: "REPLY payload: expected b3eeb2eeb1eeb0ee",
        reason: "as in selftest-brw-read-1m.B: every word is filled",
    },
    ByDesign {
        case: "selftest-brw-read-1m.A",
        peer: "",
        words: "order: PUT payload_length 0xa0 portal 0x33 before ACK",
        reason: "the first request and the ACK of the other side's push do not wait for each other",
    },
    ByDesign {
        case: "selftest-brw-read-1m.B",
        peer: "",
        words: "PUT cookie0: expected 0x2, got 0x0",
        reason: "a sender in user space gives its bytes to the system and needs no word about when \
                 their memory is free again: we ask for no zero-copy acknowledgement",
    },
    ByDesign {
        case: "selftest-brw-read-1m.B",
        peer: "",
        words: "PUT payload: expected b3eeb2eeb1eeb0ee",
        reason: "with check=simple the kernel fills the edges of its pages, we fill every word, \
                 which satisfies receivers with pages of any size (wire.md 6.13)",
    },
    ByDesign {
        case: "failover.B",
        peer: "10.77.1.2",
        words: "surplus: PUT payload_length 0xa0 portal 0x34",
        reason: "the capture ends before the answer to its last request",
    },
    ByDesign {
        case: "routed-selftest.A",
        peer: "",
        words: "REPLY cookie0: expected 0x2, got 0x0",
        reason: "as in selftest-brw-read-1m.B",
    },
    ByDesign {
        case: "routed-selftest.A",
        peer: "",
        words: "(65536 bytes), got b3eeb2eeb1eeb0ee",
        reason: "it is not checked: the kernel sends its pages as they are, we send the pattern",
    },
    ByDesign {
        case: "routed-selftest.A",
        peer: "",
        words: "surplus: GET portal 0x0 sink_length 0x110",
        reason: "a ping to the interface that the router's last word calls down, a second later: \
                 the capture ends before",
    },
    ByDesign {
        case: "routed-selftest.B",
        peer: "",
        words: "PUT cookie0: expected 0x2, got 0x0",
        reason: "as in selftest-brw-read-1m.B",
    },
    ByDesign {
        case: "routed-selftest.B",
        peer: "",
        words: "(65536 bytes), got b3eeb2eeb1eeb0ee",
        reason: "as in routed-selftest.A",
    },
    ByDesign {
        case: "routed-selftest.C",
        peer: "",
        words: " cookie0: expected 0x2, got 0x0",
        reason: "as in selftest-brw-read-1m.B, for what is forwarded: its buffer is free when the \
                 bytes are with the system",
    },
    ByDesign {
        case: "routed-selftest.C",
        peer: "10.77.1.3",
        words: "order: PUT payload_length 0x40 portal 0x0 before REPLY",
        reason: "the push that an interface is up again and the answer to the ping that brought it \
                 up do not wait for each other: in routed-ping the kernel's push is first",
    },
    ByDesign {
        case: "conns-per-peer-2.B",
        peer: "",
        words: "order: ACK before PUT",
        reason: "a push and the ACK of the other side's push do not wait for each other: kernel \
                 nodes send them in either order (keepalive-noop has the other one)",
    },
    ByDesign {
        case: "version-0.1-both.B",
        peer: "",
        words: "ping.features: expected 0x4000001e, got 0x2000001e",
        reason: "another feature bit for other marks",
    },
    ByDesign {
        case: "version-0.1-both.B",
        peer: "",
        words: " dest_pid: expected 0x4c0000",
        reason: "the mark of version 0.1; what we send to it bears none",
    },
    ByDesign {
        case: "version-0.1-both.B",
        peer: "",
        words: "PUT hdr_data: expected 0x",
        reason: "version 0.1 offers its session in pushes",
    },
    ByDesign {
        case: "raw-peer-ping-versions.A",
        peer: "10.77.0.204",
        words: "HELLO v3 dst_nid",
        reason: "DEC-35: we read the NIDs of a big-endian HELLO right, the kernel forgets to swap",
    },
    ByDesign {
        case: "raw-peer-ping-versions.A",
        peer: "10.77.0.204",
        words: "end: expected Fin, got Reset",
        reason: "closed either way; we end a stream that makes no sense by a reset",
    },
    ByDesign {
        case: "raw-peer-message-errors.A",
        peer: "10.77.0.224",
        words: "end: expected Fin, got Reset",
        reason: "closed either way; we end a stream that makes no sense by a reset",
    },
    ByDesign {
        case: "raw-peer-negotiation-errors.A",
        peer: "10.77.0.1",
        words: "end: expected Reset, got Fin",
        reason: "closed unread either way; it is a reset only if bytes have arrived before, which \
                 is a matter of time",
    },
];

macro_rules! cases {
    ($(fn $test:ident() { $case:expr })*) => {
        $(#[test]
        fn $test() {
            run(&$case);
        })*
    };
}

// The accepting side.
cases! {
    fn a_pinged_node_answers() {
        Case { capture: "tcp-hello-ping", ..B }
    }
    fn a_discovered_node_answers_takes_the_push_and_pushes() {
        Case { capture: "discovery-push", ..B }
    }
    fn a_node_without_discovery_says_so_and_does_not_push() {
        Case { capture: "nonmr-ping", discovery: false, ..B }
    }
    fn a_node_with_a_large_nid_speaks_version_4() {
        Case { capture: "ipv6-large-nid", nids: &["fd77::3@tcp", "10.77.0.3@tcp"], ..B }
    }
    fn a_node_of_another_release_is_answered() {
        Case {
            capture: "interop-2.17-2.15",
            // From the tenth on it is a ping, over rails whose turn depends on selftest's traffic.
            conns: 9,
            leave_out: is_selftest,
            ..B
        }
    }
    fn the_higher_nid_refuses_in_a_race() {
        Case {
            capture: "conn-race",
            commands: &[(1, 0, Command::Ping("10.77.0.2@tcp"))],
            ..B_ONE
        }
    }
    fn a_request_for_a_foreign_nid_is_refused() {
        Case { capture: "connreq-refused", nids: &["10.77.0.3@tcp7"], ..B }
    }
    fn a_request_with_the_generic_magic_gets_the_version() {
        Case { capture: "acceptor-magic-mismatch", ..B_ONE }
    }
    fn an_idle_accepting_node_sends_a_keepalive() {
        Case { capture: "keepalive-noop", keepalive: Some(Duration::from_secs(2)), ..B_ONE }
    }
    fn two_connections_of_each_bulk_type_are_accepted() {
        Case { capture: "conns-per-peer-2", conns_per_peer: 2, ..SELFTEST }
    }
    fn unwanted_small_messages_do_no_harm() {
        Case { capture: "selftest-ping", ..SELFTEST }
    }
    fn unwanted_bulk_does_no_harm() {
        Case { capture: "selftest-brw-small", ..SELFTEST }
    }
    fn unwanted_bulk_is_acknowledged_zero_copy() {
        Case { capture: "selftest-brw-write-1m", ..SELFTEST }
    }
    fn unasked_bulk_reads_do_no_harm() {
        Case { capture: "selftest-brw-read-1m", ..SELFTEST }
    }
}

// Selftest: a kernel console drives our node.
cases! {
    fn a_kernel_console_runs_a_ping_test_on_our_node() {
        Case { capture: "selftest-ping", ..SERVER }
    }
    fn a_kernel_console_writes_to_and_reads_from_our_node() {
        Case { capture: "selftest-brw-small", ..SERVER }
    }
    fn a_kernel_console_writes_a_mebibyte_to_our_node() {
        Case { capture: "selftest-brw-write-1m", ..SERVER }
    }
    fn a_kernel_client_loses_a_rail_under_load_and_our_node_asks_after_it() {
        Case { capture: "failover", selftest: true, ..B }
    }
    fn a_kernel_console_reads_a_mebibyte_from_our_node() {
        Case { capture: "selftest-brw-read-1m", ..SERVER }
    }
}

// Selftest: our console drives a kernel node.
cases! {
    fn our_console_runs_a_ping_test_on_a_kernel_node() {
        Case {
            capture: "selftest-ping",
            commands: &[(0, 0, Command::Lst(script::ping))],
            ..CONSOLE
        }
    }
    fn our_console_writes_to_and_reads_from_a_kernel_node() {
        Case {
            capture: "selftest-brw-small",
            commands: &[(0, 0, Command::Lst(script::brw_small))],
            ..CONSOLE
        }
    }
    fn our_console_reads_a_mebibyte_from_a_kernel_node() {
        Case {
            capture: "selftest-brw-read-1m",
            commands: &[(0, 0, Command::Lst(script::brw_read))],
            ..CONSOLE
        }
    }
}

// The connecting side.
cases! {
    fn a_pinging_node_connects_and_asks() {
        Case {
            capture: "tcp-hello-ping",
            commands: &[(0, 0, Command::Ping("10.77.0.3@tcp"))],
            ..A
        }
    }
    fn a_discovering_node_asks_pushes_and_is_pushed_to() {
        Case {
            capture: "discovery-push",
            commands: &[(0, 0, Command::Discover("10.77.0.3@tcp"))],
            ..A
        }
    }
    fn a_node_without_discovery_asks_from_one_rail_after_the_other() {
        Case {
            capture: "nonmr-ping",
            discovery: false,
            commands: &[
                (0, 0, Command::Ping("10.77.0.3@tcp")),
                (3, 0, Command::Discover("10.77.0.3@tcp")),
            ],
            ..A
        }
    }
    fn a_connecting_node_with_a_large_nid_speaks_version_4() {
        Case {
            capture: "ipv6-large-nid",
            nids: &["fd77::2@tcp", "10.77.0.2@tcp"],
            commands: &[
                (0, 0, Command::Ping("fd77::3@tcp")),
                (3, 0, Command::Discover("fd77::3@tcp")),
            ],
            ..A
        }
    }
    fn the_lower_nid_is_refused_in_a_race_and_uses_the_other_connection() {
        Case {
            capture: "conn-race",
            commands: &[(0, 0, Command::Ping("10.77.0.3@tcp"))],
            ..A_ONE
        }
    }
    fn a_refused_request_is_no_loop() {
        Case {
            capture: "connreq-refused",
            commands: &[(0, 0, Command::Ping("10.77.0.3@tcp"))],
            ..A_ONE
        }
    }
    fn an_idle_connecting_node_sends_a_keepalive() {
        Case {
            capture: "keepalive-noop",
            keepalive: Some(Duration::from_secs(2)),
            commands: &[
                (0, 0, Command::Ping("10.77.0.3@tcp")),
                (0, 4, Command::Discover("10.77.0.3@tcp")),
            ],
            ..A_ONE
        }
    }
    fn two_connections_of_each_bulk_type_are_opened() {
        Case {
            capture: "conns-per-peer-2",
            conns_per_peer: 2,
            commands: &[(0, 0, Command::Discover("10.77.0.3@tcp"))],
            leave_out: is_selftest,
            ..A_ONE
        }
    }
}

// A node of version 0.1, whose marks differ from ours (docs/duplicates.md): none on either side.
cases! {
    fn a_node_of_version_0_1_pings_discovers_and_runs_selftest_on_our_node() {
        Case { capture: "version-0.1-console", ..BESIDE_0_1 }
    }
    fn our_node_pings_discovers_and_runs_selftest_on_a_node_of_version_0_1() {
        Case {
            capture: "version-0.1-server",
            commands: &[
                (0, 0, Command::Ping("10.77.0.3@tcp")),
                (0, 4, Command::Discover("10.77.0.3@tcp")),
                (0, 7, Command::Lst(script::brw_small_with_rates)),
            ],
            part: 'A',
            nids: A_ONE.nids,
            ..BESIDE_0_1
        }
    }
    fn a_node_in_the_place_of_one_of_version_0_1_takes_what_bears_its_marks() {
        Case { capture: "version-0.1-both", ..BESIDE_0_1 }
    }
}

// A router between the two.
const CHECKS: &[(&str, i64)] = &[("alive_router_check_interval", 5), ("router_ping_timeout", 5)];

cases! {
    fn a_client_behind_a_kernel_router_asks_it_and_pings_through_it() {
        Case {
            capture: "routed-ping",
            tunables: CHECKS,
            commands: &[
                (0, 0, Command::Route("tcp1", "10.77.0.4@tcp")),
                (0, 10, Command::Ping("10.77.1.3@tcp1")),
                (0, 11, Command::Discover("10.77.1.3@tcp1")),
            ],
            ..A_ONE
        }
    }
    fn a_node_beyond_a_kernel_router_answers_through_it() {
        Case {
            capture: "routed-ping",
            nids: &["10.77.1.3@tcp1"],
            tunables: CHECKS,
            commands: &[(3, 0, Command::Route("tcp", "10.77.1.4@tcp1"))],
            ..B
        }
    }
    fn a_router_between_kernel_nodes_forwards_and_tells_them_that_it_does() {
        Case {
            capture: "routed-ping",
            part: 'C',
            nids: &["10.77.0.4@tcp", "10.77.1.4@tcp1"],
            tunables: &[("alive_router_check_interval", 3), ("router_ping_timeout", 3)],
            // Its interfaces have not been pinged for so long that they are down at first,
            // and it forwards only some time after the command.
            commands: &[
                (0, 0, Command::Rest(7)),
                (0, 0, Command::Routing),
                (0, 0, Command::Rest(2)),
            ],
            ..PLAIN
        }
    }
    fn a_kernel_console_beyond_a_kernel_router_writes_to_and_reads_from_our_node() {
        Case {
            capture: "routed-selftest",
            nids: &["10.77.1.3@tcp1"],
            commands: &[(3, 0, Command::Route("tcp", "10.77.1.4@tcp1"))],
            ..SERVER
        }
    }
    fn our_console_writes_to_and_reads_from_a_kernel_node_beyond_a_kernel_router() {
        Case {
            capture: "routed-selftest",
            commands: &[
                (0, 0, Command::Route("tcp1", "10.77.0.4@tcp")),
                (0, 7, Command::Lst(script::routed)),
                (0, 17, Command::Lst(script::routed_end)),
            ],
            ..CONSOLE
        }
    }
    fn a_router_between_kernel_nodes_forwards_selftest_and_tells_them_what_has_fallen_silent() {
        Case {
            capture: "routed-selftest",
            part: 'C',
            nids: &["10.77.0.4@tcp", "10.77.1.4@tcp1"],
            // It forwards from the start. A second at least lies between what was heard on the two
            // networks before one of them, but not the other, counts as silent.
            commands: &[
                (0, 0, Command::Routing),
                (0, 0, Command::Rest(2)),
                (0, 0, Command::Silent(&["tcp", "tcp1"])),
                (5, 1, Command::Rest(2)),
                (0, 15, Command::Silent(&["tcp1"])),
                (3, 13, Command::Rest(2)),
                (0, 19, Command::Silent(&["tcp"])),
            ],
            ..PLAIN
        }
    }
}

// A hand-written client against the kernel node.
cases! {
    fn every_version_and_connection_type_is_answered() {
        Case { capture: "raw-peer-ping-versions", ..A_ONE }
    }
    fn every_malformed_negotiation_is_refused() {
        Case { capture: "raw-peer-negotiation-errors", ..A_ONE }
    }
    fn every_malformed_message_is_refused() {
        Case { capture: "raw-peer-message-errors", lazy: &[50, 51], ..A_ONE }
    }
    fn a_version_2_frame_carries_its_checksum() {
        Case { capture: "raw-peer-v2-csum", checksum: true, ..A_ONE }
    }
}

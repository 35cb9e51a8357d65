//! Every command: its words, options, help and function. Help texts are made from this table.

use core::fmt::Write as _;

use crate::args::{Arg, Args, Opt};
use crate::command::{
    configuration, connection, debug, explain, fault, fault_rpc, global, legacy, lnet, lock, misc,
    net, peer, ping, route, routing, set, stats, target, udsp,
};
use crate::{Session, doctor, shell, top};

/// A word at some level: a group of further words, a command, or a command that is also a group: with
/// one of its words behind it that word decides, else its operands follow.
pub(crate) enum Entry {
    Group(Group),
    Command(Command),
    Both(Command, &'static [Self]),
}

/// Words below a word.
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) entries: &'static [Entry],
}

/// A command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// The words that lead here, this one included.
    pub(crate) path: &'static str,
    pub(crate) options: &'static [Opt],
    /// How operands are shown, and how many there may be.
    pub(crate) operands: (&'static str, usize),
    pub(crate) summary: &'static str,
    /// What `--help` returns: 1 where the original says so (G-10).
    pub(crate) help_code: i32,
    pub(crate) run: fn(&mut Session<'_>, &Self, &Args) -> i32,
}

impl Entry {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Group(group) => group.name,
            Self::Command(command) | Self::Both(command, _) => command.name,
        }
    }

    /// The help of the command, or of every command below.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::Group(group) => group.entries.iter().map(Self::help).collect(),
            Self::Command(command) => command.help(),
            Self::Both(command, entries) => {
                core::iter::once(command.help()).chain(entries.iter().map(Self::help)).collect()
            }
        }
    }
}

impl Command {
    /// Whether what it prints is a document, which can have other layouts.
    pub(crate) fn shows(&self) -> bool {
        let last = self.path.rsplit(' ').next();
        matches!(
            last,
            Some("show" | "list" | "export" | "ping" | "discover" | "recovery" | "timers")
        ) || matches!(self.path, "import" | "explain import")
    }

    /// What it is for and how it is called.
    pub(crate) fn help(&self) -> String {
        let (operands, _) = self.operands;
        let gap = if operands.is_empty() { "" } else { " " };
        let mut text = format!("{}{gap}{operands}: {}\n", self.path, self.summary);
        for opt in self.options {
            // The name with its colon as kernel tools print it: scripts look for `--lnd-timeout:`.
            let value = match opt.arg {
                Arg::None => "",
                Arg::Value(name) => name,
                Arg::Level => "[LEVEL]",
            };
            let usage = [opt.short.map(|c| format!("-{c}")).unwrap_or_default(), value.to_owned()];
            let usage: Vec<String> = usage.into_iter().filter(|part| !part.is_empty()).collect();
            let usage =
                if usage.is_empty() { String::new() } else { format!(" ({})", usage.join(" ")) };
            // Infallible: writing to a String.
            let _ = writeln!(text, "\t--{}: {}{usage}", opt.long, opt.help);
        }
        for (line, why) in shell::examples::of(self.path) {
            // Infallible: writing to a String.
            let _ = writeln!(text, "\tlnetctl {line}   ({why})");
        }
        text.push('\n');
        text
    }

    /// Prints the help on standard output and returns `code`.
    pub(crate) fn print_help(&self, session: &mut Session<'_>, code: i32) -> i32 {
        let help = self.help();
        session.out.push_str(&help);
        code
    }
}

pub(crate) const fn flag(long: &'static str, short: Option<char>, help: &'static str) -> Opt {
    Opt { long, short, arg: Arg::None, help }
}

pub(crate) const fn value(
    long: &'static str,
    short: Option<char>,
    name: &'static str,
    help: &'static str,
) -> Opt {
    Opt { long, short, arg: Arg::Value(name), help }
}

const VERBOSE: Opt = Opt {
    long: "verbose",
    short: Some('v'),
    arg: Arg::Level,
    help: "how much to show, 0 to 4; 1 without a number; 5 adds what is ours alone",
};

pub(crate) const NO_OPERANDS: (&str, usize) = ("", 0);

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

const ROUTE_NET: Opt = value("net", Some('n'), "NET", "the network behind the router");
const ROUTE_GATEWAY: Opt =
    value("gateway", Some('g'), "LIST", "the router's NIDs; ranges such as 10.0.0.[2-4]@tcp");
const ROUTE_HOP: Opt =
    value("hop", Some('c'), "COUNT", "routers on the way, 1 to 255; -1: undefined");
const ROUTE_HOP_COUNT: Opt = value("hop-count", None, "COUNT", "the same");
const ROUTE_PRIORITY: Opt = value("priority", Some('p'), "NUMBER", "0 or more; 0 is best");

/// The top level.
pub(crate) static COMMANDS: &[Entry] = &[
    Entry::Group(Group {
        name: "lnet",
        entries: &[
            Entry::Command(Command {
                name: "configure",
                path: "lnet configure",
                options: &[
                    flag(
                        "all",
                        Some('a'),
                        "also bring up the networks of the node's own configuration",
                    ),
                    flag("large", Some('l'), "prefer IPv6 addresses for those networks"),
                ],
                operands: NO_OPERANDS,
                summary: "start LNet; without effect when it runs",
                help_code: 1,
                run: lnet::configure,
            }),
            Entry::Command(Command {
                name: "unconfigure",
                path: "lnet unconfigure",
                options: &[],
                operands: NO_OPERANDS,
                summary: "remove all networks, peers and routes, and stop LNet",
                help_code: 1,
                run: lnet::unconfigure,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "route",
        entries: &[
            Entry::Command(Command {
                name: "add",
                path: "route add",
                options: &[ROUTE_NET, ROUTE_GATEWAY, ROUTE_HOP, ROUTE_HOP_COUNT, ROUTE_PRIORITY],
                operands: NO_OPERANDS,
                summary: "add a way to a network behind a router",
                help_code: 1,
                run: route::add,
            }),
            Entry::Command(Command {
                name: "del",
                path: "route del",
                options: &[ROUTE_NET, ROUTE_GATEWAY],
                operands: NO_OPERANDS,
                summary: "remove it",
                help_code: 1,
                run: route::del,
            }),
            Entry::Command(Command {
                name: "show",
                path: "route show",
                options: &[
                    ROUTE_NET,
                    ROUTE_GATEWAY,
                    ROUTE_HOP,
                    ROUTE_HOP_COUNT,
                    ROUTE_PRIORITY,
                    Opt {
                        long: "verbose",
                        short: Some('v'),
                        arg: Arg::Level,
                        help: "everything about each; a number is ignored",
                    },
                ],
                operands: NO_OPERANDS,
                summary: "show the routes, those for which all of this holds",
                help_code: 1,
                run: route::show,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "net",
        entries: &[
            Entry::Command(Command {
                name: "add",
                path: "net add",
                options: &[
                    value("net", Some('n'), "NET", "the network, such as tcp or tcp3"),
                    value("if", Some('i'), "LIST", "interfaces, such as eth0,eth1 or eth0[0,1]"),
                    value("nid", None, "NID", "instead: a NID whose address says which interface"),
                    value(
                        "ip2net",
                        Some('p'),
                        "RULES",
                        "instead: networks by address, such as 'tcp(eth0) 192.168.0.*; o2ib 10.[1-3].*.*'",
                    ),
                    value(
                        "peer-timeout",
                        Some('t'),
                        "SECONDS",
                        "silence after which a peer counts as dead",
                    ),
                    value("peer-credits", Some('c'), "COUNT", "messages in flight to one peer"),
                    value(
                        "peer-buffer-credits",
                        Some('b'),
                        "COUNT",
                        "router buffers one peer may hold",
                    ),
                    value("credits", Some('r'), "COUNT", "messages in flight of one interface"),
                    value("cpt", Some('s'), "LIST", "CPU partitions to use, such as [0,1]"),
                    value(
                        "conns-per-peer",
                        Some('m'),
                        "COUNT",
                        "connections to one peer, 0 to 127",
                    ),
                    flag(
                        "skip-mr-route-setup",
                        Some('k'),
                        "leave the system's routes alone, which is always so",
                    ),
                    value("tos", None, "NUMBER", "IP type of service, 0 to 255, or -1"),
                    value(
                        "auth-key",
                        Some('a'),
                        "NUMBER",
                        "of kfi networks: refused, no driver for them",
                    ),
                    value(
                        "traffic-class",
                        Some('T'),
                        "NAME",
                        "of kfi networks: refused, no driver for them",
                    ),
                ],
                operands: NO_OPERANDS,
                summary: "add interfaces to a network, and the network if it is new",
                help_code: 1,
                run: net::add,
            }),
            Entry::Command(Command {
                name: "del",
                path: "net del",
                options: &[
                    value("net", Some('n'), "NET", "the network, such as tcp or tcp3"),
                    value("if", Some('i'), "LIST", "only these interfaces of it"),
                    value("nid", None, "NID", "instead: one local NID"),
                ],
                operands: NO_OPERANDS,
                summary: "remove a network or interfaces of it",
                help_code: 1,
                run: net::del,
            }),
            Entry::Command(Command {
                name: "show",
                path: "net show",
                options: &[value("net", Some('n'), "NET", "only this network"), VERBOSE],
                operands: NO_OPERANDS,
                summary: "show the local networks",
                help_code: 1,
                run: net::show,
            }),
            Entry::Command(Command {
                name: "set",
                path: "net set",
                options: &[
                    value("nid", Some('n'), "NID", "only this local NID"),
                    flag("all", Some('a'), "all local NIDs, as without --nid"),
                    value("health", Some('t'), "VALUE", "health, 0 to 1000"),
                    value(
                        "conns-per-peer",
                        Some('m'),
                        "COUNT",
                        "connections to each new peer, 0 to 127",
                    ),
                    value("net", Some('i'), "NET", "the kind of network that --lnd-timeout is for"),
                    value(
                        "lnd-timeout",
                        Some('l'),
                        "SECONDS",
                        "time limit of one transmission; 0 follows the tunables",
                    ),
                    value(
                        "accept-from",
                        None,
                        "LIST",
                        "with --net: who may connect, such as 10.0.[0-3].*@tcp; any; default: as the daemon was started",
                    ),
                    value(
                        "cpt",
                        None,
                        "LIST",
                        "with --nid: CPU partitions to use from now on, such as [0,1]; *: as if none had been named",
                    ),
                ],
                operands: NO_OPERANDS,
                summary: "change local interfaces",
                help_code: 1,
                run: net::set,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "routing",
        entries: &[Entry::Command(Command {
            name: "show",
            path: "routing show",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show whether this node forwards, and its buffers",
            help_code: 1,
            run: routing::show,
        })],
    }),
    Entry::Group(Group {
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
    }),
    Entry::Both(
        Command {
            name: "import",
            path: "import",
            options: &[
                flag("add", Some('a'), "create what the file describes (the default)"),
                flag("del", Some('d'), "remove what it describes"),
                flag("show", Some('s'), "show what it describes"),
                flag("exec", Some('e'), "run its ping and discover blocks"),
                flag(
                    "sync",
                    None,
                    "make the node equal to the file by the smallest change, all or nothing",
                ),
                flag("dry-run", None, "with --sync: print the change and make none"),
                flag(
                    "old-api",
                    Some('o'),
                    "as older tools do: go on after an error, and ping and discover at the end",
                ),
                flag("help", Some('h'), "show this"),
            ],
            operands: ("[FILE]", 1),
            summary: "apply a YAML configuration, from standard input without FILE",
            help_code: 0,
            run: configuration::import,
        },
        &[Entry::Command(Command {
            name: "show",
            path: "import show",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show this node's connections to targets",
            help_code: 1,
            run: connection::imports,
        })],
    ),
    Entry::Both(
        Command {
            name: "export",
            path: "export",
            options: &[
                flag("backup", Some('b'), "only what is needed to configure the node again"),
                flag("configured-only", None, "the same without peers that were only found"),
                flag("help", Some('h'), "show this"),
            ],
            operands: ("[FILE]", 1),
            summary: "print the configuration as YAML, or write it to FILE",
            help_code: 0,
            run: configuration::export,
        },
        &[
            Entry::Command(Command {
                name: "show",
                path: "export show",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show the clients of this node's targets, and the last evictions",
                help_code: 1,
                run: connection::exports,
            }),
            Entry::Command(Command {
                name: "evict",
                path: "export evict",
                options: &[],
                operands: ("UUID|NID", 1),
                summary: "drop a client, or all clients on a node",
                help_code: 1,
                run: connection::evict,
            }),
        ],
    ),
    Entry::Group(Group {
        name: "service",
        entries: &[Entry::Command(Command {
            name: "show",
            path: "service show",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show the services of this node's targets, their queues and estimates",
            help_code: 1,
            run: connection::services,
        })],
    }),
    Entry::Group(Group {
        name: "lock",
        entries: &[
            Entry::Command(Command {
                name: "show",
                path: "lock show",
                options: &[],
                operands: ("[NAME]", 1),
                summary: "show the locks on NAME; without it locks that wait or are waited for",
                help_code: 1,
                run: lock::show,
            }),
            Entry::Command(Command {
                name: "dump",
                path: "lock dump",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show all locks of this node's targets",
                help_code: 1,
                run: lock::dump,
            }),
            Entry::Command(Command {
                name: "break",
                path: "lock break",
                options: &[],
                operands: ("LOCK", 1),
                summary: "evict the client that has the lock, or waits for it",
                help_code: 1,
                run: lock::break_lock,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "namespace",
        entries: &[Entry::Command(Command {
            name: "show",
            path: "namespace show",
            options: &[],
            operands: NO_OPERANDS,
            summary: "show how many locks this node's targets have, and what happened to them",
            help_code: 1,
            run: lock::namespaces,
        })],
    }),
    Entry::Group(Group {
        name: "target",
        entries: &[
            Entry::Command(Command {
                name: "add",
                path: "target add",
                options: &[],
                operands: ("NAME=KIND:DIR", 1),
                summary: "serve a target; KIND is kv or lock",
                help_code: 1,
                run: target::add,
            }),
            Entry::Command(Command {
                name: "del",
                path: "target del",
                options: &[],
                operands: ("NAME", 1),
                summary: "take a target out of service when its data are committed",
                help_code: 1,
                run: target::del,
            }),
            Entry::Command(Command {
                name: "show",
                path: "target show",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show the targets that this node serves",
                help_code: 1,
                run: target::show,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "stats",
        entries: &[
            Entry::Command(Command {
                name: "show",
                path: "stats show",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show the counters of the node",
                help_code: 1,
                run: stats::show,
            }),
            Entry::Command(Command {
                name: "reset",
                path: "stats reset",
                options: &[
                    value("nid", Some('n'), "NID", "only of this interface, ours or a peer's"),
                    flag("global", Some('g'), "only those of the node, not of interfaces"),
                    flag("failures", Some('f'), "with --nid: also its failures"),
                ],
                operands: NO_OPERANDS,
                summary: "set all counters to zero",
                help_code: 1,
                run: stats::reset,
            }),
        ],
    }),
    Entry::Group(Group {
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
    }),
    Entry::Group(Group {
        name: "peer",
        entries: &[
            Entry::Command(Command {
                name: "add",
                path: "peer add",
                options: &[
                    value("prim_nid", Some('k'), "NID", "primary NID of the peer"),
                    value(
                        "nid",
                        Some('n'),
                        "LIST",
                        "its other NIDs; ranges such as 10.0.0.[2-4]@tcp",
                    ),
                    flag("non_mr", Some('m'), "the peer is not Multi-Rail"),
                    flag("lock_prim", Some('l'), "discovery may not change the primary NID"),
                    flag("force", Some('f'), "without effect, as in the original; see peer del"),
                ],
                operands: NO_OPERANDS,
                summary: "describe a peer",
                help_code: 1,
                run: peer::add,
            }),
            Entry::Command(Command {
                name: "del",
                path: "peer del",
                options: &[
                    value("prim_nid", Some('k'), "NID", "primary NID of the peer"),
                    value("nid", Some('n'), "LIST", "only these NIDs of it"),
                    flag("force", Some('f'), "even the primary NID of a locked peer"),
                ],
                operands: NO_OPERANDS,
                summary: "forget a peer or NIDs of it",
                help_code: 1,
                run: peer::del,
            }),
            Entry::Command(Command {
                name: "show",
                path: "peer show",
                options: &[value("nid", Some('n'), "NID", "only the peer with this NID"), VERBOSE],
                operands: NO_OPERANDS,
                summary: "show the peers",
                help_code: 1,
                run: peer::show,
            }),
            Entry::Command(Command {
                name: "list",
                path: "peer list",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show the primary NIDs of the peers",
                help_code: 1,
                run: peer::list,
            }),
            Entry::Command(Command {
                name: "set",
                path: "peer set",
                options: &[
                    value("nid", Some('n'), "NID", "only this NID"),
                    flag("all", Some('a'), "the NIDs of all peers"),
                    value("health", Some('t'), "VALUE", "health, 0 to 1000"),
                    value("state", Some('s'), "FLAGS", "flag word of the peer, for debugging"),
                ],
                operands: NO_OPERANDS,
                summary: "change peers",
                help_code: 1,
                run: peer::set,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "udsp",
        entries: &[
            Entry::Command(Command {
                name: "add",
                path: "udsp add",
                options: &[
                    value("src", Some('s'), "PATTERN", "local networks or NIDs, such as tcp"),
                    value(
                        "dst",
                        Some('d'),
                        "PATTERN",
                        "peers' networks or NIDs, such as 10.0.*.[1-5]@tcp[1-3]",
                    ),
                    value("rte", Some('r'), "PATTERN", "routers to reach them through"),
                    value("priority", Some('p'), "NUMBER", "0 or more; 0 is the highest"),
                    value(
                        "messages",
                        Some('m'),
                        "COUNT",
                        "messages in a row before it is the turn of the next rule",
                    ),
                    value("idx", Some('i'), "INDEX", "place in the list, from 0; else the end"),
                ],
                operands: NO_OPERANDS,
                summary: "add a rule to the selection policy",
                help_code: 1,
                run: udsp::add,
            }),
            Entry::Command(Command {
                name: "del",
                path: "udsp del",
                options: &[
                    value("idx", Some('i'), "INDEX", "the rule at this place"),
                    flag("all", Some('a'), "all rules"),
                ],
                operands: NO_OPERANDS,
                summary: "remove rules from the selection policy",
                help_code: 1,
                run: udsp::del,
            }),
            Entry::Command(Command {
                name: "show",
                path: "udsp show",
                options: &[value("idx", Some('i'), "INDEX", "only the rule at this place")],
                operands: NO_OPERANDS,
                summary: "show the selection policy",
                help_code: 1,
                run: udsp::show,
            }),
        ],
    }),
    Entry::Group(Group {
        name: "fault",
        entries: &[
            Entry::Command(Command {
                name: "link",
                path: "fault link",
                options: &[
                    value("nid", Some('n'), "NID", "the local interface"),
                    flag("down", Some('d'), "it plays dead, whatever its driver says"),
                    flag("up", Some('u'), "it is again what its driver says"),
                ],
                operands: NO_OPERANDS,
                summary: "take a local interface down, or up again",
                help_code: 1,
                run: fault::link,
            }),
            Entry::Group(Group {
                name: "rpc",
                entries: &[
                    Entry::Command(Command {
                        name: "lose",
                        path: "fault rpc lose",
                        options: &[
                            value(
                                "opcode",
                                None,
                                "NAME",
                                "only of this operation, such as OST_WRITE; any without",
                            ),
                            value(
                                "part",
                                None,
                                "PART",
                                "what gets lost: request, reply, bulk or early",
                            ),
                            value("count", None, "N", "so many messages, then no more; 1 without"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "lose messages of requests",
                        help_code: 1,
                        run: fault_rpc::lose,
                    }),
                    Entry::Command(Command {
                        name: "delay",
                        path: "fault rpc delay",
                        options: &[
                            value("service", None, "NAME", "the service, as service show names it"),
                            value("min", None, "SECONDS", "shortest delay, 0 to 65535; 0 without"),
                            value("max", None, "SECONDS", "longest delay, 0 to 65535"),
                            value(
                                "share",
                                None,
                                "PERCENT",
                                "how many of a hundred requests; all without",
                            ),
                        ],
                        operands: NO_OPERANDS,
                        summary: "delay the requests of a service, as a loaded server would",
                        help_code: 1,
                        run: fault_rpc::delay,
                    }),
                    Entry::Command(Command {
                        name: "del",
                        path: "fault rpc del",
                        options: &[
                            value("rule", None, "NUMBER", "the rule of this number"),
                            value("service", None, "NAME", "the delay of this service"),
                            flag("all", Some('a'), "all of them"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "end such faults",
                        help_code: 1,
                        run: fault_rpc::del,
                    }),
                    Entry::Command(Command {
                        name: "show",
                        path: "fault rpc show",
                        options: &[],
                        operands: NO_OPERANDS,
                        summary: "show such faults, and how much they have lost",
                        help_code: 1,
                        run: fault_rpc::show,
                    }),
                ],
            }),
            Entry::Group(Group {
                name: "drop",
                entries: &[
                    Entry::Command(Command {
                        name: "add",
                        path: "fault drop add",
                        options: &[
                            value("source", Some('s'), "NID", "originator: a NID, * or *@NET"),
                            value("dest", Some('d'), "NID", "final destination: a NID, * or *@NET"),
                            value("rate", Some('r'), "N", "one of N messages"),
                            value(
                                "interval",
                                Some('i'),
                                "SECONDS",
                                "one message per so many seconds",
                            ),
                            value(
                                "portal",
                                Some('p'),
                                "N",
                                "only this portal, 0 to 63; repeatable",
                            ),
                            value(
                                "message",
                                Some('m'),
                                "KIND",
                                "only PUT, ACK, GET or REPLY; repeatable",
                            ),
                            value(
                                "local_nid",
                                Some('o'),
                                "NID",
                                "only through this local interface",
                            ),
                            value("times", Some('t'), "N", "so many times, then no more"),
                            value("latency", Some('l'), "SECONDS", "refused: of delay rules"),
                            value(
                                "health_error",
                                Some('e'),
                                "STATUS",
                                "messages that leave fail like this, such as local_timeout or random; repeatable",
                            ),
                            flag("random", Some('n'), "at a random point of the interval"),
                            flag("drop_all", Some('x'), "every message that matches"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "add a rule that loses messages",
                        help_code: 1,
                        run: fault::add,
                    }),
                    Entry::Command(Command {
                        name: "del",
                        path: "fault drop del",
                        options: &[
                            flag("all", Some('a'), "all rules"),
                            value("source", Some('s'), "NID", "rules about exactly this source"),
                            value("dest", Some('d'), "NID", "and about this destination"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "remove drop rules",
                        help_code: 1,
                        run: fault::del,
                    }),
                    Entry::Command(Command {
                        name: "reset",
                        path: "fault drop reset",
                        options: &[],
                        operands: NO_OPERANDS,
                        summary: "set the counters of all drop rules to zero",
                        help_code: 1,
                        run: fault::reset,
                    }),
                    Entry::Command(Command {
                        name: "show",
                        path: "fault drop show",
                        options: &[],
                        operands: NO_OPERANDS,
                        summary: "show the drop rules, newest first",
                        help_code: 1,
                        run: fault::show,
                    }),
                ],
            }),
            Entry::Group(Group {
                name: "delay",
                entries: &[
                    Entry::Command(Command {
                        name: "add",
                        path: "fault delay add",
                        options: &[
                            value("source", Some('s'), "NID", "originator: a NID, * or *@NET"),
                            value("dest", Some('d'), "NID", "final destination: a NID, * or *@NET"),
                            value("rate", Some('r'), "N", "one of N messages"),
                            value("interval", None, "SECONDS", "one message per so many seconds"),
                            value("latency", Some('l'), "SECONDS", "how long they are held back"),
                            value(
                                "portal",
                                Some('p'),
                                "N",
                                "only this portal, 0 to 63; repeatable",
                            ),
                            value(
                                "message",
                                Some('m'),
                                "KIND",
                                "only PUT, ACK, GET or REPLY; repeatable",
                            ),
                            value(
                                "local_nid",
                                Some('o'),
                                "NID",
                                "only through this local interface",
                            ),
                            value("times", Some('t'), "N", "so many times, then no more"),
                            value("health_error", Some('e'), "STATUS", "refused: of drop rules"),
                            flag("random", Some('n'), "refused: of drop rules"),
                            flag("drop_all", Some('x'), "refused: of drop rules"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "add a rule that holds back messages",
                        help_code: 1,
                        run: fault::add,
                    }),
                    Entry::Command(Command {
                        name: "del",
                        path: "fault delay del",
                        options: &[
                            flag("all", Some('a'), "all rules"),
                            value("source", Some('s'), "NID", "rules about exactly this source"),
                            value("dest", Some('d'), "NID", "and about this destination"),
                        ],
                        operands: NO_OPERANDS,
                        summary: "remove delay rules",
                        help_code: 1,
                        run: fault::del,
                    }),
                    Entry::Command(Command {
                        name: "reset",
                        path: "fault delay reset",
                        options: &[],
                        operands: NO_OPERANDS,
                        summary: "set the counters of all delay rules to zero",
                        help_code: 1,
                        run: fault::reset,
                    }),
                    Entry::Command(Command {
                        name: "show",
                        path: "fault delay show",
                        options: &[],
                        operands: NO_OPERANDS,
                        summary: "show the delay rules, newest first",
                        help_code: 1,
                        run: fault::show,
                    }),
                ],
            }),
        ],
    }),
    Entry::Group(Group {
        name: "debug",
        entries: &[
            Entry::Command(Command {
                name: "recovery",
                path: "debug recovery",
                options: &[
                    flag("local", Some('l'), "local interfaces"),
                    flag("peer", Some('p'), "interfaces of peers"),
                ],
                operands: NO_OPERANDS,
                summary: "show what is being recovered",
                help_code: 1,
                run: debug::recovery,
            }),
            Entry::Command(Command {
                name: "peer",
                path: "debug peer",
                options: &[value("nid", Some('k'), "NID", "the peer that owns it")],
                operands: NO_OPERANDS,
                summary: "make the daemon write its record of a peer to its log",
                help_code: 1,
                run: debug::peer,
            }),
            Entry::Command(Command {
                name: "nidlist",
                path: "debug nidlist",
                options: &[],
                operands: ("LIST [NID]", 2),
                summary: "show how a list of NIDs is understood, and whether a NID is meant",
                help_code: 1,
                run: debug::nidlist,
            }),
            Entry::Command(Command {
                name: "suspicion",
                path: "debug suspicion",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show the rails that are avoided because they are silent, lose or lag",
                help_code: 1,
                run: debug::suspicion,
            }),
            Entry::Command(Command {
                name: "timers",
                path: "debug timers",
                options: &[],
                operands: NO_OPERANDS,
                summary: "show what the node will do by itself, and when",
                help_code: 1,
                run: debug::timers,
            }),
            Entry::Command(Command {
                name: "dump",
                path: "debug dump",
                options: &[],
                operands: ("FILE", 1),
                summary: "write the last calls of the node to a file, for ulnet sim replay",
                help_code: 1,
                run: debug::dump,
            }),
        ],
    }),
    Entry::Command(Command {
        name: "cpt-of-nid",
        path: "cpt-of-nid",
        options: &[],
        operands: ("NID...", usize::MAX),
        summary: "show which CPU partition works for a peer",
        help_code: 1,
        run: misc::cpt_of_nid,
    }),
    Entry::Command(Command {
        name: "service-id",
        path: "service-id",
        options: &[],
        operands: NO_OPERANDS,
        summary: "show the service id of InfiniBand networks, for which there is no driver here",
        help_code: 1,
        run: misc::service_id,
    }),
    Entry::Command(Command {
        name: "setup-mrrouting",
        path: "setup-mrrouting",
        options: &[],
        operands: NO_OPERANDS,
        summary: "run the system's script that sets up source routing, ksocklnd-config",
        help_code: 1,
        run: misc::setup_mrrouting,
    }),
    Entry::Command(Command {
        name: "setup-sysctl",
        path: "setup-sysctl",
        options: &[],
        operands: NO_OPERANDS,
        summary: "run the system's script that sets the kernel up for many peers, lnet-sysctl-config",
        help_code: 1,
        run: misc::setup_sysctl,
    }),
    Entry::Both(
        Command {
            name: "explain",
            path: "explain",
            options: &[
                value("from", Some('f'), "NID", "the local NID that the message leaves from"),
                value("size", Some('s'), "BYTES", "its payload, else 4096"),
                value(
                    "last",
                    Some('n'),
                    "COUNT",
                    "instead: the last messages sent, as far as explain_last keeps them",
                ),
            ],
            operands: ("[NID]", 1),
            summary: "show which way a message goes, and why",
            help_code: 0,
            run: explain::explain,
        },
        &[Entry::Command(Command {
            name: "import",
            path: "explain import",
            options: &[],
            operands: ("NAME", 1),
            summary: "show where the imports of a target or client would connect, and why",
            help_code: 1,
            run: explain::import,
        })],
    ),
    Entry::Command(Command {
        name: "legacy2yaml",
        path: "legacy2yaml",
        options: &[
            value("modprobe", Some('m'), "FILE", "a modprobe file with 'options' lines"),
            value("networks", Some('n'), "FILE", "a file with the text of networks="),
            value("ip2nets", Some('i'), "FILE", "a file with the text of ip2nets="),
            value("routes", Some('r'), "FILE", "a file with the text of routes="),
            value("output", Some('o'), "FILE", "where to write; else standard output"),
            Opt {
                long: "default-hop",
                short: None,
                arg: Arg::Level,
                help: "hop count of routes that have none; 1 without a number",
            },
            flag("help", Some('h'), "show this"),
        ],
        operands: ("[TEXT...]", 16),
        summary: "print as YAML what module parameters say; a modprobe file from standard input \
                  if nothing is named",
        help_code: 0,
        run: legacy::legacy2yaml,
    }),
    Entry::Command(Command {
        name: "top",
        path: "top",
        options: &[
            value("interval", Some('i'), "SECONDS", "time between two looks, else 1"),
            value("count", Some('n'), "COUNT", "so many looks as text, as without a terminal"),
        ],
        operands: NO_OPERANDS,
        summary: "show the node live: interfaces, peers, routes, health, rates",
        help_code: 0,
        run: top::top,
    }),
    Entry::Command(Command {
        name: "doctor",
        path: "doctor",
        options: &[
            value("export", Some('e'), "FILE", "another node as exported there; repeatable"),
            value("peer", Some('p'), "NID", "a live peer, whose NIDs are tried; repeatable"),
            value(
                "save",
                Some('s'),
                "FILE",
                "instead: write down this node for --export elsewhere",
            ),
            flag("json", Some('j'), "for programs"),
        ],
        operands: ("[FILE...]", usize::MAX),
        summary: "look for what is wrong with this node and others, and how to put it right",
        help_code: 0,
        run: doctor::doctor,
    }),
    Entry::Command(Command {
        name: "completions",
        path: "completions",
        options: &[],
        operands: ("SHELL", 1),
        summary: "print what bash, zsh or fish completes these commands by",
        help_code: 0,
        run: shell::completions::completions,
    }),
    Entry::Command(Command {
        name: "ping",
        path: "ping",
        options: &[
            value("source", Some('s'), "NID", "the local NID to send from"),
            value("timeout", Some('t'), "SECONDS", "how long to wait for each answer"),
            flag("help", Some('h'), "show this"),
        ],
        operands: ("NID[,NID...]...", usize::MAX),
        summary: "ask nodes for their NIDs; ranges such as 10.0.0.[2-4]@tcp",
        help_code: 0,
        run: ping::ping,
    }),
    Entry::Command(Command {
        name: "discover",
        path: "discover",
        options: &[
            flag("force", Some('f'), "ask even a peer that is up to date"),
            flag("help", Some('h'), "show this"),
        ],
        operands: ("NID[,NID...]...", usize::MAX),
        summary: "learn the NIDs of peers and tell them ours",
        help_code: 0,
        run: ping::discover,
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(
        entries: &'static [Entry],
        prefix: &str,
        all: &mut Vec<(String, &'static Command)>,
    ) {
        for entry in entries {
            let path = format!("{prefix}{}", entry.name());
            match entry {
                Entry::Group(group) => commands(group.entries, &format!("{path} "), all),
                Entry::Command(command) => all.push((path, command)),
                Entry::Both(command, entries) => {
                    commands(entries, &format!("{path} "), all);
                    all.push((path, command));
                }
            }
        }
    }

    #[test]
    fn every_command_knows_its_words_and_has_no_option_twice() {
        let mut all = Vec::new();
        commands(COMMANDS, "", &mut all);
        assert!(all.len() > 25);
        for (path, command) in all {
            assert_eq!(path, command.path);
            let mut longs: Vec<_> = command.options.iter().map(|o| o.long).collect();
            let mut shorts: Vec<_> = command.options.iter().filter_map(|o| o.short).collect();
            let count = (longs.len(), shorts.len());
            longs.sort_unstable();
            longs.dedup();
            shorts.sort_unstable();
            shorts.dedup();
            assert_eq!((longs.len(), shorts.len()), count, "{path}");
            assert!(command.help().starts_with(&path), "{path}");
        }
    }
}

//! Commands: the node's own networks, routes and routing.

use crate::args::{Arg, Opt};
use crate::command::{lnet, misc, net, route, routing};

use super::{Command, Entry, Group, NO_OPERANDS, VERBOSE, flag, value};

const ROUTE_NET: Opt = value("net", Some('n'), "NET", "the network behind the router");
const ROUTE_GATEWAY: Opt =
    value("gateway", Some('g'), "LIST", "the router's NIDs; ranges such as 10.0.0.[2-4]@tcp");
const ROUTE_HOP: Opt =
    value("hop", Some('c'), "COUNT", "routers on the way, 1 to 255; -1: undefined");
const ROUTE_HOP_COUNT: Opt = value("hop-count", None, "COUNT", "the same");
const ROUTE_PRIORITY: Opt = value("priority", Some('p'), "NUMBER", "0 or more; 0 is best");

pub(super) const LNET: Entry = Entry::Group(Group {
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
});

pub(super) const ROUTE: Entry = Entry::Group(Group {
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
});

pub(super) const NET: Entry = Entry::Group(Group {
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
                value("conns-per-peer", Some('m'), "COUNT", "connections to one peer, 0 to 127"),
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
});

pub(super) const ROUTING: Entry = Entry::Group(Group {
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
});

pub(super) const SETUP_MRROUTING: Entry = Entry::Command(Command {
    name: "setup-mrrouting",
    path: "setup-mrrouting",
    options: &[],
    operands: NO_OPERANDS,
    summary: "run the system's script that sets up source routing, ksocklnd-config",
    help_code: 1,
    run: misc::setup_mrrouting,
});

pub(super) const SETUP_SYSCTL: Entry = Entry::Command(Command {
    name: "setup-sysctl",
    path: "setup-sysctl",
    options: &[],
    operands: NO_OPERANDS,
    summary: "run the system's script that sets the kernel up for many peers, lnet-sysctl-config",
    help_code: 1,
    run: misc::setup_sysctl,
});

pub(super) const CPT_OF_NID: Entry = Entry::Command(Command {
    name: "cpt-of-nid",
    path: "cpt-of-nid",
    options: &[],
    operands: ("NID...", usize::MAX),
    summary: "show which CPU partition works for a peer",
    help_code: 1,
    run: misc::cpt_of_nid,
});

pub(super) const SERVICE_ID: Entry = Entry::Command(Command {
    name: "service-id",
    path: "service-id",
    options: &[],
    operands: NO_OPERANDS,
    summary: "show the service id of RDMA connections, on a node with an o2ib network",
    help_code: 1,
    run: misc::service_id,
});

//! Commands: peers, and which of their interfaces are preferred.

use crate::command::{peer, ping, udsp};

use super::{Command, Entry, Group, NO_OPERANDS, VERBOSE, flag, value};

pub(super) const PEER: Entry = Entry::Group(Group {
    name: "peer",
    entries: &[
        Entry::Command(Command {
            name: "add",
            path: "peer add",
            options: &[
                value("prim_nid", Some('k'), "NID", "primary NID of the peer"),
                value("nid", Some('n'), "LIST", "its other NIDs; ranges such as 10.0.0.[2-4]@tcp"),
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
});

pub(super) const UDSP: Entry = Entry::Group(Group {
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
});

pub(super) const PING: Entry = Entry::Command(Command {
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
});

pub(super) const DISCOVER: Entry = Entry::Command(Command {
    name: "discover",
    path: "discover",
    options: &[
        flag("force", Some('f'), "ask even a peer that is up to date"),
        flag("help", Some('h'), "show this"),
    ],
    operands: ("NID[,NID...]...", usize::MAX),
    summary: "learn the NIDs of peers and announce ours",
    help_code: 0,
    run: ping::discover,
});

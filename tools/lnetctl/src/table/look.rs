//! Commands: looking at a node: counters, reasons, faults found.

use crate::command::{debug, explain, lock, stats};
use crate::{doctor, shell, top};

use super::{Command, Entry, Group, NO_OPERANDS, flag, value};

pub(super) const STATS: Entry = Entry::Group(Group {
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
});

pub(super) const DEBUG: Entry = Entry::Group(Group {
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
});

pub(super) const EXPLAIN: Entry = Entry::Both(
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
    &[
        Entry::Command(Command {
            name: "import",
            path: "explain import",
            options: &[],
            operands: ("NAME", 1),
            summary: "show where the imports of a target or client are connected or would connect, and why",
            help_code: 1,
            run: explain::import,
        }),
        Entry::Command(Command {
            name: "lock",
            path: "explain lock",
            options: &[],
            operands: ("NAME", 1),
            summary: "show who waits for the locks on NAME, behind which locks, and until when",
            help_code: 1,
            run: lock::explain,
        }),
    ],
);

pub(super) const TOP: Entry = Entry::Command(Command {
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
});

pub(super) const DOCTOR: Entry = Entry::Command(Command {
    name: "doctor",
    path: "doctor",
    options: &[
        value("export", Some('e'), "FILE", "another node as exported there; repeatable"),
        value("peer", Some('p'), "NID", "a live peer, whose NIDs are tried; repeatable"),
        value("save", Some('s'), "FILE", "instead: write down this node for --export elsewhere"),
        flag("json", Some('j'), "for programs"),
    ],
    operands: ("[FILE...]", usize::MAX),
    summary: "look for what is wrong with this node and others, and how to put it right",
    help_code: 0,
    run: doctor::doctor,
});

pub(super) const COMPLETIONS: Entry = Entry::Command(Command {
    name: "completions",
    path: "completions",
    options: &[],
    operands: ("SHELL", 1),
    summary: "print what bash, zsh or fish completes these commands by",
    help_code: 0,
    run: shell::completions::completions,
});

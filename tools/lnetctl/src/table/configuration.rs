//! Commands: whole configurations.

use crate::args::{Arg, Opt};
use crate::command::{configuration, connection, legacy};

use super::{Command, Entry, NO_OPERANDS, flag, value};

pub(super) const IMPORT: Entry = Entry::Both(
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
            flag(
                "dry-run",
                None,
                "with --sync: try the change on a copy of the node, print it, and make none",
            ),
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
        summary: "show the connections by which this node's targets call their clients back, as for locks",
        help_code: 1,
        run: connection::imports,
    })],
);

pub(super) const EXPORT: Entry = Entry::Both(
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
);

pub(super) const LEGACY2YAML: Entry = Entry::Command(Command {
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
});

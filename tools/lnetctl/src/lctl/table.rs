//! The commands of `lctl` that are about LNet.

use super::{fault, mark, nodes, param, route, sock};
use crate::args::Opt;
use crate::command::fault as rules;
use crate::table::{Command, Entry, Group, NO_OPERANDS, flag, value};

/// A command that stands alone.
macro_rules! command {
    ($name:literal, $path:literal, $options:expr, $operands:expr, $run:expr, $summary:literal) => {
        Entry::Command(Command {
            name: $name,
            path: $path,
            options: $options,
            operands: $operands,
            summary: $summary,
            help_code: 0,
            run: $run,
        })
    };
}

const DROP_ADD: &[Opt] = &[
    value("source", Some('s'), "NID", "originator: a NID, * or *@NET"),
    value("dest", Some('d'), "NID", "final destination: a NID, * or *@NET"),
    value("rate", Some('r'), "N", "one of N messages"),
    value("interval", Some('i'), "SECONDS", "one message per so many seconds"),
    value("portal", Some('p'), "N", "only this portal, 0 to 63; repeatable"),
    value("message", Some('m'), "KIND", "only PUT, ACK, GET or REPLY; repeatable"),
    value("local_nid", Some('o'), "NID", "only through this local interface"),
    value("times", Some('t'), "N", "so many times, then no more"),
    value("health_error", Some('e'), "STATUS", "messages that leave fail like this; repeatable"),
    flag("random", Some('n'), "at a random point of the interval"),
    flag("drop_all", Some('x'), "every message that matches"),
];

const DELAY_ADD: &[Opt] = &[
    value("source", Some('s'), "NID", "originator: a NID, * or *@NET"),
    value("dest", Some('d'), "NID", "final destination: a NID, * or *@NET"),
    value("rate", Some('r'), "N", "one of N messages"),
    value("interval", None, "SECONDS", "one message per so many seconds"),
    value("latency", Some('l'), "SECONDS", "how long they are held back"),
    value("portal", Some('p'), "N", "only this portal, 0 to 63; repeatable"),
    value("message", Some('m'), "KIND", "only PUT, ACK, GET or REPLY; repeatable"),
    value("local_nid", Some('o'), "NID", "only through this local interface"),
    value("times", Some('t'), "N", "so many times, then no more"),
];

const DEL: &[Opt] = &[
    flag("all", Some('a'), "all rules"),
    value("source", Some('s'), "NID", "rules about exactly this source"),
    value("dest", Some('d'), "NID", "and about this destination"),
];

const CLASSIFY: Opt = flag("classify", Some('F'), "mark what may be written with =");
const WRITABLE: Opt = flag("writable", Some('w'), "only what may be written");
const TUNABLE: Opt = flag("only-tunable", Some('t'), "the same: tunables, not status");
const PATH: Opt = flag("path", Some('p'), "names as paths, which they are");
const RECURSIVE: Opt = flag("recursive", Some('R'), "also what is below a name");
const MODULE: Opt = flag("module", Some('o'), "module parameters too, which are here anyway");

const NETWORK: &[Opt] = &[flag("large", Some('l'), "prefer IPv6 addresses")];
const NETWORK_WORDS: (&str, usize) = ("up|down|NET", 1);

/// The top level.
pub(crate) static COMMANDS: &[Entry] = &[
    command!(
        "network",
        "network",
        NETWORK,
        NETWORK_WORDS,
        nodes::network,
        "start or stop LNet, or name the network that commands are about"
    ),
    command!("net", "net", NETWORK, NETWORK_WORDS, nodes::network, "the same as network"),
    command!(
        "list_nids",
        "list_nids",
        &[],
        ("[all]", 1),
        nodes::list_nids,
        "the NIDs of this node; with all also the loopback one"
    ),
    command!(
        "which_nid",
        "which_nid",
        &[],
        ("NID...", usize::MAX),
        nodes::which_nid,
        "the nearest of these NIDs"
    ),
    command!("ping", "ping", &[], ("NID [SECONDS]", 2), nodes::ping, "ask a node for its NIDs"),
    command!("route_list", "route_list", &[], NO_OPERANDS, route::list, "the routes"),
    command!("show_route", "show_route", &[], NO_OPERANDS, route::list, "the same as route_list"),
    command!(
        "add_route",
        "add_route",
        &[],
        ("GATEWAY [HOPS [PRIORITY]]", 3),
        route::add,
        "add a route to the network of --net"
    ),
    command!(
        "del_route",
        "del_route",
        &[],
        ("GATEWAY", 1),
        route::del,
        "remove a route to the network of --net"
    ),
    command!(
        "set_route",
        "set_route",
        &[],
        ("GATEWAY up|down [TIME]", 3),
        route::set,
        "report a gateway as seen up or down, now or at TIME (UTC, YYYY-MM-DD-HH:MM:SS, or seconds)"
    ),
    command!(
        "peer_list",
        "peer_list",
        &[],
        NO_OPERANDS,
        sock::peers,
        "the peers on record in the driver (with --net tcp)"
    ),
    command!(
        "conn_list",
        "conn_list",
        &[],
        NO_OPERANDS,
        sock::connections,
        "the connections of the driver (with --net tcp)"
    ),
    command!(
        "interface_list",
        "interface_list",
        &[],
        NO_OPERANDS,
        sock::interfaces,
        "the interfaces of the driver (with --net tcp)"
    ),
    command!(
        "disconnect",
        "disconnect",
        &[],
        ("[NID]", 1),
        sock::disconnect,
        "close the connections to a peer, or to all (with --net tcp)"
    ),
    command!(
        "del_peer",
        "del_peer",
        &[],
        ("[NID]", 1),
        sock::del_peer,
        "the same, and forget what the driver keeps of the peer (with --net tcp)"
    ),
    command!(
        "fail",
        "fail",
        &[],
        ("NID|_all_ [COUNT]", 2),
        fault::fail,
        "let messages from and to a peer fail; COUNT 0 mends it"
    ),
    command!(
        "net_drop_add",
        "net_drop_add",
        DROP_ADD,
        NO_OPERANDS,
        fault::add,
        "add a rule that loses messages"
    ),
    command!("net_drop_del", "net_drop_del", DEL, NO_OPERANDS, rules::del, "remove drop rules"),
    command!(
        "net_drop_reset",
        "net_drop_reset",
        &[],
        NO_OPERANDS,
        rules::reset,
        "set the counters of all drop rules to zero"
    ),
    command!(
        "net_drop_list",
        "net_drop_list",
        &[],
        NO_OPERANDS,
        fault::list,
        "the drop rules, newest first"
    ),
    command!(
        "net_delay_add",
        "net_delay_add",
        DELAY_ADD,
        NO_OPERANDS,
        fault::add,
        "add a rule that holds back messages"
    ),
    command!("net_delay_del", "net_delay_del", DEL, NO_OPERANDS, rules::del, "remove delay rules"),
    command!(
        "net_delay_reset",
        "net_delay_reset",
        &[],
        NO_OPERANDS,
        rules::reset,
        "set the counters of all delay rules to zero"
    ),
    command!(
        "net_delay_list",
        "net_delay_list",
        &[],
        NO_OPERANDS,
        fault::list,
        "the delay rules, newest first"
    ),
    Entry::Group(Group {
        name: "net_drop",
        entries: &[
            command!(
                "add",
                "net_drop add",
                DROP_ADD,
                NO_OPERANDS,
                fault::add,
                "add a rule that loses messages"
            ),
            command!("del", "net_drop del", DEL, NO_OPERANDS, rules::del, "remove drop rules"),
            command!(
                "reset",
                "net_drop reset",
                &[],
                NO_OPERANDS,
                rules::reset,
                "set the counters of all drop rules to zero"
            ),
            command!(
                "list",
                "net_drop list",
                &[],
                NO_OPERANDS,
                fault::list,
                "the drop rules, newest first"
            ),
        ],
    }),
    Entry::Group(Group {
        name: "net_delay",
        entries: &[
            command!(
                "add",
                "net_delay add",
                DELAY_ADD,
                NO_OPERANDS,
                fault::add,
                "add a rule that holds back messages"
            ),
            command!("del", "net_delay del", DEL, NO_OPERANDS, rules::del, "remove delay rules"),
            command!(
                "reset",
                "net_delay reset",
                &[],
                NO_OPERANDS,
                rules::reset,
                "set the counters of all delay rules to zero"
            ),
            command!(
                "list",
                "net_delay list",
                &[],
                NO_OPERANDS,
                fault::list,
                "the delay rules, newest first"
            ),
        ],
    }),
    command!(
        "get_param",
        "get_param",
        &[
            flag("no-name", Some('n'), "values alone"),
            flag("only-name", Some('N'), "names alone"),
            flag("header", Some('H'), "each name on a line of its own"),
            flag("yaml", Some('y'), "as YAML"),
            CLASSIFY,
            PATH,
            RECURSIVE,
            TUNABLE,
            WRITABLE,
            flag("readable", Some('r'), "only what may be read, which is all"),
            MODULE,
        ],
        ("PATTERN...", usize::MAX),
        param::get,
        "show parameters and status files"
    ),
    command!(
        "mark",
        "mark",
        &[],
        ("TEXT...", usize::MAX),
        mark::mark,
        "write a line to the daemon's log, to find a moment there"
    ),
    command!(
        "set_param",
        "set_param",
        &[
            flag("no-name", Some('n'), "say nothing"),
            WRITABLE,
            value("file", Some('F'), "FILE", "set what this YAML file says, name: value"),
            flag("permanent", Some('P'), "refused: of file systems; lnetd --config has what stays"),
            MODULE,
        ],
        ("[NAME=VALUE...]", usize::MAX),
        param::set,
        "set parameters"
    ),
    command!(
        "list_param",
        "list_param",
        &[CLASSIFY, PATH, RECURSIVE, TUNABLE, WRITABLE, MODULE,],
        ("[PATTERN...]", usize::MAX),
        param::list,
        "the names of parameters"
    ),
];

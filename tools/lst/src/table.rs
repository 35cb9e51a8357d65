//! Every command: its name, options, usage and what runs it. A new command is a row here and a
//! function under `command/`.

use lnetctl::args::{Arg, Args, Opt};
use lnetctl::{Manual, ManualEntry};

use crate::Lst;
use crate::command::{batch, group, query, session, stat, test};

/// A command.
pub(crate) struct Command {
    pub(crate) name: &'static str,
    /// What it is good for, one line.
    pub(crate) about: &'static str,
    /// How it is called, without `lst`.
    pub(crate) usage: &'static str,
    pub(crate) options: &'static [Opt],
    /// Fewest and most operands.
    pub(crate) operands: (usize, usize),
    /// Whether it works without LST_SESSION.
    pub(crate) keyless: bool,
    pub(crate) run: fn(&mut Lst<'_>, &Self, &Args) -> i32,
}

impl Command {
    /// Usage, purpose and options.
    pub(crate) fn help(&self) -> String {
        let mut text = format!("{}: {}\nusage: lst {}", self.name, self.about, self.usage);
        for opt in self.options {
            let value = match opt.arg {
                Arg::Value(name) => format!(" {name}"),
                Arg::None | Arg::Level => String::new(),
            };
            let short = opt.short.map(|c| format!("-{c}, ")).unwrap_or_default();
            text.push_str(&format!(
                "\n  {:<24} {}",
                format!("{short}--{}{value}", opt.long),
                opt.help
            ));
        }
        text
    }
}

/// `lst(8)`, and what completions of `lst` need.
pub fn manual() -> Manual<'static> {
    let entry = |command: &'static Command| ManualEntry {
        path: command.name,
        head: command.usage.to_owned(),
        about: command.about,
        options: command.options,
        examples: &[],
    };
    Manual {
        name: "lst",
        about: "the console of LNet selftest",
        synopsis: "[--socket PATH] [COMMAND [OPTIONS] [ARGUMENTS]]",
        paragraphs: &[
            "lst makes nodes send test traffic to each other and shows how they fare. A session holds \
             groups of nodes and batches of tests between groups; it lives in the daemon lnetd(8) that \
             lst talks to, and goes on between calls. Nodes of kernel LNet with the module of selftest \
             loaded take part as well as nodes of this kind that run with --selftest.",
            "The holder of a session's key commands it: LST_SESSION holds the key, any number but 0, \
             usually the process id of the shell. Without a command, commands are read from standard \
             input, one a line.",
            "Nodes are given as NIDs, also as ranges such as 10.0.0.[2-9]@tcp. For the impatient run \
             --quick does everything at once: session, groups, bulk and pings, a row each second, a \
             summary, and nothing is left behind.",
        ],
        options: &[("--socket", "PATH", "The control socket of the daemon that is meant.")],
        commands: COMMANDS.iter().map(entry).collect(),
        examples: &[
            ("export LST_SESSION=$$", "the key, once in a shell"),
            ("lst new_session read_write", "begin"),
            ("lst add_group servers 10.0.0.[2-3]@tcp", "who answers"),
            ("lst add_group clients 10.0.0.[4-9]@tcp", "who asks"),
            (
                "lst add_test --from clients --to servers brw write check=simple size=1M",
                "what they do, in the batch that there is",
            ),
            ("lst run", "begin the batch"),
            ("lst stat servers", "rates, until interrupted"),
            ("lst end_session", "stop and forget everything"),
            ("lst run --quick 10.0.0.2@tcp", "all of it in one"),
        ],
        exit: &[
            ("0", "It is done."),
            ("255", "It is not; the error is printed on standard error."),
        ],
        environment: &[
            ("LST_SESSION", "The key of the session."),
            ("LST_FEATURES", "Feature bits for new sessions."),
        ],
        see_also: &[("lnetd", "8"), ("lnetctl", "8")],
    }
}

const fn flag(long: &'static str, short: char, help: &'static str) -> Opt {
    Opt { long, short: Some(short), arg: Arg::None, help }
}

const fn value(long: &'static str, short: char, name: &'static str, help: &'static str) -> Opt {
    Opt { long, short: Some(short), arg: Arg::Value(name), help }
}

const fn long(long: &'static str, name: &'static str, help: &'static str) -> Opt {
    Opt { long, short: None, arg: Arg::Value(name), help }
}

const fn switch(long: &'static str, help: &'static str) -> Opt {
    Opt { long, short: None, arg: Arg::None, help }
}

const TIMEOUT: Opt = value("timeout", 't', "SEC", "how long nodes may take (5)");
const MANY: usize = usize::MAX;

const PLAIN: Command = Command {
    name: "",
    about: "",
    usage: "",
    options: &[],
    operands: (0, 0),
    keyless: false,
    run: |_, _, _| 0,
};

/// In the order of `--list-commands`.
pub(crate) const COMMANDS: &[Command] = &[
    Command {
        name: "new_session",
        about: "begin a session; LST_SESSION is the key of who may command it",
        usage: "new_session [--timeout SEC] [--force] [NAME]",
        options: &[
            value("timeout", 't', "SEC", "how long it lives without a command (300)"),
            flag("force", 'f', "end the session that there is, and take nodes from others"),
        ],
        operands: (0, 1),
        run: session::new_session,
        ..PLAIN
    },
    Command {
        name: "show_session",
        about: "show the session",
        usage: "show_session",
        keyless: true,
        run: session::show_session,
        ..PLAIN
    },
    Command {
        name: "end_session",
        about: "end the session",
        usage: "end_session",
        run: session::end_session,
        ..PLAIN
    },
    Command {
        name: "ping",
        about: "ask nodes whether they live and in which session",
        usage: "ping {--session | --group NAME | --batch NAME [--server] | --nodes IDS} \
                [--timeout SEC]",
        options: &[
            flag("session", 's', "all nodes"),
            value("group", 'g', "NAME", "the nodes of a group"),
            value("batch", 'b', "NAME", "the clients of a batch"),
            flag("server", 'v', "the servers of the batch"),
            value("nodes", 'n', "IDS", "these nodes"),
            TIMEOUT,
        ],
        run: session::ping,
        ..PLAIN
    },
    Command {
        name: "add_group",
        about: "make a group of nodes",
        usage: "add_group NAME IDS...",
        operands: (2, MANY),
        run: group::add_group,
        ..PLAIN
    },
    Command {
        name: "del_group",
        about: "remove a group",
        usage: "del_group NAME",
        operands: (1, 1),
        run: group::del_group,
        ..PLAIN
    },
    Command {
        name: "update_group",
        about: "change a group that no test uses",
        usage: "update_group NAME {--refresh | --clean STATE | --remove IDS}",
        options: &[
            flag("refresh", 'f', "invite the nodes that are not active"),
            value("clean", 'c', "STATE", "drop nodes: active, busy, down, unknown or invalid"),
            value("remove", 'r', "IDS", "drop these nodes"),
        ],
        operands: (1, 1),
        run: group::update_group,
        ..PLAIN
    },
    Command {
        name: "list_group",
        about: "list groups, or the nodes of some",
        usage: "list_group [--active] [--busy] [--down] [--unknown] [--all] [GROUP...]",
        options: &[
            flag("active", 'a', "nodes in the session"),
            flag("busy", 'b', "nodes in another session"),
            flag("down", 'd', "nodes that are not reached"),
            flag("unknown", 'u', "nodes that have not been asked, or have left"),
            flag("all", 'l', "all nodes"),
        ],
        operands: (0, MANY),
        run: group::list_group,
        ..PLAIN
    },
    Command {
        name: "stat",
        about: "show rates and bandwidth of nodes",
        usage: "stat [--bw] [--rate] [--read] [--write] [--avg] [--min] [--max] [--mbs] [--lnet | --rpc] \
                [--timeout SEC] [--delay SEC] [--count N] {GROUP | IDS}...",
        options: &[
            flag("bw", 'b', "bandwidth"),
            flag("rate", 'a', "messages per second"),
            flag("read", 'r', "what nodes receive"),
            flag("write", 'w', "what nodes send"),
            flag("avg", 'g', "the mean of the nodes"),
            flag("min", 'n', "the least of them"),
            flag("max", 'x', "the most of them"),
            flag("mbs", 'm', "MB/s instead of MiB/s"),
            flag("lnet", 'l', "counters of LNet: all traffic (the default)"),
            flag("rpc", 'c', "counters of the tests instead: their requests and bulk data"),
            TIMEOUT,
            value("delay", 'd', "SEC", "time between two reports (5)"),
            long("count", "N", "end after so many reports"),
        ],
        operands: (1, MANY),
        run: stat::stat,
        ..PLAIN
    },
    Command {
        name: "show_error",
        about: "show the nodes on which there were errors",
        usage: "show_error [--session] {GROUP | IDS}...",
        options: &[flag("session", 's', "errors of tests only")],
        operands: (1, MANY),
        run: stat::show_error,
        ..PLAIN
    },
    Command {
        name: "add_batch",
        about: "make a batch of tests",
        usage: "add_batch NAME",
        operands: (1, 1),
        run: batch::add_batch,
        ..PLAIN
    },
    Command {
        name: "run",
        about: "run a batch; or, with --quick, a whole session against some nodes",
        usage: "run [--timeout SEC] [NAME] | run --quick IDS... [--seconds N] [--size N[K|M]] \
                [--concurrency N] [--check CHECK] [--html FILE] [--json]",
        options: &[
            value("timeout", 't', "SEC", "a limit that nodes get and do not keep"),
            flag("quick", 'q', "session, group, batch, brw and ping, table, summary: in one go"),
            long("seconds", "N", "how long (10; 2 for each size of a range)"),
            long("size", "N[K|M]", "bytes of each bulk transfer (1M), or a range 8..4M"),
            long("concurrency", "N", "transfers at a time, each way and server (8)"),
            long("check", "CHECK", "none, simple or full (simple)"),
            long("html", "FILE", "write plots of rate and latency"),
            switch("json", "print the rows and the summary for programs"),
        ],
        operands: (0, 1),
        run: batch::run,
        ..PLAIN
    },
    Command {
        name: "stop",
        about: "stop a batch",
        usage: "stop [--force] [NAME]",
        options: &[flag("force", 'f', "do not wait for what is in flight")],
        operands: (0, 1),
        run: batch::stop,
        ..PLAIN
    },
    Command {
        name: "list_batch",
        about: "list batches, or the tests and nodes of one",
        usage: "list_batch [--test N] [--active] [--invalid] [--all] [--server] [NAME]",
        options: &[
            value("test", 't', "N", "a test of the batch, from 1"),
            flag("active", 'a', "nodes that are active"),
            flag("invalid", 'i', "nodes that are not"),
            flag("all", 'l', "all nodes"),
            flag("server", 's', "servers, not clients"),
        ],
        operands: (0, 1),
        run: batch::list_batch,
        ..PLAIN
    },
    Command {
        name: "query",
        about: "ask how a batch or test is",
        usage: "query [--test N] [--server] [--timeout SEC] [--delay SEC] [--loop N] [--active] \
                [--idle] [--error] [--all] [NAME]",
        options: &[
            value("test", 't', "N", "a test of the batch, from 1"),
            flag("server", 's', "ask servers, not clients"),
            value("timeout", 'o', "SEC", "how long nodes may take (5)"),
            value("delay", 'd', "SEC", "time between two questions (5)"),
            value("loop", 'c', "N", "how often (1)"),
            flag("active", 'a', "show nodes that run it"),
            flag("idle", 'i', "show nodes that do not"),
            flag("error", 'e', "show nodes that fail"),
            flag("all", 'l', "show all nodes"),
        ],
        operands: (0, 1),
        run: query::query,
        ..PLAIN
    },
    Command {
        name: "add_test",
        about: "add a test to a batch",
        usage: "add_test [--batch NAME] [--loop N] [--concurrency N] [--distribute A:B] \
                --from GROUP --to GROUP {ping | brw [read | write] [size=N[K|M]] \
                [check=simple|full|discard] [off=N]}",
        options: &[
            value("batch", 'b', "NAME", "the batch (batch)"),
            value("loop", 'l', "N", "how often, -1 for ever (-1)"),
            value("concurrency", 'c', "N", "requests at a time, 1 to 1024 (1)"),
            value("distribute", 'd', "A:B", "A clients share B servers (1:1)"),
            value("from", 'f', "GROUP", "the clients"),
            value("to", 't', "GROUP", "the servers"),
        ],
        operands: (1, MANY),
        run: test::add_test,
        ..PLAIN
    },
];

//! Manual pages, made from the tables of commands: `lnetctl(8)`, `lctl(8)`, `routerstat(8)`, and the
//! frame for those of other programs with such tables.

use roff::{Inline, Roff, bold, italic, roman};

use super::{commands, commands_of};
use crate::args::{Arg, Opt};
use crate::frame::{LCTL, LNETCTL, Program};
use crate::lctl;
use crate::table::Command;

/// What a page says, section by section.
pub struct Manual<'a> {
    /// The program.
    pub name: &'a str,
    /// What it is, in half a sentence.
    pub about: &'a str,
    /// How it is called: names of values are in capitals.
    pub synopsis: &'a str,
    /// The description.
    pub paragraphs: &'a [&'a str],
    /// Options before the command: name, value, and what it does.
    pub options: &'a [(&'a str, &'a str, &'a str)],
    /// Its commands.
    pub commands: Vec<Entry<'a>>,
    /// Whole lines and what each is for.
    pub examples: &'a [(&'a str, &'a str)],
    /// Exit codes and what each means.
    pub exit: &'a [(&'a str, &'a str)],
    /// Variables of the environment, besides the one that names the socket.
    pub environment: &'a [(&'a str, &'a str)],
    /// Pages that help further, with their section.
    pub see_also: &'a [(&'a str, &'a str)],
}

/// One command.
pub struct Entry<'a> {
    /// The words that lead to it, without the program.
    pub path: &'a str,
    /// How it is called.
    pub head: String,
    /// What it does.
    pub about: &'a str,
    /// Its options.
    pub options: &'a [Opt],
    /// Lines that use it, and what each is for.
    pub examples: &'a [(&'a str, &'a str)],
}

impl Manual<'_> {
    /// The page, as troff reads it.
    pub fn page(&self) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let mut page = Roff::new();
        page.control("TH", [self.name, "8", "", &format!("ulnet {version}"), "LNet in user space"]);
        page.control("SH", ["NAME"]);
        page.text([roman(format!("{} - {}", self.name, self.about))]);
        page.control("SH", ["SYNOPSIS"]);
        page.text([bold(self.name), roman(" "), roman(self.synopsis)]);
        page.control("SH", ["DESCRIPTION"]);
        for paragraph in self.paragraphs {
            page.control("PP", []);
            page.text([roman(*paragraph)]);
        }
        if !self.options.is_empty() {
            page.control("SH", ["OPTIONS"]);
        }
        for (name, value, help) in self.options {
            page.control("TP", []);
            page.text([
                bold(*name),
                roman(if value.is_empty() { "" } else { " " }),
                italic(*value),
            ]);
            page.text([roman(*help)]);
        }
        if !self.commands.is_empty() {
            page.control("SH", ["COMMANDS"]);
        }
        for entry in &self.commands {
            self.command(&mut page, entry);
        }
        if !self.examples.is_empty() {
            page.control("SH", ["EXAMPLES"]);
        }
        for (line, why) in self.examples {
            example(&mut page, line, why);
        }
        self.tail(&mut page);
        page.to_roff()
    }

    fn command(&self, page: &mut Roff, entry: &Entry<'_>) {
        page.control("SS", [entry.head.as_str()]);
        page.text([roman(sentence(entry.about))]);
        for opt in entry.options {
            page.control("TP", []);
            let mut head: Vec<Inline> = Vec::new();
            if let Some(short) = opt.short {
                head.extend([bold(format!("-{short}")), roman(", ")]);
            }
            head.push(bold(format!("--{}", opt.long)));
            match opt.arg {
                Arg::None => {}
                Arg::Value(name) => head.extend([roman(" "), italic(name)]),
                Arg::Level => head.extend([roman(" ["), italic("LEVEL"), roman("]")]),
            }
            page.text(head);
            page.text([roman(sentence(opt.help))]);
        }
        for (line, why) in entry.examples {
            example(page, &format!("{} {line}", self.name), why);
        }
    }

    fn tail(&self, page: &mut Roff) {
        let socket = ("ULNET_SOCKET", "The control socket, where no option names one.");
        let file = (
            "/run/ulnet/lnetd.sock",
            "The control socket of the system's daemon. Users other than root look at \
             ulnet/lnetd.sock in XDG_RUNTIME_DIR first.",
        );
        let environment: Vec<_> =
            core::iter::once(socket).chain(self.environment.iter().copied()).collect();
        for (name, items) in
            [("EXIT STATUS", self.exit), ("ENVIRONMENT", &environment), ("FILES", &[file])]
        {
            page.control("SH", [name]);
            for (head, text) in items {
                page.control("TP", []);
                page.text([bold(*head)]);
                page.text([roman(*text)]);
            }
        }
        page.control("SH", ["SEE ALSO"]);
        let mut others = Vec::new();
        for (n, (name, section)) in self.see_also.iter().enumerate() {
            let gap = if n == 0 { "" } else { ", " };
            others.extend([roman(gap), bold(*name), roman(format!("({section})"))]);
        }
        page.text(others);
    }
}

fn example(page: &mut Roff, line: &str, why: &str) {
    page.control("PP", []);
    page.text([roman(format!("{}:", sentence(why).trim_end_matches('.')))]);
    page.control("RS", ["4"]);
    page.text([bold(line)]);
    page.control("RE", []);
}

fn entry(command: &'static Command, program: &Program) -> Entry<'static> {
    let (operands, _) = command.operands;
    let gap = if operands.is_empty() { "" } else { " " };
    Entry {
        path: command.path,
        head: format!("{}{gap}{operands}", command.path),
        about: command.summary,
        options: command.options,
        examples: command.examples(program),
    }
}

const SOCKET: (&str, &str, &str) =
    ("--socket", "PATH", "The control socket of the daemon that is meant.");

/// `lnetctl(8)`.
pub fn page() -> String {
    Manual {
        name: "lnetctl",
        about: "configure and show a running LNet node",
        synopsis: "[--socket PATH] [--strict-compat] [--json] [--format NAME] [COMMAND [OPTIONS] \
                   [ARGUMENTS]]",
        paragraphs: &[
            "lnetctl asks the daemon lnetd(8) for what is to be done or shown, over its control \
             socket, and prints the answer. Its commands, output and exit status are those that \
             scripts know from the tool of the same name for kernel LNet.",
            "Without a command, commands are read from standard input, one a line, and end with the \
             first that fails; with ignore_errors as a line of its own they go on. There, and only \
             there, commands may be shortened to any unique prefix.",
            "What is mistyped is an error here even where the original ignores it in silence; the \
             option --strict-compat asks for that silence.",
            "Who may do what is the daemon's decision: root, its own user and the group of its \
             option --group-admin may do everything, that of --group-read may look. A \
             refusal names the right that is missing.",
        ],
        options: &[
            SOCKET,
            ("--strict-compat", "", "Be as silent about mistakes as the original."),
            ("--json", "", "Print what is shown as JSON, one line for each command."),
            (
                "--format",
                "NAME",
                "Lay out what is shown as default, as the tools of 2.15 did, or as the samples in \
                 the requirement documents.",
            ),
        ],
        commands: commands().into_iter().map(|command| entry(command, &LNETCTL)).collect(),
        examples: &[],
        exit: &[
            ("0", "It is done."),
            (
                "other",
                "It is not: the low byte of the negative error number, as the original returns it. \
                 The error is printed on standard error, as YAML.",
            ),
        ],
        environment: &[
            ("NO_COLOR", "If set and not empty, lnetctl top has no colours."),
            ("KSOCKLND_CONFIG", "The script of setup-mrrouting, a path that ends in ksocklnd-config."),
            (
                "LNET_SYSCTL_CONFIG",
                "The script of setup-sysctl, a path that ends in lnet-sysctl-config.",
            ),
        ],
        see_also: &[("lnetd", "8"), ("lctl", "8"), ("lst", "8"), ("routerstat", "8"), ("ulnet", "1")],
    }
    .page()
}

/// `lctl(8)`, and what completions of `lctl` need.
pub fn lctl_contents() -> Manual<'static> {
    Manual {
        name: "lctl",
        about: "the older tool for LNet, as far as it is about LNet",
        synopsis: "[--socket PATH] [--net NET] [COMMAND [OPTIONS] [ARGUMENTS]]",
        paragraphs: &[
            "lctl has the commands that scripts of kernel LNet call, with their output, on a node \
             that is run by lnetd(8): lists of NIDs, peers, connections and routes, fault rules, and \
             parameters. What is new is in lnetctl(8).",
            "Without a command, commands are read from standard input, one a line. Commands about \
             the driver of a network need to know which: --net before the command, or the command \
             network for all that follow.",
            "get_param, set_param and list_param read and write the files that lnetd(8) also shows \
             as a directory with its option --parameters. Names may be patterns as in the shell.",
        ],
        options: &[SOCKET, ("--net", "NET", "The network that the command is about, such as tcp.")],
        commands: commands_of(lctl::table::COMMANDS)
            .into_iter()
            .map(|command| entry(command, &LCTL))
            .collect(),
        examples: &[
            ("lctl list_nids", "the NIDs of this node"),
            ("lctl --net tcp conn_list", "the connections of TCP networks"),
            ("lctl get_param -n peers", "credits of every peer interface"),
            ("lctl set_param lnet_transaction_timeout=20", "a tunable, until the daemon ends"),
        ],
        exit: &[("0", "It is done."), ("other", "The error number.")],
        environment: &[],
        see_also: &[("lnetctl", "8"), ("lnetd", "8"), ("routerstat", "8")],
    }
}

/// `routerstat(8)`, and what completions of `routerstat` need.
pub fn routerstat_contents() -> Manual<'static> {
    Manual {
        name: "routerstat",
        about: "print the counters of an LNet node in one line",
        synopsis: "[--socket PATH] [INTERVAL]",
        paragraphs: &[
            "routerstat prints messages, errors, and what was sent, received, forwarded and dropped. \
             Without INTERVAL it prints one line of absolute numbers and ends; with it a line of \
             rates follows every INTERVAL seconds until it is interrupted.",
            "The first line reads M MESSAGES(MOST) E ERRORS, and for each of S sent, R received, F \
             forwarded and D dropped BYTES/MESSAGES. In the lines that follow, S, R, F and D are \
             MiB/s and messages/s; counters that have wrapped are taken for what they are.",
        ],
        options: &[SOCKET],
        commands: Vec::new(),
        examples: &[
            ("routerstat", "the counters, once"),
            ("routerstat 5", "rates, every five seconds"),
        ],
        exit: &[("0", "It is done."), ("1", "The counters cannot be read.")],
        environment: &[],
        see_also: &[("lnetctl", "8"), ("lctl", "8"), ("lnetd", "8")],
    }
}

/// A text of the table as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

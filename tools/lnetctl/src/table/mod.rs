//! Every command: its words, options, help and function, one file for what belongs together. Help
//! texts are made from these tables.

mod configuration;
mod fault;
mod look;
mod network;
mod peer;
mod requests;
mod set;

use core::fmt::Write as _;

use crate::args::{Arg, Args, Opt};
use crate::frame::Program;
use crate::{Session, shell};

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

    /// The help of the command, or of every command below, as a program gives it.
    pub(crate) fn help(&self, program: &Program) -> String {
        let below = |entries: &[Self]| -> String {
            entries.iter().map(|entry| entry.help(program)).collect()
        };
        match self {
            Self::Group(group) => below(group.entries),
            Self::Command(command) => command.help(program),
            Self::Both(command, entries) => command.help(program) + &below(entries),
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
        ) || matches!(
            self.path,
            "import"
                | "explain"
                | "explain import"
                | "explain lock"
                | "debug suspicion"
                | "debug dump"
                | "cpt-of-nid"
                | "service-id"
        )
    }

    /// What it is for and how it is called.
    pub(crate) fn help(&self, program: &Program) -> String {
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
        for (line, why) in self.examples(program) {
            // Infallible: writing to a String.
            let _ = writeln!(text, "\tlnetctl {line}   ({why})");
        }
        text.push('\n');
        text
    }

    /// Command lines to start from. They are those of `lnetctl`: other programs have commands of the
    /// same names.
    pub(crate) fn examples(&self, program: &Program) -> &'static [(&'static str, &'static str)] {
        match program.name() {
            "lnetctl" => shell::examples::of(self.path),
            _ => &[],
        }
    }

    /// Prints the help on standard output and returns `code`.
    pub(crate) fn print_help(&self, session: &mut Session<'_>, code: i32) -> i32 {
        let help = self.help(session.program);
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

/// The top level.
pub(crate) static COMMANDS: &[Entry] = &[
    network::LNET,
    network::ROUTE,
    network::NET,
    network::ROUTING,
    set::SET,
    configuration::IMPORT,
    configuration::EXPORT,
    requests::SERVICE,
    requests::LOCK,
    requests::NAMESPACE,
    requests::TARGET,
    look::STATS,
    set::GLOBAL,
    peer::PEER,
    peer::UDSP,
    fault::FAULT,
    look::DEBUG,
    network::CPT_OF_NID,
    network::SERVICE_ID,
    network::SETUP_MRROUTING,
    network::SETUP_SYSCTL,
    look::EXPLAIN,
    configuration::LEGACY2YAML,
    look::TOP,
    look::DOCTOR,
    look::COMPLETIONS,
    peer::PING,
    peer::DISCOVER,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{LCTL, LNETCTL};

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
    fn help_of_a_command_that_two_programs_have_names_the_own_program_alone() {
        let lctl = crate::lctl::table::COMMANDS.iter().find(|entry| entry.name() == "ping");
        let help = lctl.unwrap().help(&LCTL);
        assert!(!help.contains("lnetctl"), "{help}");
        let lnetctl = COMMANDS.iter().find(|entry| entry.name() == "ping");
        assert!(lnetctl.unwrap().help(&LNETCTL).contains("lnetctl ping"));
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
            assert!(command.help(&LNETCTL).starts_with(&path), "{path}");
        }
    }
}

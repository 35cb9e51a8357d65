//! The frame of the program: options before the command, words that exist at every level, the way
//! from words to a command, scripts on standard input, and exit codes (lnetctl.md 1).

use core::fmt::Write as _;
use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use lnet_types::{Errno, Net};

use crate::Session;
use crate::args::{Args, Misuse, Opt};
use crate::command::legacy;
use crate::lctl;
use crate::link::Link;
use crate::report::INVALID;
use crate::shell::lines::Lines;
use crate::show::format::Format;
use crate::table::{COMMANDS, Command, Entry};

/// The version of the original whose commands and output these are: what scripts look at.
pub const COMPATIBLE_WITH: &str = "2.17.57";

/// Words that exist at every level (G-2, G-4).
const BUILT_IN: [&str; 10] = [
    "quit",
    "exit",
    "help",
    "--help",
    "version",
    "--version",
    "list-commands",
    "--list-commands",
    "--ignore_errors",
    "ignore_errors",
];

/// Return code of an unknown command.
const UNKNOWN: i32 = Errno::EPERM.negative();
/// Return code of `--help` behind a group of commands (G-10).
const HELP: i32 = 1;

/// One of the programs that have this frame.
pub(crate) struct Program {
    name: &'static str,
    commands: &'static [Entry],
    usage: &'static str,
    /// The status of a return code.
    exit: fn(i32) -> i32,
}

impl Program {
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }
}

/// The low byte of a return code (G-14).
pub(crate) static LNETCTL: Program =
    Program { name: "lnetctl", commands: COMMANDS, usage: USAGE, exit: |code| code };

/// Positive error numbers (K-0).
pub(crate) static LCTL: Program =
    Program { name: "lctl", commands: lctl::table::COMMANDS, usage: LCTL_USAGE, exit: i32::abs };

const LCTL_USAGE: &str = "\
usage: lctl [--socket PATH] [--net NET] [COMMAND [OPTIONS] [ARGUMENTS]]
Without a command, commands are read from standard input, one a line.
'lctl help COMMAND' explains a command, 'lctl --list-commands' names them all.
";

const USAGE: &str = "\
usage: lnetctl [--socket PATH] [--strict-compat] [--json] [--format NAME] [COMMAND [OPTIONS] [ARGUMENTS]]
Without a command, commands are read from standard input, one a line.
What a command shows has the layout of today's tools; '--format 2.15' and '--format documents' are
older ones, '--json' is for programs. Both may also stand behind a command that shows something.
'lnetctl help COMMAND' explains a command, 'lnetctl --list-commands' names them all.
";

/// How command words are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    /// As they are: words of the shell (G-6).
    Exact,
    /// By any unique prefix, in any case: words of a script.
    Prefix,
}

/// The program. `args`: its name, then its words.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program(&LNETCTL, args)
}

/// `lctl`, likewise.
pub fn lctl_main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    program(&LCTL, args)
}

fn program(program: &'static Program, args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let name = program.name;
    let mut words = Vec::new();
    for arg in args.into_iter().skip(1) {
        match arg.into_string() {
            Ok(word) => words.push(word),
            Err(arg) => {
                print_err(&format!("{name}: argument is not UTF-8: {}\n", arg.display()));
                return exit_code(program, INVALID);
            }
        }
    }
    let front = match Front::parse(words, program.name == LCTL.name) {
        Ok(front) => front,
        Err(complaint) => {
            print_err(&format!("{name}: {complaint}\n"));
            return exit_code(program, INVALID);
        }
    };
    let mut link = Link::new(front.socket);
    let mut session = Session::new(&mut link);
    session.program = program;
    session.strict = front.strict;
    session.net = front.net;
    session.json = front.json;
    session.format = front.format;
    // What fails is read by people, in logs of programs too: the reason follows the document that
    // scripts know, as a comment.
    session.explain = !front.strict;
    session.is_terminal = io::stderr().is_terminal();
    session.live = Some(Box::new(io::stdout()));
    let ignore_errors = is_ignore_errors(&front.words);
    let code = if front.words.is_empty() || ignore_errors {
        script(&mut session, ignore_errors)
    } else {
        run(&mut session, &front.words)
    };
    let written = flush(&mut session);
    exit_code(program, if code == 0 { written } else { code })
}

fn exit_code(program: &Program, code: i32) -> ExitCode {
    ExitCode::from(((program.exit)(code) & 0xff) as u8)
}

/// Options before the command: ours, the original has none.
#[derive(Debug, Default, PartialEq, Eq)]
struct Front {
    socket: Option<PathBuf>,
    strict: bool,
    net: Option<Net>,
    json: bool,
    format: Format,
    words: Vec<String>,
}

impl Front {
    /// `has_net`: whether `--net NET` is among them.
    fn parse(words: Vec<String>, has_net: bool) -> Result<Self, String> {
        let mut front = Self::default();
        let mut words = words.into_iter().peekable();
        let ours = |w: &String| {
            let begins = |begin: &&str| w.starts_with(begin);
            if has_net {
                ["--s", "--n"].iter().any(begins)
            } else {
                ["--s", "--j", "--f"].iter().any(begins)
            }
        };
        while let Some(word) = words.next_if(ours) {
            match word.split_once('=').unwrap_or((&word, "")) {
                ("--strict-compat", "") => front.strict = true,
                ("--json", "") => front.json = true,
                ("--format", name) => {
                    let name =
                        if word.contains('=') { Some(name.to_owned()) } else { words.next() };
                    front.format = format_named(&name.unwrap_or_default())?;
                }
                ("--net", net) if has_net => {
                    let net = if word.contains('=') { Some(net.to_owned()) } else { words.next() };
                    let net = net.ok_or("--net needs a network such as tcp")?;
                    let parsed = net.parse();
                    front.net = Some(parsed.map_err(|_| format!("Can't parse net {net}"))?);
                }
                ("--socket", path) => {
                    let path =
                        if word.contains('=') { Some(path.to_owned()) } else { words.next() };
                    let path = path.filter(|path| !path.is_empty());
                    front.socket = Some(path.ok_or("--socket needs the path of a socket")?.into());
                }
                _ => return Err(format!("unrecognized option '{word}'")),
            }
        }
        front.words = words.collect();
        Ok(front)
    }
}

fn format_named(name: &str) -> Result<Format, String> {
    Format::from_name(name)
        .ok_or_else(|| format!("--format '{name}': expected default, 2.15 or documents"))
}

fn is_ignore_errors(words: &[String]) -> bool {
    matches!(words, [word] if word == "--ignore_errors" || word == "ignore_errors")
}

/// Runs one command and returns its return code; what it prints is in the session.
pub fn run(session: &mut Session<'_>, words: &[String]) -> i32 {
    dispatch(session, session.program.commands, words, Words::Exact)
}

/// Reads commands from standard input (G-7, G-8). Ends at the first that fails, unless errors are
/// to be ignored, and returns the code of the first that failed.
fn script(session: &mut Session<'_>, mut ignore_errors: bool) -> i32 {
    let complete = if core::ptr::eq(session.program, &LCTL) { lctl_words } else { lnetctl_words };
    let lines = Lines::new("> ", complete);
    let interactive = lines.is_interactive();
    let mut first = 0;
    flush(session);
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            None => continue,
            Some("quit" | "exit") => return first,
            Some("ignore_errors" | "--ignore_errors") => {
                ignore_errors = true;
                continue;
            }
            Some(_) => {}
        }
        let code = dispatch(session, session.program.commands, &words, Words::Prefix);
        let written = flush(session);
        let code = if code == 0 { written } else { code };
        if first == 0 {
            first = code;
        }
        if code != 0 && !ignore_errors && !interactive {
            return first;
        }
    }
    first
}

fn lnetctl_words(before: &[&str], part: &str) -> Vec<String> {
    completed(COMMANDS, before, part)
}

fn lctl_words(before: &[&str], part: &str) -> Vec<String> {
    completed(lctl::table::COMMANDS, before, part)
}

/// The words that may stand behind `before` and begin with `part`.
fn completed(mut entries: &'static [Entry], before: &[&str], part: &str) -> Vec<String> {
    let begins = |name: &&str| name.starts_with(part);
    let before = before.strip_prefix(&["help"]).unwrap_or(before);
    let mut options: &'static [Opt] = &[];
    for word in before {
        let fits: Vec<&Entry> = entries.iter().filter(|e| e.name().starts_with(word)).collect();
        let exact = entries.iter().find(|e| e.name() == *word);
        match exact.or(if let [one] = fits.as_slice() { Some(one) } else { None }) {
            Some(Entry::Group(group)) => entries = group.entries,
            Some(Entry::Command(command)) => (entries, options) = (&[], command.options),
            Some(Entry::Both(command, words)) => (entries, options) = (words, command.options),
            None => return Vec::new(),
        }
    }
    let names = entries.iter().map(Entry::name);
    let built_in = ["help", "quit"].into_iter().filter(|_| before.is_empty());
    let names = names.chain(built_in).filter(begins).map(str::to_owned);
    let options = options.iter().map(|o| format!("--{}", o.long));
    let options = options.filter(|option| part.starts_with('-') && begins(&option.as_str()));
    names.chain(options).collect()
}

fn dispatch(
    session: &mut Session<'_>,
    entries: &'static [Entry],
    words: &[String],
    how: Words,
) -> i32 {
    let Some((word, rest)) = words.split_first() else {
        // A group alone: what there is below it.
        let help: String = entries.iter().map(|e| e.help(session.program)).collect();
        session.out.push_str(&help);
        return INVALID;
    };
    match word.as_str() {
        "--help" | "-h" if !is_top(session, entries) => {
            let help: String = entries.iter().map(|e| e.help(session.program)).collect();
            session.out.push_str(&help);
            HELP
        }
        "--help" | "-h" if rest.is_empty() => {
            let code = help(session, entries, rest, how);
            summaries(session, entries);
            code
        }
        "help" | "--help" => help(session, entries, rest, how),
        "version" | "--version" => {
            let own = env!("CARGO_PKG_VERSION");
            let name = session.program.name;
            session.out_line(format_args!("{name} {COMPATIBLE_WITH}_ulnet_{own}"));
            0
        }
        "list-commands" | "--list-commands" => {
            list_commands(session, entries);
            0
        }
        "quit" | "exit" | "ignore_errors" | "--ignore_errors" => 0,
        _ => match find(session, entries, word, how) {
            Ok(Entry::Group(group)) => dispatch(session, group.entries, rest, how),
            Ok(Entry::Command(command)) => execute(session, command, rest),
            Ok(Entry::Both(command, words)) => {
                match words.iter().any(|entry| rest.first().is_some_and(|w| w == entry.name())) {
                    true => dispatch(session, words, rest, how),
                    false => execute(session, command, rest),
                }
            }
            Err(code) => code,
        },
    }
}

fn is_top(session: &Session<'_>, entries: &'static [Entry]) -> bool {
    core::ptr::eq(entries, session.program.commands)
}

fn find(
    session: &mut Session<'_>,
    entries: &'static [Entry],
    word: &str,
    how: Words,
) -> Result<&'static Entry, i32> {
    if let Some(entry) = entries.iter().find(|entry| entry.name() == word) {
        return Ok(entry);
    }
    if how == Words::Prefix {
        let lower = word.to_lowercase();
        let fits: Vec<_> = entries.iter().filter(|e| e.name().starts_with(&lower)).collect();
        match fits.as_slice() {
            [one] => return Ok(one),
            [] => {}
            all => {
                let names: Vec<_> = all.iter().map(|entry| entry.name()).collect();
                session.err_line(format_args!("Ambiguous command '{word}'"));
                session.err_line(format_args!("Options: {}", names.join(" ")));
                return Err(UNKNOWN);
            }
        }
    }
    let name = session.program.name;
    session.err_line(format_args!(
        "{name}: '{word}' is not a valid command. See '{name} --list-commands'."
    ));
    session.suggest(word, entries.iter().map(Entry::name));
    Err(UNKNOWN)
}

/// `help` alone says how the program is called; with words behind it, what that command is for, on
/// standard error (G-5).
fn help(session: &mut Session<'_>, entries: &'static [Entry], words: &[String], how: Words) -> i32 {
    if words.is_empty() {
        session.out.push_str(session.program.usage);
        return 0;
    }
    let mut level = entries;
    let mut found = None;
    for word in words {
        match find(session, level, word, how) {
            Ok(entry) => {
                found = Some(entry);
                level = match entry {
                    Entry::Group(group) => group.entries,
                    Entry::Command(_) => &[],
                    Entry::Both(_, words) => words,
                };
            }
            Err(code) => return code,
        }
    }
    if let Some(entry) = found {
        let text = entry.help(session.program);
        session.err.push_str(&text);
    }
    0
}

/// Most words of a group on its line.
const LINE_NAMES: usize = 5;

/// A line for each command, or the words that may follow it.
fn summaries(session: &mut Session<'_>, entries: &[Entry]) {
    session.out.push('\n');
    for entry in entries {
        let text = match entry {
            Entry::Command(command) | Entry::Both(command, _) => command.summary.to_owned(),
            Entry::Group(group) => {
                let names: Vec<&str> = group.entries.iter().map(Entry::name).collect();
                match names.len() {
                    0..=LINE_NAMES => names.join(", "),
                    n => format!(
                        "{}, … ({n} in all)",
                        names.into_iter().take(LINE_NAMES).collect::<Vec<_>>().join(", ")
                    ),
                }
            }
        };
        session.out_line(format_args!("  {:<18} {text}", entry.name()));
    }
}

/// Four to a line, each in a column of 19 and a blank (G-2).
fn list_commands(session: &mut Session<'_>, entries: &[Entry]) {
    let names: Vec<&str> = BUILT_IN.into_iter().chain(entries.iter().map(Entry::name)).collect();
    for line in names.chunks(4) {
        for name in line {
            // Infallible: writing to a String.
            let _ = write!(session.out, "{name:<19} ");
        }
        session.out.push('\n');
    }
}

fn execute(session: &mut Session<'_>, command: &'static Command, words: &[String]) -> i32 {
    if matches!(words, [word] if word == "--help" || word == "-h") {
        return command.print_help(session, command.help_code);
    }
    let before = (session.json, session.format);
    let words = match layout(session, command, words) {
        Ok(words) => words,
        Err(complaint) => {
            session.err_line(format_args!("lnetctl: {}: {complaint}", command.path));
            return INVALID;
        }
    };
    let code = execute_words(session, command, &words);
    if shows(session, command) || session.has_json() {
        session.close_json();
    }
    (session.json, session.format) = before;
    code
}

/// Whether the command prints a document that may have another layout. Those of `lctl` are texts.
fn shows(session: &Session<'_>, command: &Command) -> bool {
    core::ptr::eq(session.program, &LNETCTL) && command.shows()
}

/// `--json` and `--format NAME` go with every command that shows something; takes them out of its
/// words.
fn layout(
    session: &mut Session<'_>,
    command: &Command,
    words: &[String],
) -> Result<Vec<String>, String> {
    if !shows(session, command) {
        return Ok(words.to_vec());
    }
    let mut rest = Vec::with_capacity(words.len());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("--json", "") => session.json = true,
            ("--format", name) if word.contains('=') => session.format = format_named(name)?,
            ("--format", _) => {
                session.format = format_named(words.next().map_or("", String::as_str))?;
            }
            _ => rest.push(word.clone()),
        }
    }
    Ok(rest)
}

fn execute_words(session: &mut Session<'_>, command: &'static Command, words: &[String]) -> i32 {
    let args = match Args::parse(command.options, words) {
        Ok(args) => args,
        Err(misuse) => return misused(session, command, words, &misuse),
    };
    if args.has("help") {
        return command.print_help(session, command.help_code);
    }
    let (_, most) = command.operands;
    if let (Some(extra), false) = (args.operands.get(most), session.strict) {
        let name = session.program.name;
        session.err_line(format_args!(
            "{name}: {}: unexpected argument '{extra}'. See '{name} help {}'.",
            command.path, command.path
        ));
        return INVALID;
    }
    let code = (command.run)(session, command, &args);
    if core::mem::take(&mut session.lacking) && session.explain {
        match session.is_terminal {
            true => session.err.push_str(&command.help(session.program)),
            false => {
                let name = session.program.name;
                session.err_line(format_args!("# see '{name} help {}'", command.path));
            }
        }
    }
    code
}

/// The original prints its help and returns 0 for whatever option it does not know (G-11); here
/// only `--help` gets that answer.
fn misused(session: &mut Session<'_>, command: &Command, words: &[String], misuse: &Misuse) -> i32 {
    let asks = words.iter().any(|word| word == "--help" || word == "-h");
    if session.strict || asks {
        if let (true, [_]) = (session.strict, words) {
            session.err_line(format_args!("{}: {misuse}", command.name));
        }
        return command.print_help(session, 0);
    }
    let name = session.program.name;
    if name == LCTL.name {
        session.err_line(format_args!("error: {}: {misuse}", command.path));
        return UNKNOWN;
    }
    session.err_line(format_args!(
        "{name}: {}: {misuse}. See '{name} help {}'.",
        command.path, command.path
    ));
    if let Misuse::Unknown(word) = misuse {
        let options: Vec<String> =
            command.options.iter().map(|o| format!("--{}", o.long)).collect();
        session.suggest(word, options.iter().map(String::as_str));
    }
    match command.path {
        "legacy2yaml" => legacy::USAGE_ERROR,
        _ => INVALID,
    }
}

/// Writes what has been printed, and returns the code of a command whose output was lost. A reader that
/// has gone is no reason to fail.
fn flush(session: &mut Session<'_>) -> i32 {
    let out = core::mem::take(&mut session.out);
    let mut stdout = io::stdout().lock();
    if let Err(e) = stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()) {
        session.not_written(&e);
    }
    print_err(&core::mem::take(&mut session.err));
    let Some(errno) = session.unwritten.take() else { return 0 };
    print_err(&format!("{}: standard output: {errno}\n", session.program.name));
    errno.negative()
}

fn print_err(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_completed_by_the_table() {
        let all = |line: &str| {
            let (before, part) = line.rsplit_once(' ').unwrap_or(("", line));
            lnetctl_words(&before.split_whitespace().collect::<Vec<_>>(), part).join(" ")
        };
        assert_eq!(all("ne"), "net");
        assert_eq!(all("net "), "add del show set");
        assert_eq!(all("help fault dr"), "drop");
        assert_eq!(all("peer sh"), "show");
        assert_eq!(all("pee show --v"), "--verbose", "prefixes of words will do");
        assert_eq!(all("net show "), "", "operands are the user's");
        assert_eq!(all("frobnicate x"), "");
        assert_eq!(all("q"), "quit");
    }

    #[test]
    fn options_before_the_command_name_the_socket_and_the_manner() {
        let front = |line: &str| Front::parse(words(line), false);
        let socket = Some(PathBuf::from("/x"));
        let expected = Front {
            socket: socket.clone(),
            strict: true,
            words: words("net show --socket"),
            ..Front::default()
        };
        assert_eq!(front("--socket /x --strict-compat net show --socket"), Ok(expected));
        let expected = Front { socket, words: words("ping"), ..Front::default() };
        assert_eq!(front("--socket=/x ping"), Ok(expected));
        assert!(front("--socket").is_err());
        assert!(front("--socket=").is_err());
        assert!(front("--sock /x").is_err());
        assert_eq!(front("--version").unwrap().words, ["--version"]);
        assert_eq!(front("--net tcp").unwrap().words, ["--net", "tcp"]);
        let lctl = Front::parse(words("--net tcp1 peer_list"), true).unwrap();
        assert_eq!((lctl.net, lctl.words), ("tcp1".parse().ok(), words("peer_list")));
        assert!(Front::parse(words("--net nonsense peer_list"), true).is_err());
        let front_2_15 = front("--json --format 2.15 net show").unwrap();
        assert_eq!((front_2_15.json, front_2_15.format), (true, Format::V2_15));
        assert!(front("--format 3").is_err() && front("--jsonx").is_err());
    }
}

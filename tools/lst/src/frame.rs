//! The frame of the program: the environment, the way from words to a command, scripts on standard
//! input, exit codes (lnetctl.md 9.1, 9.3).

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use core::fmt::Write as _;
use core::time::Duration;

use lnet_admin::{Ask, ClientError, Reply, Request};
use lnet_selftest::{Answer, Command as Order, Nodes};
use lnetctl::args::Args;
use lnetctl::{Lines, Link};

use crate::errors::LOCAL;
use crate::table::{COMMANDS, Command};

const USAGE: &str = "\
usage: lst [COMMAND] [OPTIONS]... [ARGS]
Without any parameters, interactive mode is invoked
Try 'lst help <COMMAND>', or 'lst --list-commands' for a list of commands.
";
const NO_KEY: &str = "Can't find env LST_SESSION or value is not valid";
/// Beside what a command asks of nodes, so long may the daemon take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One run of the program.
pub struct Lst<'a> {
    /// The daemon.
    pub daemon: &'a mut dyn Ask,
    /// The key of the session; 0 is none.
    pub key: u32,
    /// Feature bits for new sessions.
    pub features: u32,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

impl Lst<'_> {
    /// A line on standard output, at once. A reader that has gone is no reason to fail.
    pub(crate) fn say(&mut self, line: impl core::fmt::Display) {
        let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }

    /// A line on standard error.
    pub(crate) fn complain(&mut self, line: impl core::fmt::Display) {
        let _ = writeln!(self.err, "{line}").and_then(|()| self.err.flush());
    }

    /// Gives the console a command.
    pub(crate) fn order(&mut self, command: Order) -> Result<Answer, ClientError> {
        let limit = PATIENCE + Duration::from_secs(command.timeout_s().into());
        let request = Request::Selftest { key: self.key, command };
        match self.daemon.ask_within(&request, limit)? {
            Reply::Selftest(answer) => Ok(answer),
            _ => Err(ClientError::Unexpected),
        }
    }

    /// Gives the console a command that asks nodes.
    pub(crate) fn nodes(&mut self, command: Order) -> Result<Nodes, ClientError> {
        match self.order(command)? {
            Answer::Nodes(nodes) => Ok(nodes),
            _ => Err(ClientError::Unexpected),
        }
    }
}

/// The program. `args`: its name, then its words.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let mut words: Vec<String> =
        args.into_iter().skip(1).map(|w| w.to_string_lossy().into_owned()).collect();
    // Ours: the original has a module behind it, and no choice.
    let mut socket = None;
    if words.first().is_some_and(|w| w == "--socket") && words.len() > 1 {
        socket = words.get(1).map(PathBuf::from);
        words.drain(..2);
    }
    let number = |name: &str, radix| {
        let text = std::env::var(name).ok()?;
        let text = text.trim().to_owned();
        Some(u32::from_str_radix(text.trim_start_matches("0x"), radix).map_err(|_| text))
    };
    let features = match number("LST_FEATURES", 16) {
        None => 1,
        Some(Ok(features)) if features & !1 == 0 => features,
        Some(Ok(_) | Err(_)) => {
            let text = std::env::var("LST_FEATURES").unwrap_or_default();
            let _ = writeln!(err, "Unsupported session features {text}, expected 0 or 1");
            return exit_code(LOCAL);
        }
    };
    let key = number("LST_SESSION", 10).and_then(Result::ok).unwrap_or(0);
    let mut link = Link::new(socket);
    let mut lst = Lst { daemon: &mut link, key, features, out: &mut out, err: &mut err };
    let code = if words.is_empty() { script(&mut lst) } else { run(&mut lst, &words) };
    exit_code(code)
}

/// The low byte of a return code (G-14).
fn exit_code(code: i32) -> ExitCode {
    ExitCode::from((code & 0xff) as u8)
}

/// Reads commands from standard input, one a line, until it ends or one fails (G-7).
fn script(lst: &mut Lst<'_>) -> i32 {
    let lines = Lines::new("lst > ", completed);
    let interactive = lines.is_interactive();
    for line in lines {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        match words.first().map(String::as_str) {
            None => continue,
            Some("quit" | "exit") => return 0,
            Some(_) => {}
        }
        let code = run(lst, &words);
        if code != 0 && !interactive {
            return code;
        }
    }
    0
}

/// The words that may stand behind `before` and begin with `part`.
fn completed(before: &[&str], part: &str) -> Vec<String> {
    let begins = |word: &String| word.starts_with(part);
    match before {
        [] | ["help"] => {
            let names = COMMANDS.iter().map(|c| c.name).chain(["help", "quit"]);
            names.map(str::to_owned).filter(begins).collect()
        }
        [word, ..] if part.starts_with('-') => find(word).map_or_else(
            |_| Vec::new(),
            |c| c.options.iter().map(|o| format!("--{}", o.long)).filter(begins).collect(),
        ),
        _ => Vec::new(),
    }
}

/// Runs one command and returns its return code.
pub fn run(lst: &mut Lst<'_>, words: &[String]) -> i32 {
    let Some((word, rest)) = words.split_first() else {
        let _ = lst.out.write_all(USAGE.as_bytes());
        return LOCAL;
    };
    match word.as_str() {
        "--help" | "-h" if rest.is_empty() => {
            let code = help(lst, rest);
            summaries(lst);
            return code;
        }
        "help" | "--help" | "-h" => return help(lst, rest),
        "version" | "--version" => {
            let own = env!("CARGO_PKG_VERSION");
            lst.say(format_args!("lst {}_ulnet_{own}", lnetctl::COMPATIBLE_WITH));
            return 0;
        }
        "list-commands" | "--list-commands" => {
            list_commands(lst);
            return 0;
        }
        _ => {}
    }
    let command = match find(word) {
        Ok(command) => command,
        Err(complaint) => {
            lst.complain(complaint);
            return LOCAL;
        }
    };
    if matches!(rest, [word] if word == "--help" || word == "-h") {
        lst.say(format_args!("{}", command.help()));
        return 0;
    }
    let args = match Args::parse(command.options, rest) {
        Ok(args) => args,
        Err(_) if rest.iter().any(|word| word == "--help" || word == "-h") => {
            lst.say(command.help());
            return 0;
        }
        Err(misuse) => {
            lst.complain(format_args!("lst {}: {misuse}", command.name));
            return wrong_usage(lst, command);
        }
    };
    let (least, most) = command.operands;
    if !(least..=most).contains(&args.operands.len()) && !args.has("quick") {
        return wrong_usage(lst, command);
    }
    if lst.key == 0 && !command.keyless && !args.has("quick") {
        lst.complain(NO_KEY);
        return LOCAL;
    }
    (command.run)(lst, command, &args)
}

/// Prints how the command is used (L-24).
pub(crate) fn wrong_usage(lst: &mut Lst<'_>, command: &Command) -> i32 {
    lst.complain(format_args!("usage: lst {}", command.usage));
    LOCAL
}

/// A command by its name or a unique prefix of it, in any case (G-6).
fn find(word: &str) -> Result<&'static Command, String> {
    let lower = word.to_lowercase();
    if let Some(command) = COMMANDS.iter().find(|c| c.name == lower) {
        return Ok(command);
    }
    let fits: Vec<_> = COMMANDS.iter().filter(|c| c.name.starts_with(&lower)).collect();
    match fits.as_slice() {
        [one] => Ok(one),
        [] => Err(format!("lst: '{word}' is not a valid command. See 'lst --list-commands'.")),
        all => {
            let names: Vec<_> = all.iter().map(|c| c.name).collect();
            Err(format!("Ambiguous command '{word}'\nOptions: {}", names.join(" ")))
        }
    }
}

fn help(lst: &mut Lst<'_>, words: &[String]) -> i32 {
    let Some(word) = words.first() else {
        let _ = lst.out.write_all(USAGE.as_bytes());
        return 0;
    };
    match find(word) {
        Ok(command) => {
            lst.say(command.help());
            0
        }
        Err(complaint) => {
            lst.complain(complaint);
            LOCAL
        }
    }
}

/// A line for each command.
fn summaries(lst: &mut Lst<'_>) {
    lst.say("");
    for command in COMMANDS {
        lst.say(format_args!("  {:<18} {}", command.name, command.about));
    }
}

/// Four to a line, each in a column of 19 and a blank (G-2).
fn list_commands(lst: &mut Lst<'_>) {
    let built_in = ["quit", "exit", "help", "version", "--list-commands"];
    let names: Vec<&str> = built_in.into_iter().chain(COMMANDS.iter().map(|c| c.name)).collect();
    for line in names.chunks(4) {
        let mut text = String::new();
        for name in line {
            // Infallible: writing to a String.
            let _ = write!(text, "{name:<19} ");
        }
        lst.say(text);
    }
}

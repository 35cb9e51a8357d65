//! `ulnet completions SHELL [PROGRAM]`: completions of all programs, made from the tables that their
//! command lines are made from. Those of `lnetctl` are its own (`lnetctl completions`); the others are
//! written by clap_complete.

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;
use lnetctl::Manual;
use lnetctl::args;

const USAGE: &str = "\
usage: ulnet completions SHELL [PROGRAM]
SHELL is bash, zsh or fish; PROGRAM is ulnet (if none is named), lnetd, lnetctl, lctl, lst or routerstat
";

/// Prints the completions of the program for the shell that are named behind the program's name.
pub(crate) fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<String> =
        args.into_iter().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (shell, program) = match words.as_slice() {
        [help] if help == "--help" || help == "-h" => {
            print(USAGE.as_bytes());
            return ExitCode::SUCCESS;
        }
        [shell] => (shell.as_str(), "ulnet"),
        [shell, program] => (shell.as_str(), program.as_str()),
        _ => return misuse(""),
    };
    let writer = match shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        _ => return misuse(&format!("shell '{shell}': expected bash, zsh or fish\n")),
    };
    let mut command = match program {
        "ulnet" => ulnet(),
        "lnetd" => lnetd::Options::command(),
        "lnetctl" => {
            return lnetctl::main(["lnetctl", "completions", shell].map(OsString::from));
        }
        "lctl" => of(&lnetctl::lctl_manual()),
        "lst" => of(&lst::manual()),
        "routerstat" => of(&lnetctl::routerstat_manual()),
        _ => {
            let expected = "expected ulnet, lnetd, lnetctl, lctl, lst or routerstat";
            return misuse(&format!("program '{program}': {expected}\n"));
        }
    };
    let mut script = Vec::new();
    clap_complete::generate(writer, &mut command, program, &mut script);
    print(&script);
    ExitCode::SUCCESS
}

fn misuse(what: &str) -> ExitCode {
    eprint!(
        "{}{USAGE}",
        if what.is_empty() { String::new() } else { format!("ulnet completions: {what}") }
    );
    ExitCode::from(2)
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}

/// All programs by their first word.
fn ulnet() -> Command {
    let trees = [
        ("daemon", lnetd::Options::command()),
        ("demo", ulnet_demo::command()),
        ("perf", ulnet_perf::command()),
        ("sim", ulnet_sim::command()),
        ("serve", lustre::serve_command()),
        ("lock", lustre::lock_command()),
        ("rpc", lustre::command()),
        ("obj", lustre::obj_command()),
        ("lustre", lustre::lustre_command()),
        ("tuning", lustre::tuning_command()),
        ("lctl", of(&lnetctl::lctl_manual())),
        ("selftest", of(&lst::manual())),
        ("routerstat", of(&lnetctl::routerstat_manual())),
    ];
    let mut command = crate::man::command().mut_arg("PROGRAM", |arg| arg.required(false));
    for (name, tree) in trees {
        let tree = tree.name(name).bin_name(format!("ulnet {name}"));
        command = command.mut_subcommand(name, |bare| {
            let about = bare.get_about().cloned().unwrap_or_default();
            tree.about(about)
        });
    }
    command
        .mut_subcommand("man", |c| c.arg(Arg::new("DIRECTORY").value_hint(ValueHint::DirPath)))
        .mut_subcommand("completions", |c| {
            let programs = ["ulnet", "lnetd", "lnetctl", "lctl", "lst", "routerstat"];
            c.arg(Arg::new("SHELL").value_parser(["bash", "zsh", "fish"]))
                .arg(Arg::new("PROGRAM").value_parser(programs))
        })
}

/// The command line of a program with a table of commands.
fn of(manual: &Manual<'static>) -> Command {
    let mut program = Command::new(manual.name).disable_help_subcommand(true);
    for (name, value, help) in manual.options {
        let long = name.trim_start_matches('-');
        let arg = Arg::new(*name).long(long).help(*help);
        program = program.arg(if value.is_empty() {
            arg.action(clap::ArgAction::SetTrue)
        } else {
            arg.value_name(*value).value_hint(hint(long, value))
        });
    }
    for entry in &manual.commands {
        let words: Vec<&'static str> = entry.path.split(' ').collect();
        program = with(program, &words, entry.about, entry.options);
    }
    program
}

/// A tree with one command more.
fn with(
    tree: Command,
    words: &[&'static str],
    about: &'static str,
    options: &[args::Opt],
) -> Command {
    let Some((first, rest)) = words.split_first() else {
        return options.iter().fold(tree.about(about), |tree, opt| tree.arg(option(opt)));
    };
    let tree = match tree.find_subcommand(first) {
        Some(_) => tree,
        None => tree
            .subcommand(Command::new(*first).disable_help_flag(true).disable_help_subcommand(true)),
    };
    tree.mut_subcommand(*first, |below| with(below, rest, about, options))
}

fn option(opt: &args::Opt) -> Arg {
    let mut arg = Arg::new(opt.long).long(opt.long).help(opt.help);
    if let Some(letter) = opt.short {
        arg = arg.short(letter);
    }
    match opt.arg {
        args::Arg::None => arg.action(clap::ArgAction::SetTrue),
        args::Arg::Level => arg.value_name("LEVEL").num_args(0..=1),
        args::Arg::Value(name) => arg.value_name(name).value_hint(hint(opt.long, name)),
    }
}

/// What shells may offer as a value.
fn hint(option: &str, value: &str) -> ValueHint {
    match (option, value) {
        ("socket", _) | (_, "FILE" | "PATH") => ValueHint::AnyPath,
        (_, "DIR" | "DIRECTORY") => ValueHint::DirPath,
        _ => ValueHint::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_all_programs_are_consistent() {
        ulnet().debug_assert();
        for manual in [lnetctl::lctl_manual(), lst::manual(), lnetctl::routerstat_manual()] {
            of(&manual).debug_assert();
        }
    }

    #[test]
    fn commands_of_tables_keep_their_words_and_options() {
        let lctl = of(&lnetctl::lctl_manual());
        let param = lctl.find_subcommand("get_param").unwrap();
        assert!(param.get_arguments().any(|a| a.get_long() == Some("recursive")));
        let lst = of(&lst::manual());
        assert!(lst.get_subcommands().count() > 10);
    }
}

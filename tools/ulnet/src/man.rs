//! `ulnet man DIR`: the manual pages of all programs, made from the tables that their command lines
//! are made from.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// Name of the file, and what makes it.
type Page = (&'static str, fn() -> String);

const PAGES: [Page; 6] = [
    ("lctl.8", || lnetctl::lctl_manual().page()),
    ("lnetctl.8", lnetctl::manual),
    ("lnetd.8", lnetd::manual),
    ("lst.8", || lst::manual().page()),
    ("routerstat.8", || lnetctl::routerstat_manual().page()),
    ("ulnet.1", own),
];

/// Writes the pages into the directory that is named behind the program's name.
pub(crate) fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    const USAGE: &str = "usage: ulnet man DIRECTORY\n";
    let mut args = args.into_iter().skip(1);
    let (Some(dir), None) = (args.next(), args.next()) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if dir == "--help" || dir == "-h" {
        crate::print(USAGE);
        return ExitCode::SUCCESS;
    }
    let dir = Path::new(&dir);
    for (name, page) in PAGES {
        let path = dir.join(name);
        if let Err(e) = fs::write(&path, page()) {
            eprintln!("ulnet man: {}: {e}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// `ulnet(1)`: the programs in one.
fn own() -> String {
    lnetd::render_manual(command(), "1")
}

/// The programs and their places, as a command line.
pub(crate) fn command() -> clap::Command {
    use clap::{Arg, Command};
    let programs = [
        ("daemon", "run an LNet node; also as lnetd(8)"),
        ("ctl", "configure and show a running node; also as lnetctl(8)"),
        ("selftest", "the console of LNet selftest; also as lst(8)"),
        ("lctl", "the older tool: NIDs, connections, faults, parameters; also as lctl(8)"),
        ("routerstat", "counters of a node in one line; also as routerstat(8)"),
        ("demo", "move a file over two rails, cut one in the middle"),
        ("perf", "measure latency, message rate and bandwidth"),
        ("sim", "play worlds of nodes in virtual time, with faults"),
        ("serve", "run a node with targets: values, locks, objects, file systems"),
        ("lock", "hold a lock while a command runs, show and break locks"),
        ("rpc", "use targets, ping Lustre's servers, list recorded requests"),
        ("obj", "make, write, read, remove and measure objects"),
        ("lustre", "list, read, copy and change files of a Lustre file system"),
        ("tuning", "time-outs of a site: calculated, advised, measured"),
        ("man", "write the manual pages into a directory"),
        ("completions", "print completions of a program for bash, zsh or fish"),
    ];
    let about = "LNet, the network layer of Lustre, in user space";
    let mut command = Command::new("ulnet").version(env!("CARGO_PKG_VERSION")).about(about);
    command = command
        .long_about(
            "One binary, several programs. Called through a link named after one of them it is that \
             program; otherwise the first word says which, and PROGRAM --help tells more.\n\nPrograms that \
             run a node for as long as a command takes print what it logs to standard error if the \
             environment variable ULNET_LOG names a level: error, warn, info, debug or trace.",
        )
        .disable_help_subcommand(true)
        .arg(Arg::new("PROGRAM").required(true).help("One of the programs below"));
    for (name, about) in programs {
        command = command.subcommand(Command::new(name).about(about));
    }
    command
}

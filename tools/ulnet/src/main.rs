//! `ulnet`: one binary, several programs. Called through a link named after one of them it is that
//! program; otherwise the first word says which. It assembles and holds no logic.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

mod completions;
mod man;

const USAGE: &str = "\
ulnet: LNet in user space

Usage: ulnet PROGRAM [OPTIONS]

Programs:
  daemon   run an LNet node                      (also as lnetd)
  ctl      configure and show a running node     (also as lnetctl)
  selftest the console of LNet selftest          (also as lst)
  lctl     the older tool: NIDs, connections, faults, parameters (also as lctl)
  routerstat  counters of a node in one line      (also as routerstat)
  demo     move a file over two rails, cut one in the middle
  perf     measure latency, message rate and bandwidth
  sim      play worlds of nodes in virtual time, with faults
  serve    run a node with targets: values, locks, objects, file systems
  lock     hold a lock while a command runs, show and break locks
  rpc      use targets, ping Lustre's servers, list recorded requests
  obj      make, write, read, remove and measure objects
  lustre   list, read, copy and change files of a Lustre file system
  tuning   time-outs of a site: calculated, advised, measured
  man      write the manual pages into a directory
  completions  print completions of a program for bash, zsh or fish
  help     this text

ulnet PROGRAM --help tells more.
";

type Main = fn(Vec<OsString>) -> ExitCode;

/// Programs that messages and links call by another name than the first word does.
const LINKED: [(&str, &str, Main); 5] = [
    ("lnetd", "daemon", lnetd::main),
    ("lnetctl", "ctl", lnetctl::main),
    ("lst", "selftest", lst::main),
    ("lctl", "lctl", lnetctl::lctl_main),
    ("routerstat", "routerstat", lnetctl::routerstat::main),
];

fn main() -> ExitCode {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let called = args.first().map(base_name).unwrap_or_default();
    if let Some((.., run)) = LINKED.iter().find(|(link, ..)| *link == called) {
        return run(args);
    }
    if args.len() < 2 {
        print(USAGE);
        return ExitCode::from(2);
    }
    let program = args.remove(1).to_string_lossy().into_owned();
    let linked = LINKED.iter().find(|(link, word, _)| *link == program || *word == program);
    // What is left begins with the name that messages use.
    if let Some(name) = args.first_mut() {
        *name = linked.map_or_else(|| format!("ulnet {program}"), |(l, ..)| (*l).into()).into();
    }
    if let Some((.., run)) = linked {
        return run(args);
    }
    // A node that runs in this process has its log lines printed where ULNET_LOG asks for them.
    lnet_rt::log_to_stderr();
    match program.as_str() {
        "demo" => ulnet_demo::main(args),
        "perf" => ulnet_perf::main(args),
        "sim" => ulnet_sim::main(args),
        "lock" => lustre::lock_main(args),
        "serve" => lustre::serve_main(args),
        "rpc" => lustre::main(args),
        "obj" => lustre::obj_main(args),
        "lustre" => lustre::lustre_main(args),
        "tuning" => lustre::tuning_main(args),
        "man" => man::main(args),
        "completions" => completions::main(args),
        "help" | "--help" | "-h" => {
            print(USAGE);
            ExitCode::SUCCESS
        }
        "--version" | "-V" | "version" => {
            print(concat!("ulnet ", env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
        other => {
            let programs = "daemon, ctl, lctl, routerstat, selftest, demo, perf, sim, serve, lock, \
                            rpc, obj, lustre, tuning, man or completions";
            eprintln!("ulnet: no program called '{other}': expected {programs}");
            ExitCode::from(2)
        }
    }
}

fn base_name(path: &OsString) -> String {
    Path::new(path).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = std::io::stdout().write_all(text.as_bytes());
}

//! The program: plays scenarios; and, started by itself in the hosts, what runs there.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let role = args.get(1).and_then(|a| a.to_str()).unwrap_or_default().to_owned();
    match role.as_str() {
        field::LOAD => field::load::main(),
        field::DAEMON
        | field::RPC
        | field::SERVE
        | field::LUSTRE
        | field::FILES
        | field::OBJECTS => {
            // A harness that is killed takes its daemons along.
            let kill = Some(rustix::process::Signal::KILL);
            let _ = rustix::process::set_parent_process_death_signal(kill);
            field::load::hurry();
            args.remove(1);
            match role.as_str() {
                field::RPC => lustre::main(args),
                field::SERVE => lustre::serve_main(args),
                field::LUSTRE => lustre::lustre_main(args),
                field::FILES | field::OBJECTS => {
                    let task = args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
                    match role.as_str() {
                        field::FILES => field::files_main(task),
                        _ => field::objects_main(task),
                    }
                }
                _ => lnetd::main(args),
            }
        }
        _ => field::main(),
    }
}

//! `ulnet-rpc`: the commands of this crate as a program of their own.

use std::process::ExitCode;

fn main() -> ExitCode {
    lustre::main(std::env::args_os().collect())
}

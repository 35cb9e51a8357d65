//! The load: a process in a host that sends, or answers, and keeps account of every message.
//!
//! A client sends a request of a few KiB at fixed times, whatever became of the last, and bulk
//! beside it; every request is a PUT with ACK, answered by a PUT with ACK. The caller's outcomes,
//! what the server has noted and what came back are three accounts that must agree in the end.
//! `mptcp` does the same over a kernel's multipath TCP, for comparison.
//!
//! Read `talk.rs` for what a harness says to it, `client.rs` and `server.rs` for what it does,
//! `ledger.rs` for what outlives a server.

mod client;
pub mod ledger;
mod mptcp;
mod node;
mod ops;
pub mod pattern;
mod server;
pub mod talk;

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::sync::mpsc::Sender;

use talk::{Answer, Command, Role};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// The load process: reads its role, then commands, from standard input.
pub fn main() -> ExitCode {
    // A harness that is killed takes its load along.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    hurry();
    log_to_stderr();
    let mut line = String::new();
    // By itself: the lock must be free for the thread that listens.
    let read = io::stdin().lock().read_line(&mut line);
    let outcome = match read {
        Ok(_) => serde_json::from_str(&line).map_err(Into::into).and_then(play),
        Err(e) => Err(e.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say(&Answer::Failed(format!("{e:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Asks for a larger share of a machine that does other things as well, so that what the load feels is
/// its network. Not granted, figures say so: see `late`.
pub fn hurry() {
    let _ = rustix::process::nice(-15);
}

/// What nodes have to say goes to standard error, as `RUST_LOG` asks for.
fn log_to_stderr() {
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::WARN));
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry().with(lines.with_filter(filter)).init();
}

fn play(role: Role) -> anyhow::Result<()> {
    match role {
        Role::Client { node, server, load } => client::run(&node, server.parse()?, load),
        Role::Server { node, ledger, life, load } => server::run(&node, &ledger, life, load),
        Role::MptcpClient { server, load } => mptcp::client(server.parse()?, load),
        Role::MptcpServer { listen, ledger, life, load } => {
            mptcp::server(listen.parse()?, &ledger, life, load)
        }
    }
}

/// One line to the harness. The harness may have ended already.
fn say(answer: &Answer) {
    if let Ok(mut line) = serde_json::to_string(answer) {
        line.push('\n');
        let mut out = io::stdout().lock();
        let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    }
}

/// Whether a command was carried out.
fn say_done(outcome: anyhow::Result<()>) {
    say(&match outcome {
        Ok(()) => Answer::Done,
        Err(e) => Answer::Failed(format!("{e:#}")),
    });
}

/// Queues the harness's commands as they come. Its end is the end of the process.
fn listen<N: Send + 'static>(queue: Sender<N>, note: fn(Command) -> N) {
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                Ok(command) => {
                    if queue.send(note(command)).is_err() {
                        return;
                    }
                }
                Err(e) => say(&Answer::Failed(format!("{line:?}: {e}"))),
            }
        }
        std::process::exit(1);
    });
}

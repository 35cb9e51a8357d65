//! The network itself, its NIDs, and the way to others: `network`, `list_nids`, `which_nid`, `ping`
//! (K-2 to K-5).

use core::time::Duration;

use lnet_admin::{ClientError, Contacted, Ping, REPLY_TIMEOUT, Reply, Request};
use lnet_config::parse_number;
use lnet_types::{Errno, Nid, Pid, ProcessId};

use super::{INVALID, MISUSE, failed};
use crate::Session;
use crate::args::Args;
use crate::command::{not_a_nid, single_nid};
use crate::table::Command;

/// The longest time-out of a ping, seconds; also how long one without any may take.
const PING_LIMIT_S: i64 = 120;
const PING_PATIENCE: Duration = Duration::from_secs(180);

/// `network up|down|NET`.
pub(super) fn network(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(word) = args.operands.first() else {
        return command.print_help(session, INVALID);
    };
    match word.as_str() {
        "up" | "configure" => {
            let request = Request::LnetConfigure { all: true, large: args.has("large") };
            // How far it was there before is the daemon's affair; the words are those of today's tool.
            let done = match args.has("large") {
                true => "LNET configured: Overridden existing one",
                false => "LNET configured: New Created",
            };
            report(session, &request, done, "LNET configure error")
        }
        "down" | "unconfigure" => {
            let request = Request::LnetUnconfigure;
            report(session, &request, "LNET ready to unload", "LNET unconfigure error")
        }
        net => match net.parse() {
            Ok(net) => {
                session.net = Some(net);
                0
            }
            Err(_) => {
                session.err_line(format_args!("Can't parse net {net}"));
                MISUSE
            }
        },
    }
}

fn report(session: &mut Session<'_>, request: &Request, done: &str, error: &str) -> i32 {
    match session.order(request) {
        Ok(()) => {
            session.out_line(done);
            0
        }
        Err(e) => failed(session, &format!("{error} {}", e.errno().0), &e),
    }
}

/// The NIDs of this node; the loopback one only if all are asked for.
pub(super) fn list_nids(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let all = match args.operands.first().map(String::as_str) {
        None => false,
        Some("all") => true,
        Some(word) => {
            session.err_line(format_args!("list_nids: '{word}': expected all"));
            return MISUSE;
        }
    };
    match session.ask(&Request::NetShow { net: None, detail: false }) {
        Ok(Reply::Nets(nets)) => {
            for ni in nets.iter().flat_map(|net| &net.nis) {
                if all || !ni.nid.is_loopback() {
                    session.out_line(ni.nid);
                }
            }
            0
        }
        Ok(_) => failed(session, "list_nids", &ClientError::Unexpected),
        // Scripts look for this line.
        Err(ClientError::Refused(refusal)) => {
            let errno = refusal.errno;
            session.err_line(format_args!("IOC_LIBCFS_GET_NI error {}: {errno}", errno.0));
            MISUSE
        }
        Err(e) => failed(session, "list_nids", &e),
    }
}

/// The nearest of several NIDs; of equals the first. The recorded version prints the NID of this node
/// that it would send from; what was meant is printed here (K-4, Q fix).
pub(super) fn which_nid(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() {
        return command.print_help(session, INVALID);
    }
    let mut nids = Vec::new();
    for word in &args.operands {
        let Some(nid) = single_nid(word) else {
            session.err_line(format_args!("Can't parse NID {word}"));
            session.reason(&not_a_nid(word));
            return MISUSE;
        };
        nids.push(nid);
    }
    match session.ask(&Request::Distance { nids: nids.clone() }) {
        Ok(Reply::Distances(far)) => {
            let reached = nids.iter().zip(far).filter_map(|(nid, d)| Some((d?, nid)));
            match reached.min_by_key(|(distance, _)| *distance) {
                Some((_, nid)) => {
                    session.out_line(nid);
                    0
                }
                None => {
                    session.err_line("No reachable NID");
                    MISUSE
                }
            }
        }
        Ok(_) => failed(session, "which_nid", &ClientError::Unexpected),
        Err(e) => failed(session, "which_nid", &e),
    }
}

/// `ping NID [TIMEOUT]`.
pub(super) fn ping(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(word) = args.operands.first() else {
        return command.print_help(session, INVALID);
    };
    let Some(nid) = target(word) else {
        session.err_line(format_args!("Invalid PID argument \"{word}\""));
        session.reason(&not_a_nid(word));
        return INVALID;
    };
    let timeout_ms = match args.operands.get(1).map(|text| (text, parse_number(text))) {
        None => None,
        Some((_, Some(seconds @ 1..=PING_LIMIT_S))) => Some(seconds.unsigned_abs() * 1000),
        Some((_, Some(seconds))) if seconds > PING_LIMIT_S => {
            session.err_line(format_args!("Timeout {seconds} is to large"));
            return MISUSE;
        }
        Some((text, _)) => {
            session.err_line(format_args!("Can't parse timeout '{text}'"));
            return MISUSE;
        }
    };
    let request = Request::Ping(Ping { nids: vec![nid], timeout_ms, source: None });
    match session.daemon.ask_within(&request, REPLY_TIMEOUT + PING_PATIENCE) {
        Ok(Reply::Contacted(contacted)) => answer(session, word, &contacted),
        Ok(_) => failed(session, "ping", &ClientError::Unexpected),
        Err(e) => failed(session, &format!("failed to ping {word}"), &e),
    }
}

/// A NID, with or without a process id in front.
fn target(text: &str) -> Option<Nid> {
    single_nid(text).or_else(|| {
        let (pid, nid) = text.split_once('-')?;
        pid.parse::<u32>().ok()?;
        single_nid(nid)
    })
}

fn answer(session: &mut Session<'_>, word: &str, contacted: &[Contacted]) -> i32 {
    for Contacted { outcome, .. } in contacted {
        match outcome {
            Ok(contact) => {
                session.out_line(ProcessId { nid: Nid::LOOPBACK, pid: Pid(contact.pid) });
                for nid in &contact.nids {
                    session.out_line(nid);
                }
            }
            Err(error) => {
                session.out_line(format_args!("failed to ping {word}: {}", error.text));
                if let Some(why) = error.detail.as_deref().filter(|why| *why != error.text) {
                    session.reason(why);
                }
                return error.errno.negative();
            }
        }
    }
    if contacted.is_empty() { Errno::EPROTO.negative() } else { 0 }
}

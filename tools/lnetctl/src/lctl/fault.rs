//! `net_drop_*` and `net_delay_*` (K-8), and `fail`.

use lnet_admin::{ClientError, FaultAction, FaultKind, FaultSnapshot, Reply, Request};
use lnet_config::parse_number;
use lnet_types::Nid;

use super::{INVALID, MISUSE, failed, order};
use crate::Session;
use crate::args::Args;
use crate::command::fault as rules;
use crate::command::single_nid;
use crate::table::Command;

pub(super) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        session.err_line("Failed, please provide source, destination and rate of rule");
        return MISUSE;
    }
    rules::add(session, command, args)
}

/// Newest first. Recorded versions end a list with exit code 22 and show a rule of zeros where there
/// is none; here it is what it was before and was meant to be (DEC-33).
pub(super) fn list(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    let kind = rules::kind_of(command);
    let (title, what) = match kind {
        FaultKind::Drop => ("LNet drop rules:", "failed to list drop rules"),
        FaultKind::Delay => ("LNet delay rules:", "failed to list delay rules"),
    };
    match session.ask(&Request::FaultShow(kind)) {
        Ok(Reply::Faults(rules)) => {
            session.out_line(title);
            for rule in &rules {
                let line = line(rule);
                session.out_line(line);
            }
            session.out_line(format_args!("found total {}", rules.len()));
            0
        }
        Ok(_) => failed(session, what, &ClientError::Unexpected),
        Err(e) => failed(session, what, &e),
    }
}

fn line(fault: &FaultSnapshot) -> String {
    let (r, k) = (&fault.rule, &fault.kinds);
    let latency = match r.action {
        FaultAction::Drop { .. } => String::new(),
        FaultAction::Delay { latency_s } => format!(", latency {latency_s}"),
    };
    // As C's `%#x` has it: no prefix before 0.
    let portals = if r.portals == 0 { "0".to_owned() } else { format!("{:#x}", r.portals) };
    format!(
        "{}->{} (1/{} | {}{latency}) ptl {portals}, msg {:x}, {}/{}, PUT {}, ACK {}, GET {}, REP {}",
        r.src,
        r.dst,
        r.rate,
        r.interval_s,
        r.kinds,
        fault.acted,
        fault.matched,
        k.put,
        k.ack,
        k.get,
        k.reply
    )
}

/// `fail NID|_all_|* [COUNT]`: for ever without a count, mended by 0.
pub(super) fn fail(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(who) = args.operands.first() else {
        return command.print_help(session, INVALID);
    };
    let nid = match who.as_str() {
        "_all_" | "*" => Nid::ANY,
        text => match single_nid(text) {
            Some(nid) => nid,
            None => {
                session.err_line(format_args!("Can't parse NID {text}"));
                return MISUSE;
            }
        },
    };
    let times = match args.operands.get(1) {
        None => None,
        Some(word) => match parse_number(word).and_then(|n| u32::try_from(n).ok()) {
            Some(n) => Some(n),
            None => {
                session.err_line(format_args!("Can't parse count {word}"));
                return MISUSE;
            }
        },
    };
    let (verb, what) = match times {
        Some(0) => ("Unfailing", "failed to unfail"),
        _ => ("Failing", "failed to fail"),
    };
    match order(session, what, &Request::PeerFail { nid, times }) {
        0 => {
            session.out_line(format_args!("{verb} {who}"));
            0
        }
        code => code,
    }
}

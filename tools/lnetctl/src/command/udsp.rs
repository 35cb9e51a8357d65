//! `udsp add`, `udsp del`, `udsp show` (C-udsp): rules of the selection policy. What a rule may say
//! is the node's; what is checked here is that numbers are numbers.

use core::num::NonZeroU32;

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::{Style, UdspAdd, UdspDel, UdspRule, parse_number};
use lnet_types::Errno;

use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

/// Also where deletions are reported, as the original does (C-udsp-3).
const ADD: Place = Place::classic("add", "udsp");
const SHOW: Place = Place::classic("show", "udsp");

pub(crate) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        return command.print_help(session, 0);
    }
    let request = match request(session, args) {
        Ok(request) => request,
        Err(code) => return code,
    };
    let Err(e) = session.order(&Request::UdspAdd(request)) else { return 0 };
    match e {
        // A rule that means nothing, in words; the rest as a positive errno (C-udsp-2).
        ClientError::Refused(refusal) if refusal.errno != Errno::EINVAL => {
            let number = refusal.errno.0;
            let text = format!("\"cannot add udsp: {}\"", refusal.errno);
            session.error(ADD, number, &text, refusal.detail.as_deref());
            number
        }
        other => session.failed(ADD, &other, |r| format!("\"{}\"", r.text), None),
    }
}

fn request(session: &mut Session<'_>, args: &Args) -> Result<UdspAdd, i32> {
    let pattern = |long| args.value(long).map(str::to_owned);
    let rule = UdspRule {
        src: pattern("src"),
        dst: pattern("dst"),
        rte: pattern("rte"),
        priority: count(session, args, "priority")?,
        messages: match count(session, args, "messages")? {
            Some(n) => Some(NonZeroU32::new(n).ok_or_else(|| bad(session, args, "messages"))?),
            None => None,
        },
    };
    Ok(UdspAdd { rule, index: count(session, args, "idx")? })
}

pub(crate) fn del(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let del = match (args.has("all"), count(session, args, "idx")) {
        (_, Err(code)) => return code,
        (true, Ok(None)) => UdspDel::All,
        (false, Ok(Some(index))) => UdspDel::Index(index),
        (false, Ok(None)) => {
            return session.lacks("Must specify --idx or --all");
        }
        (true, Ok(Some(_))) => {
            session.out_line("Cannot combine --all with --idx");
            return INVALID;
        }
    };
    match session.order(&Request::UdspDel(del)) {
        Ok(()) => 0,
        Err(e) => session.failed(ADD, &e, |r| format!("\"cannot del udsp: {}\"", r.errno), None),
    }
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    match count(session, args, "idx") {
        Ok(index) => show_rules(session, index),
        Err(code) => code,
    }
}

/// Prints one rule or all of them.
pub(crate) fn show_rules(session: &mut Session<'_>, index: Option<u32>) -> i32 {
    let text = |r: &lnet_admin::AdminError| format!("\"cannot get udsp: {}\"", r.text);
    match session.ask(&Request::UdspShow) {
        Ok(Reply::Udsp(rules)) => {
            if let Some(tree) = show::udsp::tree(&rules, index) {
                session.print(&tree, Style::Classic);
            }
            0
        }
        Ok(_) => session.failed(SHOW, &ClientError::Unexpected, text, None),
        Err(e) => session.failed(SHOW, &e, text, None),
    }
}

/// The number behind an option, 0 or more.
fn count(session: &mut Session<'_>, args: &Args, long: &'static str) -> Result<Option<u32>, i32> {
    let Some(word) = args.value(long) else { return Ok(None) };
    match parse_number(word).and_then(|n| u32::try_from(n).ok()) {
        Some(n) => Ok(Some(n)),
        None => Err(bad(session, args, long)),
    }
}

/// A number that is none (C-udsp-1).
fn bad(session: &mut Session<'_>, args: &Args, long: &'static str) -> i32 {
    let word = args.value(long).unwrap_or_default();
    session.out_line(format_args!("Invalid {long} \"{word}\""));
    let least = u32::from(long == "messages");
    session.reason(&format!("{long} {word}: expected {least} to {}", u32::MAX));
    INVALID
}

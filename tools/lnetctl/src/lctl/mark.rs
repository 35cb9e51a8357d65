//! `mark TEXT`: a line in the daemon's log, by which scripts find the moment of a step there.

use lnet_admin::Request;

use super::{INVALID, order};
use crate::Session;
use crate::args::Args;
use crate::table::Command;

/// Longest line, bytes.
const TEXT_MAX: usize = 1024;

pub(super) fn mark(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() {
        return command.print_help(session, INVALID);
    }
    let text = args.operands.join(" ");
    if text.len() > TEXT_MAX {
        let length = text.len();
        session.err_line(format_args!("lctl: mark: TEXT of {length} bytes: limit {TEXT_MAX}"));
        return INVALID;
    }
    order(session, "mark", &Request::Mark { text })
}

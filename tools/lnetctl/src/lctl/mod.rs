//! `lctl`, as far as it is about LNet: the older tool's commands, texts and exit codes (lnetctl.md
//! 11). Each file is one subject: `fault.rs` for rules that lose and delay, `nodes.rs` for NIDs and
//! peers, `route.rs` for routes, `moment.rs` for when one was seen, `sock.rs` for records of the
//! TCP driver and their deletion, `param.rs` for parameters, `mark.rs` for lines in the log;
//! `table.rs` lists the commands.

mod fault;
mod mark;
mod moment;
mod nodes;
pub(crate) mod param;
mod route;
mod sock;
pub(crate) mod table;

use lnet_admin::{ClientError, Request};
use lnet_types::Errno;

use crate::Session;

/// The return code of what is wrong with the words, rather than with the node.
const MISUSE: i32 = Errno::EPERM.negative();
/// The return code of values that can't be parsed.
const INVALID: i32 = Errno::EINVAL.negative();

/// Reports on standard error what could not be done, and gives the return code.
fn failed(session: &mut Session<'_>, what: &str, error: &ClientError) -> i32 {
    match error {
        ClientError::Refused(refusal) => {
            session.err_line(format_args!("{what}: {}", refusal.errno));
            if let (true, Some(why)) = (session.explain, &refusal.detail) {
                session.err_line(format_args!("# {why}"));
            }
        }
        unreachable => session.err_line(format_args!("lctl: {unreachable}")),
    }
    error.errno().negative()
}

/// Asks for something that has no answer but that it is done.
fn order(session: &mut Session<'_>, what: &str, request: &Request) -> i32 {
    match session.order(request) {
        Ok(()) => 0,
        Err(e) => failed(session, what, &e),
    }
}

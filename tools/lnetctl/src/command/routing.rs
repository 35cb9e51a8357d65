//! `routing show` and what `set` does for routers (C-routing-1, C-set-6).

use lnet_admin::{AdminError, ClientError, Reply, Request, RoutingSnapshot, RoutingState};
use lnet_config::{Setting, Style, parse_number};
use lnet_types::Errno;

use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const SHOW: Place = Place::classic("show", "routing");
const PARSER: Place = Place::classic("parser", "set");
const BUFFERS: Place = Place::classic("add", "buf");
const PARSER_ERROR: i32 = Errno::EPERM.negative();

pub(crate) fn show(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    show_routing(session)
}

/// Prints the pools and where forwarding stands; nothing as long as this node has never been a router
/// (C-routing-1).
pub(crate) fn show_routing(session: &mut Session<'_>) -> i32 {
    match fetch(session) {
        Ok(routing) => {
            if routing.state != RoutingState::Disabled || routing.was_on {
                session.print(&show::routing::tree(&routing), Style::Classic);
            }
            0
        }
        Err(code) => code,
    }
}

/// Asks where forwarding stands; reports why that cannot be had.
pub(crate) fn fetch(session: &mut Session<'_>) -> Result<RoutingSnapshot, i32> {
    let text = |r: &AdminError| format!("\"cannot get routing information: {}\"", r.errno);
    match session.ask(&Request::RoutingShow) {
        Ok(Reply::Routing(routing)) => Ok(routing),
        Ok(_) => Err(session.failed(SHOW, &ClientError::Unexpected, text, None)),
        Err(e) => Err(session.failed(SHOW, &e, text, None)),
    }
}

/// `set routing 0|1`.
pub(crate) fn set(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(word) = args.operands.first() else { return command.print_help(session, INVALID) };
    let on = match parse_number(word) {
        Some(0) => false,
        Some(1) => true,
        _ => {
            let text = "cannot parse routing value.\nmust be 0 for disable or 1 for enable";
            session.error(PARSER, PARSER_ERROR, text, None);
            return PARSER_ERROR;
        }
    };
    let (place, verb) = match on {
        true => (Place::classic("add", "routing"), "enable"),
        false => (Place::classic("del", "routing"), "disable"),
    };
    match session.order(&Request::RoutingSet { on }) {
        Ok(()) => 0,
        Err(e) => {
            session.failed(place, &e, |r| format!("\"cannot {verb} routing {}\"", r.errno), None)
        }
    }
}

/// `set tiny_buffers N` and the two others; 0 is the default.
pub(crate) fn set_buffers(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let Some(word) = args.operands.first() else { return command.print_help(session, INVALID) };
    let Some(value) = parse_number(word) else {
        let text = format!("cannot parse {} value", command.name);
        session.error(PARSER, PARSER_ERROR, &text, Some(&format!("'{word}' is not a number")));
        return PARSER_ERROR;
    };
    if value == -1 && session.strict {
        // "As it is" to the original.
        return 0;
    }
    if value < 0 {
        let code = Errno::ERANGE.negative();
        session.error(BUFFERS, code, "\"tiny, small and large must be >= 0\"", None);
        return code;
    }
    let settings = vec![Setting::new(command.name, value)];
    match session.order(&Request::Set { settings }) {
        Ok(()) => 0,
        Err(e) => session.failed(
            BUFFERS,
            &e,
            |r| format!("\"cannot configure buffers: {}\"", r.errno),
            None,
        ),
    }
}

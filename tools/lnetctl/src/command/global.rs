//! `global show` (C-global-1).

use lnet_admin::{AdminError, ClientError, GlobalSnapshot, Reply, Request};
use lnet_config::Style;
use lnet_types::Errno;

use crate::Session;
use crate::args::Args;
use crate::report::Place;
use crate::show::{self, OURS};
use crate::table::Command;

const PLACE: Place = Place::classic("show", "global");

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    match (show_global(session), args.level("verbose")) {
        (0, OURS..) => show_own(session),
        (code, _) => code,
    }
}

/// Prints the tunables.
pub(crate) fn show_global(session: &mut Session<'_>) -> i32 {
    match fetch(session) {
        Ok(global) if global.configured => {
            session.print(&show::global::tree(&global), Style::Classic);
            0
        }
        Ok(_) => not_configured(session),
        Err(code) => code,
    }
}

/// Prints the tunables that only nodes of this kind have.
pub(crate) fn show_own(session: &mut Session<'_>) -> i32 {
    match fetch(session) {
        Ok(global) => {
            if let Some(tree) = show::global::own(&global, false) {
                session.print(&tree, Style::Classic);
            }
            0
        }
        Err(code) => code,
    }
}

/// Asks for the tunables; reports why there are none.
pub(crate) fn fetch(session: &mut Session<'_>) -> Result<GlobalSnapshot, i32> {
    let text = |r: &AdminError| format!("\"cannot get global: {}\"", r.text);
    match session.ask(&Request::GlobalShow) {
        Ok(Reply::Global(global)) => Ok(global),
        Ok(_) => Err(session.failed(PLACE, &ClientError::Unexpected, text, None)),
        Err(e) => Err(session.failed(PLACE, &e, text, None)),
    }
}

/// Says that the first tunable cannot be had, as the original does while LNet is not configured.
pub(crate) fn not_configured(session: &mut Session<'_>) -> i32 {
    let code = Errno::ENETDOWN.negative();
    let text = format!("\"cannot get numa_range: Unknown error {code}\"");
    session.error(PLACE, code, &text, Some(AdminError::NOT_CONFIGURED));
    code
}

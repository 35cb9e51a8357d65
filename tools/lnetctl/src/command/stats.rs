//! `stats show`, `stats reset` (C-stats-1). Both report under `show`, as the original does.

use lnet_admin::{AdminError, ClientError, Reply, Request};
use lnet_config::Style;

use super::single_nid;
use crate::Session;
use crate::args::Args;
use crate::report::Place;
use crate::show;
use crate::table::Command;

const PLACE: Place = Place::classic("show", "statistics");

pub(crate) fn show(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    let text = |r: &AdminError| format!("\"cannot get lnet statistics: {}\"", r.text);
    match session.ask(&Request::StatsShow) {
        Ok(Reply::Stats(stats)) => {
            session.print(&show::stats::tree(&stats), Style::Classic);
            0
        }
        Ok(_) => session.failed(PLACE, &ClientError::Unexpected, text, None),
        Err(e) => session.failed(PLACE, &e, text, None),
    }
}

/// All counters; with options of ours only some.
pub(crate) fn reset(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let failures = args.has("failures");
    let request = match args.value("nid") {
        Some(_) if args.has("global") => {
            return session.bad_value(PLACE, "--nid is invalid with --global option");
        }
        Some(text) => match single_nid(text) {
            None => return session.bad_nid(PLACE, text),
            nid => Request::CountersReset { nid, failures },
        },
        None if failures => {
            return session.bad_value(PLACE, "--failures needs the interface: --nid NID");
        }
        None if args.has("global") => Request::CountersReset { nid: None, failures },
        None => Request::StatsReset,
    };
    match session.order(&request) {
        Ok(()) => 0,
        Err(e) => {
            let text = |r: &AdminError| format!("\"cannot reset lnet statistics: {}\"", r.text);
            session.failed(PLACE, &e, text, None)
        }
    }
}

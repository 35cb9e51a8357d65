//! `lnet configure`, `lnet unconfigure` (C-lnet-1 to C-lnet-3).

use lnet_admin::Request;

use crate::Session;
use crate::args::Args;
use crate::report::Place;
use crate::table::Command;

const PLACE: Place = Place::library("configure", "lnet");

pub(crate) fn configure(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let request = Request::LnetConfigure { all: args.has("all"), large: args.has("large") };
    order(session, &request)
}

pub(crate) fn unconfigure(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    order(session, &Request::LnetUnconfigure)
}

fn order(session: &mut Session<'_>, request: &Request) -> i32 {
    match session.order(request) {
        Ok(()) => 0,
        // These two return the real errno (G-16).
        Err(e) => session.failed(PLACE, &e, |r| format!("LNet configure error: {}", r.text), None),
    }
}

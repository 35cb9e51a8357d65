//! `peer add`, `peer del`, `peer show`, `peer list`, `peer set` (C-peer).
//!
//! Where the original fails with exit code 234 and not one word, the document is printed.

use lnet_admin::{ClientError, NiTarget, PeerSnapshot, Request};
use lnet_config::{PeerAdd, PeerDel, Style, Tree};
use lnet_types::{Errno, Nid};

use super::{HEALTH, nid_list, not_a_nid, not_nids, number_in, single_nid};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const ADD: Place = Place::library("add", "peer");
const DEL: Place = Place::library("del", "peer");
const SHOW: Place = Place::library("show", "peer");
const SET: Place = Place::library("set", "peer");

pub(crate) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        return command.print_help(session, INVALID);
    }
    let (primary, nids) = match members(session, ADD, args) {
        Ok(members) => members,
        Err(code) => return code,
    };
    let request = Request::PeerAdd(PeerAdd {
        primary,
        nids,
        multi_rail: !args.has("non_mr"),
        lock_primary: args.has("lock_prim"),
    });
    order(session, ADD, &request)
}

pub(crate) fn del(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        return command.print_help(session, INVALID);
    }
    let (primary, nids) = match members(session, DEL, args) {
        Ok(members) => members,
        Err(code) => return code,
    };
    let request = Request::PeerDel(PeerDel { primary, nids, force: args.has("force") });
    order(session, DEL, &request)
}

/// The primary NID and the others.
fn members(session: &mut Session<'_>, place: Place, args: &Args) -> Result<(Nid, Vec<Nid>), i32> {
    let nids = match args.value("nid").map(|text| (text, nid_list(text))) {
        None => Vec::new(),
        Some((_, Ok(nids))) => nids,
        Some((text, Err(e))) => {
            session.out_line(format_args!("can't parse nidrange: \"{text}\""));
            let reason = not_nids(text, e);
            session.error(place, e.errno().negative(), &e.to_string(), Some(&reason));
            return Err(INVALID);
        }
    };
    let (text, reason) = match args.value("prim_nid") {
        None => {
            session.lacking = true;
            ("missing primary NID", "--prim_nid must be specified".to_owned())
        }
        Some(text) => match single_nid(text) {
            Some(primary) => return Ok((primary, nids)),
            None => ("unsupported primary NID", not_a_nid(text)),
        },
    };
    session.error(place, INVALID, text, Some(&reason));
    Err(INVALID)
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let nid = match args.value("nid").map(|text| (text, single_nid(text))) {
        None => None,
        Some((text, None)) => {
            let reason = not_a_nid(text);
            session.error(SHOW, INVALID, &format!("cannot parse NID '{text}'"), Some(&reason));
            return INVALID;
        }
        Some((_, nid)) => nid,
    };
    show_peers(session, nid, args.level("verbose"))
}

/// Prints one peer or all of them.
pub(crate) fn show_peers(session: &mut Session<'_>, nid: Option<Nid>, level: i64) -> i32 {
    print_pages(session, nid, level >= 1, |peers| show::peer::tree(peers, level))
}

pub(crate) fn list(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    print_pages(session, None, false, show::peer::list)
}

/// Prints peers page by page: of ten thousand no more than a page is in memory.
pub(crate) fn print_pages(
    session: &mut Session<'_>,
    nid: Option<Nid>,
    detail: bool,
    tree: impl Fn(&[PeerSnapshot]) -> Option<Tree>,
) -> i32 {
    let (mut from, mut begun) = (None, false);
    loop {
        let (peers, next) = match session.daemon.peer_page(nid, detail, from) {
            Ok(page) => page,
            Err(e) => return session.failed(SHOW, &e, cannot_show, Some(INVALID)),
        };
        if let Some(tree) = tree(&peers) {
            match begun {
                false => session.print(&tree, Style::Library),
                true => session.print_more(&tree, Style::Library),
            }
            begun = true;
        }
        match next {
            None => return 0,
            // No reader is left for the rest.
            Some(_) if session.spill().is_err() => return 0,
            next => from = next,
        }
    }
}

fn cannot_show(refusal: &lnet_admin::AdminError) -> String {
    format!("cannot get peer information: {}", refusal.errno)
}

pub(crate) fn set(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let request = match set_request(session, args) {
        Ok(Some(request)) => request,
        Ok(None) => return 0,
        Err(code) => return code,
    };
    match session.order(&request) {
        // The original prints nothing for a NID that no peer has (C-peer-8).
        Err(ClientError::Refused(r)) if session.strict && r.errno == Errno::ENOENT => 0,
        Ok(()) => 0,
        Err(e) => session.failed(SET, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

fn set_request(session: &mut Session<'_>, args: &Args) -> Result<Option<Request>, i32> {
    let health = number_in(session, args, "health", SET, HEALTH)?;
    let state = number_in(session, args, "state", SET, 0..=i64::from(u32::MAX))?;
    let target = match (args.value("nid"), args.has("all")) {
        (Some(_), true) => {
            return Err(session.bad_value(SET, "--nid is invalid with --all option"));
        }
        (None, false) => {
            session.lacking = true;
            return Err(session.bad_value(SET, "--nid or --all must be specified"));
        }
        (None, true) => NiTarget::All,
        (Some(text), false) => match single_nid(text) {
            Some(nid) => NiTarget::Nid(nid),
            None => return Err(session.bad_nid(SET, text)),
        },
    };
    // A NID alone is looked up too: what no peer has is no success.
    let asks = matches!(target, NiTarget::Nid(_)) && !session.strict;
    if health.is_none() && state.is_none() && !asks {
        return Ok(None);
    }
    Ok(Some(Request::PeerSet {
        target,
        health: health.and_then(|h| u16::try_from(h).ok()),
        state: state.and_then(|s| u32::try_from(s).ok()),
    }))
}

fn order(session: &mut Session<'_>, place: Place, request: &Request) -> i32 {
    match session.order(request) {
        Ok(()) => 0,
        Err(e) => session.failed(place, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

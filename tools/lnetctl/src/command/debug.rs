//! `debug recovery` (C-debug-1): the NIs that are being recovered. `debug suspicion`: the rails that
//! are avoided (DEC-31); ours, the original has nothing like it.
//! `debug timers`: the node's timer table; ours as well.
//! `debug peer`, `debug nidlist` (C-debug-2, C-debug-3). `debug dump`: the flight recorder's last
//! calls.

use lnet_admin::{ClientError, Reply, Request};
use lnet_config::{Style, Tree, near_nids};

use lnet_types::NidList;

use super::{not_a_nid, single_nid};
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;
use crate::{Session, show};

const PLACE: Place = Place::library("show", "debug");

pub(crate) fn recovery(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let queues: &[(&str, bool)] = match (args.has("local"), args.has("peer")) {
        (true, false) => &[("Local NI recovery", false)],
        (false, true) => &[("Peer NI recovery", true)],
        (true, true) => &[("Local NI recovery", false), ("Peer NI recovery", true)],
        (false, false) => {
            session.lacking = true;
            return INVALID;
        }
    };
    for &(key, peers) in queues {
        match session.ask(&Request::RecoveryShow { peers }) {
            Ok(Reply::Nids(nids)) if nids.is_empty() => {}
            Ok(Reply::Nids(nids)) => {
                let rows = nids.iter().enumerate();
                let rows = rows.map(|(i, nid)| (format!("nid-{i}"), Tree::plain(nid)));
                session.print(&Tree::map([(key, Tree::map(rows))]), Style::Library);
            }
            Ok(_) => {
                return session.failed(PLACE, &ClientError::Unexpected, |r| r.text.clone(), None);
            }
            Err(e) => return session.failed(PLACE, &e, |r| r.text.clone(), Some(INVALID)),
        }
    }
    0
}

pub(crate) fn suspicion(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::SuspicionShow) {
        Ok(Reply::Texts(texts)) => {
            session.texts("suspicion", &texts);
            0
        }
        Ok(_) => session.failed(PLACE, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(PLACE, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

pub(crate) fn timers(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::TimersShow) {
        Ok(Reply::Timers { timers, total }) => {
            session.print(&show::timers::tree(&timers, total), Style::Classic);
            0
        }
        Ok(_) => session.failed(PLACE, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(PLACE, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

/// Has the daemon write its record of a peer to its log (C-debug-2).
pub(crate) fn peer(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let place = Place::classic("debug", "peer");
    let Some(text) = args.value("nid") else {
        session.error(place, INVALID, "--nid must be specified", None);
        session.lacking = true;
        return INVALID;
    };
    let Some(nid) = single_nid(text) else {
        let reason = not_a_nid(text);
        let text = format!("\"badly formatted primary NID: {text}\"");
        session.error(place, INVALID, &text, Some(&reason));
        return INVALID;
    };
    match session.order(&Request::PeerDump { nid }) {
        Ok(()) => 0,
        Err(e) => session.failed(place, &e, |_| "Error".to_owned(), None),
    }
}

/// Says how a list of NIDs is read (C-debug-3). Asks no daemon.
pub(crate) fn nidlist(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let place = Place::classic("debug", "nidlist");
    let (text, nid) = match args.operands.as_slice() {
        [text] => (text, None),
        [text, nid] => (text, Some(nid)),
        _ => return command.print_help(session, INVALID),
    };
    let list: NidList = match text.parse() {
        Ok(list) => list,
        Err(e) => match near_nids(text) {
            Some(meant) => {
                let reason = format!("did you mean '{meant}'?");
                return session.bad_value_because(place, &e.to_string(), &reason);
            }
            None => return session.bad_value(place, &e.to_string()),
        },
    };
    let nid = match nid.map(|text| (text, single_nid(text))) {
        None => None,
        Some((_, Some(nid))) => Some(nid),
        Some((text, None)) => {
            return session.bad_nid(place, text);
        }
    };
    session.out_line(format_args!("nidlist parsed to: {list}"));
    if let Some(nid) = nid {
        let does = if list.contains(nid) { "matches" } else { "does not match" };
        session.out_line(format_args!("{nid} {does} nidlist {text}"));
    }
    0
}

/// Writes the last calls of the node to a file that `ulnet sim replay` can make again.
pub(crate) fn dump(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let place = Place::library("dump", "debug");
    let [file] = args.operands.as_slice() else {
        session.lacking = args.operands.is_empty();
        return session.bad_value(place, "expected FILE, to write the recording to");
    };
    let mut bytes = Vec::new();
    let (mut part, mut number, mut parts, mut calls) = (0, 0, 1, 0);
    while part < parts {
        match session.ask(&Request::Recording { part, number }) {
            Ok(Reply::Recording(next)) => {
                bytes.extend(next.bytes);
                (number, parts, calls) = (next.number, next.parts, next.calls);
                part += 1;
            }
            Ok(_) => {
                return session.failed(place, &ClientError::Unexpected, |r| r.text.clone(), None);
            }
            Err(e) => return session.failed(place, &e, |r| r.text.clone(), Some(INVALID)),
        }
    }
    if let Err(e) = std::fs::write(file, &bytes) {
        return session.bad_value(place, &format!("{file}: {e}"));
    }
    let facts = [("calls", calls.to_string()), ("bytes", bytes.len().to_string())];
    let facts = facts.map(|(key, value)| (key, Tree::plain(value)));
    session.print(&Tree::map([("recording", Tree::map(facts))]), Style::Library);
    0
}

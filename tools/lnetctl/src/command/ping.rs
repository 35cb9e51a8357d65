//! `ping` and `discover` (C-ping-1 to C-ping-5, S-ping-1).

use std::time::Duration;

use lnet_admin::{ClientError, Contact, Contacted, Discover, Ping, REPLY_TIMEOUT, Reply, Request};
use lnet_config::{NID_LIST_MAX, Style, Tree};
use lnet_types::{Errno, Nid, Pid, ProcessId};

use super::{nid_list, not_nids, number, single_nid};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;

/// The longest that a node waits for one peer, seconds; also what no time-out means at most.
const LIMIT_S: i64 = 180;
/// What both return when a NID failed.
const SOME_FAILED: i32 = Errno::EPERM.negative();

pub(crate) fn ping(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    const PLACE: Place = Place::library("manage", "ping");
    if args.operands.is_empty() {
        session.err_line("lnetctl: ping needs NID targets");
        session.lacking = true;
        return INVALID;
    }
    let timeout_ms = match number(session, args, "timeout", PLACE) {
        Ok(given) => timeout_ms(given, session.strict),
        Err(code) => return code,
    };
    let source = match args.value("source").map(|text| (text, single_nid(text))) {
        None => None,
        Some((text, None)) => {
            return session.bad_nid(PLACE, text);
        }
        Some((_, nid)) => nid,
    };
    match targets(session, PLACE, &args.operands) {
        Ok(nids) => ping_all(session, Ping { nids, timeout_ms, source }),
        Err(code) => code,
    }
}

/// How long the daemon is to wait; `None` leaves it to the node.
fn timeout_ms(given_s: Option<i64>, strict: bool) -> Option<u64> {
    match given_s? {
        // The original does not send a 1, so that it waits for as long as without (C-ping-1).
        1 if strict => None,
        seconds @ 1..LIMIT_S => Some(seconds.unsigned_abs() * 1000),
        // 0 and less ask for the longest time, as does more than that (D-82).
        _ => Some(LIMIT_S.unsigned_abs() * 1000),
    }
}

pub(crate) fn discover(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    if args.operands.is_empty() {
        session.lacks("Missing nid argument");
        // As scripts know it.
        return SOME_FAILED;
    }
    match targets(session, Place::library("manage", "discover"), &args.operands) {
        Ok(nids) => discover_all(session, Discover { nids, force: args.has("force") }),
        Err(code) => code,
    }
}

/// Pings and prints.
pub(crate) fn ping_all(session: &mut Session<'_>, ping: Ping) -> i32 {
    let each = ping.timeout_ms.map_or(Duration::from_secs(LIMIT_S as u64), Duration::from_millis);
    let limit = limit(each, ping.nids.len());
    contact(session, "ping", &Request::Ping(ping), limit)
}

/// Discovers and prints.
pub(crate) fn discover_all(session: &mut Session<'_>, discover: Discover) -> i32 {
    let limit = limit(Duration::from_secs(LIMIT_S as u64), discover.nids.len());
    contact(session, "discover", &Request::Discover(discover), limit)
}

/// How long the daemon may take: it may ask one peer after the other.
fn limit(each: Duration, nids: usize) -> Duration {
    let nids = u32::try_from(nids).unwrap_or(u32::MAX);
    REPLY_TIMEOUT.saturating_add(each.saturating_mul(nids))
}

fn targets(session: &mut Session<'_>, place: Place, operands: &[String]) -> Result<Vec<Nid>, i32> {
    let mut nids = Vec::new();
    for operand in operands {
        let more = nid_list(operand).and_then(|more| {
            if nids.len() + more.len() > NID_LIST_MAX {
                return Err(lnet_config::NidListError::TooMany);
            }
            Ok(more)
        });
        match more {
            Ok(more) => nids.extend(more),
            Err(e) => {
                let reason = not_nids(operand, e);
                session.error(place, e.errno().negative(), &e.to_string(), Some(&reason));
                return Err(INVALID);
            }
        }
    }
    Ok(nids)
}

fn contact(
    session: &mut Session<'_>,
    verb: &'static str,
    request: &Request,
    limit: Duration,
) -> i32 {
    let place = Place::library("manage", verb);
    match session.daemon.ask_within(request, limit) {
        Ok(Reply::Contacted(contacted)) => print(session, verb, &contacted),
        Ok(_) => session.failed(place, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(place, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

/// Successes first, then failures; both on standard output (C-ping-3).
fn print(session: &mut Session<'_>, verb: &'static str, contacted: &[Contacted]) -> i32 {
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for Contacted { nid, outcome } in contacted {
        match outcome {
            Ok(contact) => answers.push(answer(contact)),
            Err(error) => {
                let text = format!("failed to {verb} {nid}: {}", error.text);
                failures.push(Tree::map([
                    (verb, Tree::List(Vec::new())),
                    ("errno", Tree::plain(error.errno.negative())),
                    ("descr", Tree::TaggedSingle(text)),
                ]));
                if let (true, Some(reason)) =
                    (session.explain, error.detail.as_ref().filter(|why| **why != error.text))
                {
                    session.err_line(format_args!("# {nid}: {reason}"));
                }
            }
        }
    }
    let code = if failures.is_empty() { 0 } else { SOME_FAILED };
    for (key, items) in [(verb, answers), ("manage", failures)] {
        if !items.is_empty() {
            session.print(&Tree::map([(key, Tree::List(items))]), Style::Narrow);
        }
    }
    code
}

fn answer(contact: &Contact) -> Tree {
    let pid = Pid(contact.pid);
    let nid = |nid: Nid| match pid {
        Pid::LUSTRE => Tree::plain(nid),
        pid => Tree::plain(ProcessId { nid, pid }),
    };
    let nids = contact.nids.iter().map(|n| Tree::map([("nid", nid(*n))])).collect();
    Tree::map([
        ("primary nid", nid(contact.primary)),
        ("Multi-Rail", Tree::Bool(contact.multi_rail)),
        ("peer_ni", Tree::List(nids)),
    ])
}

#[cfg(test)]
mod tests {
    use super::timeout_ms;

    #[test]
    fn d82_timeouts_out_of_bounds_ask_for_the_longest_time() {
        for (given, ms) in [
            (None, None),
            (Some(0), Some(180_000)),
            (Some(-1), Some(180_000)),
            (Some(1), Some(1_000)),
            (Some(179), Some(179_000)),
            (Some(180), Some(180_000)),
            (Some(200), Some(180_000)),
        ] {
            assert_eq!(timeout_ms(given, false), ms, "{given:?}");
        }
        assert_eq!(timeout_ms(Some(1), true), None);
    }
}

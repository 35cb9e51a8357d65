//! `fault rpc lose`, `delay`, `del`, `show`: faults of the request layer.

use core::ops::RangeInclusive;

use lnet_admin::{ClientError, Reply, Request, RpcDelay, RpcFaultDel, RpcLose, RpcPart};
use lnet_config::{Style, parse_number};

use super::target::order;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::table::Command;
use crate::{Session, show};

const LOSE: Place = Place::library("lose", "fault");
const DELAY: Place = Place::library("delay", "fault");
const DEL: Place = Place::library("del", "fault");
const SHOW: Place = Place::library("show", "fault");

pub(crate) fn lose(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let Some(word) = args.value("part") else {
        return session.lacks("please name what gets lost: --part request, reply, bulk or early");
    };
    let Some(part) = RpcPart::ALL.into_iter().find(|part| part.name() == word) else {
        let what = format!("invalid part value '{word}': expected request, reply, bulk or early");
        return session.bad_value(LOSE, &what);
    };
    let count = match number(session, args, LOSE, "count", 1..=i64::from(u32::MAX)) {
        Ok(count) => count.and_then(|n| u32::try_from(n).ok()).unwrap_or(1),
        Err(code) => return code,
    };
    let opcode = args.value("opcode").map(str::to_owned);
    order(session, LOSE, &Request::RpcLose(RpcLose { opcode, part, count }))
}

pub(crate) fn delay(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let Some(service) = args.value("service") else {
        return session.lacks("please name the service: --service NAME");
    };
    let seconds = 0..=i64::from(u16::MAX);
    let mut numbers = [("min", seconds.clone(), 0), ("max", seconds, 0), ("share", 0..=100, 100)];
    for (long, range, value) in &mut numbers {
        match number(session, args, DELAY, long, range.clone()) {
            Ok(Some(number)) => *value = number,
            Ok(None) if *long == "max" => {
                return session.lacks("please give the longest delay: --max SECONDS");
            }
            Ok(None) => {}
            Err(code) => return code,
        }
    }
    let [min, max, share] = numbers.map(|(_, _, value)| u16::try_from(value).unwrap_or(u16::MAX));
    let percent = u8::try_from(share).unwrap_or(u8::MAX);
    let delay = RpcDelay { service: service.to_owned(), min_s: min, max_s: max, percent };
    order(session, DELAY, &Request::RpcDelay(delay))
}

pub(crate) fn del(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let rule = match number(session, args, DEL, "rule", 1..=i64::MAX) {
        Ok(rule) => rule.and_then(|n| u64::try_from(n).ok()),
        Err(code) => return code,
    };
    let which = match (args.has("all"), rule, args.value("service")) {
        (true, None, None) => RpcFaultDel::All,
        (false, Some(rule), None) => RpcFaultDel::Rule(rule),
        (false, None, Some(service)) => RpcFaultDel::Service(service.to_owned()),
        (false, None, None) => {
            return session.lacks("please name the fault: --rule NUMBER, --service NAME or --all");
        }
        _ => {
            return session.bad_value(DEL, "--rule, --service and --all exclude each other");
        }
    };
    order(session, DEL, &Request::RpcFaultDel(which))
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, _: &Args) -> i32 {
    match session.ask(&Request::RpcFaultShow) {
        Ok(Reply::RpcFaults(faults)) => {
            if let Some(tree) = show::rpc::faults(&faults) {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => session.failed(SHOW, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(SHOW, &e, |r| r.text.clone(), None),
    }
}

/// The number behind an option, within bounds; a percent sign may stand behind a share.
fn number(
    session: &mut Session<'_>,
    args: &Args,
    place: Place,
    long: &str,
    range: RangeInclusive<i64>,
) -> Result<Option<i64>, i32> {
    let Some(word) = args.value(long) else { return Ok(None) };
    let digits = if long == "share" { word.strip_suffix('%').unwrap_or(word) } else { word };
    match parse_number(digits).filter(|n| range.contains(n)) {
        None => {
            let (low, high) = range.into_inner();
            let what = format!("invalid {long} value '{word}': expected {low} to {high}");
            session.bad_value(place, &what);
            Err(INVALID)
        }
        number => Ok(number),
    }
}

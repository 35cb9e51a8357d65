//! `route_list`, `show_route`, `add_route`, `del_route`, `set_route` (K-6). The network that a route is
//! added for is the one of `--net`.

use lnet_admin::{Request, RouteSnapshot};
use lnet_config::{RouteAdd, RouteDel, parse_number};
use lnet_types::{Net, Nid};

use super::{INVALID, MISUSE, failed, moment, order};
use crate::Session;
use crate::args::Args;
use crate::command::single_nid;
use crate::table::Command;

pub(super) fn list(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    match session.daemon.routes() {
        Ok(routes) => {
            for route in &routes {
                let line = line(route);
                session.out_line(line);
            }
            0
        }
        Err(e) => failed(session, command.name, &e),
    }
}

fn line(r: &RouteSnapshot) -> String {
    let hops = r.hops.map_or(-1, i64::from);
    let up = if r.up { "up" } else { "down" };
    format!(
        "net {:>18} hops {hops} gw {:>32} {up} pri {}",
        r.net.to_string(),
        r.gateway.to_string(),
        r.priority
    )
}

/// The network of `--net` and the gateway.
fn ends(session: &mut Session<'_>, command: &Command, args: &Args) -> Result<(Net, Nid), i32> {
    let name = command.name;
    let Some(net) = session.net else {
        session.err_line(format_args!("You must run '--net <network>' command before '{name}'"));
        return Err(MISUSE);
    };
    let Some(word) = args.operands.first() else {
        return Err(command.print_help(session, INVALID));
    };
    single_nid(word).map(|gateway| (net, gateway)).ok_or_else(|| {
        session.err_line(format_args!("Can't parse gateway NID \"{word}\""));
        MISUSE
    })
}

/// A number behind the gateway.
fn operand(
    session: &mut Session<'_>,
    args: &Args,
    at: usize,
    what: &str,
    range: core::ops::RangeInclusive<u32>,
) -> Result<Option<u32>, i32> {
    let Some(word) = args.operands.get(at) else { return Ok(None) };
    let number = parse_number(word).and_then(|n| u32::try_from(n).ok());
    match number.filter(|n| range.contains(n)) {
        None => {
            let (low, high) = range.into_inner();
            session.err_line(format_args!("{what} '{word}': expected {low} to {high}"));
            Err(MISUSE)
        }
        number => Ok(number),
    }
}

pub(super) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let route = ends(session, command, args).and_then(|(net, gateway)| {
        let hops = operand(session, args, 1, "hop count", 1..=255)?;
        let priority = operand(session, args, 2, "priority", 0..=i32::MAX as u32)?;
        Ok(RouteAdd { net, gateway, hops, priority: priority.unwrap_or(0) })
    });
    match route {
        Ok(route) => order(session, command.name, &Request::RouteAdd(route)),
        Err(code) => code,
    }
}

pub(super) fn del(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    match ends(session, command, args) {
        Ok((net, gateway)) => {
            let request = Request::RouteDel(RouteDel { net, gateway });
            order(session, command.name, &request)
        }
        Err(code) => code,
    }
}

/// `set_route GATEWAY up|down [TIME]`: a monitor of the fabric reports a gateway up or down. A
/// gateway is one for all its networks, so `--net` is not asked for.
pub(super) fn set(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let (Some(word), Some(state)) = (args.operands.first(), args.operands.get(1)) else {
        return command.print_help(session, INVALID);
    };
    let Some(nid) = single_nid(word) else {
        session.err_line(format_args!("Can't parse gateway NID \"{word}\""));
        return MISUSE;
    };
    let up = match state.as_str() {
        "up" => true,
        "down" => false,
        other => {
            session.err_line(format_args!("set_route: '{other}': expected up or down"));
            return MISUSE;
        }
    };
    let ago_s = match args.operands.get(2) {
        None => 0,
        Some(word) => match moment::parse(word).map(moment::ago) {
            Some(Some(ago)) => ago,
            Some(None) => {
                session
                    .err_line(format_args!("set_route: time '{word}': expected one that is over"));
                return INVALID;
            }
            None => {
                let expected = moment::EXPECTED;
                session.err_line(format_args!("set_route: time '{word}': expected {expected}"));
                return MISUSE;
            }
        },
    };
    order(session, command.name, &Request::PeerNotify { nid, up, ago_s })
}

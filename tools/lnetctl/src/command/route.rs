//! `route add`, `route del`, `route show` (C-route).

use lnet_admin::{AdminError, Request, RouteSnapshot};
use lnet_config::{RouteAdd, RouteDel, Style, Tree};
use lnet_types::{Errno, Net, Nid};

use super::{nid_list, not_a_net, not_nids, number};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const ADD: Place = Place::library("add", "route");
const DEL: Place = Place::library("del", "route");
const SHOW: Place = Place::library("show", "route");

/// The two spellings of one option.
const HOPS: [&str; 2] = ["hop", "hop-count"];

pub(crate) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        return command.print_help(session, INVALID);
    }
    match routes(session, args) {
        Ok(routes) => each(session, ADD, routes.into_iter().map(Request::RouteAdd)),
        Err(code) => code,
    }
}

/// A route for each gateway.
fn routes(session: &mut Session<'_>, args: &Args) -> Result<Vec<RouteAdd>, i32> {
    let (net, gateways) = ends(session, ADD, args)?;
    let hops = match hops(session, ADD, args)? {
        None | Some(-1) => None,
        Some(n) => match u32::try_from(n).ok().filter(|n| (1..=255).contains(n)) {
            None => {
                let reason = format!("hop {n}: must be 1 to 255, or -1");
                return Err(bad(session, "invalid hop count must be between 1 and 255", &reason));
            }
            hops => hops,
        },
    };
    let priority = match number(session, args, "priority", ADD)? {
        None => 0,
        Some(n) => match u32::try_from(n) {
            Ok(n) => n,
            Err(_) => {
                let reason = format!("priority {n}: must be 0 to {}", u32::MAX);
                return Err(bad(session, "invalid priority, must not be negative", &reason));
            }
        },
    };
    Ok(gateways.into_iter().map(|gateway| RouteAdd { net, gateway, hops, priority }).collect())
}

fn bad(session: &mut Session<'_>, text: &str, reason: &str) -> i32 {
    session.error(ADD, INVALID, text, Some(reason));
    INVALID
}

pub(crate) fn del(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    if args.is_empty() {
        return command.print_help(session, INVALID);
    }
    match ends(session, DEL, args) {
        Ok((net, gateways)) => {
            let routes = gateways.into_iter().map(|gateway| RouteDel { net, gateway });
            each(session, DEL, routes.map(Request::RouteDel))
        }
        Err(code) => code,
    }
}

/// One request after the other; the first that is refused ends it (C-route-5).
fn each(session: &mut Session<'_>, place: Place, requests: impl Iterator<Item = Request>) -> i32 {
    for request in requests {
        if let Err(e) = session.order(&request) {
            return session.failed(place, &e, |r| r.text.clone(), Some(INVALID));
        }
    }
    0
}

/// The network and the gateways, both of which must be given (C-route-4).
fn ends(session: &mut Session<'_>, place: Place, args: &Args) -> Result<(Net, Vec<Nid>), i32> {
    let (net, gateways) = match (args.value("net"), args.value("gateway")) {
        (Some(net), Some(gateways)) => (net, gateways),
        (net, gateways) => {
            let missing = match (net, gateways) {
                (None, None) => "net , gateway",
                (None, _) => "net",
                _ => "gateway",
            };
            return Err(session.lacks(format_args!("missing mandatory parameters:'{missing}'")));
        }
    };
    let gateways = gateway_list(session, place, gateways)?;
    let Ok(net) = net.parse() else {
        // What kernels make of a name that is none (C-route-5).
        let text = "setting LNET_NET_ANY not allowed";
        let reason = not_a_net(net);
        session.error(place, Errno::ENXIO.negative(), text, Some(&reason));
        return Err(INVALID);
    };
    Ok((net, gateways))
}

fn gateway_list(session: &mut Session<'_>, place: Place, text: &str) -> Result<Vec<Nid>, i32> {
    nid_list(text).map_err(|e| {
        let reason = format!("gateway: {}", not_nids(text, e));
        session.error(place, e.errno().negative(), &e.to_string(), Some(&reason));
        INVALID
    })
}

fn hops(session: &mut Session<'_>, place: Place, args: &Args) -> Result<Option<i64>, i32> {
    for long in HOPS {
        if let Some(n) = number(session, args, long, place)? {
            return Ok(Some(n));
        }
    }
    Ok(None)
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    match filter(session, args) {
        Ok(filter) => show_routes(session, &filter, args.has("verbose")),
        Err(code) => code,
    }
}

/// Which routes to show: all conditions hold (C-route-3).
#[derive(Default)]
pub(crate) struct Filter {
    pub(crate) net: Option<Net>,
    pub(crate) gateways: Option<Vec<Nid>>,
    pub(crate) hops: Option<i64>,
    pub(crate) priority: Option<i64>,
}

impl Filter {
    fn fits(&self, route: &RouteSnapshot) -> bool {
        let hops = route.hops.map_or(-1, i64::from);
        self.net.is_none_or(|net| net == route.net)
            && self.gateways.as_ref().is_none_or(|nids| nids.contains(&route.gateway))
            && self.hops.is_none_or(|n| n == hops)
            && self.priority.is_none_or(|n| n == i64::from(route.priority))
    }
}

fn filter(session: &mut Session<'_>, args: &Args) -> Result<Filter, i32> {
    let net = match args.value("net").map(|text| (text, text.parse())) {
        None => None,
        Some((_, Ok(net))) => Some(net),
        Some((text, Err(_))) => {
            let reason = not_a_net(text);
            session.error(SHOW, Errno::ENOENT.negative(), "cannot parse net", Some(&reason));
            return Err(INVALID);
        }
    };
    let gateways = match args.value("gateway") {
        None => None,
        Some(text) => Some(gateway_list(session, SHOW, text)?),
    };
    Ok(Filter {
        net,
        gateways,
        hops: hops(session, SHOW, args)?,
        priority: number(session, args, "priority", SHOW)?,
    })
}

/// Prints the routes that fit.
pub(crate) fn show_routes(session: &mut Session<'_>, filter: &Filter, verbose: bool) -> i32 {
    print_pages(session, |mut routes| {
        routes.retain(|route| filter.fits(route));
        show::route::tree(&routes, verbose)
    })
}

/// Prints routes page by page: of many no more than a page is in memory.
pub(crate) fn print_pages(
    session: &mut Session<'_>,
    tree: impl Fn(Vec<RouteSnapshot>) -> Option<Tree>,
) -> i32 {
    let (mut from, mut begun) = (None, false);
    loop {
        let (routes, next) = match session.daemon.route_page(from) {
            Ok(page) => page,
            Err(e) => return session.failed(SHOW, &e, cannot_show, Some(INVALID)),
        };
        if let Some(tree) = tree(routes) {
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

/// What an error is called in a `show` of routes.
fn cannot_show(refusal: &AdminError) -> String {
    refusal.text.clone()
}

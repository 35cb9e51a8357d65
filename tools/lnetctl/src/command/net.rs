//! `net add`, `net del`, `net show`, `net set` (C-netadd, C-netdel, C-netshow, C-netset).

use lnet_admin::{ClientError, NiTarget, Reply, Request};
use lnet_config::{
    LndTunables, NetAdd, NetCpts, NetDel, NetTunables, Style, parse_cpts, parse_interfaces,
    parse_ip2nets, parse_number,
};
use lnet_types::{Errno, Net, Nid};

use super::{HEALTH, not_a_net, not_a_nid, number, number_in, single_nid};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const ADD: Place = Place::library("add", "net");
/// Values that are refused before anything is sent.
const ADD_OPTION: Place = Place::classic("ni", "add");
const DEL: Place = Place::library("del", "net");
const DEL_OPTION: Place = Place::classic("ni", "del");
const SHOW: Place = Place::library("show", "net");
const SET: Place = Place::classic("net", "set");

/// Longest name of a traffic class, bytes.
const TRAFFIC_CLASS_MAX: usize = 63;
const PARSER_ERROR: i32 = Errno::EPERM.negative();
const NO_NET: &str = "missing mandatory parameters in NI config: 'network'";
const NET_AND_NID: &str = "--net is invalid with --nid option";
const NET_IS_FOR: &str =
    "--net is for --lnd-timeout and --accept-from; --nid or --all choose interfaces";
const BAD_CONNS: &str = "invalid conns-per-peer value (valid range 0-127)";

pub(crate) fn add(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    if let Some(rules) = args.value("ip2net") {
        return add_by_rules(session, args, rules);
    }
    let requests = match add_requests(session, args) {
        Ok(requests) => requests,
        Err(code) => return code,
    };
    for request in requests {
        if let Err(e) = session.order(&Request::NetAdd(request)) {
            return session.failed(ADD, &e, |r| r.text.clone(), Some(INVALID));
        }
    }
    0
}

/// `--ip2net`: nets by the addresses of the daemon's machine (N-13).
fn add_by_rules(session: &mut Session<'_>, args: &Args, rules: &str) -> i32 {
    if ["net", "nid", "if"].iter().any(|long| args.has(long)) {
        // The original sends the net's name and does nothing (C-netadd-1).
        if session.strict {
            return 0;
        }
        return session.bad_value(ADD_OPTION, "--ip2net is invalid with --net, --nid and --if");
    }
    let rules = match parse_ip2nets(rules) {
        Ok(rules) => rules,
        Err(e) => return session.bad_value(ADD_OPTION, &e.to_string()),
    };
    match session.order(&Request::NetRules { rules, add: true }) {
        Ok(()) => 0,
        Err(e) => session.failed(ADD, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

/// Usually one request; `--nid` besides `--if` asks for both (C-netadd-3).
fn add_requests(session: &mut Session<'_>, args: &Args) -> Result<Vec<NetAdd>, i32> {
    let lnd = LndTunables {
        conns_per_peer: conns_per_peer(session, args, ADD_OPTION)?,
        tos: tos(session, args)?,
        ..LndTunables::default()
    };
    let tunables = NetTunables {
        peer_timeout_s: count(session, args, "peer-timeout", 0)?,
        peer_credits: count(session, args, "peer-credits", 1)?,
        peer_buffer_credits: count(session, args, "peer-buffer-credits", 1)?,
        credits: count(session, args, "credits", 1)?,
    };
    of_kfi(session, args)?;
    let interfaces = match args.value("if").map(parse_interfaces) {
        None => Vec::new(),
        Some(Ok(interfaces)) => interfaces,
        Some(Err(e)) => return Err(bad_list(session, ADD_OPTION, "bad interface list", &e)),
    };
    let cpts = match args.value("cpt").map(parse_cpts) {
        None => None,
        Some(Ok(cpts)) => cpts,
        Some(Err(_)) if session.strict => None,
        Some(Err(e)) => return Err(session.bad_value(ADD_OPTION, &e.to_string())),
    };
    let nid = nid(session, args, ADD_OPTION)?;
    let net = net_of(session, args, nid, |session, _| {
        let reason = args.value("net").map(not_a_net);
        session.error(ADD, Errno::ENOENT.negative(), "cannot parse net", reason.as_deref());
        INVALID
    })?;
    if interfaces.is_empty() && nid.is_none() {
        return Err(session.lacks("creating a local NI needs at least one interface"));
    }
    let of = |interfaces, nid| NetAdd { net, interfaces, nid, cpts: cpts.clone(), tunables, lnd };
    Ok(match (interfaces.is_empty(), nid) {
        (false, Some(nid)) => vec![of(interfaces, None), of(Vec::new(), Some(nid))],
        _ => vec![of(interfaces, nid)],
    })
}

/// Options of kfi networks (C-netadd-1). Drivers that know nothing of them do nothing with them, as
/// the original does in silence.
fn of_kfi(session: &mut Session<'_>, args: &Args) -> Result<(), i32> {
    let class = args.value("traffic-class");
    if class.is_some_and(|name| name.len() > TRAFFIC_CLASS_MAX) {
        session.error(ADD_OPTION, INVALID, "Invalid traffic-class argument", None);
        return Err(INVALID);
    }
    let key = number_in(session, args, "auth-key", ADD_OPTION, 1..=i64::from(u32::MAX))?;
    let given = [("auth-key", key.is_some()), ("traffic-class", class.is_some())];
    match given.into_iter().find(|(_, given)| *given) {
        Some((option, _)) if !session.strict => {
            let what = format!("--{option} is for kfi networks, and there is no driver for them");
            Err(session.bad_value(ADD_OPTION, &what))
        }
        _ => Ok(()),
    }
}

pub(crate) fn del(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let request = match del_request(session, args) {
        Ok(request) => request,
        Err(code) => return code,
    };
    match session.order(&Request::NetDel(request)) {
        Ok(()) => 0,
        Err(e) => session.failed(DEL, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

fn del_request(session: &mut Session<'_>, args: &Args) -> Result<NetDel, i32> {
    let interfaces = match args.value("if").map(parse_interfaces) {
        None => Vec::new(),
        Some(Ok(interfaces)) => interfaces.into_iter().map(|interface| interface.name).collect(),
        Some(Err(e)) => return Err(bad_list(session, DEL_OPTION, "bad interface list", &e)),
    };
    let nid = nid(session, args, DEL_OPTION)?;
    let net = net_of(session, args, nid, |session, interfaces_given| {
        let (number, text) = match interfaces_given {
            true => (Errno::ENODEV.negative(), "LNet net doesn't exist"),
            false => (INVALID, "cannot del network"),
        };
        session.error(DEL, number, text, args.value("net").map(not_a_net).as_deref());
        INVALID
    })?;
    Ok(NetDel { net, interfaces, nid })
}

pub(crate) fn show(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let net = match args.value("net").map(|text| (text, text.parse::<Net>())) {
        None => None,
        Some((_, Ok(net))) => Some(net),
        Some((text, Err(_))) => {
            let reason = not_a_net(text);
            session.error(SHOW, Errno::ENOENT.negative(), "cannot parse net", Some(&reason));
            return INVALID;
        }
    };
    show_net(session, net, args.level("verbose"))
}

/// Prints one net or all of them.
pub(crate) fn show_net(session: &mut Session<'_>, net: Option<Net>, level: i64) -> i32 {
    let answer = session.ask(&Request::NetShow { net, detail: level >= 1 });
    match answer {
        Ok(Reply::Nets(nets)) => {
            session.print(&show::net::tree(&nets, level), Style::Library);
            0
        }
        Ok(_) => session.failed(SHOW, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(SHOW, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

pub(crate) fn set(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let requests = match set_requests(session, args) {
        Ok(requests) => requests,
        Err(code) => return code,
    };
    for request in requests {
        let Err(e) = session.order(&request) else { continue };
        // The original prints nothing for a NID that is not the node's (C-netset-1).
        let is_absent = matches!(&e, ClientError::Refused(r) if r.errno == Errno::ENOENT);
        if session.strict && is_absent && matches!(request, Request::NetSet { .. }) {
            continue;
        }
        return session.failed(SET, &e, |r| format!("\"{}\"", r.text), Some(INVALID));
    }
    0
}

fn set_requests(session: &mut Session<'_>, args: &Args) -> Result<Vec<Request>, i32> {
    if !session.strict && is_net_ignored(args) {
        return Err(session.bad_value(SET, NET_IS_FOR));
    }
    // -1 leaves it as it is, which scripts set where they have no opinion.
    let conns_per_peer = match args.value("conns-per-peer").and_then(parse_number) {
        Some(-1) => None,
        _ => conns_per_peer(session, args, SET)?,
    };
    let health = match number_in(session, args, "health", SET, HEALTH)? {
        // Ignored by the original, so in strict compatibility too.
        Some(0) if session.strict && negative(args.value("health")) => None,
        health => health.and_then(|h| u16::try_from(h).ok()),
    };
    let target = match args.value("nid") {
        Some(_) if args.has("all") => {
            return Err(session.bad_value(SET, "--nid is invalid with --all option"));
        }
        Some(text) => NiTarget::Nid(single_nid(text).ok_or_else(|| {
            let reason = not_a_nid(text);
            session.error(SET, INVALID, "", Some(&reason));
            INVALID
        })?),
        None => NiTarget::All,
    };
    let mut requests = Vec::new();
    if let Some(word) = args.value("lnd-timeout") {
        requests.push(lnd_timeout(session, args, word)?);
    }
    if let Some(list) = args.value("accept-from") {
        requests.push(accept_from(session, args, list)?);
    }
    if let Some(list) = args.value("cpt") {
        requests.push(cpts(session, target, list)?);
    }
    // A NID alone is looked up too: what has no such interface is no success.
    let asks = requests.is_empty() && matches!(target, NiTarget::Nid(_)) && !session.strict;
    if health.is_some() || conns_per_peer.is_some() || asks {
        requests.push(Request::NetSet { target, health, conns_per_peer });
    }
    Ok(requests)
}

/// Whether `--net` stands where it would say nothing: a value meant for one network would be that of
/// every interface.
fn is_net_ignored(args: &Args) -> bool {
    let any = |longs: &[&str]| longs.iter().any(|long| args.has(long));
    let uses_net = any(&["lnd-timeout", "accept-from"]);
    let is_for_all = any(&["health", "conns-per-peer"]) && !any(&["nid", "all"]);
    args.has("net") && (!uses_net || is_for_all)
}

fn cpts(session: &mut Session<'_>, target: NiTarget, list: &str) -> Result<Request, i32> {
    let NiTarget::Nid(nid) = target else {
        return Err(session.bad_value(SET, "Specified --cpt without --nid option"));
    };
    match parse_cpts(list) {
        Ok(cpts) => {
            let (net, nid) = (nid.net(), Some(nid));
            Ok(Request::NetCptsSet(NetCpts { net, interfaces: Vec::new(), nid, cpts }))
        }
        Err(e) => Err(session.bad_value(SET, &e.to_string())),
    }
}

fn negative(word: Option<&str>) -> bool {
    word.and_then(parse_number).is_some_and(|n| n < 0)
}

fn accept_from(session: &mut Session<'_>, args: &Args, list: &str) -> Result<Request, i32> {
    let Some(net) = args.value("net") else {
        return Err(session.bad_value(SET, "Specified --accept-from without --net option"));
    };
    let Ok(net) = net.parse() else {
        let (what, reason) = (format!("Invalid network type: {net}"), not_a_net(net));
        return Err(session.bad_value_because(SET, &what, &reason));
    };
    let list = (list != "default").then(|| list.to_owned());
    Ok(Request::AcceptFromSet { net, list })
}

fn lnd_timeout(session: &mut Session<'_>, args: &Args, word: &str) -> Result<Request, i32> {
    let Some(net) = args.value("net") else {
        return Err(session.bad_value(SET, "Specified --lnd-timeout without --net option"));
    };
    let Ok(net) = net.parse() else {
        let (what, reason) = (format!("Invalid network type: {net}"), not_a_net(net));
        return Err(session.bad_value_because(SET, &what, &reason));
    };
    match parse_number(word).and_then(|n| u32::try_from(n).ok()) {
        Some(seconds) => Ok(Request::LndTimeoutSet { net, seconds }),
        None => {
            let what = format!("Invalid LND timeout value '{word}', must be >= 0");
            Err(session.bad_value(SET, &what))
        }
    }
}

/// The net that `--net` or the NID names. `bad` reports an invalid name; its argument is whether
/// interfaces were given.
fn net_of(
    session: &mut Session<'_>,
    args: &Args,
    nid: Option<Nid>,
    bad: impl FnOnce(&mut Session<'_>, bool) -> i32,
) -> Result<Net, i32> {
    let complaint = match (args.value("net"), nid) {
        (Some(_), Some(_)) => NET_AND_NID,
        (None, Some(nid)) => return Ok(nid.net()),
        (None, None) => NO_NET,
        (Some(name), None) => {
            return name.parse().map_err(|_| bad(session, args.has("if")));
        }
    };
    if complaint == NO_NET {
        return Err(session.lacks(complaint));
    }
    session.out_line(complaint);
    Err(INVALID)
}

fn nid(session: &mut Session<'_>, args: &Args, place: Place) -> Result<Option<Nid>, i32> {
    let Some(text) = args.value("nid") else { return Ok(None) };
    single_nid(text).map(Some).ok_or_else(|| {
        let reason = not_a_nid(text);
        session.error(place, INVALID, "bad NID list", Some(&reason));
        INVALID
    })
}

fn bad_list(
    session: &mut Session<'_>,
    place: Place,
    text: &str,
    reason: &dyn std::error::Error,
) -> i32 {
    session.error(place, INVALID, text, Some(&reason.to_string()));
    INVALID
}

/// Numbers out of range are an error here even in the original (C-netadd-3).
fn conns_per_peer(session: &mut Session<'_>, args: &Args, place: Place) -> Result<Option<u8>, i32> {
    let Some(word) = args.value("conns-per-peer") else { return Ok(None) };
    match parse_number(word).and_then(|n| u8::try_from(n).ok()).filter(|n| *n <= 127) {
        None => {
            let reason = format!("conns-per-peer {word}: must be 0 to 127");
            session.error(place, PARSER_ERROR, BAD_CONNS, Some(&reason));
            Err(PARSER_ERROR)
        }
        conns => Ok(conns),
    }
}

fn tos(session: &mut Session<'_>, args: &Args) -> Result<Option<i16>, i32> {
    let Some(word) = args.value("tos") else { return Ok(None) };
    match parse_number(word).and_then(|n| i16::try_from(n).ok()).filter(|n| (-1..=255).contains(n))
    {
        None => {
            let reason = format!("tos {word}: must be -1 to 255");
            session.error(ADD_OPTION, INVALID, "Invalid ToS argument", Some(&reason));
            Err(INVALID)
        }
        tos => Ok(tos),
    }
}

/// A count or time of which anything below `least` asks for the default (C-netadd-1).
fn count(
    session: &mut Session<'_>,
    args: &Args,
    long: &str,
    least: i64,
) -> Result<Option<u32>, i32> {
    match number(session, args, long, ADD_OPTION)? {
        Some(n) if n < -1 && !session.strict => {
            let what = format!("invalid {long} value '{n}': must be at least -1");
            Err(session.bad_value(ADD_OPTION, &what))
        }
        Some(n) if n < least => Ok(None),
        Some(n) if n > i64::from(i32::MAX) => {
            let what = format!("invalid {long} value '{n}': expected at most {}", i32::MAX);
            Err(session.bad_value(ADD_OPTION, &what))
        }
        n => Ok(n.and_then(|n| u32::try_from(n).ok())),
    }
}

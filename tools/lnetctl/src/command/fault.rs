//! `fault drop` and `fault delay`: `add`, `del`, `show`, `reset` (C-fault).

use core::num::NonZeroU32;

use lnet_admin::{ClientError, FaultAction, FaultDel, FaultKind, FaultRule, Reply, Request};
use lnet_config::{Style, parse_number};
use lnet_types::{HealthStatus, Nid};

use super::{not_a_nid, single_nid};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const ADD: Place = Place::library("add", "fault");
const DEL: Place = Place::library("del", "fault");
const SHOW: Place = Place::library("show", "fault");
const RESET: Place = Place::library("reset", "fault");

const LINK: Place = Place::library("link", "fault");

/// Return code of options that do not fit together (C-fault-2).
const MISUSE: i32 = -1;
/// Kinds of messages and their bits (S-fault-1).
const KINDS: [(&str, u32); 4] = [("ACK", 1), ("PUT", 2), ("GET", 4), ("REPLY", 8)];
const PORTALS: u32 = 64;
/// Every health error (C-fault-1).
const RANDOM_ERROR: (&str, u32) = ("random", u32::MAX);

/// Which list a command is about: `fault drop …` or `fault delay …`, and `lctl`'s names for them.
pub(crate) fn kind_of(command: &Command) -> FaultKind {
    match command.path.contains("delay") {
        true => FaultKind::Delay,
        false => FaultKind::Drop,
    }
}

const fn noun(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Drop => "drop",
        FaultKind::Delay => "delay",
    }
}

pub(crate) fn add(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let kind = kind_of(command);
    let rule = match rule(args, kind, session.strict) {
        Ok(rule) => rule,
        Err(bad) => return bad.print(session),
    };
    order(session, ADD, &Request::FaultAdd(rule), &format!("add {} rule", noun(kind)))
}

/// Why there is no rule: what is printed, and the return code.
struct Bad {
    text: String,
    code: i32,
    /// Why, for people.
    reason: Option<String>,
    /// An argument is missing.
    lacking: bool,
}

impl Bad {
    fn misuse(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: MISUSE, reason: None, lacking: false }
    }

    fn lacking(text: impl Into<String>) -> Self {
        Self { lacking: true, ..Self::misuse(text) }
    }

    fn because(self, reason: String) -> Self {
        Self { reason: Some(reason), ..self }
    }

    fn print(self, session: &mut Session<'_>) -> i32 {
        session.err_line(self.text);
        if let Some(reason) = self.reason {
            session.reason(&reason);
        }
        session.lacking = self.lacking;
        self.code
    }
}

fn rule(args: &Args, kind: FaultKind, strict: bool) -> Result<FaultRule, Bad> {
    let noun = noun(kind);
    let foreign = match kind {
        FaultKind::Drop => &["latency"][..],
        FaultKind::Delay => &["health_error", "random", "drop_all"],
    };
    // The original takes and forgets them (C-fault-1).
    if let (Some(long), false) = (foreign.iter().find(|long| args.has(long)), strict) {
        return Err(Bad::misuse(format!("--{long} means nothing for {noun} rules")));
    }
    let (src, dst) = (nid(args, "source")?, nid(args, "dest")?);
    let local = match args.value("local_nid") {
        Some(text) => Some(single_nid(text).ok_or_else(|| bad_nid(text))?),
        None => None,
    };
    let (mut kinds, mut portals, mut errors) = (0, 0u64, 0);
    for word in args.values("message") {
        let known = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let (_, bit) = known.ok_or_else(|| {
            Bad::misuse(format!("unknown message type {word}"))
                .because("expected PUT, ACK, GET or REPLY".to_owned())
        })?;
        kinds |= bit;
    }
    for word in args.values("portal") {
        let portal = parse_number(word).and_then(|n| u32::try_from(n).ok());
        let portal = portal.filter(|p| *p < PORTALS);
        portals |= 1
            << portal.ok_or_else(|| {
                Bad::misuse(format!("invalid portal: {word}"))
                    .because(format!("expected 0 to {}", PORTALS - 1))
            })?;
    }
    for word in args.values("health_error").filter(|_| kind == FaultKind::Drop) {
        errors |= health_error(word).ok_or_else(|| {
            Bad::misuse(format!("unknown health error {word}")).because(errors_known())
        })?;
    }
    let (rate, interval_s) = (count(args, "rate")?, count(args, "interval")?);
    let random = args.has("random") && kind == FaultKind::Drop;
    if random && interval_s == 0 {
        return Err(Bad::lacking("please provide an interval to randomize"));
    }
    if (rate == 0) == (interval_s == 0) {
        let bad = if rate == 0 { Bad::lacking } else { Bad::misuse };
        return Err(bad(format!(
            "please provide either {noun} rate or interval but not both at the same time."
        )));
    }
    let action = match kind {
        FaultKind::Drop => FaultAction::Drop { random, all: args.has("drop_all"), errors },
        FaultKind::Delay => match count(args, "latency")? {
            0 => return Err(Bad::misuse("latency cannot be zero")),
            latency_s => FaultAction::Delay { latency_s },
        },
    };
    let (Some(src), Some(dst)) = (src, dst) else {
        return Err(Bad::lacking(format!(
            "Please provide both source and destination of {noun} rule"
        )));
    };
    let times = NonZeroU32::new(count(args, "times")?);
    if args.has("times") && times.is_none() {
        return Err(Bad::misuse("invalid times value '0': expected 1 or more"));
    }
    Ok(FaultRule { src, dst, local, portals, kinds, rate, interval_s, times, action })
}

/// The names of health errors, as a mistyped one is answered.
fn errors_known() -> String {
    let names = HealthStatus::ALL.iter().skip(1).map(|status| status.name());
    let names: Vec<&str> = names.chain([RANDOM_ERROR.0]).collect();
    format!("expected one of {}", names.join(", "))
}

/// The bit of a health status by its name; the names of S-fault are those of the statuses.
fn health_error(word: &str) -> Option<u32> {
    if word == RANDOM_ERROR.0 {
        return Some(RANDOM_ERROR.1);
    }
    let at = HealthStatus::ALL.iter().position(|status| status.name() == word)?;
    (at > 0).then(|| 1 << at)
}

/// A NID, `*`, or `*@net`, as kernels store them (C-fault-5).
fn nid(args: &Args, long: &str) -> Result<Option<Nid>, Bad> {
    let Some(text) = args.value(long) else { return Ok(None) };
    let nid = match text.split_once('@') {
        None if text == "*" => Some(Nid::ANY),
        Some(("*", net)) => net.parse().ok().map(|net| Nid::new(net, u32::MAX)),
        _ => single_nid(text),
    };
    nid.map(Some).ok_or_else(|| bad_nid(text))
}

fn bad_nid(text: &str) -> Bad {
    let reason = Some(not_a_nid(text));
    Bad { code: INVALID, reason, ..Bad::misuse(format!("Invalid NID: {text}")) }
}

/// The number behind an option; 0 without it.
fn count(args: &Args, long: &str) -> Result<u32, Bad> {
    let Some(word) = args.value(long) else { return Ok(0) };
    parse_number(word).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| {
        Bad::misuse(format!("invalid {long} value '{word}': expected 0 to {}", u32::MAX))
    })
}

pub(crate) fn del(session: &mut Session<'_>, command: &Command, args: &Args) -> i32 {
    let kind = kind_of(command);
    let nids = nid(args, "source").and_then(|src| Ok((src, nid(args, "dest")?)));
    let (src, dst) = match (args.has("all"), nids) {
        (_, Err(bad)) => return bad.print(session),
        (true, Ok((None, None))) => (Nid::ANY, Nid::ANY),
        (true, Ok(_)) => {
            session.err_line("'-s' or '-d' cannot be combined with '-a'");
            return MISUSE;
        }
        (false, Ok((Some(src), Some(dst)))) => (src, dst),
        (false, Ok(_)) => {
            return Bad::lacking("Failed, please provide source and destination of rule")
                .print(session);
        }
    };
    let request = Request::FaultDel(FaultDel { kind, src, dst });
    order(session, DEL, &request, &format!("delete {} rule", noun(kind)))
}

pub(crate) fn show(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    let kind = kind_of(command);
    let what = match kind {
        FaultKind::Drop => "list drop rule",
        FaultKind::Delay => "list delay rules",
    };
    match session.ask(&Request::FaultShow(kind)) {
        Ok(Reply::Faults(rules)) => {
            if let Some(tree) = show::fault::tree(&rules) {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => failed(session, SHOW, &ClientError::Unexpected, what),
        Err(e) => failed(session, SHOW, &e, what),
    }
}

pub(crate) fn reset(session: &mut Session<'_>, command: &Command, _: &Args) -> i32 {
    let kind = kind_of(command);
    let what = match kind {
        FaultKind::Drop => "drop_reset rule",
        FaultKind::Delay => "delay reset_rule",
    };
    order(session, RESET, &Request::FaultReset(kind), what)
}

/// `fault link`: ours (HL-dbg-020, HL-dbg-025).
pub(crate) fn link(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let up = match (args.has("down"), args.has("up")) {
        (true, false) => false,
        (false, true) => true,
        _ => {
            return Bad::lacking("please say whether the interface goes --down or --up")
                .print(session);
        }
    };
    let nid = match nid(args, "nid") {
        Ok(Some(nid)) if !nid.is_any() => nid,
        Ok(_) => {
            return Bad::lacking("please name the interface: --nid NID").print(session);
        }
        Err(bad) => return bad.print(session),
    };
    order(session, LINK, &Request::LinkSimulate { nid, up }, "change the link")
}

fn order(session: &mut Session<'_>, place: Place, request: &Request, what: &str) -> i32 {
    match session.order(request) {
        Ok(()) => 0,
        Err(e) => failed(session, place, &e, what),
    }
}

/// A refusal is printed on standard output, as the original does (C-fault-3).
fn failed(session: &mut Session<'_>, place: Place, error: &ClientError, what: &str) -> i32 {
    let ClientError::Refused(refusal) = error else {
        return session.failed(place, error, |r| r.text.clone(), None);
    };
    session.out_line(format_args!("failed to {what}: {}", refusal.errno));
    if let (true, Some(why)) = (session.explain, &refusal.detail) {
        session.err_line(format_args!("# {why}"));
    }
    refusal.errno.negative()
}

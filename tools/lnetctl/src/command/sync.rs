//! `import --sync`: makes a running node equal to a file by the smallest change. The change is printed
//! first. All steps are tried on a copy of the node before, whether or not they are made: a file that the
//! node would refuse changes nothing. A step that only the system refuses takes back those before it; a node
//! that is equal to the file is left alone. What the file does not name (tunables, values left to the default) stays as it is, and so does
//! a peer that the node has found by itself, if it is what the file says.

use std::collections::BTreeMap;

use lnet_admin::{ClientError, GlobalSnapshot, Reply, Request, batches};
use lnet_config::yaml::Pos;
use lnet_config::{
    BUFFER_KEYS, Block, Config, NetBlock, PeerBlock, Setting, Step, Style, Tree, diff,
};
use lnet_types::{Errno, Net, Nid};

use super::configuration::{self, What};
use super::{global, routing, trial};
use crate::Session;
use crate::report::{INVALID, Place};
use crate::show;

/// What an empty file would mean is never what its author meant.
const EMPTY: &str = "an empty file: expected the configuration that is to be";
const EMPTY_HINT: &str = "'lnetctl lnet unconfigure' removes everything";

pub(super) fn sync(session: &mut Session<'_>, place: Place, wanted: &Config, dry_run: bool) -> i32 {
    if wanted.blocks.is_empty() {
        session.error_at(place, INVALID, EMPTY, Pos { line: 1, column: 1 }, Some(EMPTY_HINT));
        return INVALID;
    }
    for (pos, block) in &wanted.blocks {
        let what = match block {
            Block::Ping(_) => "ping",
            Block::Discover(_) => "discover",
            // Chosen by the addresses of the machine: no part of what a node exports.
            Block::NetRules(_) => "ip2nets",
            _ => continue,
        };
        let text = format!("{what}: must not stand in a file for --sync");
        session.error_at(place, INVALID, &text, *pos, None);
        return INVALID;
    }
    let tunables = match global::fetch(session) {
        Ok(tunables) => tunables,
        Err(code) => return code,
    };
    if let Some((pos, name)) = wanted.profile.as_ref().filter(|(_, n)| *n != tunables.profile) {
        let text = format!("profile {name}: must be {}, that of the daemon", tunables.profile);
        session.error_at(place, INVALID, &text, *pos, None);
        return INVALID;
    }
    let has = match live(session, &tunables) {
        Ok(has) => has,
        Err(code) => return code,
    };
    let found = match found(session, &has, wanted) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut known = has.clone();
    known.blocks.extend(found);
    let steps = diff(&known, wanted);
    let configure = (!tunables.configured).then(|| "lnet configure".to_owned());
    let code = trial::run(session, place, &steps);
    if code != 0 {
        session.err_line("# nothing has changed");
        return code;
    }
    let change: Vec<String> = configure.into_iter().chain(steps.iter().map(described)).collect();
    print(session, &change);
    if dry_run || change.is_empty() {
        return 0;
    }
    if !tunables.configured {
        let configure = Request::LnetConfigure { all: false, large: false };
        if let Err(e) = session.order(&configure) {
            return session.failed(place, &e, |r| r.text.clone(), Some(INVALID));
        }
    }
    let code = configuration::apply(session, place, placed(steps));
    if code != 0 {
        take_back(session, &has, tunables.configured);
    }
    code
}

/// Prints the change, a step on each line.
fn print(session: &mut Session<'_>, change: &[String]) {
    if session.json {
        let steps = change.iter().map(Tree::plain).collect();
        return session.print(&Tree::map([("change", Tree::List(steps))]), Style::Library);
    }
    if change.is_empty() {
        session.out_line("no change");
    }
    change.iter().for_each(|step| session.out_line(step));
}

/// Takes the node back to what it was.
fn take_back(session: &mut Session<'_>, had: &Config, configured: bool) {
    if !configured {
        // The tunables outlive it.
        let _ = session.order(&Request::LnetUnconfigure);
    }
    let now = global::fetch(session).and_then(|tunables| live(session, &tunables));
    let back = now.map(|now| diff(&now, had)).unwrap_or_default();
    let refused = batches(placed(back))
        .into_iter()
        .flatten()
        .filter(|(_, step)| session.order(&Request::from(step.clone())).is_err());
    match refused.count() {
        0 => session.err_line("# nothing has changed: the steps before it were taken back"),
        n => session.err_line(format_args!("# {n} steps before it could not be taken back")),
    }
}

fn placed(steps: Vec<Step>) -> Vec<(Pos, Step)> {
    steps.into_iter().map(|step| (Pos::default(), step)).collect()
}

/// The configuration of the node: what `export --configured-only` prints, and all tunables.
fn live(session: &mut Session<'_>, tunables: &GlobalSnapshot) -> Result<Config, i32> {
    let mut config = match tunables.configured {
        true => exported(session, What::Configured)?,
        false => Config::default(),
    };
    if tunables.configured {
        // An export has no NID beside an interface that stands for it; the file may name another.
        let nets = nets(session)?;
        config.blocks.retain(|(_, block)| !matches!(block, Block::Net(_)));
        config.blocks.extend(nets.into_iter().map(|net| (Pos::default(), Block::Net(net))));
    }
    let is_buffer = |name: &str| BUFFER_KEYS.iter().any(|(_, buffer)| *buffer == name);
    let settings = tunables.tunables.iter().filter(|s| !is_buffer(&s.name)).cloned().collect();
    config.blocks.push((Pos::default(), Block::Settings(settings)));
    if tunables.configured {
        // 0 stands for a default there, which has a number here.
        let wanted = routing::fetch(session)?.wanted;
        let buffers = BUFFER_KEYS.iter().zip(wanted);
        let buffers = buffers.map(|((_, name), n)| Setting::new(*name, i64::from(n)));
        config.blocks.push((Pos::default(), Block::Buffers(buffers.collect())));
    }
    Ok(config)
}

/// The nets with the NIDs of all NIs.
fn nets(session: &mut Session<'_>) -> Result<Vec<NetBlock>, i32> {
    let place = Place::library("show", "net");
    match session.ask(&Request::NetShow { net: None, detail: true }) {
        Ok(Reply::Nets(nets)) => {
            let nets = nets.iter().filter(|net| net.net != Net::LO);
            Ok(nets.map(|net| show::net::abridged(net.block_with_nids())).collect())
        }
        Ok(_) => Err(session.failed(place, &ClientError::Unexpected, |r| r.text.clone(), None)),
        Err(e) => Err(session.failed(place, &e, |r| r.text.clone(), Some(INVALID))),
    }
}

/// The peers that the file wants and that are not configured, although the node has them as they should be.
fn found(
    session: &mut Session<'_>,
    has: &Config,
    wanted: &Config,
) -> Result<Vec<(Pos, Block)>, i32> {
    let configured = peers(has);
    let mut missing = peers(wanted);
    missing.retain(|primary, _| !configured.contains_key(primary));
    // A node that is not configured has no net either.
    if missing.is_empty() || !has.blocks.iter().any(|(_, b)| matches!(b, Block::Net(_))) {
        return Ok(Vec::new());
    }
    let all = exported(session, What::Backup)?;
    let is_wanted = |block: &Block| match block {
        Block::Peer(peer) => missing.get(&peer.primary).is_some_and(|m| m.is_equal_to(peer)),
        _ => false,
    };
    Ok(all.blocks.into_iter().filter(|(_, block)| is_wanted(block)).collect())
}

fn peers(config: &Config) -> BTreeMap<Nid, &PeerBlock> {
    let peers = config.blocks.iter().filter_map(|(_, block)| match block {
        Block::Peer(peer) => Some((peer.primary, peer)),
        _ => None,
    });
    peers.collect()
}

/// What the export prints, read.
fn exported(session: &mut Session<'_>, what: What) -> Result<Config, i32> {
    // It goes nowhere but here.
    let (live, json) = (session.live.take(), core::mem::take(&mut session.json));
    let before = core::mem::take(&mut session.out);
    let code = configuration::sections(session, what);
    let text = core::mem::replace(&mut session.out, before);
    (session.live, session.json) = (live, json);
    if code != 0 {
        return Err(code);
    }
    Config::from_yaml(&text).map_err(|e| {
        let errno = Errno::EPROTO.negative();
        session.err_line(format_args!("lnetctl: the export of the daemon cannot be read: {e}"));
        errno
    })
}

/// A step, with what distinguishes it from others.
fn described(step: &Step) -> String {
    match step {
        Step::NetAdd(add) => {
            let nid = add.nid.map(|nid| format!(" --nid {nid}"));
            let names: Vec<String> = add.interfaces.iter().map(ToString::to_string).collect();
            let names = (!names.is_empty()).then(|| format!(" --if {}", names.join(",")));
            format!("{step}{}{}", names.unwrap_or_default(), nid.unwrap_or_default())
        }
        Step::NetDel(del) => {
            let nid = del.nid.map(|nid| format!(" --nid {nid}")).unwrap_or_default();
            let names =
                (!del.interfaces.is_empty()).then(|| format!(" --if {}", del.interfaces.join(",")));
            format!("{step}{}{nid}", names.unwrap_or_default())
        }
        Step::PeerAdd(add) if !add.nids.is_empty() => {
            let nids: Vec<String> = add.nids.iter().map(ToString::to_string).collect();
            format!("{step} --nid {}", nids.join(","))
        }
        Step::UdspAdd(add) => {
            let rule = &add.rule;
            let mut text = step.to_string();
            for (key, value) in [("src", &rule.src), ("dst", &rule.dst), ("rte", &rule.rte)] {
                if let Some(value) = value {
                    text += &format!(" --{key} {value}");
                }
            }
            text
        }
        other => other.to_string(),
    }
}

//! `export` and `import` (I-1 to I-18).

use std::fs::File;
use std::io::{self, Read};

use lnet_admin::{
    AdminError, ClientError, Discover, GlobalSnapshot, PeerSnapshot, Ping, Reply, Request,
    RoutingState, batches, peers_of,
};
use lnet_config::yaml::{Pos, YAML_BYTES_MAX};
use lnet_config::{BUFFER_KEYS, Block, Config, ConfigError, Step, Style};
use lnet_types::Errno;

use super::draft::Draft;
use super::{global, net, peer, ping, route, routing, sync, udsp};
use crate::Session;
use crate::args::Args;
use crate::report::{INVALID, Place};
use crate::show;
use crate::table::Command;

const BUILDER: Place = Place::classic("yaml", "builder");
/// Level of verbosity of nets in an export.
const NET_LEVEL: i64 = 2;
/// Level of verbosity of peers in an export.
const PEER_LEVEL: i64 = 3;

pub(crate) fn export(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let Some(path) = args.operands.first() else {
        return sections(session, What::of(args));
    };
    // It leaves for the file as it comes, and stays out of standard output. What could not be written
    // in between fails at the end too: the writer stays broken.
    let (draft, file) = match Draft::begin(path) {
        Ok((draft, file)) => (draft, Whole { file, broken: None }),
        Err(e) => return cannot_open(session, path, &e),
    };
    let stdout = session.live.replace(Box::new(file));
    let code = sections(session, What::of(args));
    session.close_json();
    session.json = false;
    let written = session.spill();
    session.live = stdout;
    session.unwritten = None;
    match written {
        Ok(()) if code == 0 => match draft.keep() {
            Ok(()) => 0,
            Err(e) => cannot_open(session, path, &e),
        },
        outcome => {
            let is_as_before = draft.discard();
            if is_as_before && session.explain {
                session.err_line(format_args!("# {path}: left as it was"));
            }
            outcome.map_or_else(|e| cannot_open(session, path, &e), |()| code)
        }
    }
}

/// A file that has all that was written to it, or says at the end why not.
struct Whole {
    file: File,
    broken: Option<i32>,
}

impl io::Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(errno) = self.broken {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let written = self.file.write(bytes);
        self.broken = written.as_ref().err().map(|e| e.raw_os_error().unwrap_or(Errno::EIO.0));
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints every section. One that fails is reported and the others follow (Y-7), but a daemon that
/// is not there is reported once.
pub(super) fn sections(session: &mut Session<'_>, what: What) -> i32 {
    let global = match global::fetch(session) {
        Ok(global) => global,
        Err(code) => return code,
    };
    let mut code = 0;
    if global.configured {
        for section in [nets, routes] {
            code = worse(code, section(session, what.is_backup()));
        }
        code = worse(code, router(session, what.is_backup(), &global));
        code = worse(code, peers(session, what));
    } else {
        let place = Place::library("show", "net");
        session.error(place, Errno::ENETDOWN.negative(), &Errno::ENETDOWN.to_string(), None);
        code = global::not_configured(session);
    }
    session.print(&show::global::tree(&global), Style::Classic);
    if let Some(tree) = show::global::own(&global, true) {
        session.print(&tree, Style::Classic);
    }
    if global.configured {
        code = worse(code, udsp::show_rules(session, None));
    }
    code
}

const fn worse(code: i32, other: i32) -> i32 {
    if code != 0 { code } else { other }
}

fn nets(session: &mut Session<'_>, backup: bool) -> i32 {
    let place = Place::library("show", "net");
    match session.ask(&Request::NetShow { net: None, detail: true }) {
        Ok(Reply::Nets(nets)) => {
            let tree = match backup {
                true => show::net::backup(&nets),
                false => Some(show::net::export(&nets, NET_LEVEL)),
            };
            if let Some(tree) = tree {
                session.print(&tree, Style::Library);
            }
            0
        }
        Ok(_) => session.failed(place, &ClientError::Unexpected, |r| r.text.clone(), None),
        Err(e) => session.failed(place, &e, |r| r.text.clone(), Some(INVALID)),
    }
}

fn routes(session: &mut Session<'_>, backup: bool) -> i32 {
    if !backup {
        return route::show_routes(session, &route::Filter::default(), true);
    }
    route::print_pages(session, |routes| show::route::backup(&routes))
}

fn router(session: &mut Session<'_>, backup: bool, global: &GlobalSnapshot) -> i32 {
    let routing = match routing::fetch(session) {
        Ok(routing) => routing,
        Err(code) => return code,
    };
    let tree = match routing.state {
        // Numbers that were set wait for the day when it forwards.
        RoutingState::Disabled => BUFFER_KEYS
            .iter()
            .any(|(_, name)| global.changed.iter().any(|changed| changed == name))
            .then(|| show::routing::buffers(&routing)),
        RoutingState::Enabled | RoutingState::Starting if backup => {
            Some(show::routing::backup(&routing))
        }
        _ => None,
    };
    let code = if backup { 0 } else { routing::show_routing(session) };
    if let Some(tree) = tree {
        session.print(&tree, Style::Classic);
    }
    code
}

fn peers(session: &mut Session<'_>, what: What) -> i32 {
    // Kernel tools also keep what was tried once, by mistake perhaps, and never answered.
    let all = match what {
        What::Backup => global::fetch(session).is_ok_and(|t| t.profile == "kernel"),
        What::Whole | What::Configured => false,
    };
    let kept = |peer: &&PeerSnapshot| match what {
        What::Whole => true,
        What::Backup => all || peer.is_configured() || !was_never_reached(peer),
        What::Configured => peer.is_configured(),
    };
    peer::print_pages(session, None, what != What::Configured, |peers| match what {
        What::Whole => show::peer::tree(peers, PEER_LEVEL),
        What::Backup | What::Configured => {
            let kept: Vec<PeerSnapshot> = peers.iter().filter(kept).cloned().collect();
            show::peer::backup(&kept)
        }
    })
}

/// Whether the daemon says of a peer that nothing was ever heard from it.
fn was_never_reached(peer: &PeerSnapshot) -> bool {
    peer.nis.iter().all(|ni| ni.detail.is_some()) && !peer.was_reached()
}

/// How much of a node an export holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// All that is shown.
    Whole,
    /// What configures it again, with the peers that it has found.
    Backup,
    /// The same without these.
    Configured,
}

impl What {
    fn of(args: &Args) -> Self {
        match (args.has("configured-only"), args.has("backup")) {
            (true, _) => Self::Configured,
            (false, true) => Self::Backup,
            (false, false) => Self::Whole,
        }
    }

    const fn is_backup(self) -> bool {
        !matches!(self, Self::Whole)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Add,
    Del,
    Show,
    Exec,
}

pub(crate) fn import(session: &mut Session<'_>, _: &Command, args: &Args) -> i32 {
    let modes =
        [("add", Mode::Add), ("del", Mode::Del), ("show", Mode::Show), ("exec", Mode::Exec)];
    let given: Vec<Mode> =
        modes.into_iter().filter(|(long, _)| args.has(long)).map(|(_, mode)| mode).collect();
    let mode = match given.as_slice() {
        [] => Mode::Add,
        [mode] => *mode,
        _ => {
            session.err_line("lnetctl: import: give one of --add, --del, --show and --exec");
            return INVALID;
        }
    };
    if let Some(complaint) = contradiction(args) {
        session.err_line(format_args!("lnetctl: import: {complaint}"));
        return INVALID;
    }
    let place = Place::library(
        match mode {
            Mode::Add => "add",
            Mode::Del => "del",
            Mode::Show => "show",
            Mode::Exec => "manage",
        },
        "import",
    );
    let file = args.operands.first().map(String::as_str);
    session.file = Some(file.unwrap_or("standard input").to_owned());
    let text = match read(session, file) {
        Ok(text) => text,
        Err(code) => return code,
    };
    let config = match Config::from_yaml(&text) {
        Ok(config) => config,
        Err(e) => return refuse(session, place, &e),
    };
    if let Some((pos, name)) = config.profile.as_ref().filter(|_| !args.has("sync")) {
        let text = format!("'profile' {name} cannot change in a running daemon");
        session.error_at(place, INVALID, &text, *pos, None);
        return INVALID;
    }
    if args.has("sync") {
        return sync::sync(session, place, &config, args.has("dry-run"));
    }
    match mode {
        Mode::Add | Mode::Del if args.has("old-api") => older(session, config, mode),
        Mode::Add | Mode::Del => {
            // These are to be run, not to be configured (I-8).
            for (pos, block) in &config.blocks {
                let key = match block {
                    Block::Ping(_) => "ping",
                    Block::Discover(_) => "discover",
                    _ => continue,
                };
                let text = format!("invalid key '{key}'");
                let hint = format!("{key}: must be run, with 'lnetctl import --exec'");
                session.error_at(place, INVALID, &text, *pos, Some(&hint));
                return INVALID;
            }
            let steps = match mode {
                Mode::Del => config.del_steps_placed(),
                _ => config.add_steps_placed(),
            };
            apply(session, place, steps)
        }
        Mode::Show => show_blocks(session, &config),
        Mode::Exec => run_blocks(session, config),
    }
}

/// What is wrong with options that would change the node in another way than one of them says.
fn contradiction(args: &Args) -> Option<String> {
    let sync = args.has("sync");
    if args.has("dry-run") && !sync {
        return Some("--dry-run: expected --sync beside it; nothing was changed".to_owned());
    }
    let other = ["add", "del", "show", "exec", "old-api"].into_iter().find(|long| args.has(long));
    let other = other.filter(|_| sync)?;
    Some(format!("--sync: must stand without --{other}; nothing was changed"))
}

/// Prints why a text is no configuration.
fn refuse(session: &mut Session<'_>, place: Place, error: &ConfigError) -> i32 {
    match error {
        ConfigError::Yaml(e) => {
            session.err_line(format_args!("Parser error: {e}"));
            if let (true, Some(file)) = (session.explain, session.file.clone()) {
                session.err_line(format_args!("# {file}"));
            }
        }
        ConfigError::Content { errno, text, pos, hint } => {
            session.error_at(place, errno.negative(), text, *pos, hint.as_deref());
        }
        other => session.error(place, other.errno().negative(), &other.to_string(), None),
    }
    INVALID
}

/// As older tools do (I-22, I-23): what fails is reported and the rest follows, routes that are there
/// already are no mistake, and what is to be pinged or discovered is so at the end. The last error
/// counts.
fn older(session: &mut Session<'_>, config: Config, mode: Mode) -> i32 {
    let (operation, steps) = match mode {
        Mode::Del => ("del", config.del_steps_placed()),
        _ => ("add", config.add_steps_placed()),
    };
    let mut code = 0;
    for (pos, step) in steps {
        let number = config.seq_nos.iter().find(|(place, _)| *place == pos);
        session.seq_no = number.map(|(_, number)| *number);
        let (object, what) = older_words(&step);
        let is_route = matches!(step, Step::RouteAdd(_));
        match session.order(&Request::from(step)) {
            Ok(()) => {}
            Err(ClientError::Refused(e)) if is_route && e.errno == Errno::EEXIST => {}
            Err(e) => {
                let place = Place::classic(operation, object);
                let text = |r: &AdminError| format!("\"{what}: {}\"", r.errno);
                code = session.failed(place, &e, text, None);
                if !matches!(e, ClientError::Refused(_)) {
                    // The daemon is gone: no later command can succeed.
                    session.seq_no = None;
                    return code;
                }
            }
        }
    }
    session.seq_no = None;
    if mode == Mode::Add {
        let failed = run_blocks(session, config);
        code = if failed == 0 { code } else { failed };
    }
    code
}

/// The object of a step's error document, and the text before the system's.
const fn older_words(step: &Step) -> (&'static str, &'static str) {
    match step {
        Step::NetAdd(_) => ("net", "cannot add network"),
        Step::NetDel(_) => ("net", "cannot del network"),
        Step::NetCpts(_) => ("net", "cannot set CPU partitions"),
        Step::AcceptFrom { .. } => ("net", "cannot set who may connect"),
        Step::NetRulesAdd(_) => ("ip2nets", "cannot add network"),
        Step::NetRulesDel(_) => ("ip2nets", "cannot del network"),
        Step::PeerAdd(_) => ("peer_ni", "add peer ni operation failed"),
        Step::PeerDel(_) => ("peer_ni", "del peer ni operation failed"),
        Step::RouteAdd(_) | Step::RouteDel(_) => ("route", "route operation failed"),
        Step::Routing(true) => ("routing", "cannot enable routing"),
        Step::Routing(false) => ("routing", "cannot disable routing"),
        Step::UdspAdd(_) => ("udsp", "cannot add udsp"),
        Step::UdspDel(_) => ("udsp", "cannot del udsp"),
        Step::Set(_) => ("global", "cannot configure global"),
    }
}

/// Takes one step after the other, and stops at the first that fails (I-18).
pub(super) fn apply(session: &mut Session<'_>, place: Place, steps: Vec<(Pos, Step)>) -> i32 {
    for batch in batches(steps) {
        if let Some(Ok(())) = peers_of(&batch).map(|all| session.order(&all)) {
            continue;
        }
        let code = apply_steps(session, place, batch);
        if code != 0 {
            return code;
        }
    }
    0
}

fn apply_steps(session: &mut Session<'_>, place: Place, steps: Vec<(Pos, Step)>) -> i32 {
    for (pos, step) in steps {
        let Err(e) = session.order(&Request::from(step.clone())) else { continue };
        return refused_step(session, place, (pos, &step), &e);
    }
    0
}

/// Reports a step that was refused, and gives the return code.
pub(super) fn refused_step(
    session: &mut Session<'_>,
    place: Place,
    (pos, step): (Pos, &Step),
    e: &ClientError,
) -> i32 {
    // An NI that cannot be added is reported twice: what the node says, and which net it was.
    let net = match step {
        Step::NetAdd(add) => Some(add.net),
        _ => None,
    };
    let names: Vec<String> = match step {
        Step::Set(settings) => settings.iter().map(|s| s.name.clone()).collect(),
        _ => Vec::new(),
    };
    let words = step.to_string();
    if let ClientError::Refused(refusal @ AdminError { no_interface: Some(name), .. }) = &e {
        // Importers of today look at the interfaces themselves, before they ask (I-9).
        let text = format!("No interface matching '{name}'");
        session.error(place, Errno::ENOMSG.negative(), &text, refusal.detail.as_deref());
        session.block(pos, &words);
        return Errno::ENOMSG.negative();
    }
    let (is_refusal, first) = match net {
        Some(_) => (matches!(e, ClientError::Refused(_)), Place { object: "net", ..place }),
        None => (false, place),
    };
    let code = session.failed(
        first,
        e,
        |r| match names.as_slice() {
            [] => r.text.clone(),
            [name] => format!("cannot configure {name}: {}", r.errno),
            names => format!("cannot configure {}: {}", names.join(", "), r.errno),
        },
        Some(INVALID),
    );
    if let (Some(net), true) = (net, is_refusal) {
        let text = format!("Failed to configure NI on net '{net}' rc = {INVALID}");
        session.error(place, INVALID, &text, None);
    }
    session.block(pos, &words);
    let is_there = matches!(e, ClientError::Refused(r) if r.errno == Errno::EEXIST);
    // The steps of --sync have no place.
    if is_there && session.explain && pos != Pos::default() {
        session.err_line("# import --sync makes a node that is configured equal to the file");
    }
    code
}

/// Shows what the blocks name.
fn show_blocks(session: &mut Session<'_>, config: &Config) -> i32 {
    let mut code = 0;
    for (_, block) in &config.blocks {
        let result = match block {
            Block::Net(block) => net::show_net(session, Some(block.net), 0),
            Block::NetRules(block) => {
                let nets = block.rules.iter().flat_map(|rule| &rule.nets);
                nets.fold(0, |code, add| worse(code, net::show_net(session, Some(add.net), 0)))
            }
            Block::Peer(block) => peer::show_peers(session, Some(block.primary), 0),
            Block::Route(block) => {
                let filter = route::Filter {
                    net: Some(block.net),
                    gateways: Some(vec![block.gateway]),
                    ..route::Filter::default()
                };
                route::show_routes(session, &filter, true)
            }
            Block::Routing(_) | Block::Buffers(_) => routing::show_routing(session),
            Block::Settings(_) => global::show_global(session),
            Block::Own(_) => global::show_own(session),
            Block::Udsp(add) => udsp::show_rules(session, add.index),
            Block::Ping(_) | Block::Discover(_) => 0,
        };
        code = worse(code, result);
    }
    code
}

/// Runs `ping` and `discover` blocks.
fn run_blocks(session: &mut Session<'_>, config: Config) -> i32 {
    let mut code = 0;
    for (_, block) in config.blocks {
        let result = match block {
            Block::Ping(b) => {
                let (timeout_ms, source) = (b.timeout_ms, b.source);
                ping::ping_all(session, Ping { nids: b.nids, timeout_ms, source })
            }
            Block::Discover(b) => {
                ping::discover_all(session, Discover { nids: b.nids, force: b.force })
            }
            _ => 0,
        };
        code = worse(code, result);
    }
    code
}

/// The text of a file or of standard input, read no further than a configuration may be long.
fn read(session: &mut Session<'_>, path: Option<&str>) -> Result<String, i32> {
    let limit = YAML_BYTES_MAX as u64 + 1;
    let mut bytes = Vec::new();
    let result = match path {
        Some(path) => File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)),
        None => io::stdin().lock().take(limit).read_to_end(&mut bytes),
    };
    if let Err(e) = result {
        return Err(cannot_open(session, path.unwrap_or("standard input"), &e));
    }
    String::from_utf8(bytes).map_err(|e| {
        session.err_line(format_args!(
            "Parser error: not UTF-8 behind byte {}",
            e.utf8_error().valid_up_to()
        ));
        INVALID
    })
}

fn cannot_open(session: &mut Session<'_>, path: &str, error: &io::Error) -> i32 {
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno);
    let text = format!("cannot open '{path}': {errno}");
    session.error(BUILDER, Errno::EPERM.negative(), &text, None);
    errno.negative()
}

#[cfg(test)]
#[path = "configuration/tests.rs"]
mod tests;

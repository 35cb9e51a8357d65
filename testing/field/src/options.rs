//! The command line: `cargo run -p field -- [--list] [--only NAME] …`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use lnet_scenario::{Fidelity, Scenario};
use netns::World;

use crate::beside::beside;
use crate::files::{FilesFigures, FilesSetup, Size, play_files, tools};
use crate::objects::{ObjectsFigures, ObjectsSetup, ObjectsTimes, play_objects};
use crate::play::{Over, Setup, play, scratch};
use crate::rpc::{RpcFigures, is_for_commands, play_rpc, read_rpc, rpc_table};
use crate::simulated::simulate;
use crate::table::{PlayedIn, Row, table};

/// Plays fault scenarios over real sockets and prints what the load felt, beside the bars.
#[derive(Clone, Debug, Parser)]
#[command(name = "scenarios")]
pub struct Options {
    /// Only name them.
    #[arg(long)]
    list: bool,

    /// Only scenarios with this in their name; may be given again.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Times that each is played.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,

    /// Length of each, in place of its own; faults that would go on longer end with it.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,

    /// Figures of every round as JSON, in place of the table.
    #[arg(long)]
    json: bool,

    /// The same load over the kernel's multipath TCP as well, where there are no routers.
    #[arg(long)]
    mptcp: bool,

    /// Under `ulnet rpc bench` in place of their own load: two servers of a target, eight clients.
    #[arg(long, conflicts_with_all = ["mptcp", "beside", "simulated", "fidelity"])]
    rpc: bool,

    /// Files in place of scenarios: a file system on three nodes, eight clients, a tree copied in and out.
    #[arg(long, conflicts_with_all = ["mptcp", "beside", "simulated", "fidelity", "rpc", "only", "seconds", "dir", "list"])]
    files: bool,

    /// Objects and locks in place of scenarios: two servers behind two routers, eight clients.
    #[arg(long, conflicts_with_all = ["mptcp", "beside", "simulated", "fidelity", "rpc", "files", "only", "seconds", "dir", "list"])]
    objects: bool,

    /// How large a run with files or objects is: small (seconds) or full (20,000 files; minutes).
    #[arg(long, value_name = "SIZE", default_value = "full", value_parser = Size::named)]
    size: Size,

    /// Program that serves files and copies them, such as a release build of ulnet; this one if not given.
    #[arg(long, value_name = "PROGRAM", requires = "files")]
    ulnet: Option<PathBuf>,

    /// In the simulator as well, and both worlds beside each other in place of the bars.
    #[arg(long, conflicts_with = "mptcp")]
    beside: bool,

    /// In the simulator alone, which needs no root.
    #[arg(long, conflicts_with_all = ["mptcp", "beside"])]
    simulated: bool,

    /// How closely the simulator plays, whatever the scenarios say: messages or bytes.
    #[arg(long, value_name = "LEVEL", value_parser = fidelity)]
    fidelity: Option<Fidelity>,

    /// Where the scenarios are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Where logs and ledgers go, to stay; RUST_LOG says what is logged.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

fn fidelity(name: &str) -> Result<Fidelity, String> {
    let found = Fidelity::ALL.iter().find(|(word, _)| *word == name);
    found.map(|(_, f)| *f).ok_or_else(|| "expected messages or bytes".to_owned())
}

/// Runs the program.
pub fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("scenarios: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// The directory of scenarios for real sockets.
pub fn directory() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sockets"))
}

/// Reads all scenarios of a directory, in order of their names.
///
/// # Errors
/// One can't be read, or is none.
pub fn read(dir: &std::path::Path) -> anyhow::Result<Vec<Scenario>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &PathBuf| -> anyhow::Result<Scenario> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(lnet_scenario::parse(&path.display().to_string(), &text)?)
    };
    paths.iter().map(read).collect()
}

/// Makes a scenario `seconds` long. A fault that would end later stays to the end.
///
/// # Errors
/// A fault would begin later.
pub fn shorten(scenario: &mut Scenario, seconds: Duration) -> anyhow::Result<()> {
    for fault in &mut scenario.faults {
        if fault.at >= seconds {
            anyhow::bail!("{}: a fault begins at {:?}", scenario.name, fault.at);
        }
        fault.until = fault.until.filter(|until| *until < seconds);
    }
    for workload in &mut scenario.workload {
        workload.end = seconds;
    }
    scenario.duration = seconds;
    Ok(())
}

/// Whether all bars were met.
fn run(options: &Options) -> anyhow::Result<bool> {
    if options.files {
        return run_files(options);
    }
    if options.objects {
        return run_objects(options);
    }
    let mut all = read(&options.dir.clone().unwrap_or_else(directory))?;
    if !options.only.is_empty() {
        all.retain(|s| options.only.iter().any(|name| s.name.contains(name.as_str())));
        anyhow::ensure!(!all.is_empty(), "no scenario is called {}", options.only.join(" or "));
    }
    if options.list {
        for s in &all {
            println!("{:<24} {}", s.name, s.description.lines().next().unwrap_or_default());
        }
        return Ok(true);
    }
    if options.rpc {
        let (all, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_for_commands);
        for scenario in others {
            let what = format!("{} under requests", scenario.name);
            netns::skipped(&what, "interfaces of a running command can't be changed");
        }
        let names: Vec<String> = all.into_iter().map(|scenario| scenario.name).collect();
        return run_rpc(options, &names);
    }
    let mut kinds = Vec::new();
    if !options.simulated {
        if let Err(why) = World::new("probe") {
            netns::skipped("scenarios over real sockets", why);
            return Ok(true);
        }
        kinds.push(PlayedIn::Hosts(Over::Lnet));
    }
    if options.simulated || options.beside {
        kinds.push(PlayedIn::Simulator);
    }
    if options.mptcp {
        match crate::mptcp::available() {
            Ok(()) => kinds.push(PlayedIn::Hosts(Over::Mptcp)),
            Err(why) => netns::skipped("multipath TCP, which this kernel does not have", why),
        }
    }
    let dir = options.keep.clone().unwrap_or_else(scratch);
    let exe = std::env::current_exe()?;
    let (mut rows, mut unplayed) = (Vec::new(), 0);
    for scenario in &mut all {
        if let Some(seconds) = options.seconds {
            shorten(scenario, Duration::from_secs(seconds))?;
        }
        if let Some(fidelity) = options.fidelity {
            scenario.set_fidelity(fidelity).map_err(anyhow::Error::msg)?;
        }
        for kind in kinds.iter().copied() {
            if kind == PlayedIn::Hosts(Over::Mptcp)
                && scenario.world.groups.iter().any(|g| g.router)
            {
                continue;
            }
            let mut rounds = Vec::new();
            for round in 1..=options.rounds {
                eprintln!("{}: {kind:?}, round {round} of {}", scenario.name, options.rounds);
                let played = match kind {
                    // Rounds differ by their seeds.
                    PlayedIn::Simulator => {
                        simulate(scenario, Some(scenario.seed + u64::from(round) - 1))
                    }
                    PlayedIn::Hosts(over) => {
                        let dir = dir.join(format!("{over:?}-{round}").to_lowercase());
                        let setup = Setup { exe: exe.clone(), dir, over };
                        play(World::new(&scenario.name)?, scenario, &setup)
                    }
                };
                match played {
                    Ok(figures) => rounds.push(figures),
                    Err(e) => {
                        eprintln!("{}: {kind:?} was not played: {e:#}", scenario.name);
                        unplayed += 1;
                    }
                }
            }
            if !rounds.is_empty() {
                rows.push(Row::new(scenario, kind, rounds));
            }
        }
    }
    if options.keep.is_none() {
        // Files left there do no harm.
        let _ = std::fs::remove_dir_all(&dir);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else if options.beside {
        print!("{}", beside(&rows));
    } else {
        print!("{}", table(&rows));
    }
    let met = |row: &Row| row.over != "lnet" || row.misses.is_empty();
    Ok(unplayed == 0 && rows.iter().all(met))
}

/// Plays scenarios under requests. Whether all accounts agree and no call has failed.
fn run_rpc(options: &Options, names: &[String]) -> anyhow::Result<bool> {
    let from = options.dir.clone().unwrap_or_else(directory);
    let dir = options.keep.clone().unwrap_or_else(scratch);
    let setup = Setup { exe: std::env::current_exe()?, dir: dir.clone(), over: Over::Lnet };
    let mut rows: Vec<RpcFigures> = Vec::new();
    let mut unplayed = 0;
    let rounds = (0..options.rounds).flat_map(|_| names);
    for name in rounds {
        let world = match World::new(name) {
            Ok(world) => world,
            Err(why) => {
                netns::skipped("scenarios under requests", why);
                return Ok(true);
            }
        };
        eprintln!("{name}");
        let played = read_rpc(&from.join(format!("{name}.toml"))).and_then(|mut scenario| {
            if let Some(seconds) = options.seconds {
                shorten(&mut scenario, Duration::from_secs(seconds))?;
            }
            play_rpc(world, &scenario, &setup)
        });
        match played {
            Ok(figures) => rows.push(figures),
            Err(e) => {
                eprintln!("{name}: not played: {e:#}");
                unplayed += 1;
            }
        }
    }
    if options.keep.is_none() {
        // Files left there do no harm.
        let _ = std::fs::remove_dir_all(&dir);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows)?);
    } else {
        print!("{}", rpc_table(&rows));
    }
    Ok(unplayed == 0 && rows.iter().all(RpcFigures::hold))
}

/// Runs programs on files. Whether nothing failed and nothing differs.
fn run_files(options: &Options) -> anyhow::Result<bool> {
    let dir = options.keep.clone().unwrap_or_else(scratch);
    let exe = std::env::current_exe()?;
    let ulnet = options.ulnet.clone().unwrap_or_else(|| exe.clone());
    let ulnet = ulnet.canonicalize().with_context(|| ulnet.display().to_string())?;
    if let Err(why) = tools() {
        netns::skipped("files over real processes", why);
        return Ok(true);
    }
    let mut all: Vec<FilesFigures> = Vec::new();
    for round in 1..=options.rounds {
        let world = match World::new("files") {
            Ok(world) => world,
            Err(why) => {
                netns::skipped("files over real processes", why);
                return Ok(true);
            }
        };
        let (exe, ulnet) = (exe.clone(), ulnet.clone());
        let dir = dir.join(format!("files-{round}"));
        let setup = FilesSetup { exe, ulnet, dir, size: options.size };
        let figures = play_files(world, &setup)?;
        if !options.json {
            print!("{}", figures.table());
        }
        all.push(figures);
    }
    if options.keep.is_none() {
        // Files left there do no harm.
        let _ = std::fs::remove_dir_all(&dir);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(all.iter().all(FilesFigures::hold))
}

/// Runs clients of objects and locks. Whether nothing is wrong.
fn run_objects(options: &Options) -> anyhow::Result<bool> {
    let dir = options.keep.clone().unwrap_or_else(scratch);
    let mut all: Vec<ObjectsFigures> = Vec::new();
    for round in 1..=options.rounds {
        let world = match World::new("objects") {
            Ok(world) => world,
            Err(why) => {
                netns::skipped("objects over real processes", why);
                return Ok(true);
            }
        };
        let dir = dir.join(format!("objects-{round}"));
        let times = match options.size {
            Size::Small => ObjectsTimes::SHORT,
            Size::Full => ObjectsTimes::LONG,
        };
        let setup = ObjectsSetup { exe: std::env::current_exe()?, dir, times };
        let figures = play_objects(world, &setup)?;
        if !options.json {
            print!("{}", figures.table());
        }
        all.push(figures);
    }
    if options.keep.is_none() {
        // Files left there do no harm.
        let _ = std::fs::remove_dir_all(&dir);
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&all)?);
    }
    Ok(all.iter().all(ObjectsFigures::hold))
}

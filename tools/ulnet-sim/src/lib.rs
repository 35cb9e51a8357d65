//! `ulnet sim`: worlds of nodes in virtual time (`lnet-sim`), from scenarios in files.
//!
//! `run` plays one and says whether its bars hold; `bench.rs` measures how fast worlds are and how
//! much memory they take; `replay.rs` does again what a real node did; `what_if.rs` plays a world
//! healthy and with a fault, side by side; `swarm.rs` plays random worlds; `paper/` a paper's table; `sweep.rs` plays one scenario
//! under many settings; `merge.rs` joins what the parts of both left behind (`shard.rs`); `import.rs`
//! makes a world of a real site.

mod bench;
mod import;
mod merge;
mod page;
mod paper;
mod replay;
mod shard;
mod swarm;
mod sweep;
mod what_if;

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use lnet::Profile;
use lnet_scenario::{Change, Fidelity, Scenario};
use lnet_sim::{Course, Detail, Observer, Played, Recorder, Summary, Watch, play, play_before};
use serde::Serialize;

/// Plays worlds of LNet nodes in virtual time.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "ulnet sim",
    after_help = "The format of scenarios is in docs/simulation.md.\n\nExit status of run: 0 if all bars hold, 1 if not, \
                  2 for a scenario that is none.\nOf replay: 0 if it came out the same, 1 if not, 2 for a file that is \
                  no recording of this version.\n\nExamples:\n  \
                  ulnet sim run scenarios/router-death.toml\n  \
                  ulnet sim run scenarios/dark.toml --seed 7 --profile kernel --json\n  \
                  lnetctl debug dump flight && ulnet sim replay flight\n  \
                  ulnet sim what-if scenarios/router-death.toml --kill router-1\n  \
                  ulnet sim sweep scenarios/dark.toml --set tunables.retry_count=0,2,5 --seeds 20 --out sweep && ulnet sim merge sweep\n  \
                  ulnet sim import exports/ --out site.toml && ulnet sim what-if site.toml --kill router1"
)]
struct Options {
    #[command(subcommand)]
    program: Program,
}

#[derive(Clone, Debug, Subcommand)]
enum Program {
    /// Play a scenario: a line for each noteworthy moment, then figures, then what does not hold.
    Run(Run),
    /// Do again what a real node did, from the file that `lnetctl debug dump` wrote.
    Replay(replay::Replay),
    /// Make a world of a real site, from what 'lnetctl export' printed on its nodes.
    Import(import::Import),
    /// Play a world healthy and with a fault: who stalls, who notices, what is lost.
    WhatIf(what_if::WhatIf),
    /// Measure how fast a world is played, and the memory that it takes.
    Bench(bench::Bench),
    /// Play random worlds under random faults until something is found or the time is over.
    Swarm(swarm::Swarm),
    /// Play what the paper on time-outs of Lustre says, and print both.
    Paper(paper::Paper),
    /// Play one scenario with every combination of settings and several seeds each.
    Sweep(sweep::Sweep),
    /// Join the results of all parts of swarms and sweeps in a folder.
    Merge(merge::Merge),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
                        ulnet sim run scenarios/router-death.toml\n  \
                        ulnet sim run scenarios/rpc-server-restart.toml --set rpc.at_min=40s --json")]
struct Run {
    /// The scenario.
    file: PathBuf,

    /// Another seed than the scenario's: another play of the same.
    #[arg(long)]
    seed: Option<u64>,

    /// Another profile for all nodes that do not name their own.
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,

    /// So many nodes in the table NAME, instead of its own count.
    #[arg(long, value_name = "NAME=N", value_parser = sized)]
    count: Vec<(String, u32)>,

    /// Another value at one place of the scenario: tunables.retry_count=3 or net.tcp.loss=1%.
    #[arg(long, value_name = "PLACE=VALUE", value_parser = change)]
    set: Vec<Change>,

    /// How closely it is played, whatever the scenario says: message by message, or byte by byte with
    /// the real driver of sockets over simulated streams.
    #[arg(long, value_parser = fidelity, value_name = "LEVEL")]
    fidelity: Option<Fidelity>,

    /// Print figures and moments as one JSON document.
    #[arg(long)]
    json: bool,

    /// Write every moment and every message to this file.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,

    /// Write a page with charts to this file: health, traffic, stalls, what happened. It needs
    /// nothing from outside.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn profile(name: &str) -> Result<Profile, String> {
    Profile::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

fn sized(text: &str) -> Result<(String, u32), String> {
    let parts = text.split_once('=').and_then(|(name, n)| Some((name.to_owned(), n.parse().ok()?)));
    parts.ok_or_else(|| format!("'{text}': expected NAME=N, like client=10000"))
}

fn change(text: &str) -> Result<Change, String> {
    let (place, value) =
        text.split_once('=').ok_or_else(|| format!("'{text}': expected PLACE=VALUE"))?;
    Change::new(place, value)
}

fn fidelity(name: &str) -> Result<Fidelity, String> {
    let found = Fidelity::ALL.iter().find(|(word, _)| *word == name);
    found.map(|(_, f)| *f).ok_or_else(|| "expected messages or bytes".to_owned())
}

/// The command line, for completions.
pub fn command() -> clap::Command {
    <Options as clap::CommandFactory>::command()
}

/// Runs the program with the given arguments, the first of which is its name.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(u8::try_from(e.exit_code()).unwrap_or(2));
        }
    };
    let outcome = match options.program {
        Program::Run(run) => run.run(),
        Program::Replay(replay) => replay.run(),
        Program::Import(import) => import.run().map(|()| true),
        Program::WhatIf(what) => what.run(),
        Program::Bench(bench) => bench.run().map(|()| true),
        Program::Swarm(swarm) => swarm.run(),
        Program::Paper(paper) => paper.run(),
        Program::Sweep(sweep) => sweep.run(),
        Program::Merge(merge) => merge.run(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("ulnet sim: {e:#}");
            ExitCode::from(2)
        }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    /// What a checker did not allow.
    violation: Option<String>,
    /// The line that plays this again.
    replay: String,
    moments: &'a [String],
}

impl Run {
    fn run(&self) -> anyhow::Result<bool> {
        let scenario = Arc::new(self.load()?);
        let (recorder, course) = recorder(&scenario);
        let others: Vec<Box<dyn Observer>> = match self.html {
            Some(_) => vec![Box::new(recorder)],
            None => Vec::new(),
        };
        let played = play_before(scenario.clone(), self.seed, Detail::Moments, others);
        if let Some(path) = &self.html {
            let mut facts = page::facts(&played.summary);
            facts.extend(played.violation.iter().map(|v| ("VIOLATION".into(), v.to_string())));
            facts.push(("replay".to_owned(), self.replay(&played)));
            let html = page::Run {
                title: &scenario.name,
                facts: &facts,
                report: scenario.description.trim(),
                scenario: &scenario,
                course: &course.borrow(),
                healthy: None,
                lines: &played.lines,
            };
            write(path, &html.page())?;
        }
        if let Some(path) = &self.trace {
            // The same run again, with every message written down.
            let full = play(scenario, self.seed, Detail::Messages);
            let mut text = full.lines.join("\n");
            text.push('\n');
            write(path, &text)?;
        }
        self.print(&played)?;
        Ok(played.holds())
    }

    fn load(&self) -> anyhow::Result<Scenario> {
        let mut scenario = load(&self.file, &self.count, &self.set)?;
        if let Some(profile) = self.profile {
            scenario.set_profile(profile).with_context(|| {
                format!("{} can't have profile {}", self.file.display(), profile.name())
            })?;
        }
        if let Some(fidelity) = self.fidelity {
            scenario.set_fidelity(fidelity).map_err(|why| {
                let (file, name) = (self.file.display(), fidelity.name());
                anyhow::anyhow!("{file} can't be played at fidelity {name}: {why}")
            })?;
        }
        Ok(scenario)
    }

    fn replay(&self, played: &Played) -> String {
        let profile = self.profile.map(|p| format!(" --profile {}", p.name())).unwrap_or_default();
        let fidelity =
            self.fidelity.map(|f| format!(" --fidelity {}", f.name())).unwrap_or_default();
        let seed = played.summary.seed;
        let counts: String =
            self.count.iter().map(|(name, n)| format!(" --count {name}={n}")).collect();
        let set: String =
            self.set.iter().map(|c| format!(" --set {}={}", c.place(), c.value())).collect();
        let file = self.file.display();
        format!("ulnet sim run {file} --seed {seed}{profile}{fidelity}{counts}{set}")
    }

    fn print(&self, played: &Played) -> anyhow::Result<()> {
        let violation = played.violation.as_ref().map(ToString::to_string);
        let replay = self.replay(played);
        let text = if self.json {
            let summary = &played.summary;
            let document = Document { summary, violation, replay, moments: &played.lines };
            let mut text = serde_json::to_string_pretty(&document)?;
            text.push('\n');
            text
        } else {
            let mut text = String::new();
            for line in &played.lines {
                text.push_str(line);
                text.push('\n');
            }
            text.push('\n');
            text.push_str(&played.summary.to_string());
            if let Some(violation) = violation {
                text.push_str(&format!("VIOLATION    {violation}\n"));
            }
            if !played.holds() {
                text.push_str(&format!("replay       {replay}\n"));
            }
            text
        };
        print(&text);
        Ok(())
    }
}

/// To standard output; a reader that has gone away is no error of ours.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}

/// Records how a whole run of a scenario goes.
fn recorder(scenario: &Scenario) -> (Recorder, Rc<RefCell<Course>>) {
    Recorder::new(scenario.duration - scenario.warm_up + Watch::of(scenario).grace)
}

/// Reads a scenario from a file.
fn load(path: &Path, counts: &[(String, u32)], set: &[Change]) -> anyhow::Result<Scenario> {
    let text =
        fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?;
    Ok(lnet_scenario::parse_changed(&path.to_string_lossy(), &text, counts, set)?)
}

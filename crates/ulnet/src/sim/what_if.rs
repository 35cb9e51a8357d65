//! `ulnet sim what-if`: plays a world twice, healthy and with one thing going wrong, and puts side by
//! side what its users would notice: who stalls for how long, who notices when, what is lost.

use core::cell::RefCell;
use core::fmt::Write as _;
use core::time::Duration;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use lnet_scenario::{Scenario, World};
use lnet_sim::{AttemptId, HostId, Messages, Observer, Seen, Sim, Summary, View};
use lnet_types::{Instant, Nid};

/// What goes wrong in which world.
#[derive(Clone, Debug, Args)]
pub(super) struct WhatIf {
    /// The world: a scenario. Of its faults and bars nothing is played or asked.
    world: PathBuf,

    #[command(flatten)]
    wrong: Wrong,

    /// When it happens.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    at: String,

    /// Another seed than the world's.
    #[arg(long)]
    seed: Option<u64>,
}

/// One thing that goes wrong.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
struct Wrong {
    /// This node, or all nodes of a table, die.
    #[arg(long, value_name = "NODE")]
    kill: Option<String>,

    /// Nothing passes this rail any more, and nobody is told: a NID, or `NODE/0`.
    #[arg(long, value_name = "NID")]
    cut: Option<String>,

    /// The whole fabric stands still for so long.
    #[arg(long, value_name = "TIME")]
    quiesce: Option<String>,
}

/// Rows of each list that are printed; of the others only how many they are.
const ROWS_MAX: usize = 40;
/// Above so many pairs each client has one server, not all.
const PAIRS_MAX: usize = 1000;
/// A slower exchange than in the healthy run is a stall if it is slower by so much.
const STALL_MIN: Duration = Duration::from_millis(10);

impl WhatIf {
    /// Plays both and prints.
    ///
    /// # Errors
    /// The world is none, or the fault can't be in it.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let healthy = self.scenario(false)?;
        let faulty = self.scenario(true)?;
        let begins = faulty.faults.first().map_or(Duration::ZERO, |f| f.at);
        let begins = Instant::ZERO + begins;
        let (well, before) = watch(Arc::new(healthy), self.seed, begins);
        let faulty = Arc::new(faulty);
        let (ill, after) = watch(faulty.clone(), self.seed, begins);
        super::print(&self.report(&faulty.world, (&well, &before), (&ill, &after)));
        Ok(())
    }

    /// The world with work to do, and with the fault.
    fn scenario(&self, faulty: bool) -> anyhow::Result<Scenario> {
        let file = self.world.display().to_string();
        let mut text =
            fs::read_to_string(&self.world).with_context(|| format!("can't read {file}"))?;
        // As it stands first, so that what is wrong with the file itself has its line.
        let plain = lnet_scenario::parse(&file, &text)?;
        if plain.workload.is_empty() {
            text.push_str(&default_work(&plain.world));
        }
        let what = self.fault();
        if faulty {
            text.push_str(&what);
        }
        let mut all =
            lnet_scenario::parse(&format!("{file}, with{}", what.replace('\n', " ")), &text)?;
        // The one that was asked for is the last of the text.
        let own = plain.faults.len();
        all.faults.drain(..own);
        all.bars = lnet_scenario::Bars::default();
        Ok(all)
    }

    /// The fault as a scenario has it.
    fn fault(&self) -> String {
        let (kind, key, value) = match (&self.wrong.kill, &self.wrong.cut, &self.wrong.quiesce) {
            (Some(node), ..) => ("kill", "on", node),
            (_, Some(nid), _) => ("cut", "on", nid),
            (_, _, Some(time)) => ("quiesce", "for", time),
            (None, None, None) => return String::new(),
        };
        format!("\n[[fault]]\nkind = \"{kind}\"\nat = {:?}\n{key} = {value:?}\n", self.at)
    }

    fn report(
        &self,
        world: &World,
        well: (&Summary, &Watched),
        ill: (&Summary, &Watched),
    ) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "what if      {}",
            self.fault().replace("\n[[fault]]\n", "").trim_end().replace('\n', ", ")
        );
        let _ = writeln!(
            text,
            "\nWHO STALLS   (longest exchange from then on; healthy → with the fault)"
        );
        let stalls = stalls(well.1, ill.1);
        for ((from, to), before, after, failed) in stalls.iter().take(ROWS_MAX) {
            let name = world.name(lnet_scenario::NodeId(from.0));
            let to = owner(world, *to);
            let failed = if *failed > 0 { format!(", {failed} failed") } else { String::new() };
            let _ = writeln!(text, "  {name:<16} → {to:<16} {before:>12.1?} → {after:.1?}{failed}");
        }
        rest(&mut text, stalls.len(), "nobody");
        let _ = writeln!(text, "\nWHO NOTICES  (after which time)");
        for (host, (after, what)) in ill.1.noticed.iter().take(ROWS_MAX) {
            let name = world.name(lnet_scenario::NodeId(host.0));
            let _ = writeln!(text, "  {name:<16} {after:>12.1?}  {what}");
        }
        rest(&mut text, ill.1.noticed.len(), "nobody's health or routes");
        let _ = writeln!(text, "\nFIGURES      {:>14} {:>14}", "healthy", "with the fault");
        let ms = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
        let drops = |s: &Summary| s.drops.iter().map(|(_, n)| n).sum::<u64>().to_string();
        type Figure<'a> = (&'a str, &'a dyn Fn(&Summary) -> String);
        let rows: [Figure<'_>; 9] = [
            ("exchanges well", &|s| s.completed.to_string()),
            ("  failed (lost)", &|s| s.errors.to_string()),
            ("stall p50", &|s| ms(s.stall_p50)),
            ("stall p99", &|s| ms(s.stall_p99)),
            ("stall max", &|s| ms(s.stall_max)),
            ("longest gap", &|s| ms(s.gap_max)),
            ("sent again", &|s| s.resends.to_string()),
            ("dropped", &drops),
            ("twice", &|s| s.duplicates.to_string()),
        ];
        for (name, of) in rows {
            let _ = writeln!(text, "  {name:<16}{:>9} {:>14}", of(well.0), of(ill.0));
        }
        let _ = writeln!(text, "replayed by  the same command with --seed {}", ill.0.seed);
        text
    }
}

fn rest(text: &mut String, count: usize, nobody: &str) {
    let _ = match count.checked_sub(ROWS_MAX) {
        _ if count == 0 => writeln!(text, "  {nobody}"),
        Some(more) if more > 0 => writeln!(text, "  and {more} more"),
        _ => Ok(()),
    };
}

/// Requests and answers between clients and servers, as servers are called where Lustre runs.
fn default_work(world: &World) -> String {
    let works: Vec<_> = world.groups.iter().filter(|g| !g.router).collect();
    let serves = |name: &str| {
        let name = name.to_ascii_lowercase();
        ["server", "mgs", "mds", "oss"].iter().any(|word| name.contains(word))
    };
    let (mut servers, mut clients): (Vec<_>, Vec<_>) = works.iter().partition(|g| serves(&g.name));
    if servers.is_empty() {
        servers = works.iter().take(1).collect();
        clients = works.iter().skip(1).collect();
    }
    if clients.is_empty() {
        clients.clone_from(&servers);
    }
    let list = |groups: &[&&lnet_scenario::Group]| {
        let names: Vec<String> = groups.iter().map(|g| format!("{:?}", g.name)).collect();
        names.join(", ")
    };
    let count =
        |groups: &[&&lnet_scenario::Group]| groups.iter().map(|g| g.count as usize).sum::<usize>();
    let pairs = count(&servers).saturating_mul(count(&clients));
    let pairing = if pairs > PAIRS_MAX { "spread" } else { "all" };
    format!(
        "\n[[workload]]\nkind = \"request\"\nfrom = [{}]\nto = [{}]\npairing = \"{pairing}\"\n\
         every = \"100ms\"\nsize = \"4KiB\"\nreply = \"4KiB\"\ntimeout = \"30s\"\n",
        list(&clients),
        list(&servers)
    )
}

fn owner(world: &World, nid: Nid) -> String {
    world.rail_of(nid).map_or_else(|| nid.to_string(), |at| world.name(at.node))
}

/// From whom, to whom.
type Flow = (HostId, Nid);

/// What was seen from the moment of the fault on.
#[derive(Debug, Default)]
struct Watched {
    /// Longest exchange, and how many failed.
    flows: BTreeMap<Flow, (Duration, u64)>,
    /// After which time a node first noticed what.
    noticed: BTreeMap<HostId, (Duration, String)>,
    under_way: BTreeMap<AttemptId, Nid>,
}

/// Fills a [`Watched`].
struct Watcher {
    seen: Rc<RefCell<Watched>>,
    from: Instant,
}

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "what-if"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut to_note = self.seen.borrow_mut();
        let since = view.now.saturating_since(self.from);
        let mut notice = |host: HostId, what: String| {
            if view.now >= self.from {
                to_note.noticed.entry(host).or_insert((since, what));
            }
        };
        match *seen {
            Seen::Begun { attempt, to, .. } => {
                to_note.under_way.insert(attempt, to);
            }
            Seen::Ended { host, attempt, took, well, .. } => {
                let Some(to) = to_note.under_way.remove(&attempt) else { return Ok(()) };
                if view.now >= self.from {
                    let flow = to_note.flows.entry((host, to)).or_default();
                    flow.0 = flow.0.max(took);
                    flow.1 += u64::from(!well);
                }
            }
            Seen::Health { host, nid, from, to } if to < from => {
                notice(host, format!("health of {nid} {from} → {to}"));
            }
            Seen::Route { host, gateway, up: false } => {
                notice(host, format!("route by {gateway} is down"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Plays a scenario, and what was seen from `from` on.
fn watch(scenario: Arc<Scenario>, seed: Option<u64>, from: Instant) -> (Summary, Watched) {
    let seen = Rc::new(RefCell::new(Watched::default()));
    let mut sim = Sim::new(scenario.clone(), seed, Messages::new());
    sim.observe(Box::new(Watcher { seen: seen.clone(), from }));
    // Nobody judges here: the only observer allows everything.
    let _ = sim.run();
    let summary = Summary::new(&scenario, sim.seed(), sim.tally(), 0);
    let watched = core::mem::take(&mut *seen.borrow_mut());
    (summary, watched)
}

/// Flows that are slower than healthy ones or have lost something, the worst first.
fn stalls(well: &Watched, ill: &Watched) -> Vec<(Flow, Duration, Duration, u64)> {
    let mut all: Vec<_> = ill
        .flows
        .iter()
        .filter_map(|(flow, (after, failed))| {
            let (before, failed_before) = well.flows.get(flow).copied().unwrap_or_default();
            let failed = failed.saturating_sub(failed_before);
            (*after > before + STALL_MIN || failed > 0).then_some((*flow, before, *after, failed))
        })
        .collect();
    all.sort_by_key(|(flow, _, after, failed)| (core::cmp::Reverse((*failed, *after)), *flow));
    all
}

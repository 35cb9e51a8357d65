//! Scenarios: a text that names a world of nodes, what they do, what befalls them, and what must
//! hold all the same, read into one checked value.
//!
//! The same file is played in two ways: by `lnet-sim` in virtual time, and by tests with hosts and
//! real sockets. So nothing in here plays it. [`parse`] is total: any text gives a [`Scenario`] in
//! which every reference leads somewhere, or an error with file, line, and what was expected.
//!
//! Where to read: `model.rs` for what a scenario is, `place.rs` for how its parts name nodes and
//! rails, `docs/simulation.md` for the format. `read.rs` holds the keys of a table to those that
//! are known; `world.rs`, `workload.rs`, `fault.rs` and `bars.rs` read one section each, `rpc.rs`
//! those of what stands on LNet, `selftest.rs` that of LNet selftest; `units.rs`
//! reads `700ms`, `4KiB`, `10Gbit/s`, `1%`. `own.rs` has what operators set on a node.
//!
//! The other way round: `site/` makes such a text of what real nodes say of themselves, and `usual.rs`
//! what their programs may be doing.

mod bars;
mod change;
mod error;
mod fault;
mod fidelity;
mod files;
mod lock;
mod model;
mod own;
mod place;
mod read;
mod rpc;
mod selftest;
mod site;
mod units;
mod usual;
mod workload;
mod world;

pub use change::Change;
pub use error::ScenarioError;
pub use fidelity::{ByteSettings, Fidelity};
pub use files::FileLoad;
pub use lock::{LockLoad, LockPart, ModeSet};
pub use model::{
    Bars, Clocks, Direction, Exchange, Fault, FaultKind, Group, LinkEvent, Links, NetSpec, NodeId,
    NodeSpec, Pace, Pairing, PeerSpec, Rail, RailRef, Scenario, SocketBars, Transport, Workload,
    World,
};
pub use place::{Part, Place, Which};
pub use rpc::{
    ClientSpec, LoadKind, RpcLoad, RpcLoss, RpcOperation, RpcWorld, StoreSpec, TargetKind,
    TargetSpec,
};
pub use selftest::{SelftestKind, SelftestLoad};
pub use site::{EXPORTS_MAX, Export, SiteWorld, world_of};
pub use units::{Share, quoted};
pub use usual::usual_work;

use core::time::Duration;

use lnet::Profile;

use crate::read::{Source, Table};

/// Most nodes of one scenario.
pub const NODES_MAX: usize = 200_000;
/// Most rails of one node.
pub const RAILS_MAX: usize = 64;
/// Most workloads, and most faults, of one scenario.
pub const SECTION_MAX: usize = 4096;
/// Longest scenario: a year.
pub const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// Longest text, bytes: ten thousand nodes by name fit.
pub const TEXT_MAX: usize = 16 << 20;

/// Reads a scenario. `file` is only named in errors.
///
/// # Errors
/// The first thing that is malformed or impossible, with its place and what was expected.
pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    parse_sized(file, text, &[])
}

/// The same with other numbers of nodes in tables with a `count`, by their names: a scenario that is
/// quick as it stands can be played at the size of a site.
///
/// # Errors
/// As [`parse`]; also a name that no table with a count has.
pub fn parse_sized(
    file: &str,
    text: &str,
    counts: &[(String, u32)],
) -> Result<Scenario, ScenarioError> {
    parse_changed(file, text, counts, &[])
}

/// The same with other values at some places, each written `tunables.retry_count=3` or
/// `net.tcp.loss=1%` (see `change.rs`), for sweeps over one file.
///
/// # Errors
/// As [`parse_sized`]; also a change whose place does not exist.
pub fn parse_changed(
    file: &str,
    text: &str,
    counts: &[(String, u32)],
    changes: &[Change],
) -> Result<Scenario, ScenarioError> {
    let source = Source { file, text };
    if text.len() > TEXT_MAX {
        return Err(source.at(0, format!("{} bytes: expected at most {TEXT_MAX}", text.len())));
    }
    let mut root = toml::de::DeTable::parse(text)
        .map_err(|e| source.at(e.span().map_or(0, |s| s.start), e.message().to_owned()))?;
    for change in changes {
        change.apply(root.get_mut()).map_err(|what| source.at(0, what))?;
    }
    let mut top = Table::new(source, String::new(), root.span(), root.get_ref());
    let name = top.require("name", "the scenario's name")?.text()?.to_owned();
    let description = top.take("description").map(|v| v.text()).transpose()?.unwrap_or_default();
    let seed = top.take("seed").map(|v| v.number(0, i64::MAX)).transpose()?.unwrap_or(1) as u64;
    let duration = match top.take("duration") {
        Some(v) => {
            let d = v.duration()?;
            if d.is_zero() || d > DURATION_MAX {
                return Err(v.wrong("longer than 0s and at most a year"));
            }
            d
        }
        None => Duration::from_secs(60),
    };
    let warm_up = match top.take("warm_up") {
        Some(v) => match v.duration()? {
            d if d > DURATION_MAX => return Err(v.wrong("at most a year")),
            d => d,
        },
        None => Duration::ZERO,
    };
    let profile = top.take("profile").map(|v| v.profile()).transpose()?.unwrap_or(Profile::Default);
    let world = world::read(&mut top, profile, counts)?;
    let mut rpc = rpc::read(&mut top, &world)?;
    let mut selftests = Vec::new();
    let mut workload = workload::read(&mut top, &world, &mut rpc, &mut selftests, duration)?;
    let mut faults = fault::read(&mut top, &world, &rpc, duration)?;
    let bars = bars::read(&mut top)?;
    let (fidelity, bytes) = fidelity::read(&mut top)?;
    top.finish()?;
    // Of a year at most, as everything else: nothing overflows.
    for w in &mut workload {
        (w.start, w.end) = (w.start + warm_up, w.end + warm_up);
    }
    for load in &mut rpc.loads {
        (load.start, load.end) = (load.start + warm_up, load.end + warm_up);
    }
    for load in &mut selftests {
        (load.start, load.end) = (load.start + warm_up, load.end + warm_up);
    }
    for f in &mut faults {
        (f.at, f.until) = (f.at + warm_up, f.until.map(|t| t + warm_up));
    }
    let scenario = Scenario {
        name,
        description: description.to_owned(),
        seed,
        warm_up,
        duration: warm_up + duration,
        profile,
        fidelity,
        bytes,
        world,
        workload,
        rpc,
        selftests,
        faults,
        bars,
    };
    match scenario.against(fidelity) {
        Some((_, why)) => Err(top.wrong(&format!("can't be played: {why}"))),
        None => Ok(scenario),
    }
}

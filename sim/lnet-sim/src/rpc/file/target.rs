//! The file system of a scenario: its description, its targets, and the services on which their requests
//! are waited for.

use std::fmt::Write as _;

use lnet_scenario::{NodeId, Scenario, TargetKind, TargetSpec};
use lustre_target::{Kind, Mdt, MemoryStore, Mgs, Ost, OstLimits, Site};
use lustre_wire::{ImportKind, Portal};

/// The description of the file system.
///
/// # Errors
/// What is wrong with it.
fn site(scenario: &Scenario) -> Result<Site, String> {
    let nid = |node: NodeId| scenario.world.node(node).and_then(|n| n.rails.first()).map(|r| r.nid);
    let mut text = String::new();
    for target in &scenario.rpc.targets {
        if !matches!(target.kind, TargetKind::Mdt | TargetKind::Ost) {
            continue;
        }
        let nids = [Some(target.on), target.failover].into_iter().flatten().filter_map(nid);
        let nids: Vec<String> = nids.map(|nid| nid.to_string()).collect();
        let _ = writeln!(text, "{} {}", target.name, nids.join(":"));
    }
    text.parse().map_err(|e: lustre_target::SiteError| e.to_string())
}

/// A metadata target, with what its store has.
///
/// # Errors
/// Why there is none.
pub(in crate::rpc) fn metadata(
    scenario: &Scenario,
    spec: &TargetSpec,
    left: &mut MemoryStore,
) -> Result<Mdt, String> {
    let site = site(scenario)?;
    let index = site.mdt(&spec.name).unwrap_or(0);
    Mdt::load_at(site, index, left).map_err(|e| e.to_string())
}

/// A target of the file system, with what its store has. `None`: the kind is another one.
///
/// # Errors
/// Why there is none.
pub(in crate::rpc) fn made(
    scenario: &Scenario,
    spec: &TargetSpec,
    left: &mut MemoryStore,
) -> Result<Option<Box<dyn Kind>>, String> {
    Ok(Some(match spec.kind {
        TargetKind::Mgs => Box::new(Mgs::new(&[site(scenario)?])),
        TargetKind::Mdt => Box::new(metadata(scenario, spec, left)?),
        TargetKind::Ost => Box::new(Ost::new(OstLimits::default())),
        TargetKind::List | TargetKind::Kv | TargetKind::Lock => return Ok(None),
    }))
}

/// A service: its name, portals of requests, replies and bulk data, and its largest request.
pub(in crate::rpc) type Service = (&'static str, [Portal; 3], u32);

/// The services of file systems beside those that each node has that serves targets.
pub(in crate::rpc) fn services(scenario: &Scenario) -> Vec<Service> {
    if scenario.rpc.fsname().is_none() {
        return Vec::new();
    }
    const LARGE: u32 = 96 << 10;
    const SMALL: u32 = 16 << 10;
    let osc = ImportKind::Osc.portals().1;
    let names = |portal| [portal, Portal::MDC_REPLY, Portal::MDS_BULK];
    let objects = |portal| [portal, osc, Portal::OST_BULK];
    let mut all = vec![
        ("target_io", objects(Portal::OST_IO), LARGE),
        ("target_create", objects(Portal::OST_CREATE), SMALL),
        ("mds", names(Portal::MDS_REQUEST), LARGE),
        ("mds_io", [Portal::MDS_IO, Portal::MDC_REPLY, Portal::OST_BULK], LARGE),
        ("mds_readpage", names(Portal::MDS_READPAGE), SMALL),
        ("fld", names(Portal::FLD), SMALL),
        ("sequence", names(Portal::SEQ_METADATA), SMALL),
        ("mgs", [Portal::MGS_REQUEST, Portal::MGC_REPLY, Portal::MGS_BULK], SMALL),
    ];
    if mdts(scenario) > 1 {
        all.push(("mds_out", [Portal::OUT, Portal::OSC_REPLY, Portal::MDS_BULK], SMALL));
    }
    all
}

/// Metadata targets of the file system.
pub(in crate::rpc) fn mdts(scenario: &Scenario) -> u32 {
    let mdts = scenario.rpc.targets.iter().filter(|target| target.kind == TargetKind::Mdt);
    u32::try_from(mdts.count()).unwrap_or(u32::MAX)
}

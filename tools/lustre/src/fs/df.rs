//! `ulnet lustre df`: the space of each target.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Place, TargetSpace, VisitError};
use serde_json::json;

use super::Visit;

/// Of which file system.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre df 10.0.0.1@tcp:/lfs\n  \
    ulnet lustre df 10.0.0.1@tcp,10.1.0.1@tcp1:10.0.0.2@tcp:/lfs --json")]
pub(super) struct Options {
    /// File system: MGSNID:/FSNAME, as in a place; the one in ULNET_LUSTRE if it is '/'
    #[arg(default_value = "/", value_parser = super::places())]
    place: Place,
    #[command(flatten)]
    visit: Visit,
}

/// Space in KiB: total, used, available.
fn kib(space: &lustre_rt::visitor::Statfs) -> (u64, u64, u64) {
    let kib = |blocks: u64| {
        let bytes = u128::from(blocks) * u128::from(space.bsize);
        u64::try_from(bytes / 1024).unwrap_or(u64::MAX)
    };
    (kib(space.blocks), kib(space.blocks.saturating_sub(space.bfree)), kib(space.bavail))
}

fn percent(used: u64, available: u64) -> u64 {
    let (used, all) = (u128::from(used), u128::from(used) + u128::from(available));
    u64::try_from((used * 100).div_ceil(all.max(1))).unwrap_or(100)
}

/// Runs the command. `false`: a target has not answered.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let mut found =
        super::with(place, visit, Access::Read, async |mount, _| Ok(mount.space().await))?;
    // A target that is deactivated is no part of it (C-32).
    found.retain(|target| !matches!(target.space, Err(VisitError::Inactive { .. })));
    let all = found.iter().all(|target| target.space.is_ok());
    if visit.way.json {
        println!("{:#}", json!(found.iter().map(shown).collect::<Vec<_>>()));
        return Ok(all);
    }
    let fsname = &place.fsname;
    println!(
        "{:<22} {:>12} {:>12} {:>12} {:>5} Mounted as",
        "UUID", "1K-blocks", "Used", "Available", "Use%"
    );
    let row = |uuid: &str, (total, used, available): (u64, u64, u64), whereto: &str| {
        let percent = percent(used, available);
        println!("{uuid:<22} {total:>12} {used:>12} {available:>12} {percent:>4}% {whereto}");
    };
    let mut sum = (0u64, 0u64, 0u64);
    for TargetSpace { kind, index, uuid, space } in &found {
        match space {
            Ok(space) => {
                let space = kib(space);
                row(uuid, space, &format!("{fsname}[{kind}:{index}]"));
                // The data of files is on object targets (C-32).
                if *kind == "OST" {
                    sum.0 = sum.0.saturating_add(space.0);
                    sum.1 = sum.1.saturating_add(space.1);
                    sum.2 = sum.2.saturating_add(space.2);
                }
            }
            Err(e) => eprintln!("ulnet lustre: {e}"),
        }
    }
    println!();
    row("filesystem_summary:", sum, fsname);
    Ok(all)
}

fn shown(target: &TargetSpace) -> serde_json::Value {
    let TargetSpace { kind, index, uuid, space } = target;
    match space {
        Ok(space) => {
            let (total, used, available) = kib(space);
            json!({
                "kind": kind,
                "index": index,
                "uuid": uuid,
                "kib": total,
                "used_kib": used,
                "available_kib": available,
                "files": space.files,
                "free_files": space.ffree,
            })
        }
        Err(e) => json!({ "kind": kind, "index": index, "uuid": uuid, "error": e.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_is_rounded_up_and_an_empty_target_is_unused() {
        assert_eq!((percent(1, 99), percent(1, 999), percent(0, 0)), (1, 1, 0));
        assert_eq!(percent(u64::MAX, u64::MAX), 50);
    }
}

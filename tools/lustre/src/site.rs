//! The directories of a file system that one process serves: `DIR/mgs`, `DIR/mdt0000` …, `DIR/ost0000` … .

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use lnet_rt::Nid;
use lustre_rt::store::DESCRIPTION;
use lustre_rt::{MGS_UUID, Site, TargetKind, TargetSpec};

/// The targets of a file system in a directory, which are made if there are none. The description is
/// written anew: the node may have other NIDs than before, and further targets. `counts`: metadata and object
/// targets.
///
/// # Errors
/// The directory has more targets than `counts`, or can't be written.
pub(crate) fn targets(
    fsname: &str,
    dir: &Path,
    counts: (u32, u32),
    nids: &[Nid],
) -> Result<Vec<TargetSpec>> {
    let site = Site::of_counts(fsname, counts, nids)?;
    for (option, part, count) in [("--mdts", "mdt", counts.0), ("--osts", "ost", counts.1)] {
        let there = (0..).take_while(|index| dir.join(place(part, *index)).exists()).count();
        if there > count as usize {
            bail!("{option} {count}: {} has {there}, of which files may use each", dir.display());
        }
    }
    // Object targets first: the metadata targets find them. The one with the root comes last, so that all is
    // served when it is.
    let objects =
        (0..counts.1).map(|index| (format!("OST{index:04x}"), "ost", TargetKind::Ost, index));
    let names =
        (0..counts.0).rev().map(|index| (format!("MDT{index:04x}"), "mdt", TargetKind::Mdt, index));
    let of_files = |(name, part, kind, index): (String, &str, TargetKind, u32)| {
        (format!("{fsname}-{name}_UUID"), kind, dir.join(place(part, index)))
    };
    let mgs = (MGS_UUID.to_owned(), TargetKind::Mgs, dir.join("mgs"));
    let all = objects.map(of_files).chain([mgs]).chain(names.map(of_files));
    let all: Vec<(String, TargetKind, PathBuf)> = all.collect();
    for (_, kind, dir) in &all {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        if *kind == TargetKind::Ost {
            continue;
        }
        let (path, partial) = (dir.join(DESCRIPTION), dir.join("targets.new"));
        let written =
            fs::write(&partial, site.to_string()).and_then(|()| fs::rename(partial, &path));
        written.with_context(|| path.display().to_string())?;
    }
    Ok(all.into_iter().map(|(name, kind, dir)| TargetSpec { name, kind, dir }).collect())
}

fn place(part: &str, index: u32) -> String {
    format!("{part}{index:04x}")
}

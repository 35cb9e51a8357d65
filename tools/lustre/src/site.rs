//! The directories of a file system that one process serves: `DIR/mgs`, `DIR/mdt0000`, `DIR/ost0000` … .

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use lnet_rt::Nid;
use lustre_rt::store::DESCRIPTION;
use lustre_rt::{MGS_UUID, Site, TargetKind, TargetSpec};

/// The targets of a file system in a directory, which are made if there are none. The description is
/// written anew: the node may have other NIDs than before, and further object targets.
///
/// # Errors
/// The directory has more object targets than `osts`, or can't be written.
pub(crate) fn targets(
    fsname: &str,
    dir: &Path,
    osts: u32,
    nids: &[Nid],
) -> Result<Vec<TargetSpec>> {
    let site = Site::on_one_node(fsname, osts, nids)?;
    let there = (0..).take_while(|index| dir.join(ost(*index)).exists()).count();
    if there > osts as usize {
        bail!("--osts {osts}: {} has {there}, of which files may use each", dir.display());
    }
    let mut all = vec![(MGS_UUID.to_owned(), TargetKind::Mgs, dir.join("mgs"))];
    all.push((format!("{fsname}-MDT0000_UUID"), TargetKind::Mdt, dir.join("mdt0000")));
    // Object targets first: the metadata target finds them.
    let objects = (0..osts).map(|index| {
        (format!("{fsname}-OST{index:04x}_UUID"), TargetKind::Ost, dir.join(ost(index)))
    });
    let all: Vec<(String, TargetKind, PathBuf)> = objects.chain(all).collect();
    for (.., dir) in &all {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    for dir in [dir.join("mgs"), dir.join("mdt0000")] {
        let (path, partial) = (dir.join(DESCRIPTION), dir.join("targets.new"));
        let written =
            fs::write(&partial, site.to_string()).and_then(|()| fs::rename(partial, &path));
        written.with_context(|| path.display().to_string())?;
    }
    Ok(all.into_iter().map(|(name, kind, dir)| TargetSpec { name, kind, dir }).collect())
}

fn ost(index: u32) -> String {
    format!("ost{index:04x}")
}

//! `ulnet lustre mkdir`: makes directories.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::Visit;

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre mkdir 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre mkdir -p /data/in/today -m 750")]
pub(super) struct Options {
    /// Directory
    #[arg(value_parser = super::place)]
    place: Place,
    /// Make the directories above it too; one that exists is no failure
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal; 777 without the mask of this process if not given
    #[arg(short, long, value_parser = super::mode)]
    mode: Option<u32>,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, parents, mode, visit } = options;
    let made = super::with(place, visit, Access::Change, async |mount, stop| {
        let mut made = Vec::new();
        let names = super::names(&place.path);
        let (last, above) = names.split_last().ok_or_else(|| super::taken(place))?;
        let mut dir = mount.root_node().await?;
        let mut path = String::new();
        for name in above {
            stop.check()?;
            path = format!("{path}/{name}");
            dir = match mount.child(&dir, name.as_bytes()).await {
                Err(e) if *parents && e.errno() == lnet_types::Errno::ENOENT => {
                    made.push(path.clone());
                    mount.make_dir(&dir, name.as_bytes(), 0o777, b"").await?
                }
                Ok(node) if node.kind() == FileKind::Link => {
                    mount.find(path.as_bytes(), true).await?
                }
                found => found?,
            };
        }
        match mount.make_dir(&dir, last.as_bytes(), mode.unwrap_or(0o777), b"").await {
            Err(e) if *parents && e.errno() == lnet_types::Errno::EEXIST => {
                let there = mount.find(place.path.as_bytes(), true).await?;
                if there.kind() != FileKind::Dir {
                    return Err(e.into());
                }
            }
            end => {
                let node = end?;
                made.push(place.path.clone());
                // The mask is not for permissions that the user has named.
                if let Some(mode) = mode {
                    let changes =
                        lustre_rt::visitor::Changes { mode: Some(*mode), ..Default::default() };
                    mount.change(&node, &changes).await?;
                }
            }
        }
        Ok(made)
    })?;
    if visit.way.json {
        println!("{:#}", json!({ "made": made }));
    }
    Ok(true)
}

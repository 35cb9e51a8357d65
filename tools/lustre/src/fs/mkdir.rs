//! `ulnet lustre mkdir`: makes directories.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Changes, FileKind, Place};
use serde_json::json;

use super::Visit;
use super::operands::{self, At, Done, Shape};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre mkdir 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre mkdir -p /data/in/today /data/out -m 750")]
pub(super) struct Options {
    /// Directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::place)]
    places: Vec<Place>,
    /// Make the directories above it too; one that exists is no failure
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal; 777 without the mask of this process if not given
    #[arg(short, long, value_parser = super::mode)]
    mode: Option<u32>,
    #[command(flatten)]
    visit: Visit,
}

async fn one(at: &At<'_>, parents: bool, mode: Option<u32>) -> Result<Done> {
    let At { mount, stop, place, name: shown } = *at;
    let mut made = Vec::new();
    let names = super::names(&place.path);
    let (last, above) = names.split_last().ok_or_else(super::taken)?;
    let mut dir = mount.root_node().await?;
    let mut path = String::new();
    for name in above {
        stop.check()?;
        path = format!("{path}/{name}");
        dir = match mount.child(&dir, name.as_bytes()).await {
            Err(e) if parents && e.errno() == lnet_types::Errno::ENOENT => {
                made.push(path.clone());
                mount.make_dir(&dir, name.as_bytes(), 0o777, b"").await?
            }
            Ok(node) if node.kind() == FileKind::Link => mount.find(path.as_bytes(), true).await?,
            found => found?,
        };
    }
    match mount.make_dir(&dir, last.as_bytes(), mode.unwrap_or(0o777), b"").await {
        Err(e) if parents && e.errno() == lnet_types::Errno::EEXIST => {
            let there = mount.find(place.path.as_bytes(), true).await?;
            if there.kind() != FileKind::Dir {
                return Err(e.into());
            }
        }
        end => {
            let node = end?;
            made.push(place.path.clone());
            // The mask is not for permissions that the user has named.
            if mode.is_some() {
                mount.change(&node, &Changes { mode, ..Changes::default() }).await?;
            }
        }
    }
    Ok(json!({ "name": shown, "made": made }).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, parents, mode, visit } = options;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        one(at, *parents, *mode).await
    })
}

//! `ulnet lustre rmdir`: removes empty directories.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::Visit;
use super::operands::{self, At, Done, Shape};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre rmdir 10.0.0.1@tcp:/lfs/data/old\n  \
    ulnet lustre rmdir /data/old /data/older")]
pub(super) struct Options {
    /// Empty directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

async fn one(at: &At<'_>) -> Result<Done> {
    let At { mount, place, name, .. } = *at;
    if super::names(&place.path).is_empty() {
        bail!("the root of a file system is not removed");
    }
    super::own_name(&place.path)?;
    let node = super::find_itself(mount, &place.path).await?;
    if node.kind() != FileKind::Dir {
        bail!("expected a directory");
    }
    mount.remove(&node).await?;
    Ok(name.row(json!({ "removed": 1 })).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit } = options;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| one(at).await)
}

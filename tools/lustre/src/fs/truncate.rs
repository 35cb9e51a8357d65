//! `ulnet lustre truncate`: cuts files off, or makes them longer.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, OpenHow, Place};
use serde_json::json;

use super::Visit;
use super::bytes::Bytes;
use super::operands::{self, At, Done, Shape};

/// Which ones, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre truncate 10.0.0.1@tcp:/lfs/data/log --size 0\n  \
    ulnet lustre truncate --size 10G /data/image1 /data/image2")]
pub(super) struct Options {
    /// Files
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Bytes that each has then; K, M, G and T are powers of 1024
    #[arg(short, long, value_name = "BYTES")]
    size: Bytes,
    #[command(flatten)]
    visit: Visit,
}

async fn one(at: &At<'_>, size: u64) -> Result<Done> {
    let At { mount, place, name, .. } = at;
    let node = mount.find(&place.path, true).await?;
    let how = OpenHow { write: true, ..OpenHow::default() };
    let mut file = mount.open_for(&node, how).await?;
    let before = file.size();
    let cut = mount.truncate(&mut file, size).await;
    let closed = mount.close(file).await;
    cut?;
    closed?;
    Ok(json!({ "name": name, "before": before, "size": size }).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, size, visit } = options;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| one(at, size.0).await)
}

//! `ulnet lustre truncate`: cuts files off, or makes them longer.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, OpenHow, Place};
use serde_json::json;

use super::Visit;
use super::bytes::Bytes;

/// Which one, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre truncate 10.0.0.1@tcp:/lfs/data/log --size 0\n  \
    ulnet lustre truncate /data/image --size 10G")]
pub(super) struct Options {
    /// File
    #[arg(value_parser = super::place)]
    place: Place,
    /// Bytes that it has then; K, M, G and T are powers of 1024
    #[arg(short, long, value_name = "BYTES")]
    size: Bytes,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, size, visit } = options;
    let before = super::with(place, visit, Access::Change, async |mount, _| {
        let node = mount.find(place.path.as_bytes(), true).await?;
        let how = OpenHow { write: true, ..OpenHow::default() };
        let mut file = mount.open_for(&node, how).await?;
        let before = file.size();
        let cut = mount.truncate(&mut file, size.0).await;
        let closed = mount.close(file).await;
        cut?;
        closed?;
        Ok(before)
    })?;
    if visit.way.json {
        println!("{:#}", json!({ "name": place.path, "before": before, "size": size.0 }));
    }
    Ok(true)
}

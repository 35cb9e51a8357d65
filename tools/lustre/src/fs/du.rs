//! `ulnet lustre du`: the space that files take.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place, join};
use serde_json::json;

use super::Visit;
use super::operands::{self, At, Done, Shape};
use super::walker::{Found, Walker};

/// Of which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "A file with several names counts once below each place.\n\nExamples:\n  \
    ulnet lustre du 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre du /data/in /data/out --json")]
pub(super) struct Options {
    /// Files and directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::place)]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

/// What files take.
struct Space {
    bytes: u64,
    blocks: u64,
    files: u64,
    whole: bool,
}

async fn space(at: &At<'_>) -> Result<Space> {
    let At { mount, stop, place, name } = *at;
    let node = mount.find(place.path.as_bytes(), false).await?;
    let first = mount.attributes(&node).await?;
    let mut space = Space { bytes: first.size, blocks: first.blocks, files: 1, whole: true };
    if node.kind() != FileKind::Dir {
        return Ok(space);
    }
    let mut several = BTreeSet::new();
    let mut walker = Walker::new(mount, stop, node, name);
    loop {
        let batch = walker.next().await?;
        if batch.is_empty() {
            space.whole = !walker.has_failed();
            return Ok(space);
        }
        let one = |found: Found| async move {
            let attributes = mount.attributes(&found.node).await;
            (found.path, attributes)
        };
        for (path, attributes) in join(batch.into_iter().map(one), 8).await {
            let attributes = match attributes {
                Ok(attributes) => attributes,
                Err(e) => {
                    walker.fail(&path, &e.into());
                    continue;
                }
            };
            let again = attributes.kind != FileKind::Dir
                && attributes.nlink > 1
                && !several.insert((attributes.fid.seq, attributes.fid.oid));
            if !again {
                space.bytes = space.bytes.saturating_add(attributes.size);
                space.blocks = space.blocks.saturating_add(attributes.blocks);
                space.files += 1;
            }
        }
    }
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit } = options;
    operands::each(places, visit, Access::Read, Shape::Each, async |at| {
        let Space { bytes, blocks, files, whole } = space(at).await?;
        let (name, space) = (at.name, blocks.saturating_mul(512));
        if !visit.way.json {
            println!("{}\t{name}", space.div_ceil(1024));
        }
        let value = json!({
            "name": name, "bytes": bytes, "space": space, "files": files, "all": whole
        });
        Ok(Done { value, whole })
    })
}

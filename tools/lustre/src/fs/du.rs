//! `ulnet lustre du`: the space that files take.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place, join};
use serde_json::json;

use super::Visit;
use super::walker::{Found, Walker};

/// Of which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "A file with several names counts once.\n\nExamples:\n  \
    ulnet lustre du 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre du /data --json")]
pub(super) struct Options {
    /// File or directory
    #[arg(value_parser = super::place)]
    place: Place,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let (bytes, space, files, all) =
        super::with(place, visit, Access::Read, async |mount, stop| {
            let node = mount.find(place.path.as_bytes(), false).await?;
            let first = mount.attributes(&node).await?;
            let (mut bytes, mut blocks, mut files) = (first.size, first.blocks, 1u64);
            if node.kind() != FileKind::Dir {
                return Ok((bytes, blocks.saturating_mul(512), files, true));
            }
            let mut several = BTreeSet::new();
            let mut walker = Walker::new(mount, stop, node, &place.path);
            loop {
                let batch = walker.next().await?;
                if batch.is_empty() {
                    break;
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
                        bytes = bytes.saturating_add(attributes.size);
                        blocks = blocks.saturating_add(attributes.blocks);
                        files += 1;
                    }
                }
            }
            Ok((bytes, blocks.saturating_mul(512), files, !walker.has_failed()))
        })?;
    match visit.way.json {
        true => println!(
            "{:#}",
            json!({ "name": place.path, "bytes": bytes, "space": space, "files": files, "all": all })
        ),
        false => println!("{}\t{}", space.div_ceil(1024), place.path),
    }
    Ok(all)
}

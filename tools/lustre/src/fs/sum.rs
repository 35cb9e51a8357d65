//! `ulnet lustre sum`: checksums of files.

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, OpenFile, Place};
use lustre_wire::Checksum;
use serde_json::json;

use super::operands::{self, At, Done, Shape};
use super::{Stop, Visit, lines};

/// Bytes that are read at a time.
const CHUNK: u64 = 16 << 20;
/// Zeros that are summed at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Of which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "The sum is CRC-32C, as for data on the wire.\n\nExamples:\n  \
    ulnet lustre sum 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre sum /data/f1 /data/f2 --json")]
pub(super) struct Options {
    /// Files
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

async fn sum(mount: &Mount, file: &OpenFile, stop: &Stop) -> Result<u32> {
    let mut sum = Checksum::Crc32c.begin();
    let (mut at, size) = (0, file.size());
    while at < size {
        stop.check()?;
        for part in mount.read(file, at, CHUNK).await? {
            sum.update(&part.bytes);
            let mut left = part.len.saturating_sub(part.bytes.len() as u64);
            while left > 0 {
                let here = left.min(ZEROS.len() as u64);
                sum.update(ZEROS.get(..here as usize).unwrap_or(&ZEROS));
                left -= here;
            }
        }
        at += CHUNK.min(size - at);
    }
    Ok(sum.value())
}

async fn one(at: &At<'_>, json: bool) -> Result<Done> {
    let At { mount, stop, place, name } = at;
    let node = mount.find(&place.path, true).await?;
    let file = mount.open_file(&node).await?;
    let (done, size) = (sum(mount, &file, stop).await, file.size());
    let closed = mount.close(file).await;
    let sum = done?;
    closed?;
    if !json {
        lines::named(format_args!("{sum:08x} {size} "), name.bytes());
    }
    Ok(name.row(json!({ "size": size, "crc32c": format!("{sum:08x}") })).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit } = options;
    let json = visit.way.json;
    operands::each(places, visit, Access::Read, Shape::Each, async |at| one(at, json).await)
}

//! `ulnet lustre cat`: writes files to standard output.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, OpenFile, Part, Place};
use serde_json::json;

use super::operands::{self, At, Done, Shape};
use super::{Stop, Visit, lines};

/// Bytes that are read at a time.
const CHUNK: u64 = 16 << 20;
/// Zeros that are written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "With --json an account follows on standard error.\n\nExamples:\n  \
    ulnet lustre cat 10.0.0.1@tcp:/lfs/data/f1 | sha256sum\n  \
    ulnet lustre cat /data/f1 /data/f2 > both")]
pub(super) struct Options {
    /// Files, in the order in which they are written
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

/// A failure of standard output: no further file is written.
fn unwritten(e: std::io::Error) -> anyhow::Error {
    lines::closed(&e);
    anyhow::Error::new(e).context("standard output")
}

fn write(to: &mut impl Write, part: &Part) -> std::io::Result<()> {
    to.write_all(&part.bytes)?;
    let mut left = part.len.saturating_sub(part.bytes.len() as u64);
    while left > 0 {
        let here = left.min(ZEROS.len() as u64);
        to.write_all(ZEROS.get(..here as usize).unwrap_or(&ZEROS))?;
        left -= here;
    }
    Ok(())
}

async fn copy(mount: &Mount, file: &OpenFile, stop: &Stop) -> Result<u64> {
    let mut to = std::io::stdout().lock();
    let (mut at, size) = (0, file.attributes().size);
    while at < size {
        stop.check()?;
        for part in mount.read(file, at, CHUNK).await? {
            write(&mut to, &part).map_err(unwritten)?;
        }
        at += CHUNK.min(size - at);
    }
    to.flush().map_err(unwritten)?;
    Ok(size)
}

async fn one(at: &At<'_>) -> Result<Done> {
    let At { mount, stop, place, name } = at;
    let node = mount.find(&place.path, true).await?;
    let file = mount.open_file(&node).await?;
    let copied = copy(mount, &file, stop).await;
    // What was opened is closed, whatever became of it.
    let closed = mount.close(file).await;
    let bytes = copied?;
    closed?;
    let mut value = json!({ "bytes": bytes });
    name.field_in(&mut value, "file");
    Ok(value.into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit } = options;
    let account =
        operands::collect(places, visit, Access::Read, Shape::Each, async |at| one(at).await)?;
    let whole = account.whole;
    if visit.way.json {
        // Standard output has the files.
        eprintln!("{}", account.json(places.len()));
    }
    Ok(whole)
}

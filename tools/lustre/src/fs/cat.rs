//! `ulnet lustre cat`: writes files to standard output.

use std::io::Write;

use anyhow::{Context as _, Result};
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, OpenFile, Part, Place};

use super::{Stop, Visit};

/// Bytes that are read at a time.
const CHUNK: u64 = 16 << 20;
/// Zeros that are written at a time.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// Which one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre cat 10.0.0.1@tcp:/lfs/data/f1 | sha256sum\n  \
    ulnet lustre cat /data/f1 > f1")]
pub(super) struct Options {
    /// File
    #[arg(value_parser = super::place)]
    place: Place,
    #[command(flatten)]
    visit: Visit,
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
            write(&mut to, &part).context("standard output")?;
        }
        at += CHUNK.min(size - at);
    }
    to.flush().context("standard output")?;
    Ok(size)
}

/// Runs the command.
///
/// # Errors
/// Standard output ends early, and as [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let bytes = super::with(place, visit, Access::Read, async |mount, stop| {
        let node = mount.find(place.path.as_bytes(), true).await?;
        let file = mount.open_file(&node).await?;
        let copied = copy(mount, &file, stop).await;
        // What was opened is closed, whatever became of it.
        let closed = mount.close(file).await;
        let bytes = copied?;
        closed?;
        Ok(bytes)
    })?;
    if visit.way.json {
        eprintln!("{}", serde_json::json!({ "file": place.path, "bytes": bytes }));
    }
    Ok(true)
}

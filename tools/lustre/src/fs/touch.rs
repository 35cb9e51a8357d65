//! `ulnet lustre touch`: sets the times of files, and makes those that do not exist.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Changes, Create, OpenHow, Place};
use serde_json::json;

use super::Visit;

/// Which one, and when.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Times of files have whole seconds.\n\nExamples:\n  \
    ulnet lustre touch 10.0.0.1@tcp:/lfs/data/done\n  \
    ulnet lustre touch /data/f1 --time 981173106")]
pub(super) struct Options {
    /// File
    #[arg(value_parser = super::place)]
    place: Place,
    /// Seconds since 1970; now if not given
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time: Option<i64>,
    /// Set the time of access alone
    #[arg(short, conflicts_with = "modified")]
    accessed: bool,
    /// Set the time of the last change alone
    #[arg(short)]
    modified: bool,
    /// Make no file
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, time, accessed, modified, no_create, visit } = options;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = time.unwrap_or_else(|| i64::try_from(now).unwrap_or(i64::MAX));
    let changes = Changes {
        atime: (!modified).then_some(time),
        mtime: (!accessed).then_some(time),
        ..Changes::default()
    };
    let made = super::with(place, visit, Access::Change, async |mount, _| {
        match mount.find(place.path.as_bytes(), true).await {
            Err(e) if e.errno() == lnet_types::Errno::ENOENT => {
                if *no_create {
                    return Ok(false);
                }
                let (dir, name) = super::parent(mount, &place.path).await?;
                let how = OpenHow { write: true, ..OpenHow::default() };
                let create = Create { mode: 0o666, ..Create::default() };
                let file = mount.create(&dir, &name, how, &create).await?;
                mount.close_with_changes(file, &changes).await?;
                Ok(true)
            }
            node => {
                mount.change(&node?, &changes).await?;
                Ok(false)
            }
        }
    })?;
    if visit.way.json {
        println!("{:#}", json!({ "name": place.path, "made": made, "time": time }));
    }
    Ok(true)
}

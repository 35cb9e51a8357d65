//! `ulnet lustre touch`: sets the times of files, and makes those that do not exist.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Changes, Create, OpenHow, Place};
use serde_json::json;

use super::Visit;
use super::operands::{self, At, Done, Shape};

/// Which ones, and when.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Times of files have whole seconds.\n\nExamples:\n  \
    ulnet lustre touch 10.0.0.1@tcp:/lfs/data/done\n  \
    ulnet lustre touch /data/f1 /data/f2 --time 981173106")]
pub(super) struct Options {
    /// Files
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Seconds since 1970; now if not given
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    time: Option<i64>,
    /// Set the time of access alone; with -m both
    #[arg(short)]
    accessed: bool,
    /// Set the time of the last change alone; with -a both
    #[arg(short)]
    modified: bool,
    /// Make no files
    #[arg(short = 'c', long)]
    no_create: bool,
    #[command(flatten)]
    visit: Visit,
}

/// Sets the times of a file; `true`: it was made.
async fn touch(at: &At<'_>, changes: &Changes, no_create: bool) -> Result<bool> {
    let At { mount, place, .. } = at;
    match mount.find(&place.path, true).await {
        Err(e) if e.errno() == lnet_types::Errno::ENOENT => {
            if no_create {
                return Ok(false);
            }
            super::ends_with_name(&place.path)?;
            let (dir, name) = mount.find_place(&place.path).await?;
            let how = OpenHow { write: true, ..OpenHow::default() };
            let create = Create { mode: 0o666, ..Create::default() };
            let file = mount.create(&dir, &name, how, &create).await?;
            mount.close_with_changes(file, changes).await?;
            Ok(true)
        }
        node => {
            mount.change(&node?, changes).await?;
            Ok(false)
        }
    }
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, time, accessed, modified, no_create, visit } = options;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let time = time.unwrap_or_else(|| i64::try_from(now).unwrap_or(i64::MAX));
    let changes = Changes {
        atime: (*accessed || !modified).then_some(time),
        mtime: (*modified || !accessed).then_some(time),
        ..Changes::default()
    };
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        let made = touch(at, &changes, *no_create).await?;
        Ok(Done::from(at.name.row(json!({ "made": made, "time": time }))))
    })
}

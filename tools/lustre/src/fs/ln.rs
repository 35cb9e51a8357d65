//! `ulnet lustre ln`: gives files more names, and makes symbolic links.

use anyhow::{Result, anyhow};
use clap::Args;
use lustre_rt::visitor::{Access, Place};
use serde_json::json;

use super::Visit;

/// What, and which name.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The text of a symbolic link is kept as it is; a path from the link's directory on is \
                  followed by every node.\n\nExamples:\n  \
    ulnet lustre ln 10.0.0.1@tcp:/lfs/data/f1 10.0.0.1@tcp:/lfs/data/f2\n  \
    ulnet lustre ln -s ../in/f1 /data/latest"
)]
pub(super) struct Options {
    /// File that gets one more name; with -s the text of the link
    target: String,
    /// The name
    #[arg(value_parser = super::place)]
    place: Place,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { target, place, symbolic, visit } = options;
    let file = match symbolic {
        true => None,
        false => Some(super::place(target)?),
    };
    if let Some(file) = &file
        && file.with_path("") != place.with_path("")
    {
        return Err(anyhow!("name '{place}': expected one in the file system of '{file}'"));
    }
    super::with(place, visit, Access::Change, async |mount, _| {
        let (dir, name) = super::parent(mount, &place.path).await?;
        match &file {
            None => {
                mount.make_link(&dir, &name, target.as_bytes()).await?;
            }
            Some(file) => {
                let node = mount.find(file.path.as_bytes(), false).await?;
                mount.link(&node, &dir, &name).await?;
            }
        }
        Ok(())
    })?;
    if visit.way.json {
        println!("{:#}", json!({ "target": target, "name": place.path, "symbolic": symbolic }));
    }
    Ok(true)
}

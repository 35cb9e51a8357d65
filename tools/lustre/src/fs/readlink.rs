//! `ulnet lustre readlink`: shows the text of a symbolic link.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::{Visit, show};

/// Which one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre readlink 10.0.0.1@tcp:/lfs/data/latest\n  \
    ulnet lustre readlink /data/latest --json")]
pub(super) struct Options {
    /// Symbolic link
    #[arg(value_parser = super::place)]
    place: Place,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// It is no symbolic link, and as [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let text = super::with(place, visit, Access::Read, async |mount, _| {
        let node = mount.find(place.path.as_bytes(), false).await?;
        if node.kind() != FileKind::Link {
            bail!("{}: expected a symbolic link", place.path);
        }
        Ok(mount.link_text(&node).await?)
    })?;
    let text = show::name(&text);
    match visit.way.json {
        true => println!("{:#}", json!({ "name": place.path, "link": text })),
        false => println!("{text}"),
    }
    Ok(true)
}

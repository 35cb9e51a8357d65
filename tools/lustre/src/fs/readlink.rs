//! `ulnet lustre readlink`: shows the texts of symbolic links.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::{Visit, lines};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre readlink 10.0.0.1@tcp:/lfs/data/latest\n  \
    ulnet lustre readlink /data/latest /data/first --json")]
pub(super) struct Options {
    /// Symbolic links
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

async fn one(at: &At<'_>, json: bool) -> Result<Done> {
    let At { mount, place, name, .. } = at;
    let node = mount.find(&place.path, false).await?;
    if node.kind() != FileKind::Link {
        bail!("expected a symbolic link");
    }
    let text = Label::new(mount.link_text(&node).await?);
    if !json {
        lines::named(format_args!(""), text.bytes());
    }
    let mut value = name.row(json!({}));
    text.field_in(&mut value, "link");
    Ok(value.into())
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

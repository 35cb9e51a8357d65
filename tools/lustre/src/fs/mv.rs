//! `ulnet lustre mv`: renames.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::Visit;

/// What, and whereto.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre mv 10.0.0.1@tcp:/lfs/data/f1 10.0.0.1@tcp:/lfs/data/f2\n  \
    ulnet lustre mv /data/f1 /data/old/")]
pub(super) struct Options {
    /// File or directory
    #[arg(value_parser = super::place)]
    from: Place,
    /// Its new name, which is taken from what has it; or a directory that gets it
    #[arg(value_parser = super::place)]
    to: Place,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { from, to, visit } = options;
    if from.with_path("") != to.with_path("") {
        bail!("destination '{to}': expected one in the file system of '{from}'");
    }
    let path = super::with(from, visit, Access::Change, async |mount, _| {
        let node = mount.find(from.path.trim_end_matches('/').as_bytes(), false).await?;
        let names = super::names(&from.path);
        let last = names.last().ok_or_else(|| super::taken(from))?;
        let (dir, name, path) = match mount.find(to.path.as_bytes(), true).await {
            Ok(dir) if dir.kind() == FileKind::Dir => {
                let path = format!("{}/{last}", to.path.trim_end_matches('/'));
                (dir, last.as_bytes().to_vec(), path)
            }
            _ => {
                let (dir, name) = super::parent(mount, &to.path).await?;
                (dir, name, to.path.clone())
            }
        };
        mount.rename(&node, &dir, &name).await?;
        Ok(path)
    })?;
    if visit.way.json {
        println!("{:#}", json!({ "from": from.path, "to": path }));
    }
    Ok(true)
}

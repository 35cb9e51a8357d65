//! `ulnet lustre stat`: shows what a file has.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Attributes, FileKind, Place};

use super::{Visit, show};

/// Which one.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre stat 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre stat /data/f1 --json")]
pub(super) struct Options {
    /// File; a symbolic link is shown itself
    #[arg(value_parser = super::place)]
    place: Place,
    #[command(flatten)]
    visit: Visit,
}

/// Runs the command.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { place, visit } = options;
    let (attributes, link) = super::with(place, visit, Access::Read, async |mount, _| {
        let node = mount.find(place.path.as_bytes(), false).await?;
        let link = match node.kind() {
            FileKind::Link => Some(show::name(&mount.link_text(&node).await?)),
            _ => None,
        };
        Ok((mount.attributes(&node).await?, link))
    })?;
    if visit.way.json {
        let mut value = show::json(&place.path, &attributes);
        value["link"] = link.into();
        println!("{value:#}");
        return Ok(true);
    }
    let Attributes { fid, uid, gid, nlink, size, blocks, .. } = attributes;
    let to = link.map(|to| format!(" -> {to}")).unwrap_or_default();
    println!("  File: {}{to}", place.path);
    println!("  Size: {size:<15} Blocks: {blocks:<10} {}", show::kind(&attributes));
    println!("   FID: {fid}  Inode: {}  Links: {nlink}", attributes.inode());
    let (mode, text) = (attributes.mode & 0o7777, show::mode(&attributes));
    println!("Access: ({mode:04o}/{text})  Uid: {uid}  Gid: {gid}");
    println!("Access: {} UTC", show::time(attributes.atime));
    println!("Modify: {} UTC", show::time(attributes.mtime));
    println!("Change: {} UTC", show::time(attributes.ctime));
    if let Some(btime) = attributes.btime {
        println!(" Birth: {} UTC", show::time(btime));
    }
    Ok(true)
}

//! `ulnet lustre stat`: shows what files have.

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Attributes, FileKind, Place};
use serde_json::Value;

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::{Visit, lines, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre stat 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre stat /data/f1 /data/f2 --json")]
pub(super) struct Options {
    /// Files; a symbolic link is shown itself
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

fn print(name: &Label, link: Option<&Label>, attributes: Attributes) {
    let Attributes { fid, uid, gid, nlink, size, blocks, .. } = attributes;
    let arrow = link.map(|to| [b" -> ", &lines::out(to.bytes(), show::name)[..]].concat());
    let file = lines::out(name.bytes(), show::name);
    lines::bytes(&[b"  File: ", &file[..], &arrow.unwrap_or_default(), b"\n"].concat());
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
}

async fn one(at: &At<'_>, json: bool) -> Result<Done> {
    let At { mount, place, name, .. } = at;
    let node = mount.find(&place.path, false).await?;
    let link = match node.kind() {
        FileKind::Link => Some(Label::new(mount.link_text(&node).await?)),
        _ => None,
    };
    let attributes = mount.attributes(&node).await?;
    let mut value = show::json(name, &attributes);
    if !json {
        print(name, link.as_ref(), attributes);
    }
    value["link"] = Value::Null;
    if let Some(link) = link {
        link.field_in(&mut value, "link");
    }
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

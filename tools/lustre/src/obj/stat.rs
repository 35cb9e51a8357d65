//! `ulnet obj stat`: what an object has, or the space of a target.

use anyhow::Result;
use clap::Args;
use lustre_rt::{ObjInfo, ObjSpace, ObjectId};
use serde_json::{Value, json};

use crate::client;

/// Of which object.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj stat --target ost-0@10.0.0.1@tcp 7\n  \
    ulnet obj stat --target ost-0@10.0.0.1@tcp --json")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID; the target if not given
    #[arg(value_parser = super::object)]
    object: Option<ObjectId>,
}

/// What an object has, by name.
pub(super) fn shown(id: ObjectId, info: &ObjInfo) -> Value {
    let ObjInfo { size, blocks, mode, uid, gid, mtime, version } = *info;
    json!({
        "object": super::name(id), "size": size, "blocks": blocks, "mode": format!("{mode:o}"),
        "uid": uid, "gid": gid, "mtime": mtime, "version": version,
    })
}

/// Runs the command.
///
/// # Errors
/// There is no such object, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object } = options;
    let Some(id) = *object else {
        let ObjSpace { total, free, available } =
            super::with(client, None, |obj| Ok(obj.space()?))?;
        if client.way.json {
            let name = &client.target.name;
            let shown =
                json!({ "target": name, "total": total, "free": free, "available": available });
            println!("{shown:#}");
        } else {
            println!("total {total}  free {free}  available {available}");
        }
        return Ok(());
    };
    let info = super::with(client, Some(id), |obj| Ok(obj.stat(id)?))?;
    if client.way.json {
        println!("{:#}", shown(id, &info));
        return Ok(());
    }
    let ObjInfo { size, blocks, mode, uid, gid, mtime, version } = info;
    println!("{}", super::name(id));
    println!("size {size}  blocks {blocks}  version {version:#x}");
    println!("mode {mode:o}  uid {uid}  gid {gid}  mtime {mtime}");
    Ok(())
}

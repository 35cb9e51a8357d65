//! `ulnet obj punch`: cuts an object off, or extends it.

use anyhow::Result;
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use crate::client;

/// Which object, and where it ends.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj punch --target ost-0@10.0.0.1@tcp 7 4096\n  \
    ulnet obj punch --target ost-0@10.0.0.1@tcp 7 0")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID
    #[arg(value_parser = super::object)]
    object: ObjectId,
    /// Bytes that it has afterwards
    size: u64,
}

/// Runs the command.
///
/// # Errors
/// There is no such object, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object, size } = options;
    super::with(client, Some(*object), |obj| {
        obj.punch(*object, *size)?;
        Ok(obj.sync(Some(*object))?)
    })?;
    if client.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "size": size }));
    }
    Ok(())
}

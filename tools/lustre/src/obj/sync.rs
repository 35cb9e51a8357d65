//! `ulnet obj sync`: waits until what was done survives the server.

use anyhow::Result;
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use crate::client;

/// Of which object.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj sync --target ost-0@10.0.0.1@tcp\n  \
    ulnet obj sync --target ost-0@10.0.0.1@tcp 7")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID; the whole target if not given
    #[arg(value_parser = super::object)]
    object: Option<ObjectId>,
}

/// Runs the command.
///
/// # Errors
/// There is no such object, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object } = options;
    super::with(client, *object, |obj| Ok(obj.sync(*object)?))?;
    if client.way.json {
        println!("{:#}", json!({ "object": object.map(super::name), "committed": true }));
    }
    Ok(())
}

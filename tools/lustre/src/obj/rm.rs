//! `ulnet obj rm`: removes objects.

use anyhow::Result;
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use crate::client;

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj rm --target ost-0@10.0.0.1@tcp 7\n  \
    ulnet obj rm --target ost-0@10.0.0.1@tcp 100 --count 50")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID
    #[arg(value_parser = super::object)]
    object: ObjectId,
    /// Objects from this one on; those that do not exist are passed over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
}

/// Runs the command.
///
/// # Errors
/// There is no such object, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object, count } = options;
    super::with(client, Some(*object), |obj| {
        obj.remove(*object, *count)?;
        Ok(obj.sync(None)?)
    })?;
    if client.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "count": count }));
    }
    Ok(())
}

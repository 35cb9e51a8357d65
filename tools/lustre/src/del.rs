//! `ulnet rpc del`: removes a key.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::client;

/// What is removed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: ulnet rpc del --target kv-1@10.0.0.1@tcp greeting")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Key
    #[arg(value_parser = client::key)]
    key: String,
}

/// Runs the command.
///
/// # Errors
/// As [`client::with_key`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, key } = options;
    let info = client::with_key(client, key, |kv| kv.del(key.as_bytes()))?;
    if client.way.json {
        println!("{:#}", json!({ "previous": info.previous }));
    }
    Ok(())
}

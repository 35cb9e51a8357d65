//! `ulnet rpc put`: stores a value under a key.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::client;

/// What is stored.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc put --target kv-1@10.0.0.1@tcp,10.0.0.2@tcp greeting hello\n  \
    ulnet rpc put --target kv-1@10.0.0.1@tcp image - < disk.img")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Key, 1 to 255 bytes
    #[arg(value_parser = client::key)]
    key: String,
    /// Value, up to 64 MiB; - reads standard input
    value: String,
}

/// Runs the command.
///
/// # Errors
/// As [`client::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, key, value } = options;
    let value = client::value(value)?;
    let info = client::with(client, |kv| kv.put(key.as_bytes(), value))?;
    if client.way.json {
        println!("{:#}", json!({ "version": info.version, "previous": info.previous }));
    } else {
        println!("version {:#x}", info.version);
    }
    Ok(())
}

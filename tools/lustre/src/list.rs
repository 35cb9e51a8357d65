//! `ulnet rpc list`: lists keys with their versions and lengths.

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::client;

/// Which keys.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc list --target kv-1@10.0.0.1@tcp\n  \
    ulnet rpc list --target kv-1@10.0.0.1@tcp user- --max 100")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Keys that begin with this
    #[arg(default_value = "")]
    prefix: String,
    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    max: usize,
}

/// Keys of one request.
const PAGE: u64 = 1000;

/// Runs the command.
///
/// # Errors
/// As [`client::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, prefix, max } = options;
    let entries = client::with(client, |kv| {
        let mut all: Vec<lustre_rt::Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.key.clone()).unwrap_or_default();
            let (page, more) = kv.list(prefix.as_bytes(), &after, PAGE)?;
            let end = page.is_empty() || !more;
            all.extend(page);
            if end || all.len() >= *max {
                all.truncate(*max);
                return Ok(all);
            }
        }
    })?;
    if client.way.json {
        let row = |entry: &lustre_rt::Entry| {
            let key = client::text_or_hex(&entry.key);
            json!({ "key": key, "version": entry.version, "bytes": entry.len })
        };
        println!("{:#}", json!(entries.iter().map(row).collect::<Vec<_>>()));
        return Ok(());
    }
    for entry in &entries {
        println!("{:#x} {:>9} {}", entry.version, entry.len, client::text_or_hex(&entry.key));
    }
    Ok(())
}

//! `ulnet rpc get`: reads the value of a key.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;

use crate::client;

/// What is read, and where to.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc get --target kv-1@10.0.0.1@tcp greeting\n  \
    ulnet rpc get --target kv-1@10.0.0.1@tcp image --output disk.img")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Key
    #[arg(value_parser = client::key)]
    key: String,
    /// Write the value to a file, byte for byte; without it a newline follows the value
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// The file can't be written, and as [`client::with_key`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, key, output } = options;
    let (info, value) = client::with_key(client, key, |kv| kv.get(key.as_bytes()))?;
    if let Some(path) = output {
        std::fs::write(path, &value).with_context(|| path.display().to_string())?;
    }
    if client.way.json {
        let mut shown = json!({ "version": info.version, "bytes": value.len() });
        if output.is_none() {
            shown["value"] = client::text_or_hex(&value).into();
        }
        println!("{shown:#}");
    } else if output.is_none() {
        let mut out = std::io::stdout().lock();
        out.write_all(&value).and_then(|()| out.write_all(b"\n")).context("standard output")?;
    }
    Ok(())
}

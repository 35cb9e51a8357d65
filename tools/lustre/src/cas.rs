//! `ulnet rpc cas`: stores a value if the key has the expected version.

use anyhow::{Result, anyhow, bail};
use clap::Args;
use lustre_rt::InfoFlags;
use serde_json::json;

use crate::client;

/// What is stored, and under which condition.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc cas --target kv-1@10.0.0.1@tcp lock mine 0\n  \
    ulnet rpc cas --target kv-1@10.0.0.1@tcp counter 8 0x100000005")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Key, 1 to 255 bytes
    #[arg(value_parser = client::key)]
    key: String,
    /// Value, up to 64 MiB; - reads standard input
    value: String,
    /// Version that the key must have; 0: it must not exist
    #[arg(value_parser = version)]
    expect: u64,
}

fn version(text: &str) -> Result<u64> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| anyhow!("expected a version such as 0 or 0x100000005"))
}

/// Runs the command.
///
/// # Errors
/// Another version, and as [`client::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, key, value, expect } = options;
    let value = client::value(value)?;
    let info = client::with(client, |kv| kv.cas(key.as_bytes(), value, *expect))?;
    let applied = info.flags.contains(InfoFlags::APPLIED);
    if client.way.json {
        println!("{:#}", json!({ "applied": applied, "version": info.version }));
    } else if applied {
        println!("version {:#x}", info.version);
    }
    if !applied {
        bail!("key '{key}' has version {:#x}, expected {expect:#x}", info.version);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_decimal_or_hexadecimal() {
        for (text, wanted) in [("0", 0), ("17", 17), ("0x100000005", 0x1_0000_0005)] {
            assert_eq!(version(text).unwrap(), wanted);
        }
        for text in ["", "x", "0x", "-1", "0x1ffffffffffffffff"] {
            let e = version(text).unwrap_err().to_string();
            assert_eq!(e, "expected a version such as 0 or 0x100000005", "'{text}'");
        }
    }
}

//! `ulnet obj get`: reads an object.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use crate::client;

/// What is read, and where to.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj get --target ost-0@10.0.0.1@tcp 7 --output disk.img\n  \
    ulnet obj get --target ost-0@10.0.0.1@tcp 7 --offset 4096 --length 100 | xxd")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID
    #[arg(value_parser = super::object)]
    object: ObjectId,
    /// Write to a file; standard output if not given
    #[arg(long, value_name = "FILE", required_if_eq("json", "true"))]
    output: Option<PathBuf>,
    /// The first byte
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    offset: u64,
    /// At most so many; up to the end of the object if not given
    #[arg(long, value_name = "BYTES")]
    length: Option<u64>,
}

/// Bytes that are read and written at a time.
const PART: u64 = 4 << 20;

/// Runs the command.
///
/// # Errors
/// There is no such object, the file can't be written, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object, output, offset, length } = options;
    let (name, mut to): (String, Box<dyn Write>) = match output {
        Some(path) => {
            let name = path.display().to_string();
            (name.clone(), Box::new(File::create(path).context(name)?))
        }
        None => ("standard output".to_owned(), Box::new(std::io::stdout())),
    };
    let read = super::with(client, |obj| {
        let size = obj.stat(*object)?.size;
        let end = length.map_or(size, |length| offset.saturating_add(length).min(size));
        let mut at = *offset;
        while at < end {
            let part = obj.read(*object, at, (end - at).min(PART) as usize)?;
            // It was cut off meanwhile.
            if part.is_empty() {
                break;
            }
            to.write_all(&part).with_context(|| name.clone())?;
            at += part.len() as u64;
        }
        to.flush().with_context(|| name.clone())?;
        Ok(at - offset)
    })?;
    if client.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "bytes": read }));
    }
    Ok(())
}

//! `ulnet obj put`: writes a file to an object.

use std::fs::File;
use std::io::Read;

use anyhow::{Context as _, Result};
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use crate::client;

/// What is written, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp 7 disk.img\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp 7 - --offset 4096 < part")]
pub(crate) struct Options {
    #[command(flatten)]
    client: client::Access,
    /// Object: its number or its FID
    #[arg(value_parser = super::object)]
    object: ObjectId,
    /// File; - reads standard input
    file: String,
    /// Write from here on, and leave the rest as it is; without it the object ends with the file
    #[arg(long, value_name = "BYTES")]
    offset: Option<u64>,
}

/// Bytes that are read and written at a time.
const PART: u64 = 4 << 20;

/// Runs the command.
///
/// # Errors
/// The file can't be read, there is no such object or no space, and as [`super::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { client, object, file, offset } = options;
    let mut from: Box<dyn Read> = match file.as_str() {
        "-" => Box::new(std::io::stdin()),
        path => Box::new(File::open(path).with_context(|| path.to_owned())?),
    };
    let start = offset.unwrap_or(0);
    let end = super::with(client, |obj| {
        let mut at = start;
        loop {
            let mut part = Vec::new();
            from.by_ref().take(PART).read_to_end(&mut part).with_context(|| file.clone())?;
            if part.is_empty() {
                break;
            }
            obj.write(*object, at, &part)?;
            at += part.len() as u64;
        }
        if offset.is_none() {
            obj.punch(*object, at)?;
            obj.sync(Some(*object))?;
        }
        Ok(at)
    })?;
    if client.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "bytes": end - start }));
    } else {
        println!("{}: {} bytes", super::name(*object), end - start);
    }
    Ok(())
}

//! `ulnet obj get`: reads an object, or a file that is spread over several.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use super::spread::{self, Pending, Spread};

/// What is read, and where to.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj get --target ost-0@10.0.0.1@tcp 7 --output disk.img\n  \
    ulnet obj get --target ost-0@10.0.0.1@tcp 7 --offset 4096 --length 100 | xxd\n  \
    ulnet obj get --target ost-0@10.0.0.1@tcp --target ost-1@10.0.0.2@tcp 7 --output disk.img")]
pub(crate) struct Options {
    #[command(flatten)]
    spread: Spread,
    /// Object: its number or its FID; of a file that is spread the first one
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

/// Runs the command.
///
/// # Errors
/// There is no such object, the file can't be written, and as [`spread::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { spread, object, output, offset, length } = options;
    let (name, mut to): (String, Box<dyn Write>) = match output {
        Some(path) => {
            let name = path.display().to_string();
            (name.clone(), Box::new(File::create(path).context(name)?))
        }
        None => ("standard output".to_owned(), Box::new(std::io::stdout())),
    };
    let read = spread::with(spread, *object, |striped| {
        let size = striped.size()?;
        let end = length.map_or(size, |length| offset.saturating_add(length).min(size));
        let mut read = 0;
        let mut take = |op: Pending<'_, Vec<u8>>| -> Result<()> {
            let bytes = op()?;
            read += bytes.len() as u64;
            to.write_all(&bytes).with_context(|| name.clone())
        };
        let mut begun: VecDeque<Pending<'_, Vec<u8>>> = VecDeque::new();
        for part in striped.raid.parts(*offset..end) {
            begun.push_back(striped.read(part.object, part.offset, usize::try_from(part.len)?)?);
            if begun.len() >= super::UNDER_WAY
                && let Some(oldest) = begun.pop_front()
            {
                take(oldest)?;
            }
        }
        begun.into_iter().try_for_each(take)?;
        to.flush().with_context(|| name.clone())?;
        Ok(read)
    })?;
    if spread.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "bytes": read }));
    }
    Ok(())
}

//! `ulnet obj put`: writes a file to an object, or spreads it over several.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;

use anyhow::{Context as _, Result};
use clap::Args;
use lustre_rt::ObjectId;
use serde_json::json;

use super::spread::{self, Pending, Spread};

/// What is written, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp 7 disk.img\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp 7 - --offset 4096 < part\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp --target ost-1@10.0.0.2@tcp 7 disk.img\n  \
    ulnet obj put --target ost-0@10.0.0.1@tcp --stripe 4 7 disk.img\n\n\
    The third example spreads the file over object 7 of two targets, the last one over objects 7 to 10 of \
    one; get needs the same options. Data are cached under locks and have reached all targets for good \
    when the command has ended.")]
pub(crate) struct Options {
    #[command(flatten)]
    spread: Spread,
    /// Object: its number or its FID; of a file that is spread the first one
    #[arg(value_parser = super::object)]
    object: ObjectId,
    /// File; - reads standard input
    file: String,
    /// Write from here on, and leave the rest as it is; without it the object ends with the file
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    offset: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// The file can't be read, there is no such object or no space, and as [`spread::with`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let Options { spread, object, file, offset } = options;
    let mut from: Box<dyn Read> = match file.as_str() {
        "-" => Box::new(std::io::stdin()),
        path => Box::new(File::open(path).with_context(|| path.to_owned())?),
    };
    let start = offset.unwrap_or(0);
    let end = spread::with(spread, *object, |striped| {
        let mut at = start;
        let mut begun: VecDeque<Pending<'_, ()>> = VecDeque::new();
        for part in striped.raid.parts(start..u64::MAX) {
            let mut bytes = Vec::new();
            from.by_ref().take(part.len).read_to_end(&mut bytes).with_context(|| file.clone())?;
            if bytes.is_empty() {
                break;
            }
            at += bytes.len() as u64;
            begun.push_back(striped.write(part.object, part.offset, bytes)?);
            if begun.len() >= super::UNDER_WAY
                && let Some(oldest) = begun.pop_front()
            {
                oldest()?;
            }
        }
        begun.into_iter().try_for_each(|op| op())?;
        striped.sync()?;
        if offset.is_none() {
            striped.truncate(at)?;
            striped.sync()?;
        }
        striped.close()?;
        Ok(at)
    })?;
    if spread.way.json {
        println!("{:#}", json!({ "object": super::name(*object), "bytes": end - start }));
    } else {
        println!("{}: {} bytes", super::name(*object), end - start);
    }
    Ok(())
}

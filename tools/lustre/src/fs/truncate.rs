//! `ulnet lustre truncate`: cuts files off, or makes them longer.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use clap::Args;
use lustre_rt::visitor::{Access, OpenHow, Place};
use serde_json::json;

use super::Visit;
use super::bytes::Bytes;
use super::operands::{self, At, Done, Shape};

/// Which ones, and where.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre truncate 10.0.0.1@tcp:/lfs/data/log --size 0\n  \
    ulnet lustre truncate --size 10G /data/image1 /data/image2\n  \
    ulnet lustre truncate --size -4K /data/log")]
pub(super) struct Options {
    /// Files
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Bytes that each has then; so many more (+) or fewer (-) than before, but not less than none. K, M, G and T
    /// are powers of 1024
    #[arg(short, long, value_name = "[+-]BYTES", allow_hyphen_values = true)]
    size: Size,
    #[command(flatten)]
    visit: Visit,
}

/// How long a file is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Size {
    Bytes(u64),
    More(u64),
    Fewer(u64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = |text: &str| text.parse().map(|Bytes(bytes)| bytes);
        match text.split_at_checked(1) {
            Some(("+", rest)) => bytes(rest).map(Self::More),
            Some(("-", rest)) => bytes(rest).map(Self::Fewer),
            _ => bytes(text).map(Self::Bytes),
        }
    }
}

impl Size {
    /// The size of a file that has this one.
    fn of(self, before: u64) -> Result<u64> {
        match self {
            Self::Bytes(size) => Ok(size),
            Self::Fewer(bytes) => Ok(before.saturating_sub(bytes)),
            Self::More(bytes) => before
                .checked_add(bytes)
                .ok_or_else(|| anyhow!("size {before} and {bytes} more: limit 2^64 bytes")),
        }
    }
}

async fn one(at: &At<'_>, size: Size) -> Result<Done> {
    let At { mount, place, name, .. } = at;
    let node = mount.find(&place.path, true).await?;
    let how = OpenHow { write: true, ..OpenHow::default() };
    let mut file = mount.open_for(&node, how).await?;
    let before = file.size();
    let cut = async {
        let size = size.of(before)?;
        mount.truncate(&mut file, size).await?;
        Ok::<_, anyhow::Error>(size)
    };
    let cut = cut.await;
    let closed = mount.close(file).await;
    let size = cut?;
    closed?;
    Ok(name.row(json!({ "before": before, "size": size })).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, size, visit } = options;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| one(at, *size).await)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_a_sign_are_relative() {
        for (text, before, after) in [
            ("4K", 10_000, 4096),
            ("0", 10_000, 0),
            ("+4K", 10_000, 14_096),
            ("-4K", 10_000, 5904),
            ("-4K", 100, 0),
            ("+0", 7, 7),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.of(before).unwrap(), after, "{text}");
        }
        assert!(Size::More(1).of(u64::MAX).is_err());
        for text in ["", "+", "-", "++4K", "+-4K", "<4K", "%4K"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }
}

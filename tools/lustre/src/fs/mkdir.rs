//! `ulnet lustre mkdir`: makes directories.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, Changes, DirHash, DirWish, FileKind, Place};
use serde_json::json;

use super::Visit;
use super::label::Label;
use super::operands::{self, At, Done, Shape};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre mkdir 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre mkdir -p /data/in/today /data/out -m 750\n  \
    ulnet lustre mkdir -i 1 /data/elsewhere\n  \
    ulnet lustre mkdir -i 1,0 /data/both\n  \
    ulnet lustre mkdir -c 2 -H crush /data/spread")]
pub(super) struct Options {
    /// Directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Make the directories above it too; one that exists is no failure
    #[arg(short, long)]
    parents: bool,
    /// Permissions, octal; 777 without the mask of this process if not given
    #[arg(short, long, value_parser = super::mode)]
    mode: Option<u32>,
    /// Metadata target that gets it, by its index, or several for its names, of which the first has it; if
    /// not given, and for what -p makes: the default of its parent, or the target of its parent
    #[arg(short = 'i', long, value_name = "INDEX[,INDEX]", value_delimiter = ',')]
    mdt_index: Vec<u32>,
    /// Metadata targets over which its names are spread; -1 for all
    #[arg(short = 'c', long, value_name = "COUNT", allow_hyphen_values = true, value_parser = count)]
    mdt_count: Option<i32>,
    /// Rule by which they are spread: all_char, fnv_1a_64, crush or crush2; the server's if not given
    #[arg(short = 'H', long, value_name = "RULE", value_parser = hash)]
    mdt_hash: Option<DirHash>,
    #[command(flatten)]
    visit: Visit,
}

/// Metadata targets of a directory.
fn count(text: &str) -> Result<i32, String> {
    let bad = || "expected 1 to 2000, or -1 for all".to_owned();
    text.parse().ok().filter(|count| *count == -1 || (1..=2000).contains(count)).ok_or_else(bad)
}

fn hash(text: &str) -> Result<DirHash, String> {
    let names = DirHash::ALL.map(|(_, name)| name).join(", ");
    DirHash::named(text).ok_or_else(|| format!("expected one of {names}"))
}

async fn one(at: &At<'_>, parents: bool, mode: Option<u32>, layout: &[u8]) -> Result<Done> {
    let At { mount, stop, place, name: shown } = *at;
    let mut made = Vec::new();
    let names = super::names(&place.path);
    let (last, above) = names.split_last().ok_or_else(super::taken)?;
    let mut dir = mount.root_node().await?;
    let mut path = Label::new(*b"/");
    for name in above {
        stop.check()?;
        path = path.join(name);
        let (node, is_new) = match parents {
            true => mount.child_or_new_dir(&dir, name, 0o777).await?,
            false => (mount.child(&dir, name).await?, false),
        };
        if is_new {
            made.push(path.clone());
        }
        dir = match node.kind() {
            FileKind::Link => mount.find(path.bytes(), true).await?,
            _ => node,
        };
    }
    match mount.make_dir(&dir, last, mode.unwrap_or(0o777), layout).await {
        Err(e) if parents && e.errno() == lnet_types::Errno::EEXIST => {
            let there = mount.find(&place.path, true).await?;
            if there.kind() != FileKind::Dir {
                return Err(e.into());
            }
        }
        end => {
            let node = end?;
            made.push(Label::new(place.path.clone()));
            // The mask is not for permissions that the user has named.
            if mode.is_some() {
                mount.change(&node, &Changes { mode, ..Changes::default() }).await?;
            }
        }
    }
    let made = made.iter().map(Label::text);
    Ok(shown.row(json!({ "made": made.collect::<Vec<_>>() })).into())
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// Another number of metadata targets than are named, and as [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, parents, mode, mdt_index, mdt_count, mdt_hash, visit } = options;
    if let (listed @ 2.., Some(count)) = (mdt_index.len(), *mdt_count)
        && usize::try_from(count) != Ok(listed)
    {
        bail!("--mdt-count {count}: expected {listed}, as there are indexes");
    }
    if mdt_hash.is_some() && mdt_count.is_none() && mdt_index.len() < 2 {
        bail!(
            "--mdt-hash without --mdt-count: expected the number of metadata targets, or indexes of several"
        );
    }
    if let Some(twice) =
        mdt_index.iter().enumerate().find(|(at, index)| mdt_index[..*at].contains(index))
    {
        bail!("--mdt-index {}: expected each index once", twice.1);
    }
    let wish = DirWish { mdts: mdt_index.clone(), count: *mdt_count, hash: *mdt_hash };
    let layout = wish.bytes();
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        one(at, *parents, *mode, &layout).await
    })
}

//! `ulnet lustre du`: the space that files take, of each directory with all that is in it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::Args;
use lustre_rt::visitor::{Access, Attributes, FileKind, Place, join};
use serde_json::{Value, json};

use super::label::{Label, without_slashes};
use super::operands::{self, At, Done, Shape};
use super::walker::{Found, IN_FLIGHT, Walker};
use super::{Visit, lines, show};

/// Of which ones.
#[derive(Clone, Debug, Args)]
#[command(
    disable_help_flag = true,
    after_help = "Space is in KiB. A file with several names counts once below each place.\n\nExamples:\n  \
    ulnet lustre du -sh 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre du -h -d 1 /data\n  \
    ulnet lustre du /data/in /data/out --json"
)]
pub(super) struct Options {
    /// Files and directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Show the sum of each place alone, not its directories
    #[arg(short, long, conflicts_with = "max_depth")]
    summarize: bool,
    /// Show directories down to so many levels below each place
    #[arg(short = 'd', long, value_name = "LEVELS")]
    max_depth: Option<u32>,
    /// Show space with units: 1.5K, 23M
    #[arg(short, long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    visit: Visit,
}

/// A directory, and what files in it and below it take.
struct Dir {
    path: Label,
    depth: u32,
    /// The one that it is in.
    above: Option<usize>,
    blocks: u64,
}

/// What files take.
struct Space {
    bytes: u64,
    files: u64,
    /// The place itself, and directories below it, each behind the one that it is in.
    dirs: Vec<Dir>,
    by_path: BTreeMap<Label, usize>,
    /// Files with several names that were counted.
    several: BTreeSet<(u64, u32)>,
    whole: bool,
}

impl Space {
    fn of(path: Label, top: &Attributes) -> Self {
        let dir = Dir { path: path.clone(), depth: 0, above: None, blocks: top.blocks };
        Self {
            bytes: top.size,
            files: 1,
            dirs: vec![dir],
            by_path: BTreeMap::from([(path, 0)]),
            several: BTreeSet::new(),
            whole: true,
        }
    }

    fn add(&mut self, found: &Found, attributes: &Attributes) {
        let Attributes { fid, size, blocks, nlink, .. } = *attributes;
        let is_dir = attributes.kind == FileKind::Dir;
        if !is_dir && nlink > 1 && !self.several.insert((fid.seq, fid.oid)) {
            return;
        }
        self.bytes = self.bytes.saturating_add(size);
        self.files += 1;
        // What is in a directory that could not be looked at counts for the place.
        let above = self.by_path.get(&above(&found.path)).copied().unwrap_or_default();
        if is_dir {
            self.by_path.insert(found.path.clone(), self.dirs.len());
            let (path, depth) = (found.path.clone(), found.depth);
            self.dirs.push(Dir { path, depth, above: Some(above), blocks });
        } else if let Some(dir) = self.dirs.get_mut(above) {
            dir.blocks = dir.blocks.saturating_add(blocks);
        }
    }

    /// Each directory has what is below it too, and comes behind those that are in it.
    fn sum(&mut self) {
        for index in (0..self.dirs.len()).rev() {
            let Some(&Dir { above: Some(above), blocks, .. }) = self.dirs.get(index) else {
                continue;
            };
            if let Some(dir) = self.dirs.get_mut(above) {
                dir.blocks = dir.blocks.saturating_add(blocks);
            }
        }
        self.dirs.sort_by(|a, b| inner_first(a.path.bytes(), b.path.bytes()));
    }
}

/// The directory of a path.
fn above(path: &Label) -> Label {
    let names = path.bytes().rsplitn(2, |byte| *byte == b'/').nth(1).unwrap_or_default();
    Label::new(names).plain()
}

/// By name, but what is in a directory before it.
fn inner_first(a: &[u8], b: &[u8]) -> Ordering {
    let names = |path| without_slashes(path).split(|byte| *byte == b'/');
    let (mut a, mut b) = (names(a), names(b));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(a), Some(b)) if a != b => return a.cmp(b),
            _ => {}
        }
    }
}

async fn space(at: &At<'_>) -> Result<Space> {
    let At { mount, stop, place, name } = *at;
    let node = mount.find(&place.path, false).await?;
    let mut space = Space::of(name.plain(), &mount.attributes(&node).await?);
    if node.kind() != FileKind::Dir {
        return Ok(space);
    }
    let mut walker = Walker::new(mount, stop, node, name);
    loop {
        let batch = walker.next().await?;
        if batch.is_empty() {
            space.whole = !walker.has_failed();
            space.sum();
            return Ok(space);
        }
        let one = |found: Found| async move {
            let attributes = mount.attributes(&found.node).await;
            (found, attributes)
        };
        // A directory stands before what is in it.
        for (found, attributes) in join(batch.into_iter().map(one), IN_FLIGHT).await {
            match attributes {
                Ok(attributes) => space.add(&found, &attributes),
                Err(e) => walker.fail(&found.path, &e.into()),
            }
        }
    }
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, summarize, max_depth, human_readable, visit, .. } = options;
    let lowest = if *summarize { 0 } else { max_depth.unwrap_or(u32::MAX) };
    operands::each(places, visit, Access::Read, Shape::Each, async |at| {
        let Space { bytes, files, dirs, whole, .. } = space(at).await?;
        let in_bytes = |dir: &Dir| dir.blocks.saturating_mul(512);
        let shown = dirs.iter().filter(|dir| dir.depth <= lowest);
        if !visit.way.json {
            for dir in shown {
                let space = match human_readable {
                    true => show::human(in_bytes(dir)),
                    false => in_bytes(dir).div_ceil(1024).to_string(),
                };
                lines::named(format_args!("{space}\t"), dir.path.bytes());
            }
            return Ok(Done { value: Value::Null, whole });
        }
        let rows = shown.filter(|dir| dir.depth > 0).map(|dir| {
            let mut row = json!({ "space": in_bytes(dir) });
            dir.path.name_in(&mut row);
            row
        });
        let rows: Vec<Value> = rows.collect();
        let space = dirs.iter().find(|dir| dir.depth == 0).map_or(0, in_bytes);
        let mut value = json!({ "bytes": bytes, "space": space, "files": files, "all": whole });
        at.name.name_in(&mut value);
        if lowest > 0 {
            value["directories"] = rows.into();
        }
        Ok(Done { value, whole })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_come_behind_those_in_them() {
        let mut paths = ["/d", "/d/b", "/d/a", "/d/a/x", "/d/a-b", "/"];
        paths.sort_by(|a, b| inner_first(a.as_bytes(), b.as_bytes()));
        assert_eq!(paths, ["/d/a/x", "/d/a", "/d/a-b", "/d/b", "/d", "/"]);
        for (path, dir) in [("/d/a", "/d"), ("/a", "/"), ("1.0.0.1@tcp:/lfs/a", "1.0.0.1@tcp:/lfs")]
        {
            assert_eq!(above(&Label::new(path)), Label::new(dir));
        }
    }
}

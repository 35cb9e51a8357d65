//! `ulnet lustre ls`: lists a directory, by name or as it is read.

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, Attributes, FileKind, Name, Node, Place};
use serde_json::{Value, json};

use super::{Stop, Visit, show};

/// Which one.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Names are sorted by their bytes, once all of them are read. With -U they come in the \
                  order of the server, the first ones at once.\n\nExamples:\n  \
    ulnet lustre ls 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre ls -l /data\n  \
    ulnet lustre ls -U /data | wc -l"
)]
pub(super) struct Options {
    /// Directory or file
    #[arg(value_parser = super::place)]
    place: Place,
    /// Show type, permissions, links, owner, group, size and time (UTC) too
    #[arg(short, long)]
    long: bool,
    /// Show names as the server lists them, not sorted: for very large directories
    #[arg(short = 'U', long)]
    unsorted: bool,
    #[command(flatten)]
    visit: Visit,
}

fn line(name: &str, attributes: &Attributes) -> String {
    let Attributes { nlink, uid, gid, mtime, .. } = attributes;
    let size = match attributes.kind {
        FileKind::Block | FileKind::Char => {
            let (major, minor) = show::device(attributes.rdev);
            format!("{major}, {minor}")
        }
        _ => attributes.size.to_string(),
    };
    let (mode, time) = (show::mode(attributes), show::time(*mtime));
    format!("{mode} {nlink:>3} {uid:>8} {gid:>8} {size:>14} {time} {name}")
}

/// Names whose attributes are asked for together.
const BATCH: usize = 256;

/// Shows names, in their order.
async fn names(
    options: &Options,
    mount: &Mount,
    stop: &Stop,
    dir: &Node,
    names: &[Name],
    rows: &mut Vec<Value>,
) -> Result<bool> {
    let mut all = true;
    for names in names.chunks(BATCH) {
        stop.check()?;
        all &= batch(options, mount, dir, names, rows).await;
    }
    Ok(all)
}

/// One batch of names.
async fn batch(
    options: &Options,
    mount: &Mount,
    dir: &Node,
    names: &[Name],
    rows: &mut Vec<Value>,
) -> bool {
    let json = options.visit.way.json;
    if !options.long {
        for Name { name, fid, .. } in names {
            let name = show::name(name);
            if json {
                rows.push(json!({ "name": name, "fid": fid.to_string() }));
            } else {
                println!("{name}");
            }
        }
        return true;
    }
    let mut all = true;
    for (name, found) in names.iter().zip(mount.list(dir, names).await) {
        let name = show::name(&name.name);
        match found {
            Ok(Some(attributes)) if json => rows.push(show::json(&name, &attributes)),
            Ok(Some(attributes)) => println!("{}", line(&name, &attributes)),
            // It was removed after it had been listed.
            Ok(None) => {}
            Err(e) => {
                eprintln!("ulnet lustre: {name}: {e}");
                all = false;
            }
        }
    }
    all
}

async fn list(options: &Options, mount: &Mount, stop: &Stop) -> Result<bool> {
    let Options { place, long, unsorted, visit } = options;
    let node = mount.find(place.path.as_bytes(), true).await?;
    let mut rows = Vec::new();
    let mut all = true;
    if node.kind() == FileKind::Dir {
        let mut dir = mount.open_dir(&node).await?;
        let mut sorted = Vec::new();
        loop {
            stop.check()?;
            let read = mount.read_dir(&mut dir).await?;
            if read.is_empty() {
                break;
            }
            if *unsorted {
                all &= names(options, mount, stop, &node, &read, &mut rows).await?;
            } else {
                sorted.extend(read);
            }
        }
        // By bytes: the same everywhere, whatever the language of the user.
        sorted.sort_unstable_by(|a: &Name, b| a.name.cmp(&b.name));
        all &= names(options, mount, stop, &node, &sorted, &mut rows).await?;
    } else {
        let attributes = mount.attributes(&node).await?;
        match (visit.way.json, long) {
            (true, _) => rows.push(show::json(&place.path, &attributes)),
            (false, true) => println!("{}", line(&place.path, &attributes)),
            (false, false) => println!("{}", place.path),
        }
    }
    if visit.way.json {
        println!("{:#}", json!(rows));
    }
    Ok(all)
}

/// Runs the command. `false`: what some of the names have could not be shown.
///
/// # Errors
/// As [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    super::with(&options.place, &options.visit, Access::Read, async |mount, stop| {
        list(options, mount, stop).await
    })
}

//! `ulnet lustre ls`: lists directories, by name or as they are read.

use std::cell::Cell;

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{
    Access, Attributes, FileKind, IN_FLIGHT, Name, Node, Place, VisitError, join,
};
use serde_json::{Value, json};

use super::operands::{self, At, Done, Shape};
use super::sentences::why;
use super::{Stop, Visit, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Names are sorted by their bytes, once all of them are read. With -U they come in the \
                  order of the server, the first ones at once. Several are listed as they are named, each \
                  directory below a line with its name. A symbolic link that is named is listed itself with -l, \
                  or if it leads nowhere.\n\nExamples:\n  \
    ulnet lustre ls 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre ls -l /data /other\n  \
    ulnet lustre ls -U /data | wc -l"
)]
pub(super) struct Options {
    /// Directories and files
    #[arg(required = true, value_name = "PLACE", value_parser = super::place)]
    places: Vec<Place>,
    /// Show type, permissions, links, owner, group, size and time (UTC) too
    #[arg(short, long)]
    long: bool,
    /// Show names as the server lists them, not sorted: for very large directories
    #[arg(short = 'U', long)]
    unsorted: bool,
    #[command(flatten)]
    visit: Visit,
}

fn line(name: &str, attributes: &Attributes, link: Option<&str>) -> String {
    let Attributes { nlink, uid, gid, mtime, .. } = attributes;
    let size = match attributes.kind {
        FileKind::Block | FileKind::Char => {
            let (major, minor) = show::device(attributes.rdev);
            format!("{major}, {minor}")
        }
        _ => attributes.size.to_string(),
    };
    let (mode, time) = (show::mode(attributes), show::time(*mtime));
    let to = link.map(|to| format!(" -> {to}")).unwrap_or_default();
    format!("{mode} {nlink:>3} {uid:>8} {gid:>8} {size:>14} {time} {name}{to}")
}

/// The text of a link, to be shown.
async fn text(mount: &Mount, node: &Node) -> Result<Option<String>, VisitError> {
    match node.kind() {
        FileKind::Link => Ok(Some(show::name(&mount.link_text(node).await?))),
        _ => Ok(None),
    }
}

/// A name of a directory, what it has, and the text of a link.
type Shown<'a> = (&'a Name, Result<Option<(Attributes, Option<String>)>, VisitError>);

/// What names of a directory have.
async fn looked_at<'a>(mount: &Mount, dir: &Node, names: &'a [Name]) -> Vec<Shown<'a>> {
    let found = mount.list(dir, names).await;
    let one = |(name, found): (&'a Name, Result<Option<Attributes>, VisitError>)| async move {
        let shown = async {
            let Some(attributes) = found? else { return Ok(None) };
            if attributes.kind != FileKind::Link {
                return Ok(Some((attributes, None)));
            }
            let node = mount.node(name.fid, dir, &name.name).await?;
            Ok(Some((attributes, text(mount, &node).await?)))
        };
        (name, shown.await)
    };
    join(names.iter().zip(found).map(one), IN_FLIGHT).await
}

/// The same as JSON.
fn row(name: &str, attributes: &Attributes, link: Option<String>) -> Value {
    let mut row = show::json(name, attributes);
    if link.is_some() {
        row["link"] = link.into();
    }
    row
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
    for (name, found) in looked_at(mount, dir, names).await {
        let name = show::name(&name.name);
        match found {
            Ok(Some((attributes, link))) if json => rows.push(row(&name, &attributes, link)),
            Ok(Some((attributes, link))) => {
                println!("{}", line(&name, &attributes, link.as_deref()))
            }
            // It was removed after it had been listed.
            Ok(None) => {}
            Err(e) => {
                eprintln!("ulnet lustre: {name}: {}", why(&e.into(), &name));
                all = false;
            }
        }
    }
    all
}

/// Shows what is in a directory; the rows, and whether nothing of it has failed.
async fn dir(
    options: &Options,
    mount: &Mount,
    stop: &Stop,
    node: &Node,
) -> Result<(Vec<Value>, bool)> {
    let (mut rows, mut whole, mut sorted) = (Vec::new(), true, Vec::new());
    let mut opened = mount.open_dir(node).await?;
    loop {
        stop.check()?;
        let read = mount.read_dir(&mut opened).await?;
        if read.is_empty() {
            break;
        }
        if options.unsorted {
            whole &= names(options, mount, stop, node, &read, &mut rows).await?;
        } else {
            sorted.extend(read);
        }
    }
    // By bytes: the same everywhere, whatever the language of the user.
    sorted.sort_unstable_by(|a: &Name, b| a.name.cmp(&b.name));
    whole &= names(options, mount, stop, node, &sorted, &mut rows).await?;
    Ok((rows, whole))
}

/// What an operand is. A link is followed if it is listed by name and leads somewhere, or is named as a
/// directory.
async fn named(mount: &Mount, path: &str, long: bool) -> Result<Node, VisitError> {
    if long && !path.ends_with('/') {
        return mount.find(path.as_bytes(), false).await;
    }
    let followed = mount.find(path.as_bytes(), true).await;
    match followed {
        Err(e) if !path.ends_with('/') => match mount.find(path.as_bytes(), false).await {
            Ok(node) if node.kind() == FileKind::Link => Ok(node),
            _ => Err(e),
        },
        followed => followed,
    }
}

/// Lists an operand. `last`: whether a directory was listed before it, if anything was.
async fn list(at: &At<'_>, options: &Options, last: &Cell<Option<bool>>) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    let Options { long, visit, .. } = options;
    let (json, several) = (visit.way.json, options.places.len() > 1);
    let node = named(mount, &place.path, *long).await?;
    let is_dir = node.kind() == FileKind::Dir;
    // A listing is apart from what stands before and behind it.
    let apart = move || {
        let before = last.replace(Some(is_dir));
        if !json && before.is_some_and(|before| before || is_dir) {
            println!();
        }
    };
    if !is_dir {
        let (attributes, link) = (mount.attributes(&node).await?, text(mount, &node).await?);
        apart();
        match (json, long) {
            (true, _) => {}
            (false, true) => println!("{}", line(name, &attributes, link.as_deref())),
            (false, false) => println!("{name}"),
        }
        return Ok(Value::from(vec![row(name, &attributes, link)]).into());
    }
    apart();
    if several && !json {
        println!("{name}:");
    }
    let (rows, whole) = dir(options, mount, stop, &node).await?;
    let value = match several {
        true => json!({ "name": name, "contents": rows }),
        false => rows.into(),
    };
    Ok(Done { value, whole })
}

/// Runs the command. `false`: what some of the names have could not be shown.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, visit, .. } = options;
    let last = Cell::new(None);
    operands::each(places, visit, Access::Read, Shape::Rows, async |at| {
        list(at, options, &last).await
    })
}

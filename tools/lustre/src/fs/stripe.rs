//! `ulnet lustre getstripe` and `setstripe`: where the data of files is, and is to be. The options that say it
//! are in `components.rs`.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::visitor::{Access, Create, FileKind, OpenHow, Place, Wish};
use lustre_wire::fid::ObjectId;
use lustre_wire::striping::{ComponentFlags, Stripes, Striping};
use serde_json::{Value, json};

use super::components::Wished;
use super::operands::{self, At, Done, Shape};
use super::{Visit, dirstripe, lines};

/// Of which ones.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Of a directory the layout is shown that new files in it get; also which metadata targets have \
    it and its names, by which rule, and what directories in it get by default.\n\nExamples:\n  \
    ulnet lustre getstripe 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre getstripe /data/f1 /data --json"
)]
pub(super) struct Get {
    /// Files and directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    visit: Visit,
}

/// Of which ones, and how.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A file is made with the layout; of a directory it is the one that new files get. Each -E ends a \
    component; the options behind it are of that component, and what it does not say is as in the one before. \
    The last one ends with -1, which is the end of any file; bytes behind another end can't be written.\n\n\
    Examples:\n  \
    ulnet lustre setstripe 10.0.0.1@tcp:/lfs/data --stripe-count 4\n  \
    ulnet lustre setstripe /data/new --stripe-size 1M --pool fast\n  \
    ulnet lustre setstripe /data/small --mdt-size 64K\n  \
    ulnet lustre setstripe -E 1M -c 1 -E -1 -c 4 /data\n  \
    ulnet lustre setstripe -E 64K -L mdt -E 256M -c 1 -E -1 -c -1 -S 4M /data\n  \
    ulnet lustre setstripe --delete /data/in /data/out"
)]
pub(super) struct Set {
    /// Directories, and files to be made
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    #[command(flatten)]
    wished: Wished,
    /// Take the layout of a directory away
    #[arg(
        short,
        long,
        conflicts_with_all = [
            "component_end", "stripe_count", "stripe_size", "pool", "stripe_index", "mdt_size"
        ]
    )]
    delete: bool,
    #[command(flatten)]
    visit: Visit,
}

fn object(id: ObjectId) -> String {
    match id.fid() {
        Some(fid) => fid.to_string(),
        None => format!("[0x0:{:#x}:0x0]", id.first),
    }
}

/// Any target.
const ANY: u16 = u16::MAX;

fn plain(stripes: &Stripes, made: bool) -> Value {
    let head = &stripes.head;
    let count = match head.stripe_count {
        ANY => json!(-1),
        count => json!(count),
    };
    let objects = stripes.objects.iter().take(if made { head.stripe_count.into() } else { 0 });
    let objects = objects.map(|o| json!({ "ost": o.index, "object": object(o.id) }));
    json!({
        "stripe_count": count,
        "stripe_size": head.stripe_size,
        "pattern": head.pattern.to_string(),
        "pool": stripes.pool.map(|pool| pool.to_string()).filter(|pool| !pool.is_empty()),
        "objects": objects.collect::<Vec<_>>(),
    })
}

/// The same of a layout for new files, with the first target if that is said: files have another number there.
fn for_new(stripes: &Stripes) -> Value {
    let mut value = plain(stripes, false);
    if stripes.head.generation != ANY {
        value["stripe_index"] = stripes.head.generation.into();
    }
    value
}

fn shown(striping: &Striping, is_dir: bool) -> Value {
    match striping {
        Striping::Plain(stripes) if is_dir => for_new(stripes),
        Striping::Plain(stripes) => plain(stripes, true),
        Striping::Composite(head, entries) => {
            let components = entries.iter().map(|(entry, stripes)| {
                let made = entry.flags.contains(ComponentFlags::INIT);
                let mut component = if is_dir { for_new(stripes) } else { plain(stripes, made) };
                component["id"] = entry.id.into();
                component["flags"] = entry.flags.to_string().into();
                component["start"] = entry.start.into();
                let end = (entry.end != u64::MAX).then_some(entry.end);
                component["end"] = end.into();
                component
            });
            json!({
                "generation": head.generation,
                "mirrors": u32::from(head.mirrors) + 1,
                "components": components.collect::<Vec<_>>(),
            })
        }
        Striping::Foreign(head, value) => {
            json!({ "foreign": head.kind, "value": value.escape_ascii().to_string() })
        }
        Striping::Dir(head, stripes) => {
            let stripes: Vec<String> = stripes.iter().map(ToString::to_string).collect();
            json!({ "hash": head.hash, "stripes": stripes })
        }
        Striping::DirDefault(head, _) => {
            json!({ "stripe_count": head.stripe_count, "mdt": head.master })
        }
    }
}

/// Lines of a value: `name: value`, what is inside of it further right.
fn print(value: &Value, indent: usize) {
    let Some(fields) = value.as_object() else { return };
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Array(all) if all.is_empty() => {}
            Value::Array(all) => {
                println!("{:indent$}{name}:", "");
                for one in all {
                    match one.get("object") {
                        Some(object) => {
                            let (ost, object) = (&one["ost"], object.as_str().unwrap_or_default());
                            println!("{:indent$}  - ost {ost} {object}", "");
                        }
                        None if one.get("fid").is_some() => {
                            let (mdt, fid) = (&one["mdt"], one["fid"].as_str().unwrap_or_default());
                            println!("{:indent$}  - mdt {mdt} {fid}", "");
                        }
                        None if one.is_object() => {
                            println!("{:indent$}  -", "");
                            print(one, indent + 4);
                        }
                        None => println!("{:indent$}  - {one}", ""),
                    }
                }
            }
            Value::Object(_) => {
                println!("{:indent$}{name}:", "");
                print(value, indent + 2);
            }
            Value::String(text) => println!("{:indent$}{name}: {text}", ""),
            other => println!("{:indent$}{name}: {other}", ""),
        }
    }
}

async fn get_one(at: &At<'_>, json: bool) -> Result<Done> {
    let At { mount, place, name, .. } = *at;
    let node = mount.find(&place.path, true).await?;
    if !matches!(node.kind(), FileKind::File | FileKind::Dir) {
        bail!("expected a file or directory");
    }
    let is_dir = node.kind() == FileKind::Dir;
    let layout = mount.striping(&node).await?.map(|layout| shown(&layout, is_dir));
    let directory = match node.kind() {
        FileKind::Dir => dirstripe::shown(mount, &node).await?,
        _ => json!({}),
    };
    if !json {
        lines::named(format_args!(""), name.bytes());
        match &layout {
            Some(layout) => print(layout, 2),
            None => println!("  no layout of its own"),
        }
        print(&directory, 2);
    }
    let mut value = name.row(json!({ "layout": layout }));
    if let (Some(value), Value::Object(directory)) = (value.as_object_mut(), directory) {
        value.extend(directory);
    }
    Ok(value.into())
}

/// Runs `getstripe`. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn get(options: &Get) -> Result<bool> {
    let Get { places, visit } = options;
    let json = visit.way.json;
    operands::each(places, visit, Access::Read, Shape::Each, async |at| get_one(at, json).await)
}

/// Gives a layout to a directory, or makes a file with it: `true`.
async fn set_one(at: &At<'_>, layout: &[u8], delete: bool) -> Result<bool> {
    let At { mount, place, .. } = *at;
    match mount.find(&place.path, true).await {
        Ok(node) if node.kind() == FileKind::Dir => {
            mount.set_striping(&node, layout).await?;
            Ok(false)
        }
        Ok(_) => bail!("a file keeps the layout that it was made with"),
        Err(e) if e.errno() != lnet_types::Errno::ENOENT => Err(e.into()),
        Err(_) if delete => bail!("expected a directory"),
        Err(_) => {
            let (dir, name) = super::parent(mount, &place.path).await?;
            let how = OpenHow { write: true, ..OpenHow::default() };
            let create = Create {
                mode: 0o666,
                exclusive: true,
                layout: layout.to_vec(),
                ..Create::default()
            };
            let file = mount.create(&dir, &name, how, &create).await?;
            mount.close(file).await?;
            Ok(true)
        }
    }
}

/// Runs `setstripe`. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// A layout that no server takes, and as [`operands::each`].
pub(super) fn set(options: &Set) -> Result<bool> {
    let Set { places, wished, delete, visit } = options;
    let layout =
        |place: &Place| if *delete { Ok(Wish::none()) } else { wished.bytes(&place.fsname) };
    for place in places {
        if layout(place)?.is_empty() {
            bail!("expected a layout, such as --stripe-count 4, or --delete");
        }
    }
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        let made = set_one(at, &layout(at.place)?, *delete).await?;
        Ok(Done::from(at.name.row(json!({ "made": made }))))
    })
}

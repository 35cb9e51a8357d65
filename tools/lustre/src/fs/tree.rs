//! `ulnet lustre tree`: the files of a tree, each below its directory.

use anyhow::Result;
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileKind, Node, Place, VisitError, join};
use serde_json::{Value, json};

use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::sentences::why;
use super::{Stop, Visit, lines, reading, show};

/// Which ones.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre tree 10.0.0.1@tcp:/lfs/data\n  \
    ulnet lustre tree --depth 2 /data/in /data/out")]
pub(super) struct Options {
    /// Directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Levels that are shown
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=255))]
    depth: Option<u32>,
    #[command(flatten)]
    visit: Visit,
}

struct Tree<'a> {
    mount: &'a Mount,
    stop: &'a Stop,
    depth: u32,
    json: bool,
}

impl Tree<'_> {
    /// What is in a directory, by name; `false`: a part could not be read.
    async fn show(
        &self,
        (dir, path): (&Node, &Label),
        before: &str,
        level: u32,
    ) -> Result<(Vec<Value>, bool)> {
        let mut opened = self.mount.open_dir(dir).await?;
        let (mut names, mut all) = (Vec::new(), true);
        loop {
            self.stop.check()?;
            let failed = |e: VisitError| {
                self.stop.check()?;
                eprintln!("ulnet lustre: {path}: {}", why(&e.into(), path.bytes()));
                all = false;
                Ok(())
            };
            let more = reading::names(self.mount, &mut opened, failed).await?;
            if more.is_empty() {
                break;
            }
            names.extend(more);
        }
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let one = |name| {
            let name: &lustre_rt::visitor::Name = name;
            async move { self.mount.node(name.fid, dir, &name.name).await }
        };
        let nodes = join(names.iter().map(one), 8).await;
        let mut rows = Vec::new();
        let last = names.len().saturating_sub(1);
        for (place, (name, node)) in names.iter().zip(nodes).enumerate() {
            self.stop.check()?;
            let shown = Label::new(name.name.clone());
            let (here, below) =
                if place == last { ("└── ", "    ") } else { ("├── ", "│   ") };
            let mut row = json!({});
            shown.name_in(&mut row);
            let mut inside = None;
            match node {
                Ok(node) => {
                    let is_dir = node.kind() == FileKind::Dir;
                    row["type"] = show::kind_of(node.kind()).into();
                    inside = (is_dir && level < self.depth).then_some(node);
                }
                Err(e) if e.errno() == lnet_types::Errno::ENOENT => continue,
                Err(e) => {
                    eprintln!("ulnet lustre: {shown}: {}", why(&e.into(), shown.bytes()));
                    all = false;
                }
            }
            if !self.json {
                lines::named(format_args!("{before}{here}"), shown.bytes());
            }
            if let Some(node) = inside {
                let before = format!("{before}{below}");
                let path = path.join(shown.bytes());
                match Box::pin(self.show((&node, &path), &before, level + 1)).await {
                    Ok((inside, whole)) => {
                        row["contents"] = inside.into();
                        all &= whole;
                    }
                    Err(e) => {
                        self.stop.check()?;
                        eprintln!("ulnet lustre: {shown}: {}", why(&e, shown.bytes()));
                        all = false;
                    }
                }
            }
            if self.json {
                rows.push(row);
            }
        }
        Ok((rows, all))
    }
}

async fn one(at: &At<'_>, depth: Option<u32>, json: bool) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    let node = mount.find(&place.path, true).await?;
    // A tree of a server's making may have no end.
    let tree = Tree { mount, stop, depth: depth.unwrap_or(255), json };
    if !json {
        lines::named(format_args!(""), name.bytes());
    }
    let (rows, whole) = tree.show((&node, name), "", 1).await?;
    Ok(Done { value: name.row(json!({ "contents": rows })), whole })
}

/// Runs the command. `false`: a part could not be read, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, depth, visit } = options;
    let json = visit.way.json;
    operands::each(places, visit, Access::Read, Shape::Each, async |at| one(at, *depth, json).await)
}

//! `ulnet lustre ln`: gives files more names, and makes symbolic links.

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileKind, Place};
use serde_json::json;

use super::Visit;
use super::goal::Goal;
use super::operands::{Account, Done, Shape, same_system};

/// What, and which name.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The text of a symbolic link is kept as it is; a path from the link's directory on is \
                  followed by every node. Nothing is done if the last of more than two operands is no \
                  directory.\n\nExamples:\n  \
    ulnet lustre ln 10.0.0.1@tcp:/lfs/data/f1 10.0.0.1@tcp:/lfs/data/f2\n  \
    ulnet lustre ln -s ../in/f1 /data/latest\n  \
    ulnet lustre ln /data/f1 /data/f2 /other/"
)]
pub(super) struct Options {
    /// Files that get one more name, with -s the texts of links; and the name, or a directory for names like
    /// theirs
    #[arg(required = true, num_args = 2.., value_name = "TARGET… NAME")]
    sides: Vec<String>,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    visit: Visit,
}

/// What gets a name.
enum Target<'a> {
    File(Place),
    Text(&'a str),
}

async fn one(mount: &Mount, target: &Target<'_>, goal: &Goal) -> Result<String> {
    let path = match target {
        Target::File(place) => place.path.as_str(),
        Target::Text(text) => text,
    };
    let names = super::names(path);
    let last = names.last().copied().unwrap_or_default().as_bytes();
    match target {
        Target::Text(text) => {
            let spot = goal.of(mount, last, FileKind::Link).await?;
            mount.make_link(&spot.dir, &spot.name, text.as_bytes()).await?;
            Ok(spot.path)
        }
        Target::File(place) => {
            let node = mount.find(place.path.as_bytes(), false).await?;
            let spot = goal.of(mount, last, node.kind()).await?;
            mount.link(&node, &spot.dir, &spot.name).await?;
            Ok(spot.path)
        }
    }
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// Places of several file systems, no directory for several targets, and as [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { sides, symbolic, visit } = options;
    let Some((to, from)) = sides.split_last() else { bail!("expected a target and a name") };
    let to = super::place(to)?;
    let target = |text| match symbolic {
        true => Ok(Target::Text(text)),
        false => super::place(text).map(Target::File),
    };
    let targets = from.iter().map(|text| target(text)).collect::<Result<Vec<_>>>()?;
    for target in &targets {
        if let Target::File(file) = target
            && !same_system(file, &to)
        {
            bail!("name '{to}': expected one in the file system of '{file}'");
        }
    }
    let mut account = Account::new(Shape::Each);
    super::with(&to, visit, Access::Change, async |mount, stop| {
        let goal = Goal::find(mount, &to, targets.len() > 1).await?;
        for (text, target) in from.iter().zip(&targets) {
            stop.check()?;
            let end = one(mount, target, &goal).await.map(|name| {
                Done::from(json!({ "target": text, "name": name, "symbolic": symbolic }))
            });
            let path = match target {
                Target::File(place) => &place.path,
                Target::Text(text) => *text,
            };
            account.add(stop, text, path, end)?;
        }
        Ok(())
    })?;
    Ok(account.print(visit.way.json, from.len()))
}

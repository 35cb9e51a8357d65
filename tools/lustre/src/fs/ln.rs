//! `ulnet lustre ln`: gives files more names, and makes symbolic links.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Result, bail};
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, FileKind, Node, Place};
use serde_json::json;

use super::Visit;
use super::goal::{Goal, Taken};
use super::label::Label;
use super::operands::{Account, Done, Shape, same_system};
use super::sentences::towards;

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
    sides: Vec<OsString>,
    /// Make symbolic links
    #[arg(short, long)]
    symbolic: bool,
    #[command(flatten)]
    taken: Taken,
    #[command(flatten)]
    visit: Visit,
}

/// What gets a name.
enum Target<'a> {
    File(Place),
    Text(&'a [u8]),
}

impl Target<'_> {
    /// The path of the file, or the text.
    fn path(&self) -> &[u8] {
        match self {
            Self::File(place) => &place.path,
            Self::Text(text) => text,
        }
    }
}

async fn one(mount: &Mount, target: &Target<'_>, goal: &Goal) -> Result<Label> {
    let last = super::names(target.path()).last().copied().unwrap_or_default();
    // What has no name of its own fails by itself.
    let file = match target {
        Target::Text(_) => None,
        Target::File(place) => Some(mount.find(&place.path, false).await?),
    };
    let named = async {
        let kind = file.as_ref().map_or(FileKind::Link, Node::kind);
        let spot = goal.of(mount, last, kind).await?;
        match &file {
            None => drop(mount.make_link(&spot.dir, &spot.name, target.path()).await?),
            Some(node) => mount.link(node, &spot.dir, &spot.name).await?,
        }
        Ok(spot.path)
    };
    let what = if file.is_some() { "not linked as" } else { "no symbolic link" };
    named.await.map_err(|e| towards(e, what, &goal.called(last)))
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// Places of several file systems, no directory for several targets, and as [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { sides, symbolic, taken, visit } = options;
    let Some((to, from)) = sides.split_last() else { bail!("expected a target and a name") };
    let to = super::place(to.as_bytes())?;
    let target = |text| match symbolic {
        true => Ok(Target::Text(text)),
        false => super::place(text).map(Target::File),
    };
    let targets = from.iter().map(|text| target(text.as_bytes())).collect::<Result<Vec<_>>>()?;
    for target in &targets {
        if let Target::File(file) = target
            && !same_system(file, &to)
        {
            bail!("name '{to}': expected one in the file system of '{file}'");
        }
    }
    let mut account = Account::new(Shape::Each);
    super::with(&to, visit, Access::Change, async |mount, stop| {
        let goal = Goal::taken(mount, &to, *taken, targets.len()).await?;
        for (text, target) in from.iter().zip(&targets) {
            stop.check()?;
            let text = Label::new(text.as_bytes());
            let end = one(mount, target, &goal).await.map(|name| {
                let mut value = name.row(json!({ "symbolic": symbolic }));
                text.field_in(&mut value, "target");
                Done::from(value)
            });
            account.add(stop, &text, target.path(), end)?;
        }
        Ok(())
    })?;
    Ok(account.print(visit.way.json, from.len()))
}

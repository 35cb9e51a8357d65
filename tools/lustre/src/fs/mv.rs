//! `ulnet lustre mv`: renames, and moves into a directory. Where servers refuse that, `moved.rs` copies.

use anyhow::{Result, bail};
use clap::Args;
use lnet_types::Errno;
use lustre_rt::visitor::{Access, Place};
use lustre_rt::{Fid, Mount};
use serde_json::{Value, json};

use super::goal::{Goal, Taken};
use super::label::{Label, without_slashes};
use super::operands::{Account, At, Done, Shape, same_system};
use super::sentences::towards;
use super::{Visit, moved, progress};

/// What, and whereto.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Nothing is done if the last of more than two places is no directory. What servers do not rename, \
    between metadata targets that refuse it, is copied, compared with its source by size and times, and \
    removed when all of it is there under its new name.\n\n\
    Examples:\n  \
    ulnet lustre mv 10.0.0.1@tcp:/lfs/data/f1 10.0.0.1@tcp:/lfs/data/f2\n  \
    ulnet lustre mv /data/f1 /data/f2 /data/old/"
)]
pub(super) struct Options {
    /// Files and directories, and the destination: a directory that gets them, or the new name of one, which
    /// is taken from what has it
    #[arg(
        required = true,
        num_args = 2..,
        value_name = "SOURCE… DESTINATION",
        value_parser = super::places()
    )]
    places: Vec<Place>,
    #[command(flatten)]
    taken: Taken,
    #[command(flatten)]
    visit: Visit,
}

/// The directory of a place, and its name there.
async fn own_spot(mount: &Mount, place: &Place) -> Result<(Fid, Vec<u8>)> {
    let (dir, name) = super::parent(mount, without_slashes(&place.path)).await?;
    Ok((dir.fid(), name))
}

fn value(from: &Label, to: &Label, copied: bool) -> Value {
    let mut value = json!({ "copied": copied });
    from.field_in(&mut value, "from");
    to.field_in(&mut value, "to");
    value
}

async fn one(at: &At<'_>, goal: &Goal) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    let last = super::own_name(&place.path)?;
    let node = super::find_itself(mount, &place.path).await?;
    let moved = async {
        let spot = goal.of(mount, last, node.kind()).await?;
        if let Ok(there) = mount.child(&spot.dir, &spot.name).await
            && there.fid() == node.fid()
        {
            // Servers do nothing where both are names of one file.
            if own_spot(mount, place).await? == (spot.dir.fid(), spot.name.clone()) {
                bail!("it has this name already");
            }
            mount.remove(&node).await?;
            return Ok(value(name, &spot.path, false).into());
        }
        let copied = match mount.rename(&node, &spot.dir, &spot.name).await {
            Err(e) if e.errno() == Errno::EXDEV => {
                let (dir, old) = super::parent(mount, without_slashes(&place.path)).await?;
                moved::by_copy((mount, stop), &node, (&dir, &old, name), &spot).await?;
                true
            }
            renamed => renamed.map(|()| false)?,
        };
        Ok(value(name, &spot.path, copied).into())
    };
    moved.await.map_err(|e| towards(e, "not moved to", &goal.called(last)))
}

/// Runs the command. `false`: an operand has failed, and was named on standard error.
///
/// # Errors
/// Places of several file systems, no directory for several sources, and as [`super::with`].
pub(super) fn run(options: &Options) -> Result<bool> {
    let Options { places, taken, visit } = options;
    let Some((to, from)) = places.split_last() else {
        bail!("expected a source and a destination")
    };
    if let Some(other) = from.iter().find(|from| !same_system(from, to)) {
        bail!("destination '{to}': expected one in the file system of '{other}'");
    }
    let mut account = Account::new(Shape::Each);
    super::with(to, visit, Access::Change, async |mount, stop| {
        let goal = Goal::taken(mount, to, *taken, from.len()).await?;
        for place in from {
            stop.check()?;
            let name = &Label::new(place.path.clone());
            let end = one(&At { mount, stop, place, name }, &goal).await;
            account.add(stop, name, &place.path, end)?;
            progress::files(1);
        }
        Ok(())
    })?;
    Ok(account.print(visit.way.json, from.len()))
}

//! `ulnet lustre chmod` and `chown`: change permissions and owners.

use anyhow::{Result, anyhow};
use clap::Args;
use lustre_rt::Mount;
use lustre_rt::visitor::{Access, Changes, FileKind, Node, Place};
use serde_json::json;

use super::bytes;
use super::label::Label;
use super::operands::{self, At, Done, Shape};
use super::walker::{Found, Walker};
use super::{Stop, Visit};

/// Whose permissions.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre chmod 640 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre chmod -R 750 /data/in /data/out")]
pub(super) struct Chmod {
    /// Permissions, octal
    #[arg(value_parser = super::mode)]
    mode: u32,
    #[command(flatten)]
    rest: Rest,
}

/// Whose owner.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet lustre chown 1001 10.0.0.1@tcp:/lfs/data/f1\n  \
    ulnet lustre chown -R 1001:2001 /data\n  \
    ulnet lustre chown :2001 /data/f1 /data/f2")]
pub(super) struct Chown {
    /// User and group as numbers
    #[arg(value_name = "[UID][:GID]", value_parser = owner)]
    owner: (Option<u32>, Option<u32>),
    #[command(flatten)]
    rest: Rest,
}

#[derive(Clone, Debug, Args)]
struct Rest {
    /// Files and directories
    #[arg(required = true, value_name = "PLACE", value_parser = super::places())]
    places: Vec<Place>,
    /// Change all that is in a directory too. chown changes symbolic links themselves, also one that is named
    /// without a slash behind it; chmod leaves them as they are
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    visit: Visit,
}

fn owner(text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let wrong =
        || anyhow!("owner '{text}': expected UID, UID:GID or :GID as numbers, such as 1001:2001");
    let number = |text: &str| match text {
        "" => Ok(None),
        // The highest one says on the wire that nothing is to change.
        text => match bytes::number(text) {
            Some(number) if number != u32::MAX => Ok(Some(number)),
            _ => Err(wrong()),
        },
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    let owner = (number(uid)?, number(gid)?);
    if owner == (None, None) { Err(wrong()) } else { Ok(owner) }
}

/// Runs `chmod`. `false`: a part was not changed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn chmod(options: &Chmod) -> Result<bool> {
    let Chmod { mode, rest } = options;
    run(rest, &Changes { mode: Some(*mode), ..Changes::default() })
}

/// Runs `chown`. `false`: a part was not changed, and was named on standard error.
///
/// # Errors
/// As [`operands::each`].
pub(super) fn chown(options: &Chown) -> Result<bool> {
    let Chown { owner: (uid, gid), rest } = options;
    run(rest, &Changes { uid: *uid, gid: *gid, ..Changes::default() })
}

async fn tree(
    mount: &Mount,
    stop: &Stop,
    dir: Node,
    path: &Label,
    to: &Changes,
) -> Result<(u64, bool)> {
    let mut walker = Walker::new(mount, stop, dir, path);
    let mut changed = 0;
    loop {
        let batch = walker.next().await?;
        if batch.is_empty() {
            return Ok((changed, !walker.has_failed()));
        }
        let one = |found: Found| async move {
            // Permissions of links mean nothing.
            if found.node.kind() == FileKind::Link && to.mode.is_some() {
                return None;
            }
            Some((found.path, mount.change(&found.node, to).await))
        };
        for (path, end) in
            lustre_rt::visitor::join(batch.into_iter().map(one), 8).await.into_iter().flatten()
        {
            match end {
                Ok(()) => changed += 1,
                Err(e) => walker.fail(&path, &e.into()),
            }
        }
    }
}

async fn one(at: &At<'_>, recursive: bool, changes: &Changes) -> Result<Done> {
    let At { mount, stop, place, name } = *at;
    let follow = !recursive || changes.mode.is_some();
    let node = mount.find(&place.path, follow).await?;
    let (mut changed, mut whole) = (0, true);
    if recursive && node.kind() == FileKind::Dir {
        (changed, whole) = tree(mount, stop, node.clone(), name, changes).await?;
    }
    mount.change(&node, changes).await?;
    Ok(Done { value: name.row(json!({ "changed": changed + 1, "all": whole })), whole })
}

fn run(rest: &Rest, changes: &Changes) -> Result<bool> {
    let Rest { places, recursive, visit } = rest;
    operands::each(places, visit, Access::Change, Shape::Each, async |at| {
        one(at, *recursive, changes).await
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_numbers() {
        for (text, expected) in [
            ("1001", (Some(1001), None)),
            ("1001:2001", (Some(1001), Some(2001))),
            (":2001", (None, Some(2001))),
            ("1001:", (Some(1001), None)),
        ] {
            assert_eq!(owner(text).unwrap(), expected, "{text}");
        }
        for text in ["", ":", "root", "1:2:3", "-1", "+1", "1:+2", "4294967295"] {
            assert!(owner(text).unwrap_err().to_string().contains("1001:2001"), "{text}");
        }
    }
}

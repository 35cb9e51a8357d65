//! The names of a directory, as far as they can be read: what can't be is named, and the rest follows.

use anyhow::Result;
use lustre_rt::Mount;
use lustre_rt::visitor::{Name, OpenDir, VisitError};

/// More names of a directory; none at its end. Each failure goes to `failed`, and what is behind it is read.
///
/// # Errors
/// Those of `failed`: the user wants the command to end.
pub(super) async fn names(
    mount: &Mount,
    dir: &mut OpenDir,
    mut failed: impl FnMut(VisitError) -> Result<()>,
) -> Result<Vec<Name>> {
    loop {
        match mount.read_dir(dir).await {
            Ok(names) => return Ok(names),
            Err(e) => {
                failed(e)?;
                dir.skip();
            }
        }
    }
}

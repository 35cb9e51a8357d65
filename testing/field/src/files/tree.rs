//! A tree of files on this machine that is copied, and what differs between two of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::score::Rng;

/// Files of a directory.
const FILES_EACH: u64 = 200;
/// Most bytes of most files; some are larger.
const SMALL: u64 = 8 << 10;
const LARGE: u64 = 5 << 20;
/// One file in so many is a large one, one with another name besides, one with a symbolic link beside it.
const LARGE_EACH: u64 = 2000;
const LINKED_EACH: u64 = 100;

/// Makes a tree of so many files.
pub(super) fn make(dir: &Path, files: u64) -> Result<()> {
    let mut rng = Rng::new(files);
    for file in 0..files {
        let place = file / FILES_EACH;
        let inside = dir.join(format!("d{}/e{place}", place % 10));
        if file % FILES_EACH == 0 {
            fs::create_dir_all(&inside)?;
        }
        let path = inside.join(format!("f{file}"));
        let len = match file % LARGE_EACH {
            7 => LARGE + rng.below(LARGE),
            _ => rng.below(SMALL),
        };
        fs::write(&path, rng.bytes(len as usize))?;
        match file % LINKED_EACH {
            1 => fs::hard_link(&path, inside.join(format!("h{file}")))?,
            2 => symlink(format!("f{}", file - 1), inside.join(format!("l{file}")))?,
            3 => fs::set_permissions(&path, fs::Permissions::from_mode(0o750))?,
            _ => {}
        }
    }
    Ok(())
}

/// Names of a tree, all of them.
pub(super) fn count(dir: &Path) -> Result<u64> {
    let mut found = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        found += 1;
        if entry.file_type()?.is_dir() {
            found += count(&entry.path())?;
        }
    }
    Ok(found)
}

/// What `diff -r` says of two trees, a line each.
pub(super) fn differences(one: &Path, other: &Path) -> Result<Vec<String>> {
    let mut command = Command::new("diff");
    command.args(["-r", "--no-dereference", "--brief"]).arg(one).arg(other);
    let output = command.output().context("diff")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.code() {
        Some(0 | 1) => Ok(text.lines().map(str::to_owned).collect()),
        _ => bail!("diff -r: {}", String::from_utf8_lossy(&output.stderr).trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_differs_from_another_by_what_was_changed_alone() {
        let dir = fresh::path("tree");
        let (one, other) = (dir.join("a"), dir.join("b"));
        make(&one, 210).unwrap();
        make(&other, 210).unwrap();
        // Files, four directories, two with one more name, two links beside.
        assert_eq!(count(&one).unwrap(), 210 + 4 + 3 + 3);
        assert_eq!(differences(&one, &other).unwrap(), [""; 0]);
        fs::write(other.join("d0/e0/f9"), "x").unwrap();
        fs::remove_file(other.join("d1/e1/f203")).unwrap();
        assert_eq!(differences(&one, &other).unwrap().len(), 2);
        fs::remove_dir_all(dir).unwrap();
    }
}

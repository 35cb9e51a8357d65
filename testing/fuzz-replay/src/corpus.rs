//! Inputs in files: the committed corpus, and the inputs that broke something.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::{Target, fuzz_dir};

/// Where the committed inputs of `target` lie.
pub fn dir(target: &Target) -> PathBuf {
    fuzz_dir().join("corpus").join(target.name)
}

/// The committed inputs of `target` with their paths, in the order of their names.
///
/// # Errors
/// A folder or file that can't be read.
pub fn load(target: &Target) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let dir = dir(target);
    let named =
        |e: io::Error, path: &Path| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut paths = fs::read_dir(&dir)
        .and_then(|entries| entries.map(|e| Ok(e?.path())).collect::<io::Result<Vec<_>>>())
        .map_err(|e| named(e, &dir))?;
    paths.sort();
    let read = |path: PathBuf| match fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(e) => Err(named(e, &path)),
    };
    paths.into_iter().map(read).collect()
}

/// Keeps an input that broke `target`, under `fuzz/artifacts`.
///
/// # Errors
/// The file can't be written.
pub fn keep_artifact(target: &Target, input: &[u8]) -> io::Result<PathBuf> {
    let dir = fuzz_dir().join("artifacts").join(target.name);
    fs::create_dir_all(&dir)?;
    let path = dir.join(format!("{:016x}", hash(input)));
    fs::write(&path, input)?;
    Ok(path)
}

/// FNV-1a, for names of files.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

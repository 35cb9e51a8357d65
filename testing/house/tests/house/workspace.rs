//! Reading the tree: its files, its manifests, `cargo metadata`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("testing/house lies two levels down").to_owned()
}

/// The text of a file named from the root.
pub(crate) fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// All files below `dir` (named from the root) that end in `.ext`, named from the root, in order.
/// Build results and hidden directories are left out.
pub(crate) fn files(dir: &str, ext: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![root().join(dir)];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !name.starts_with("target") {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|e| e == ext) {
                found.push(path.strip_prefix(root()).expect("below the root").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The folders of the repository that hold crates.
pub(crate) const FOLDERS: &[&str] = &["core", "drivers", "host", "tools", "sim", "testing"];

/// The directories of all crates, absolute.
pub(crate) fn crate_dirs() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().flat_map(|folder| fs::read_dir(root().join(folder)));
    let dirs = entries.flatten().map(|e| e.expect("an entry").path());
    dirs.filter(|dir| dir.join("Cargo.toml").is_file()).collect()
}

/// The directory of a crate, named from the root.
pub(crate) fn dir_of(krate: &str) -> Option<String> {
    let dirs = FOLDERS.iter().map(|folder| format!("{folder}/{krate}"));
    dirs.into_iter().find(|dir| root().join(dir).join("Cargo.toml").is_file())
}

/// All files of all crates that end in `.ext`, as [`files`] names them.
pub(crate) fn crate_files(ext: &str) -> Vec<PathBuf> {
    FOLDERS.iter().flat_map(|folder| files(folder, ext)).collect()
}

/// What `cargo metadata` says, with the dependency graph resolved for this machine.
pub(crate) fn metadata() -> Value {
    let host = {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let output = Command::new(rustc).arg("-vV").output().expect("rustc runs");
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        let host = words.lines().find_map(|l| l.strip_prefix("host: "));
        host.expect("rustc names its host").to_owned()
    };
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        // For this platform alone: what it needs, the build has fetched already.
        .args(["metadata", "--format-version", "1", "--filter-platform", &host])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

/// The rows of the first table of a Markdown text: cells trimmed, heading and rule left out.
pub(crate) fn table_rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        line.trim().trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect()
    };
    let rows = text.lines().skip_while(|l| !l.starts_with('|'));
    rows.take_while(|l| l.starts_with('|')).skip(2).map(cells).collect()
}

/// The `code spans` of a text.
pub(crate) fn code_spans(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

//! The oldest Rust that builds it is one number: every crate takes it from the workspace, the
//! README says it, and clippy, which refuses what is younger, has the same.

use std::fs;

use crate::workspace::{crate_dirs, root};

/// `rust-version` of the workspace.
fn stated() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the root has a manifest");
    let line = manifest.lines().find_map(|l| l.strip_prefix("rust-version = "));
    line.expect("rust-version in Cargo.toml").trim_matches('"').to_owned()
}

#[test]
fn every_crate_takes_the_oldest_rust_from_the_workspace() {
    let mut seen = 0;
    for dir in crate_dirs() {
        let path = dir.join("Cargo.toml");
        let manifest = fs::read_to_string(&path).unwrap();
        seen += 1;
        let says = manifest.lines().any(|l| l == "rust-version.workspace = true");
        assert!(says, "{}: expected rust-version.workspace = true", path.display());
    }
    assert!(seen > 15, "{seen}");
}

#[test]
fn the_readme_and_clippy_say_the_same_number() {
    let stated = stated();
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.contains(&format!("({stated} or newer)")), "README.md does not say {stated}");
    for entry in walk("clippy.toml") {
        let text = fs::read_to_string(&entry).unwrap();
        assert!(!text.contains("msrv"), "{}: the number stands in Cargo.toml", entry.display());
    }
}

/// The files of this name in the workspace's root and its crates.
fn walk(name: &str) -> Vec<std::path::PathBuf> {
    let dirs = crate_dirs().into_iter().chain([root()]);
    dirs.map(|dir| dir.join(name)).filter(|path| path.exists()).collect()
}

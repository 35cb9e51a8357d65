//! Packages: each crate can be packaged, says what it is, and names versions of the crates that it
//! uses. Only crates for the tests of this workspace are not published.

use std::process::Command;

use serde_json::Value;

use crate::workspace::{metadata, root};

/// Crates that no other project should depend on: they need the files of this repository.
const PRIVATE: &[&str] = &["fuzz-replay", "house", "interop", "rpc-interop", "field"];

/// The crates of the workspace as `cargo metadata` describes them.
fn members(metadata: &Value) -> Vec<&Value> {
    let packages = metadata["packages"].as_array().expect("packages");
    let here = root().to_string_lossy().into_owned();
    let ours = |p: &&Value| p["manifest_path"].as_str().is_some_and(|path| path.starts_with(&here));
    packages.iter().filter(ours).filter(|p| p["source"].is_null()).collect()
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

#[test]
fn each_crate_says_what_it_is() {
    let metadata = metadata();
    let members = members(&metadata);
    assert!(members.len() > 20, "only {} crates found", members.len());
    let mut wrong = Vec::new();
    for package in members {
        let name = package["name"].as_str().expect("a name");
        let mut want = |what: &str, holds: bool| {
            if !holds {
                wrong.push(format!("{name}: {what}"));
            }
        };
        let filled = |key: &str| package[key].as_str().is_some_and(|text| !text.is_empty());
        want("description is missing", filled("description"));
        want("license must be MIT OR Apache-2.0", package["license"] == "MIT OR Apache-2.0");
        let dir = package["manifest_path"].as_str().expect("a path").trim_end_matches("Cargo.toml");
        let readme = std::path::Path::new(dir).join("README.md").is_file();
        want("readme must be its README.md", package["readme"] == "README.md" && readme);
        let private = PRIVATE.contains(&name);
        want(
            "publish must be false for the crates of PRIVATE alone",
            package["publish"].is_null() != private,
        );
        if !private {
            want("keywords: expected 1 to 5", (1..=5).contains(&count(&package["keywords"])));
            want("categories: expected 1 to 5", (1..=5).contains(&count(&package["categories"])));
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Its own tests may want more of it; that is left out of what is published.
            let own = dependency["name"] == name && dependency["kind"] == "dev";
            let versioned = own || dependency["path"].is_null() || dependency["req"] != "*";
            want(&format!("{} has a path and no version", dependency["name"]), versioned);
            let used = dependency["name"].as_str().is_some_and(|d| PRIVATE.contains(&d));
            want(&format!("uses {}, which is not published", dependency["name"]), private || !used);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn each_crate_can_be_packaged() {
    let crates = members(&metadata()).len();
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["package", "--list", "--allow-dirty", "--offline", "--workspace"])
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Missing fields are warnings. The project has no address yet.
    let expected = "manifest has no documentation, homepage or repository";
    let missing: Vec<_> = said.lines().filter(|l| l.contains("manifest has no")).collect();
    assert!(missing.iter().all(|line| line.ends_with(expected)), "{missing:#?}");
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    for file in ["Cargo.toml", "README.md"] {
        let packaged = list.lines().filter(|line| *line == file).count();
        assert_eq!(packaged, crates, "crates with a {file}");
    }
}

#[test]
fn both_licences_stand_at_the_root() {
    for (file, words) in
        [("LICENSE-MIT", "Permission is hereby granted"), ("LICENSE-APACHE", "Apache License")]
    {
        assert!(crate::workspace::text(file).contains(words), "{file}");
    }
}

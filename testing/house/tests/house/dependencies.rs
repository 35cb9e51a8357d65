//! Dependencies: each one that the workspace names has its reason in docs/dependencies.md, and is
//! used.

use std::collections::BTreeSet;

use crate::workspace::{code_spans, crate_files, table_rows, text};

/// Names in `[workspace.dependencies]` that come from outside the repository.
fn named() -> BTreeSet<String> {
    let manifest = text("Cargo.toml");
    let section = manifest.split("[workspace.dependencies]").nth(1).expect("the section is there");
    section
        .lines()
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.contains("path =") && !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim().to_owned())
        .collect()
}

#[test]
fn each_dependency_has_its_reason() {
    let page = text("docs/dependencies.md");
    let mut reasoned = BTreeSet::new();
    for row in table_rows(&page) {
        let names = row.first().map(String::as_str).unwrap_or_default();
        let reason = row.get(2).map(String::as_str).unwrap_or_default();
        assert!(!reason.is_empty(), "docs/dependencies.md: {names} has no reason");
        reasoned.extend(code_spans(names).into_iter().map(str::to_owned));
    }
    let named = named();
    assert!(!named.is_empty());
    let missing: Vec<_> = named.difference(&reasoned).collect();
    assert!(missing.is_empty(), "docs/dependencies.md has no row for {missing:?}");
    let stale: Vec<_> = reasoned.difference(&named).collect();
    assert!(stale.is_empty(), "docs/dependencies.md has rows for {stale:?}, not in Cargo.toml");
}

#[test]
fn each_dependency_is_used_by_a_crate() {
    let mut used = BTreeSet::new();
    for path in crate_files("toml").iter().filter(|p| p.ends_with("Cargo.toml")) {
        for line in text(path).lines().filter(|line| line.contains("workspace = true")) {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            used.insert(name.to_owned());
        }
    }
    let unused: Vec<_> = named().into_iter().filter(|name| !used.contains(name)).collect();
    assert!(unused.is_empty(), "in the root Cargo.toml, used by no crate: {unused:?}");
}

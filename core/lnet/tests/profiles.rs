//! `docs/reference/profiles.md` is the conduct table of the node. `ULNET_BLESS=1` writes it anew:
//! `ULNET_BLESS=1 cargo test -p lnet --test profiles`.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lnet::{Conduct, Profile};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/profiles.md");
const HEAD: &str = "# Conduct by profile

What a node does where kernel LNet, the requirement documents and this project differ, and what each profile chooses. Numbers that differ are [tunables](../tunables.md). Towards a kernel node each of these is what some kernel node might do as well; profile `kernel` chooses what kernel nodes of 2.17 do, so this page is also the list of differences to them.

This page is generated from the table in `core/lnet/src/conduct.rs`: `ULNET_BLESS=1 cargo test -p lnet --test profiles`. Scenario files set single rows (`[conduct]`, see [simulation](../simulation.md)), programs that embed a node `Tunables::conduct`.

";

fn page() -> String {
    let mut text = HEAD.to_owned();
    let profiles = Profile::ALL.map(|p| format!("`{}`", p.name()));
    let _ = writeln!(
        text,
        "| row | yes, or the value, means | statements | {} |",
        profiles.join(" | ")
    );
    let _ = writeln!(text, "| --- | --- | --- |{}", " --- |".repeat(profiles.len()));
    for row in Conduct::TABLE {
        let values = Profile::ALL.map(|p| Conduct::new(p).get(row.name).unwrap());
        let (name, help) = (row.name, row.help);
        let _ =
            writeln!(text, "| `{name}` | {help} | {} | {} |", row.statements, values.join(" | "));
    }
    text
}

#[test]
fn the_page_of_profiles_is_the_conduct_table_of_the_node() {
    let path = Path::new(PAGE);
    let made = page();
    if std::env::var_os("ULNET_BLESS").is_some() {
        fs::write(path, &made).unwrap();
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(kept == made, "docs/reference/profiles.md is old: ULNET_BLESS=1 makes it");
}

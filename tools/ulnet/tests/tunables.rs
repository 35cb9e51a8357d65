//! `docs/tunables.md` is the table of the node's tunables, and every one of them can be set by
//! `lnetctl` and is in its manual (HL-doc-005, MR-doc-005). `ULNET_BLESS=1` writes the page anew.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use lnet::{Profile, Tunables};
use lnet_config::setting_text;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const HEAD: &str = "# Tunables

Every tunable of a node, with its bounds and its default in each [profile](book/kernel-nodes.md). `lnetctl set NAME VALUE` sets one, `global:` in YAML several, [parameter files](parameters.md) show them all. This page is made from the table of the node (`core/lnet/src/tunables.rs`).

";

/// A number as a reader wants it: large ones by their power.
fn shown(name: &str, value: i64) -> String {
    match value {
        v if v == i64::from(i32::MAX) => "2^31 - 1".to_owned(),
        v if v == i64::from(u32::MAX) => "2^32 - 1".to_owned(),
        v => setting_text(name, v),
    }
}

/// The page.
fn page() -> String {
    let mut text = HEAD.to_owned();
    let profiles = Profile::ALL.map(Profile::name).map(|name| format!("`{name}`"));
    let _ = writeln!(text, "| tunable | what | bounds | {} |", profiles.join(" | "));
    let _ = writeln!(text, "| --- | --- | --- |{}", " --- |".repeat(profiles.len()));
    for row in Tunables::TABLE {
        let unit = if row.unit.is_empty() { String::new() } else { format!(" {}", row.unit) };
        // A set of causes has no bounds worth telling.
        let bounds = match setting_text(row.name, row.max) == row.max.to_string() {
            true => format!("{} to {}{unit}", shown(row.name, row.min), shown(row.name, row.max)),
            false => "a set of causes".to_owned(),
        };
        let defaults: Vec<_> = row.defaults.iter().map(|v| shown(row.name, *v)).collect();
        let all_same = defaults.windows(2).all(|pair| pair[0] == pair[1]);
        let defaults = match all_same {
            true => format!("{}{}", defaults[0], " | =".repeat(defaults.len() - 1)),
            false => defaults.join(" | "),
        };
        let _ = writeln!(text, "| `{}` | {} | {bounds} | {defaults} |", row.name, row.help);
    }
    text
}

#[test]
fn the_page_of_tunables_is_the_table_of_the_node() {
    let path = Path::new(ROOT).join("docs/tunables.md");
    let made = page();
    if std::env::var_os("ULNET_BLESS").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "docs/tunables.md is old: ULNET_BLESS=1 makes it");
}

#[test]
fn every_tunable_is_in_the_manual_of_the_tool() {
    let manual = fs::read_to_string(Path::new(ROOT).join("docs/man/lnetctl.8")).unwrap();
    for row in Tunables::TABLE {
        let named = manual.contains(&format!("set {} ", row.name));
        assert!(named, "{} is not in docs/man/lnetctl.8", row.name);
    }
}

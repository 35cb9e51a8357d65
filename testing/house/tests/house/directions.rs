//! Which crate may use which: the drawing of ARCHITECTURE.md, as two tables, by folder and by
//! crate. Dependencies point downwards only, and what is pure stays pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::workspace::{dir_of, metadata};

/// Folder and the folders beside itself whose crates its crates may use. No crate uses `testing`.
const FOLDER_MAY_USE: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("drivers", &["core"]),
    ("sim", &["core", "drivers"]),
    ("host", &["core", "drivers"]),
    ("tools", &["core", "drivers", "sim", "host"]),
    ("testing", &["core", "drivers", "sim", "host", "tools"]),
];

/// Folders whose crates have no I/O, clock or threads. Of `lnd-sock` this holds for what is not
/// behind a feature.
const PURE: &[&str] = &["core", "drivers", "sim"];

/// Crate and the workspace crates that its code may use. Tests of a crate may use the test tools
/// as well, and any crate that does not use it in turn (cargo sees to that).
const MAY_USE: &[(&str, &[&str])] = &[
    ("lnet-types", &[]),
    ("lnet-wire", &["lnet-types"]),
    // Beside `lnet-wire`: what stands above LNet knows nothing of its headers.
    ("lustre-wire", &["lnet-types"]),
    ("lnet", &["lnet-types", "lnet-wire"]),
    ("ptlrpc", &["lnet", "lnet-types", "lustre-wire"]),
    ("ldlm", &["lnet-types", "lustre-wire", "ptlrpc"]),
    ("lustre-client", &["ldlm", "lnet-types", "lustre-wire", "ptlrpc"]),
    ("lustre-target", &["ldlm", "lnet", "lnet-types", "lustre-wire", "ptlrpc"]),
    // Numbers and texts alone: what a site should be set to.
    ("lustre-tuning", &[]),
    ("lnet-config", &["lnet-types", "lnet-wire"]),
    ("lnet-selftest", &["lnet", "lnet-config", "lnet-types", "lnet-wire"]),
    ("lnd-ib", &["lnet", "lnet-types", "lnet-wire"]),
    ("lnd-sock", &["lnet", "lnet-types", "lnet-wire"]),
    ("lnet-scenario", &["ldlm", "lnet", "lnet-config", "lnet-types", "lnet-wire", "ptlrpc"]),
    (
        "lnet-sim",
        &[
            "ldlm",
            "lnd-ib",
            "lnd-sock",
            "lnet",
            "lnet-scenario",
            "lnet-selftest",
            "lnet-types",
            "lnet-wire",
            "lustre-client",
            "lustre-target",
            "lustre-tuning",
            "lustre-wire",
            "ptlrpc",
        ],
    ),
    ("lnet-admin", &["lnet-config", "lnet-selftest", "lnet-types"]),
    ("lnet-rt", &["lnd-ib", "lnd-sock", "lnet", "lnet-types", "lnet-wire"]),
    (
        "lustre-rt",
        &[
            "ldlm",
            "lnet-rt",
            "lnet-types",
            "lustre-client",
            "lustre-target",
            "lustre-wire",
            "ptlrpc",
        ],
    ),
    // For programs in other languages: what the library offers, and nothing beside it.
    ("libulnet", &["lnet-rt"]),
    (
        "lnetd",
        &[
            "lnd-sock",
            "lnet",
            "lnet-admin",
            "lnet-config",
            "lnet-rt",
            "lnet-selftest",
            "lnet-types",
            "lnet-wire",
            "lustre-rt",
        ],
    ),
    ("lnetctl", &["lnet-admin", "lnet-config", "lnet-types", "lustre-tuning"]),
    ("plots", &[]),
    ("lnet-pcap", &[]),
    ("lnet-capture", &["lnet-pcap", "lnet-wire"]),
    ("lst", &["lnet-admin", "lnet-config", "lnet-selftest", "lnet-types", "lnetctl", "plots"]),
    ("ulnet-demo", &["lnd-sock", "lnet", "lnet-rt", "lnet-types"]),
    ("ulnet-perf", &["lnet", "lnet-rt", "lnet-types", "lnet-wire", "lustre-rt", "ptlrpc"]),
    ("ulnet-sim", &["lnet", "lnet-scenario", "lnet-sim", "lnet-types", "lustre-tuning", "plots"]),
    (
        "lustre",
        &[
            "lnet",
            "lnet-admin",
            "lnet-capture",
            "lnet-config",
            "lnet-pcap",
            "lnet-rt",
            "lnet-sim",
            "lnet-types",
            "lnet-wire",
            "lustre-rt",
            "lustre-tuning",
            "lustre-wire",
        ],
    ),
    (
        "ulnet",
        &["lnet-rt", "lnetctl", "lnetd", "lst", "lustre", "ulnet-demo", "ulnet-perf", "ulnet-sim"],
    ),
];

/// Pure crates that have a shell with I/O behind their feature `io`.
const SHELLS: &[&str] = &["lnd-ib", "lnd-sock"];

/// What a pure crate must not reach, by whatever way.
const IMPURE: &[&str] = &[
    "libloading",
    "mio",
    "socket2",
    "rustix",
    "libc",
    "nix",
    "tokio",
    "async-io",
    "async-std",
    "async-channel",
    "smol",
    "crossbeam-channel",
    "rayon",
    "rand",
    "getrandom",
    "parking_lot",
];

fn members(metadata: &Value) -> BTreeMap<&str, &Value> {
    let ids: BTreeSet<&str> =
        array(&metadata["workspace_members"]).iter().filter_map(Value::as_str).collect();
    let mine = |p: &&Value| p["id"].as_str().is_some_and(|id| ids.contains(id));
    let packages = array(&metadata["packages"]).iter().filter(mine);
    packages.map(|p| (p["name"].as_str().expect("a name"), p)).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The folder that a crate lies in.
fn folder(krate: &str) -> String {
    let dir = dir_of(krate).unwrap_or_else(|| panic!("{krate} lies in none of the folders"));
    dir.split('/').next().expect("a folder").to_owned()
}

#[test]
fn every_crate_has_its_place() {
    let metadata = metadata();
    let placed: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let strangers: Vec<&str> = members(&metadata)
        .into_keys()
        .filter(|name| folder(name) != "testing" && !placed.contains(name))
        .collect();
    assert!(strangers.is_empty(), "no row in directions.rs: {strangers:?}");
}

#[test]
fn folders_use_only_folders_below_them() {
    let metadata = metadata();
    let members = members(&metadata);
    let mut wrong = Vec::new();
    for (name, package) in &members {
        let from = folder(name);
        let row = FOLDER_MAY_USE.iter().find(|(folder, _)| *folder == from);
        let (_, may) = row.unwrap_or_else(|| panic!("no row for {from}/"));
        for dependency in array(&package["dependencies"]) {
            let to = dependency["name"].as_str().expect("a name");
            if dependency["kind"] != "dev" && members.contains_key(to) {
                let lies = folder(to);
                if lies != from && !may.contains(&lies.as_str()) {
                    wrong.push(format!("{name} of {from}/ uses {to} of {lies}/"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "against the drawing: {wrong:?}");
}

#[test]
fn dependencies_point_downwards_only() {
    let metadata = metadata();
    let members = members(&metadata);
    let mut wrong = Vec::new();
    for (name, may) in MAY_USE {
        let Some(package) = members.get(name) else { continue };
        for dependency in array(&package["dependencies"]) {
            let to = dependency["name"].as_str().expect("a name");
            if dependency["kind"] != "dev" && members.contains_key(to) && !may.contains(&to) {
                wrong.push(format!("{name} uses {to}"));
            }
        }
    }
    assert!(wrong.is_empty(), "against the drawing: {wrong:?}");
}

#[test]
fn the_table_of_directions_has_no_circle() {
    // Rows are in order: each crate uses only crates of earlier rows.
    let mut earlier = BTreeSet::new();
    for (name, may) in MAY_USE {
        for to in *may {
            assert!(earlier.contains(to), "{name} may use {to}, which comes later");
        }
        earlier.insert(*name);
    }
}

#[test]
fn pure_crates_reach_no_socket_clock_or_thread() {
    let metadata = metadata();
    let members = members(&metadata);
    let graph = normal_dependencies(&metadata);
    let mut wrong = Vec::new();
    for (name, package) in &members {
        if !PURE.contains(&folder(name).as_str()) {
            continue;
        }
        let optional = optional_dependencies(package);
        if !SHELLS.contains(name) {
            assert!(optional.is_empty(), "{name} has optional dependencies: {optional:?}");
        }
        // What another crate has switched on for itself is not what this one uses.
        let shell = |name: &str| {
            let package = SHELLS.contains(&name).then(|| members.get(name)).flatten();
            package.map(|p| optional_dependencies(p)).unwrap_or_default()
        };
        let of_shell = |d: &&Value| SHELLS.iter().any(|name| d["name"] == *name);
        for d in array(&package["dependencies"]).iter().filter(of_shell) {
            let io = array(&d["features"]).iter().any(|f| f == "io");
            assert!(d["uses_default_features"] == false && !io, "{name} uses I/O of {}", d["name"]);
        }
        let mut seen = BTreeSet::from([*name]);
        let mut next = vec![(*name, vec![*name])];
        while let Some((at, way)) = next.pop() {
            for to in graph.get(at).into_iter().flatten() {
                if shell(at).contains(to) || !seen.insert(to) {
                    continue;
                }
                let way: Vec<&str> = way.iter().copied().chain([*to]).collect();
                if IMPURE.contains(to) {
                    wrong.push(way.join(" → "));
                }
                next.push((to, way));
            }
        }
    }
    assert!(wrong.is_empty(), "pure crates that are not: {wrong:?}");
}

fn optional_dependencies(package: &Value) -> BTreeSet<&str> {
    array(&package["dependencies"])
        .iter()
        .filter(|d| d["optional"] == true)
        .filter_map(|d| d["name"].as_str())
        .collect()
}

/// Package name → names of what its code (not its tests or build scripts) uses.
fn normal_dependencies(metadata: &Value) -> BTreeMap<&str, BTreeSet<&str>> {
    let name_of: BTreeMap<&str, &str> = array(&metadata["packages"])
        .iter()
        .filter_map(|p| Some((p["id"].as_str()?, p["name"].as_str()?)))
        .collect();
    let mut graph: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in array(&metadata["resolve"]["nodes"]) {
        let from = name_of[node["id"].as_str().expect("an id")];
        for dependency in array(&node["deps"]) {
            if array(&dependency["dep_kinds"]).iter().any(|k| k["kind"].is_null()) {
                let to = name_of[dependency["pkg"].as_str().expect("an id")];
                graph.entry(from).or_default().insert(to);
            }
        }
    }
    graph
}

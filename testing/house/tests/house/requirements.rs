//! docs/requirements.md: each row names a requirement that exists, code that exists and a test that
//! exists, or says that the requirement is not held, and why. Whether the test shows the requirement
//! is for the reader to judge; that it is there, and that no requirement of the areas that are built
//! is passed over in silence, is checked here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::workspace::{code_spans, dir_of, files, root, table_rows, text};

/// Areas of the list in which each requirement has its row.
const COMPLETE: &[&str] = &[
    "cli",
    "compat",
    "config",
    "discovery",
    "docs",
    "failover",
    "fault-injection",
    "health",
    "ldlm",
    "lnd-gni",
    "lnd-rdma",
    "lnd-sock",
    "pinger-eviction",
    "ptlrpc",
    "quiesce",
    "recovery",
    "routing",
    "selection",
    "send",
    "stats",
    "testing",
    "timeout",
    "tuning",
    "udsp",
];

/// What the second cell of a row says if the requirement is not held; the third says why.
const NOT_HELD: &str = "not held";

/// Where less is said than this, no reason is given.
const REASON_MIN: usize = 20;

/// The requirements: id, and the area that it belongs to.
fn requirements() -> BTreeMap<String, String> {
    let list = text("fixtures/requirements.tsv");
    let row = |line: &str| {
        let mut cells = line.split('\t').map(str::to_owned);
        Some((cells.next()?, cells.nth(2)?))
    };
    list.lines().skip(1).filter_map(row).collect()
}

/// Whether a function of this name is in one of the Rust files below `dir`.
fn has_function(dir: &str, name: &str) -> bool {
    let needles = [format!("fn {name}("), format!("fn {name}<")];
    files(dir, "rs").iter().any(|path| {
        let text = text(path);
        needles.iter().any(|needle| text.contains(needle.as_str()))
    })
}

/// What is wrong with the name of a test: `crate::path::test_name` or `path/of/file: test name`.
fn fault_of_test(name: &str) -> Option<String> {
    if let Some((file, test)) = name.split_once(": ") {
        let path = root().join(file);
        if !path.is_file() {
            return Some(format!("no file `{file}`"));
        }
        let found = text(file).contains(test);
        return (!found).then(|| format!("`{file}` holds no `{test}`"));
    }
    let Some((krate, path)) = name.split_once("::") else {
        return Some(format!("`{name}` is neither `crate::path::test` nor `file: test`"));
    };
    let Some(dir) = dir_of(&krate.replace('_', "-")) else {
        return Some(format!("no crate `{krate}`"));
    };
    let test = path.rsplit("::").next().unwrap_or(path);
    (!has_function(&dir, test)).then(|| format!("no `fn {test}` in {dir}"))
}

#[test]
fn each_row_names_a_requirement_code_and_tests_that_exist_or_says_why_it_is_not_held() {
    let known = requirements();
    assert!(known.len() > 600, "only {} requirements in the list", known.len());
    let mut seen = BTreeSet::new();
    // Of each area: rows that hold, and rows that say why not.
    let mut count: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut wrong = Vec::new();
    for row in table_rows(&text("docs/requirements.md")) {
        let [id, places, tests] = row.as_slice() else {
            wrong.push(format!("{row:?}: expected three cells"));
            continue;
        };
        let area = known.get(id).map_or_else(
            || {
                wrong.push(format!("{id}: no such requirement"));
                ""
            },
            String::as_str,
        );
        if !seen.insert(id.clone()) {
            wrong.push(format!("{id}: a second row"));
        }
        let (held, not_held) = count.entry(area).or_default();
        if places == NOT_HELD {
            *not_held += 1;
            if tests.len() < REASON_MIN {
                wrong.push(format!("{id}: not held, and no reason: '{tests}'"));
            }
            continue;
        }
        *held += 1;
        let (places, tests) = (code_spans(places), code_spans(tests));
        if places.is_empty() || tests.is_empty() {
            wrong.push(format!("{id}: a row names code and at least one test"));
        }
        for place in places {
            if !Path::new(&root().join(place)).exists() {
                wrong.push(format!("{id}: no file `{place}`"));
            }
        }
        wrong.extend(
            tests.iter().filter_map(|t| fault_of_test(t)).map(|why| format!("{id}: {why}")),
        );
    }
    for (id, area) in &known {
        if COMPLETE.contains(&area.as_str()) && !seen.contains(id) {
            wrong.push(format!("{id}: no row, and {area} is to be complete"));
        }
    }
    for area in COMPLETE {
        if !count.contains_key(area) {
            wrong.push(format!("no requirement is of the area '{area}'"));
        }
    }
    for (area, (held, not_held)) in count {
        println!("{area:<16} {held:>3} hold, {not_held:>2} do not");
    }
    assert!(wrong.is_empty(), "docs/requirements.md: {wrong:#?}");
}

#[test]
fn a_test_that_does_not_exist_is_found_out() {
    assert_eq!(fault_of_test("house::requirements::a_test_that_does_not_exist_is_found_out"), None);
    assert_eq!(fault_of_test("Cargo.toml: [workspace]"), None);
    assert!(fault_of_test("house::requirements::no_such_thing_at_all").is_some());
    assert!(fault_of_test("no_such_crate::test").is_some());
    assert!(fault_of_test("no/such/file.rs: test").is_some());
    let no_such_line = ["no such", " line"].concat();
    assert!(fault_of_test(&format!("testing/house/Cargo.toml: {no_such_line}")).is_some());
    assert!(fault_of_test("a sentence").is_some());
}

//! docs/requirements.md: each row names a requirement that exists, code that exists and a test that
//! exists. Whether the test shows the requirement is for the reader to judge; that it is there is
//! checked here.

use std::collections::BTreeSet;
use std::path::Path;

use crate::workspace::{code_spans, files, root, table_rows, text};

/// The requirement ids, from the first column of the list.
fn ids() -> BTreeSet<String> {
    let list = text("fixtures/requirements.tsv");
    list.lines().skip(1).filter_map(|l| l.split('\t').next()).map(str::to_owned).collect()
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
    let dir = format!("crates/{}", krate.replace('_', "-"));
    if !root().join(&dir).is_dir() {
        return Some(format!("no crate `{krate}`"));
    }
    let test = path.rsplit("::").next().unwrap_or(path);
    (!has_function(&dir, test)).then(|| format!("no `fn {test}` in {dir}"))
}

#[test]
fn each_row_names_a_requirement_code_and_tests_that_exist() {
    let ids = ids();
    assert!(ids.len() > 600, "only {} requirements in the list", ids.len());
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for row in table_rows(&text("docs/requirements.md")) {
        let [id, places, tests] = row.as_slice() else {
            wrong.push(format!("{row:?}: expected three cells"));
            continue;
        };
        if !ids.contains(id) {
            wrong.push(format!("{id}: no such requirement"));
        }
        if !seen.insert(id.clone()) {
            wrong.push(format!("{id}: a second row"));
        }
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
    assert!(fault_of_test(&format!("crates/house/Cargo.toml: {no_such_line}")).is_some());
    assert!(fault_of_test("a sentence").is_some());
}

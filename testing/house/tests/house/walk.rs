//! The walk of a message through the node is short, and ARCHITECTURE.md has it as it is.

use std::collections::BTreeSet;

use crate::workspace::{table_rows, text};

const FUNCTIONS_MAX: usize = 20;
const FILES_MAX: usize = 11;

/// The body of a function in a file of `lnet`, by its name.
fn body(file: &str, name: &str) -> Option<String> {
    let source = text(format!("core/lnet/src/{file}"));
    let mut lines = source.lines().skip_while(|line| {
        let at = line.find("fn ").map(|at| &line[at + 3..]);
        !at.is_some_and(|f| f.strip_prefix(name).is_some_and(|f| f.starts_with(['(', '<'])))
    });
    let first = lines.next()?;
    let indent = first.len() - first.trim_start().len();
    let end = format!("{}}}", " ".repeat(indent));
    let body: Vec<_> = core::iter::once(first).chain(lines.take_while(|l| *l != end)).collect();
    Some(body.join("\n"))
}

fn walk(page: &str, from: &str, to: &str) -> Vec<(String, String)> {
    let (_, rest) = page.split_once(from).expect("the table begins");
    let (table, _) = rest.split_once(to).expect("the table ends");
    let name = |cell: &String| cell.trim_matches(['`', ' ']).to_owned();
    let rows = table_rows(table).into_iter();
    let is_row = |row: &Vec<String>| row.len() >= 2 && row[0].starts_with('`');
    rows.filter(is_row).map(|row| (name(&row[0]), name(&row[1]))).collect()
}

fn check(rows: &[(String, String)]) {
    let files: BTreeSet<_> = rows.iter().map(|(_, file)| file).collect();
    assert!((2..=FUNCTIONS_MAX).contains(&rows.len()), "{} functions", rows.len());
    assert!(files.len() <= FILES_MAX, "{files:?}");
    let mut above = String::new();
    for (name, file) in rows {
        let body = body(file, name).unwrap_or_else(|| panic!("no function {name} in {file}"));
        let is_entry = body.lines().next().is_some_and(|l| l.trim_start().starts_with("pub fn"));
        assert!(is_entry || above.contains(&format!("{name}(")), "{name} in {file} is not called");
        above.push_str(&body);
    }
}

#[test]
fn a_put_takes_few_functions_in_few_files_each_called_by_one_before_it() {
    let page = text("ARCHITECTURE.md");
    check(&walk(&page, "<!-- walk: out -->", "<!-- walk: in -->"));
    check(&walk(&page, "<!-- walk: in -->", "<!-- walk: end -->"));
}

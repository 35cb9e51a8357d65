//! As much of PromQL as the dashboard and the alert rules need: which metrics an expression names,
//! with which labels and values. Whatever is not known here ends the test.

use std::collections::{BTreeMap, BTreeSet};

const FUNCTIONS: [&str; 14] = [
    "bottomk",
    "changes",
    "count",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "min",
    "rate",
    "sum",
    "time",
    "topk",
    "vector",
    "by",
];
const OPERATORS: [&str; 3] = ["or", "and", "unless"];

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    /// Metrics, each with its matchers: label, operator, value.
    pub(crate) metrics: BTreeMap<String, BTreeSet<(String, String, String)>>,
    /// Labels that results are grouped by.
    pub(crate) groups: BTreeSet<String>,
}

/// Takes the text as long as `of` says so.
fn take<'a>(rest: &mut &'a str, of: impl Fn(char) -> bool) -> &'a str {
    let end = rest.find(|c| !of(c)).unwrap_or(rest.len());
    let (word, behind) = rest.split_at(end);
    *rest = behind;
    word
}

fn inside<'a>(rest: &mut &'a str, open: char, close: char) -> &'a str {
    let text = rest.trim_start().strip_prefix(open).unwrap();
    let (inside, behind) = text.split_once(close).unwrap();
    *rest = behind;
    inside
}

/// The names in an expression.
pub(crate) fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let mut rest = expression;
    loop {
        rest = rest.trim_start();
        let Some(first) = rest.chars().next() else { return names };
        if first.is_ascii_digit() {
            take(&mut rest, |c| c.is_ascii_digit() || c == '.');
        } else if first == '[' {
            let range = inside(&mut rest, '[', ']');
            let is_time = range == "$__rate_interval" || range.ends_with('m');
            assert!(is_time, "range {range}: {expression}");
        } else if first.is_ascii_alphabetic() {
            let word = take(&mut rest, |c| c.is_ascii_alphanumeric() || c == '_');
            let behind = rest.trim_start().chars().next();
            if OPERATORS.contains(&word) {
            } else if word == "by" {
                names.groups.extend(inside(&mut rest, '(', ')').split(", ").map(str::to_owned));
            } else if word == "label_values" {
                let (metric, label) = inside(&mut rest, '(', ')').split_once(", ").unwrap();
                names.metrics.entry(metric.to_owned()).or_default();
                names.groups.insert(label.to_owned());
            } else if FUNCTIONS.contains(&word) {
                assert!(behind == Some('(') || rest.starts_with(" by"), "{word}: {expression}");
            } else {
                assert_ne!(behind, Some('('), "unknown function {word}: {expression}");
                let matchers = names.metrics.entry(word.to_owned()).or_default();
                if behind == Some('{') {
                    matchers.extend(inside(&mut rest, '{', '}').split(',').map(matcher));
                }
            }
        } else {
            assert!("()<>=!*/-,".contains(first), "{first:?}: {expression}");
            rest = &rest[1..];
        }
    }
}

fn matcher(text: &str) -> (String, String, String) {
    let at = text.find(['=', '!']).unwrap_or_else(|| panic!("no matcher: {text}"));
    let (label, rest) = text.split_at(at);
    let (operator, value) = rest.split_once('"').unwrap();
    assert!(["=", "!=", "=~", "!~"].contains(&operator), "{text}");
    (label.to_owned(), operator.to_owned(), value.strip_suffix('"').unwrap().to_owned())
}

#[test]
fn an_expression_names_its_metrics_labels_and_groups() {
    let found = names("sum by (a, b) (rate(x_total{c=\"d\",e!~\"f|g\"}[5m])) > 10 or 0.5 * y == 0");
    let of = |l: &str, o: &str, v: &str| (l.to_owned(), o.to_owned(), v.to_owned());
    let x = BTreeSet::from([of("c", "=", "d"), of("e", "!~", "f|g")]);
    let metrics = [("x_total".to_owned(), x), ("y".to_owned(), BTreeSet::new())];
    let groups = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
    assert_eq!(found, Names { metrics: metrics.into(), groups });
}

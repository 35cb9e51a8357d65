//! Trees as JSON: the same keys in the same order, for programs that read.

use core::fmt::Write as _;

use crate::Tree;

impl Tree {
    /// This tree as one line of JSON. Texts that are numbers are numbers; everything else that is
    /// no truth value is a text.
    pub fn to_json(&self) -> String {
        let mut out = String::new();
        write(self, &mut out);
        out
    }
}

fn write(tree: &Tree, out: &mut String) {
    match tree {
        Tree::Map(entries) => {
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                text(key, out);
                out.push_str(": ");
                write(value, out);
            }
            out.push('}');
        }
        Tree::List(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write(item, out);
            }
            out.push(']');
        }
        Tree::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Tree::Plain(value) if is_number(value) => out.push_str(value),
        Tree::Plain(value)
        | Tree::Quoted(value)
        | Tree::Tagged(value)
        | Tree::TaggedSingle(value) => text(value, out),
    }
}

/// Whole numbers, written as JSON writes them.
fn is_number(value: &str) -> bool {
    let same = |n: Option<String>| n.as_deref() == Some(value);
    same(value.parse::<i64>().ok().map(|n| n.to_string()))
        || same(value.parse::<u64>().ok().map(|n| n.to_string()))
}

fn text(value: &str, out: &mut String) {
    out.push('"');
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                // Infallible: writing to a String. Control characters are below U+10000.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_json_with_their_keys_in_order() {
        let ni = Tree::map([
            ("nid", Tree::plain("10.0.0.1@tcp")),
            ("credits", Tree::plain(-8)),
            ("length", Tree::plain(u64::MAX)),
            ("mask", Tree::plain("007")),
            ("CPT", Tree::Quoted("[0]".to_owned())),
            ("odd", Tree::plain("a\"b\\c\nd\u{7f}")),
        ]);
        let tree = Tree::map([("up", Tree::Bool(true)), ("net", Tree::List(vec![ni]))]);
        assert_eq!(
            tree.to_json(),
            "{\"up\": true, \"net\": [{\"nid\": \"10.0.0.1@tcp\", \"credits\": -8, \
             \"length\": 18446744073709551615, \"mask\": \"007\", \"CPT\": \"[0]\", \
             \"odd\": \"a\\\"b\\\\c\\u000ad\\u007f\"}]}"
        );
        assert_eq!(Tree::List(Vec::new()).to_json(), "[]");
    }
}

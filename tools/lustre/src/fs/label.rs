//! What files are called: bytes, which need not be text. Lists print them as they are, but for a terminal, which
//! would take some for orders; errors and JSON have text, with `\xNN` for bytes that are none.

use std::fmt;

use serde_json::{Map, Value};

use super::show;

/// The name or path of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label(Vec<u8>);

impl Label {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path of a name in this directory.
    pub(super) fn join(&self, name: &[u8]) -> Self {
        Self([without_slashes(&self.0), b"/", name].concat())
    }

    /// Without slashes behind; the root keeps one.
    pub(super) fn plain(&self) -> Self {
        match without_slashes(&self.0) {
            b"" => Self::new(*b"/"),
            path => Self::new(path),
        }
    }

    /// As the text of JSON, which has a spelling for everything but bytes that are no text.
    pub(super) fn text(&self) -> String {
        match std::str::from_utf8(&self.0) {
            Ok(text) => text.to_owned(),
            Err(_) => self.0.escape_ascii().to_string(),
        }
    }

    /// A row of JSON with this name and these fields.
    pub(super) fn row(&self, fields: Value) -> Value {
        let mut row = Value::Object(Map::new());
        self.name_in(&mut row);
        if let (Some(row), Value::Object(fields)) = (row.as_object_mut(), fields) {
            row.extend(fields);
        }
        row
    }

    /// Gives a row of JSON this name.
    pub(super) fn name_in(&self, row: &mut Value) {
        self.field_in(row, "name");
    }

    /// Gives a row of JSON this field. What is no text has its bytes beside it.
    pub(super) fn field_in(&self, row: &mut Value, field: &str) {
        row[field] = self.text().into();
        if std::str::from_utf8(&self.0).is_err() {
            let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
            row[format!("{field}_hex")] = hex.into();
        }
    }
}

/// A path without slashes behind.
pub(super) fn without_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    path.get(..end).unwrap_or_default()
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&show::name(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_by_one_slash() {
        for (dir, name, path) in [("/", "a", "/a"), ("/d//", "a", "/d/a"), ("/d", "a", "/d/a")] {
            assert_eq!(Label::new(dir).join(name.as_bytes()), Label::new(path));
        }
        assert_eq!(Label::new("//").plain(), Label::new("/"));
        assert_eq!(Label::new("/d/").plain(), Label::new("/d"));
    }

    #[test]
    fn bytes_that_are_no_text_are_escaped_and_stand_beside_it_in_json() {
        let mut row = serde_json::json!({});
        Label::new(*b"a\xff").name_in(&mut row);
        assert_eq!(row, serde_json::json!({ "name": "a\\xff", "name_hex": "61ff" }));
        Label::new("\u{e9}\n").name_in(&mut row);
        assert_eq!(row["name"], "\u{e9}\n");
        let mut row = Label::new("/a").row(serde_json::json!({ "size": 7 }));
        Label::new(*b"\xff").field_in(&mut row, "link");
        let expected =
            serde_json::json!({ "name": "/a", "size": 7, "link": "\\xff", "link_hex": "ff" });
        assert_eq!(row, expected);
        assert_eq!(Label::new(*b"a\xff\n").to_string(), "a\\xff\\n");
    }
}

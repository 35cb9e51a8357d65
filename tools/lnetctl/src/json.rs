//! What is shown, as JSON: one object on one line, written by `serde_json` as its parts come, so that a
//! long list is never held whole.

use std::io::{self, Write};

use lnet_config::Tree;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::ser::Formatter;

/// An object whose entries come one after the other, and whose last entry may be a list that grows.
#[derive(Debug, Default)]
pub(crate) struct Object {
    bytes: Vec<u8>,
    begun: bool,
    /// The key of the list that is open, and whether it has items.
    list: Option<(String, bool)>,
}

impl Object {
    /// Whether the list under `key` is open.
    pub(crate) fn is_open(&self, key: &str) -> bool {
        self.list.as_ref().is_some_and(|(open, _)| open == key)
    }

    /// Another entry. An open list ends before it.
    pub(crate) fn entry(&mut self, key: &str, value: &Tree) {
        self.key(key);
        self.value(value);
        self.write(Formatter::end_object_value);
    }

    /// Begins a list, to which [`Self::item`] adds. An open list ends before it.
    pub(crate) fn open(&mut self, key: &str) {
        self.key(key);
        self.write(Formatter::begin_array);
        self.list = Some((key.to_owned(), false));
    }

    /// Another item of the open list.
    pub(crate) fn item(&mut self, item: &Tree) {
        let Some((_, has_items)) = &mut self.list else { return };
        let first = !core::mem::replace(has_items, true);
        self.write(|f, out| f.begin_array_value(out, first));
        self.value(item);
        self.write(Formatter::end_array_value);
    }

    /// What has been written and was not taken yet.
    pub(crate) fn take(&mut self) -> String {
        // Infallible: the serializer writes UTF-8.
        String::from_utf8(core::mem::take(&mut self.bytes)).unwrap_or_default()
    }

    /// The rest of the object, with its end.
    pub(crate) fn end(mut self) -> String {
        self.begin();
        self.close_list();
        self.write(Formatter::end_object);
        self.take()
    }

    /// Whether the object has begun just now.
    fn begin(&mut self) -> bool {
        let first = !core::mem::replace(&mut self.begun, true);
        if first {
            self.write(Formatter::begin_object);
        }
        first
    }

    fn key(&mut self, key: &str) {
        let first = self.begin();
        self.close_list();
        self.write(|f, out| f.begin_object_key(out, first));
        self.value(&Tree::Quoted(key.to_owned()));
        self.write(Formatter::end_object_key);
        self.write(Formatter::begin_object_value);
    }

    fn close_list(&mut self) {
        if self.list.take().is_some() {
            self.write(Formatter::end_array);
            self.write(Formatter::end_object_value);
        }
    }

    fn value(&mut self, tree: &Tree) {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.bytes, Spaced);
        // Infallible: keys are texts, and writing is to memory.
        let _ = Json(tree).serialize(&mut serializer);
    }

    fn write(&mut self, part: impl FnOnce(&mut Spaced, &mut Vec<u8>) -> io::Result<()>) {
        // Infallible: writing to memory.
        let _ = part(&mut Spaced, &mut self.bytes);
    }
}

/// A tree as JSON. Texts that are whole numbers are numbers; everything else that is no truth value is
/// a text.
struct Json<'a>(&'a Tree);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Tree::Map(entries) => {
                let mut map = s.serialize_map(Some(entries.len()))?;
                for (key, value) in entries {
                    map.serialize_entry(key, &Json(value))?;
                }
                map.end()
            }
            Tree::List(items) => s.collect_seq(items.iter().map(Json)),
            Tree::Bool(value) => s.serialize_bool(*value),
            Tree::Plain(value) => match (canonical::<i64>(value), canonical::<u64>(value)) {
                (Some(number), _) => s.serialize_i64(number),
                (None, Some(number)) => s.serialize_u64(number),
                (None, None) => s.serialize_str(value),
            },
            Tree::Quoted(value) | Tree::Tagged(value) | Tree::TaggedSingle(value) => {
                s.serialize_str(value)
            }
        }
    }
}

/// A number that is written as JSON writes it.
fn canonical<N: core::str::FromStr + ToString>(text: &str) -> Option<N> {
    text.parse::<N>().ok().filter(|number| number.to_string() == text)
}

/// One line with a blank behind each comma and colon.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }

    /// JSON allows control characters above 0x7e; a terminal obeys them.
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for part in fragment.split_inclusive(char::is_control) {
            let mut chars = part.chars();
            match chars.next_back().filter(|last| last.is_control()) {
                Some(last) => write!(out, "{}\\u{:04x}", chars.as_str(), u32::from(last))?,
                None => out.write_all(part.as_bytes())?,
            }
        }
        Ok(())
    }
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
            ("odd", Tree::plain("a\"b\\c\nd\u{7f}e\u{9b}")),
        ]);
        let mut object = Object::default();
        object.entry("up", &Tree::Bool(true));
        object.entry("net", &Tree::List(vec![ni]));
        assert_eq!(
            object.end(),
            "{\"up\": true, \"net\": [{\"nid\": \"10.0.0.1@tcp\", \"credits\": -8, \
             \"length\": 18446744073709551615, \"mask\": \"007\", \"CPT\": \"[0]\", \
             \"odd\": \"a\\\"b\\\\c\\nd\\u007fe\\u009b\"}]}"
        );
    }

    #[test]
    fn empty_objects_and_lists_are_written_whole() {
        assert_eq!(Object::default().end(), "{}");
        let mut object = Object::default();
        object.open("peer");
        assert_eq!(object.take(), "{\"peer\": [");
        assert_eq!(object.end(), "]}");
    }
}

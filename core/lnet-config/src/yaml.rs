//! YAML text to a tree of texts with their places. The only file that uses the parser.
//!
//! All of YAML is read that a person or an exporter might write (block and flow style, quotes,
//! comments, several documents). Anchors, aliases and tags are refused: no exporter writes them,
//! and aliases are how a small file becomes a large one. Every scalar stays text: what it means,
//! the block that it stands in decides. Size and depth are bounded.

use core::fmt;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span};
use thiserror::Error;

/// The longest text, bytes. A complete export has about 1.5 KiB for each peer NI, a backup 110 bytes:
/// room for 150,000 and for two million of them.
pub const YAML_BYTES_MAX: usize = 256 << 20;
/// The deepest nesting; real files need 6.
pub const YAML_DEPTH_MAX: usize = 32;

/// A place in the text; both count from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pos {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
}

impl fmt::Display for Pos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// Why a text is not usable YAML.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum YamlError {
    /// Longer than [`YAML_BYTES_MAX`].
    #[error("YAML text: {bytes} bytes, must be at most {YAML_BYTES_MAX}")]
    TooLong {
        /// Its length, bytes.
        bytes: usize,
    },
    /// Deeper than [`YAML_DEPTH_MAX`].
    #[error("nested deeper than {YAML_DEPTH_MAX} levels at {pos}")]
    TooDeep {
        /// Where.
        pos: Pos,
    },
    /// Not YAML.
    #[error("{what} at {pos}")]
    Syntax {
        /// What the parser says.
        what: String,
        /// Where.
        pos: Pos,
    },
    /// YAML, but more than is read here.
    #[error("{what} are not read here, at {pos}")]
    Unsupported {
        /// Which feature.
        what: &'static str,
        /// Where.
        pos: Pos,
    },
    /// A key twice in one map.
    #[error("duplicate key '{key}' at {pos}")]
    DuplicateKey {
        /// The key.
        key: String,
        /// Its second place.
        pos: Pos,
    },
}

impl YamlError {
    /// Where, if it is about a place.
    pub const fn pos(&self) -> Option<Pos> {
        match self {
            Self::TooLong { .. } => None,
            Self::TooDeep { pos }
            | Self::Syntax { pos, .. }
            | Self::Unsupported { pos, .. }
            | Self::DuplicateKey { pos, .. } => Some(*pos),
        }
    }
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Where it begins.
    pub pos: Pos,
    /// What it is.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing (`key:`, `~`, `null`).
    Null,
    /// A text, quoted or not.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map in the order of the text, keys unique.
    Map(Vec<(Key, Node)>),
}

/// A key and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Where it begins.
    pub pos: Pos,
    /// The key.
    pub text: String,
}

/// The documents of a stream. An empty document is [`Value::Null`].
///
/// # Errors
/// See [`YamlError`].
pub fn parse(text: &str) -> Result<Vec<Node>, YamlError> {
    parse_within(text, YAML_BYTES_MAX)
}

fn parse_within(text: &str, max: usize) -> Result<Vec<Node>, YamlError> {
    if text.len() > max {
        return Err(YamlError::TooLong { bytes: text.len() });
    }
    let mut builder = Builder::default();
    for next in Parser::new_from_str(text) {
        let (event, span) = next.map_err(|e| syntax(&e))?;
        builder.event(event, span)?;
    }
    Ok(builder.documents)
}

fn syntax(error: &ScanError) -> YamlError {
    let marker = error.marker();
    let pos = Pos { line: marker.line(), column: marker.col() + 1 };
    YamlError::Syntax { what: error.info(), pos }
}

enum Open {
    List(Pos, Vec<Node>),
    /// The key whose value comes next, if one has been read.
    Map(Pos, Vec<(Key, Node)>, Option<Key>),
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let pos = Pos { line: span.start.line(), column: span.start.col() + 1 };
        let unsupported = |what| Err(YamlError::Unsupported { what, pos });
        match event {
            Event::Scalar(_, _, 1.., _)
            | Event::SequenceStart(_, 1.., _)
            | Event::MappingStart(_, 1.., _)
            | Event::Alias(_) => unsupported("anchors and aliases"),
            Event::Scalar(_, _, _, Some(_))
            | Event::SequenceStart(_, _, Some(_))
            | Event::MappingStart(_, _, Some(_)) => unsupported("tags"),
            Event::Scalar(text, style, ..) => {
                let plain = matches!(style, ScalarStyle::Plain);
                self.scalar(text.into_owned(), plain, pos)
            }
            Event::SequenceStart(..) => self.enter(Open::List(pos, Vec::new()), pos),
            Event::MappingStart(..) => self.enter(Open::Map(pos, Vec::new(), None), pos),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open::List(pos, items)) => self.node(Node { pos, value: Value::List(items) }),
                Some(Open::Map(pos, entries, _)) => {
                    self.node(Node { pos, value: Value::Map(entries) })
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn enter(&mut self, open: Open, pos: Pos) -> Result<(), YamlError> {
        if let Some(Open::Map(_, _, None)) = self.open.last() {
            return Err(YamlError::Unsupported { what: "keys that are not plain text", pos });
        }
        if self.open.len() == YAML_DEPTH_MAX {
            return Err(YamlError::TooDeep { pos });
        }
        self.open.push(open);
        Ok(())
    }

    fn scalar(&mut self, text: String, plain: bool, pos: Pos) -> Result<(), YamlError> {
        if let Some(Open::Map(_, entries, key @ None)) = self.open.last_mut() {
            if entries.iter().any(|(k, _)| k.text == text) {
                return Err(YamlError::DuplicateKey { key: text, pos });
            }
            *key = Some(Key { pos, text });
            return Ok(());
        }
        let null = plain && matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL");
        let value = if null { Value::Null } else { Value::Text(text) };
        self.node(Node { pos, value })
    }

    fn node(&mut self, node: Node) -> Result<(), YamlError> {
        match self.open.last_mut() {
            None => self.documents.push(node),
            Some(Open::List(_, items)) => items.push(node),
            Some(Open::Map(_, entries, key)) => {
                // A node that is no scalar cannot come where a key is due: `enter` refuses it.
                if let Some(key) = key.take() {
                    entries.push((key, node));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(node: &Node) -> &str {
        match &node.value {
            Value::Text(text) => text,
            other => panic!("{other:?}"),
        }
    }

    fn map(node: &Node) -> &[(Key, Node)] {
        match &node.value {
            Value::Map(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scalars_stay_text_and_carry_their_places() {
        let docs = parse("net:\n  - a: 0x10 # hex\n    \"b c\": 'yes'\n").unwrap();
        let [(net, list)] = map(&docs[0]) else { panic!() };
        assert_eq!((net.text.as_str(), net.pos), ("net", Pos { line: 1, column: 1 }));
        let Value::List(items) = &list.value else { panic!() };
        let item = map(&items[0]);
        assert_eq!(text(&item[0].1), "0x10");
        assert_eq!(item[0].1.pos, Pos { line: 2, column: 8 });
        assert_eq!((item[1].0.text.as_str(), text(&item[1].1)), ("b c", "yes"));
    }

    #[test]
    fn lists_in_the_column_of_their_key_and_flow_style_are_the_same_tree() {
        fn shape(node: &Node) -> String {
            match &node.value {
                Value::Null => "-".to_owned(),
                Value::Text(text) => text.clone(),
                Value::List(items) => {
                    format!("[{}]", items.iter().map(shape).collect::<Vec<_>>().join(","))
                }
                Value::Map(entries) => {
                    let all: Vec<_> =
                        entries.iter().map(|(k, v)| format!("{}:{}", k.text, shape(v))).collect();
                    format!("{{{}}}", all.join(","))
                }
            }
        }
        let library = "net:\n-     net type: tcp\n      local NI(s):\n      -     interfaces:\n                  0: eth0\n";
        let classic = "net:\n    - net type: tcp\n      local NI(s):\n        - interfaces:\n              0: eth0\n";
        let flow = "{net: [{net type: tcp, local NI(s): [{interfaces: {0: eth0}}]}]}";
        let expected = "{net:[{net type:tcp,local NI(s):[{interfaces:{0:eth0}}]}]}";
        for yaml in [library, classic, flow] {
            assert_eq!(shape(&parse(yaml).unwrap()[0]), expected, "{yaml}");
        }
    }

    #[test]
    fn empty_texts_and_several_documents_are_read() {
        assert_eq!(parse("").unwrap(), []);
        assert_eq!(parse("# only a comment\n").unwrap(), []);
        assert_eq!(parse("---\na: 1\n---\nb:\n...\n").unwrap().len(), 2);
    }

    #[test]
    fn bad_yaml_is_named_with_its_place() {
        let error = |yaml: &str| parse(yaml).unwrap_err().to_string();
        assert_eq!(error("a: 1\na: 2\n"), "duplicate key 'a' at line 2, column 1");
        assert_eq!(
            error("a: &x 1\n"),
            "anchors and aliases are not read here, at line 1, column 7"
        );
        assert_eq!(error("a: !t 1\n"), "tags are not read here, at line 1, column 7");
        assert!(error("a: [1\n").contains("line"), "{}", error("a: [1\n"));
        assert!(error("a:\n\tb: 1\n").contains("line 2"), "{}", error("a:\n\tb: 1\n"));
        let deep = "[".repeat(40) + &"]".repeat(40);
        assert_eq!(error(&deep), "nested deeper than 32 levels at line 1, column 33");
        let long = parse_within("a: 1 ", 4).unwrap_err().to_string();
        assert_eq!(long, "YAML text: 5 bytes, must be at most 268435456");
    }
}

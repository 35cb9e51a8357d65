//! Trees to text, in the two layouts that users of LNet tools know (lnetctl.md 2). No YAML crate
//! reproduces them, and people compare these files.

use core::fmt::Write as _;

/// A layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Steps of four, dashes indented (Y-2, Y-3).
    Classic,
    /// Steps of six, dashes in the column of their key (Y-4, Y-5).
    Library,
    /// As [`Self::Library`] with steps of two: answers of `ping` and `discover`.
    Narrow,
}

/// A tree to be printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Keys and values in order.
    Map(Vec<(String, Self)>),
    /// Items in order.
    List(Vec<Self>),
    /// A text or number as it stands; quoted where a library would have to.
    Plain(String),
    /// A truth value, spelled as the style does.
    Bool(bool),
    /// A text in double quotes (`CPT: "[0,1]"`).
    Quoted(String),
    /// A text as the error documents of the library style show it: `! "…"`.
    Tagged(String),
    /// The same with single quotes: `! '…'`.
    TaggedSingle(String),
}

impl Tree {
    /// A map from keys and values.
    pub fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }

    /// A text or number as it stands.
    pub fn plain(value: impl ToString) -> Self {
        Self::Plain(value.to_string())
    }

    /// A text, in quotes where it would be read as something else: `*@tcp` is an alias of YAML.
    pub fn text(value: impl ToString) -> Self {
        let text = value.to_string();
        if is_plain(&text) { Self::Plain(text) } else { Self::Quoted(text) }
    }

    /// The text of this tree, which must be a map to make a document.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        Emitter { style, out: &mut out }.block(self, 0, true);
        out
    }
}

struct Emitter<'a> {
    style: Style,
    out: &'a mut String,
}

impl Emitter<'_> {
    const fn step(&self) -> usize {
        match self.style {
            Style::Classic => 4,
            Style::Library => 6,
            Style::Narrow => 2,
        }
    }

    fn pad(&mut self, column: usize) {
        self.out.extend(core::iter::repeat_n(' ', column));
    }

    /// A map or a list whose keys or dashes stand in `column`. `top`: its keys are the document's.
    fn block(&mut self, tree: &Tree, column: usize, top: bool) {
        match tree {
            Tree::Map(entries) => {
                for (key, value) in entries {
                    self.pad(column);
                    self.entry(key, value, column, top);
                }
            }
            Tree::List(items) => {
                for item in items {
                    self.item(item, column);
                }
            }
            scalar => {
                self.pad(column);
                self.scalar(scalar, column);
                self.out.push('\n');
            }
        }
    }

    /// One key with its value; the cursor is in the key's column.
    fn entry(&mut self, key: &str, value: &Tree, column: usize, top: bool) {
        self.out.push_str(key);
        self.out.push(':');
        match value {
            Tree::Map(_) => {
                self.out.push('\n');
                self.block(value, column + self.step(), false);
            }
            Tree::List(_) => {
                self.out.push('\n');
                let dash = match self.style {
                    Style::Classic if top => 4,
                    Style::Classic => 2,
                    Style::Library | Style::Narrow => 0,
                };
                self.block(value, column + dash, false);
            }
            scalar => {
                self.out.push(' ');
                self.scalar(scalar, column + key.chars().count() + 2);
                self.out.push('\n');
            }
        }
    }

    /// One item whose dash stands in `column`.
    fn item(&mut self, item: &Tree, column: usize) {
        let inner = match self.style {
            Style::Classic => column + 2,
            Style::Library | Style::Narrow => column + self.step(),
        };
        self.pad(column);
        self.out.push('-');
        match item {
            Tree::Map(entries) => {
                // The first key follows its dash, the others stand below it.
                for (i, (key, value)) in entries.iter().enumerate() {
                    self.pad(if i == 0 { inner - column - 1 } else { inner });
                    self.entry(key, value, inner, false);
                }
                if entries.is_empty() {
                    self.out.push('\n');
                }
            }
            Tree::List(_) => {
                self.out.push('\n');
                self.block(item, inner, false);
            }
            scalar => {
                self.pad(inner - column - 1);
                self.scalar(scalar, inner);
                self.out.push('\n');
            }
        }
    }

    /// A scalar whose text begins in `column`.
    fn scalar(&mut self, scalar: &Tree, column: usize) {
        match scalar {
            Tree::Plain(text) if self.style == Style::Classic => {
                // Further lines stand below the first (Y-3).
                for (i, line) in text.split('\n').enumerate() {
                    if i > 0 {
                        self.out.push('\n');
                        self.pad(column);
                    }
                    self.out.push_str(line);
                }
            }
            Tree::Plain(text) if is_plain(text) => self.out.push_str(text),
            Tree::Plain(text) | Tree::Quoted(text) => self.double_quoted(text),
            Tree::Bool(value) => self.out.push_str(match (self.style, value) {
                (Style::Classic, true) => "True",
                (Style::Classic, false) => "False",
                (_, true) => "true",
                (_, false) => "false",
            }),
            Tree::Tagged(text) => {
                self.out.push_str("! ");
                self.double_quoted(text);
            }
            Tree::TaggedSingle(text) => {
                // Infallible: writing to a String.
                let _ = write!(self.out, "! '{}'", text.replace('\'', "''"));
            }
            Tree::Map(_) | Tree::List(_) => {}
        }
    }

    fn double_quoted(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\t' => self.out.push_str("\\t"),
                c if c.is_control() => {
                    // Infallible: writing to a String.
                    let _ = write!(self.out, "\\u{:04x}", u32::from(c));
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// Whether a text can stand without quotes.
fn is_plain(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    let indicator = match first {
        '-' | '?' | ':' => text[1..].chars().next().is_none_or(char::is_whitespace),
        first => "[]{},#&*!|>'\"%@`".contains(first) || first.is_whitespace(),
    };
    !indicator
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(char::is_control)
        && !matches!(text, "~" | "null" | "Null" | "NULL")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Tree {
        let stats = Tree::map([("send_count", Tree::plain(0))]);
        let ni = Tree::map([
            ("nid", Tree::plain("10.0.0.1@tcp")),
            ("interfaces", Tree::map([("0", Tree::plain("eth0"))])),
            ("statistics", stats),
            ("CPT", Tree::Quoted("[0,1]".to_owned())),
        ]);
        let net =
            Tree::map([("net type", Tree::plain("tcp")), ("local NI(s)", Tree::List(vec![ni]))]);
        Tree::map([("net", Tree::List(vec![net])), ("up", Tree::Bool(true))])
    }

    #[test]
    fn y2_classic_yaml_indents_lists_below_their_key() {
        let expected = r#"net:
    - net type: tcp
      local NI(s):
        - nid: 10.0.0.1@tcp
          interfaces:
              0: eth0
          statistics:
              send_count: 0
          CPT: "[0,1]"
up: True
"#;
        assert_eq!(sample().render(Style::Classic), expected);
    }

    #[test]
    fn y4_library_yaml_puts_dashes_in_the_column_of_the_key() {
        let expected = r#"net:
-     net type: tcp
      local NI(s):
      -     nid: 10.0.0.1@tcp
            interfaces:
                  0: eth0
            statistics:
                  send_count: 0
            CPT: "[0,1]"
up: true
"#;
        assert_eq!(sample().render(Style::Library), expected);
    }

    #[test]
    fn y4_narrow_yaml_puts_items_behind_their_dash() {
        let nid = |n: &str| Tree::map([("nid", Tree::plain(n))]);
        let peer = Tree::map([
            ("primary nid", Tree::plain("10.0.0.2@tcp")),
            ("peer_ni", Tree::List(vec![nid("10.0.0.2@tcp"), nid("10.0.0.3@tcp")])),
            ("empty", Tree::List(vec![])),
        ]);
        let expected = "ping:
- primary nid: 10.0.0.2@tcp
  peer_ni:
  - nid: 10.0.0.2@tcp
  - nid: 10.0.0.3@tcp
  empty:
";
        let doc = Tree::map([("ping", Tree::List(vec![peer]))]);
        assert_eq!(doc.render(Style::Narrow), expected);
    }

    #[test]
    fn texts_are_quoted_only_where_yaml_needs_it() {
        let line = |text: &str| Tree::map([("k", Tree::plain(text))]).render(Style::Library);
        assert_eq!(line("eth0:1"), "k: eth0:1\n");
        assert_eq!(line("-1"), "k: -1\n");
        assert_eq!(line("a: b"), "k: \"a: b\"\n");
        assert_eq!(line("#x"), "k: \"#x\"\n");
        assert_eq!(line(""), "k: \"\"\n");
        let tagged = Tree::map([("k", Tree::Tagged("\"a\\b\"".to_owned()))]);
        assert_eq!(tagged.render(Style::Library), "k: ! \"\\\"a\\\\b\\\"\"\n");
    }

    #[test]
    fn printed_yaml_is_read_back_as_the_same_texts() {
        let odd = ["a: b", "#x", "it's", "\"q\"", "a\\b", "-", "- a", "[x]", "null", "x\u{7}y"];
        for text in odd {
            let yaml = Tree::map([("k", Tree::plain(text))]).render(Style::Library);
            let docs = crate::yaml::parse(&yaml).unwrap();
            let crate::yaml::Value::Map(entries) = &docs[0].value else { panic!() };
            assert_eq!(entries[0].1.value, crate::yaml::Value::Text(text.to_owned()), "{yaml}");
        }
    }
}

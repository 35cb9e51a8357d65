//! The engine consists of parts: files of `core/lnet/src` that can be read and tested alone. Some figures
//! say how far that is so, and none may grow:
//!
//! * the largest circle of files that import each other's items;
//! * the largest circle of files whose `impl Node` blocks call each other's methods, which no import shows:
//!   there is none, calls run one way;
//! * files with methods of `Node`, and its fields.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{files, text};

/// Files in the largest circle of imports. A file in a circle can't be read without the others.
const IMPORT_CIRCLE_MAX: usize = 2;
/// Files with methods of `Node`.
const NODE_FILES_MAX: usize = 61;
/// Fields of `Node`.
const NODE_FIELDS_MAX: usize = 21;

const SOURCES: &str = "core/lnet/src";

/// Product code by module: `send::select` is `send/select.rs`, `send` is `send/mod.rs`.
fn modules() -> BTreeMap<String, String> {
    let mut modules = BTreeMap::new();
    for path in files(SOURCES, "rs") {
        let name = path.strip_prefix(SOURCES).expect("below the sources").with_extension("");
        let mut name: Vec<_> = name.iter().map(|part| part.to_string_lossy()).collect();
        if name.iter().any(|part| part == "tests") {
            continue;
        }
        if name.last().is_some_and(|part| part == "mod") {
            name.pop();
        }
        let whole = text(&path);
        let product = whole.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: String = product
            .lines()
            .map(|line| line.split_once("//").map_or(line, |(code, _)| code).to_owned() + "\n")
            .collect();
        modules.insert(name.join("::"), code);
    }
    modules
}

/// The single paths of a use tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths_of(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.trim_end_matches("::self").split_whitespace().collect()];
    };
    let inside = rest.trim_end();
    let inside = inside.strip_suffix('}').unwrap_or(inside);
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in inside.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        parts.last_mut().expect("a part").push(c);
    }
    let parts = parts.iter().filter(|part| !part.trim().is_empty());
    parts.flat_map(|part| paths_of(&format!("{before}{}", part.trim()))).collect()
}

/// A path that a file imports.
#[derive(Debug, PartialEq)]
struct Import {
    path: String,
    /// It is exported again: a folder names what is in it for users outside, and needs none of it.
    again: bool,
}

/// What a file imports, and the code without its imports.
fn imports(code: &str) -> (Vec<Import>, String) {
    let (mut paths, mut rest) = (Vec::new(), String::new());
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        let plain = line.trim_start();
        let plain = plain.split_once("use ").filter(|(before, _)| {
            let restricted = before.starts_with("pub(") && before.ends_with(") ");
            before.is_empty() || *before == "pub " || restricted
        });
        let Some((before, tree)) = plain else {
            rest += line;
            rest.push('\n');
            continue;
        };
        let mut tree = tree.to_owned();
        while !tree.contains(';') {
            tree += lines.next().expect("an import ends");
        }
        let tree = paths_of(tree.split(';').next().unwrap_or_default());
        let again = !before.is_empty();
        paths.extend(tree.into_iter().map(|path| Import { path, again }));
    }
    (paths, rest)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Paths in code that begin with `crate::` or `super::`.
fn inline_paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            if !code[..at].ends_with(|c: char| is_word(c) || c == ':') {
                let path = code[at..].chars().take_while(|c| is_word(*c) || *c == ':');
                found.push(path.collect::<String>().trim_end_matches(':').to_owned());
            }
        }
    }
    found
}

struct Tree {
    modules: BTreeMap<String, String>,
    imports: BTreeMap<String, Vec<Import>>,
}

impl Tree {
    fn new() -> Self {
        let modules = modules();
        let imports = modules.iter().map(|(name, code)| (name.clone(), imports(code).0)).collect();
        Self { modules, imports }
    }

    fn defines(&self, module: &str, item: &str) -> bool {
        let code = &self.modules[module];
        ["fn", "struct", "enum", "trait", "type", "const", "static", "macro_rules!"].iter().any(
            |kind| {
                let start = format!("{kind} {item}");
                code.match_indices(&start)
                    .any(|(at, _)| !code[at + start.len()..].starts_with(is_word))
            },
        )
    }

    /// The module that a path in module `from` leads to: that of the item itself, not of one that
    /// exports it again. `None`: another crate's.
    fn home(&self, path: &str, from: &str, depth: u32) -> Option<String> {
        let mut parts: Vec<&str> = path.split("::").collect();
        let mut base: Vec<&str> =
            from.split("::").filter(|part| !part.is_empty() && *part != "lib").collect();
        match parts[0] {
            "crate" => {
                base.clear();
                parts.remove(0);
            }
            "self" => {
                parts.remove(0);
            }
            "super" => {
                while parts.first() == Some(&"super") {
                    parts.remove(0);
                    base.pop();
                }
            }
            // A module below this one.
            first => {
                let child = base.iter().copied().chain([first]).collect::<Vec<_>>().join("::");
                if !self.modules.contains_key(&child) {
                    return None;
                }
            }
        }
        let full: Vec<&str> = base.into_iter().chain(parts).collect();
        let (module, item) = (0..=full.len()).rev().find_map(|n| {
            let name = if n == 0 { "lib".to_owned() } else { full[..n].join("::") };
            self.modules.contains_key(&name).then(|| (name, full.get(n).copied()))
        })?;
        let Some(item) = item.filter(|item| depth < 8 && !self.defines(&module, item)) else {
            return Some(module);
        };
        let mut imports = self.imports[&module].iter().map(|import| &import.path);
        let again = imports.find(|path| path.rsplit("::").next() == Some(item));
        let home = again.and_then(|path| self.home(path, &module, depth + 1));
        home.or(Some(module))
    }

    /// Which file imports items of which.
    fn import_graph(&self) -> BTreeMap<String, BTreeSet<String>> {
        let uses = |(name, code): (&String, &String)| {
            let (imports, rest) = imports(code);
            let used = imports.into_iter().filter(|import| !import.again).map(|import| import.path);
            let paths: Vec<String> = used.chain(inline_paths(&rest)).collect();
            let homes = paths.iter().filter_map(|path| self.home(path, name, 0));
            (name.clone(), homes.filter(|home| home != name && home != "lib").collect())
        };
        // `lib.rs` names everything and has nothing.
        self.modules.iter().filter(|(name, _)| *name != "lib").map(uses).collect()
    }

    /// Methods of `Node` with the file that has each.
    fn node_methods(&self) -> BTreeMap<String, String> {
        let mut methods = BTreeMap::new();
        for (name, code) in &self.modules {
            let mut end = None;
            for line in code.lines() {
                let indent = line.len() - line.trim_start().len();
                match end {
                    None if line.trim() == "impl Node {" => end = Some(indent),
                    Some(outer) if line.trim() == "}" && indent == outer => end = None,
                    Some(outer) if indent == outer + 4 => {
                        let head = line.split_once("fn ").filter(|(before, _)| {
                            before
                                .split_whitespace()
                                .all(|word| word == "const" || word.starts_with("pub"))
                        });
                        if let Some((_, rest)) = head {
                            let method: String = rest.chars().take_while(|c| is_word(*c)).collect();
                            methods.insert(method, name.clone());
                        }
                    }
                    _ => {}
                }
            }
        }
        methods
    }

    /// The methods of which file call methods of which.
    fn call_graph(&self) -> BTreeMap<String, BTreeSet<String>> {
        let methods = self.node_methods();
        let with_methods: BTreeSet<&String> = methods.values().collect();
        let mut graph = BTreeMap::new();
        for name in with_methods {
            let code = &self.modules[name];
            let mut called = BTreeSet::new();
            for start in ["self.", "node.", "Self::", "Node::"] {
                for (at, _) in code.match_indices(start) {
                    let rest = &code[at + start.len()..];
                    let method: String = rest.chars().take_while(|c| is_word(*c)).collect();
                    let is_call = rest[method.len()..].starts_with('(');
                    if let Some(home) = methods.get(&method).filter(|home| is_call && *home != name)
                    {
                        called.insert(home.clone());
                    }
                }
            }
            graph.insert(name.clone(), called);
        }
        graph
    }
}

/// The largest set of files each of which leads to each other one; empty if there is no circle.
fn largest_circle(graph: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let reach = |from: &String| {
        let mut seen = BTreeSet::new();
        let mut next: Vec<&String> = graph[from].iter().collect();
        while let Some(at) = next.pop() {
            if seen.insert(at.clone()) {
                next.extend(graph.get(at).into_iter().flatten());
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|name| (name, reach(name))).collect();
    let circle = |name: &String| -> BTreeSet<String> {
        let there = reached[name].iter();
        there
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(name)))
            .cloned()
            .collect()
    };
    graph.keys().map(circle).max_by_key(BTreeSet::len).unwrap_or_default()
}

#[test]
fn few_files_of_the_engine_import_each_other_in_a_circle() {
    let tree = Tree::new();
    let graph = tree.import_graph();
    assert!(graph["node"].len() > 10, "what the node consists of: {:?}", graph["node"]);
    let circle = largest_circle(&graph);
    assert!(circle.len() <= IMPORT_CIRCLE_MAX, "{} files: {circle:#?}", circle.len());
}

#[test]
fn methods_of_the_node_call_each_other_in_one_direction() {
    let tree = Tree::new();
    let graph = tree.call_graph();
    assert!(graph["turn"].contains("send::depart"), "the work list calls it: {:?}", graph["turn"]);
    assert!(graph.len() <= NODE_FILES_MAX, "{} files: {:#?}", graph.len(), graph.keys());
    let circle = largest_circle(&graph);
    assert!(circle.is_empty(), "{} files: {circle:#?}", circle.len());
}

#[test]
fn the_node_has_no_more_fields_than_before() {
    let tree = Tree::new();
    let (_, rest) = tree.modules["node"].split_once("pub struct Node {\n").expect("the node");
    let (fields, _) = rest.split_once("\n}").expect("its end");
    let fields: Vec<_> = fields.lines().filter(|line| line.contains(": ")).collect();
    assert!((2..=NODE_FIELDS_MAX).contains(&fields.len()), "{} fields: {fields:#?}", fields.len());
}

#[test]
fn a_use_tree_is_read_path_by_path() {
    let (paths, rest) = imports("use a::{b, c::{self, D}};\npub use x::Y as Z;\nfn f() {}\n");
    let import = |path: &str, again| Import { path: path.to_owned(), again };
    let inside = ["a::b", "a::c", "a::c::D"].map(|path| import(path, false));
    assert_eq!(paths[..3], inside);
    assert_eq!(paths[3..], [import("x::Y", true)]);
    assert_eq!(rest, "fn f() {}\n");
    let graph = [("a", vec!["b"]), ("b", vec!["c"]), ("c", vec!["b", "d"]), ("d", vec![])];
    let graph = graph.map(|(a, to)| (a.to_owned(), to.into_iter().map(str::to_owned).collect()));
    assert_eq!(Vec::from_iter(largest_circle(&BTreeMap::from(graph))), ["b", "c"]);
}

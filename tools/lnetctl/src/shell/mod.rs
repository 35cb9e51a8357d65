//! The commands for shells and manuals, all of it made from `../table.rs`:
//! completions, the manual page, examples, and what a mistyped word may have meant.

pub(crate) mod completions;
pub(crate) mod examples;
pub(crate) mod lines;
pub(crate) mod man;

use crate::table::{COMMANDS, Command, Entry};

/// A group of commands: the words that lead there, and the words that can follow.
pub(crate) struct Level {
    pub(crate) path: String,
    pub(crate) words: Vec<&'static str>,
}

/// Every group, the top level first.
pub(crate) fn levels() -> Vec<Level> {
    fn walk(path: &str, entries: &'static [Entry], all: &mut Vec<Level>) {
        all.push(Level { path: path.to_owned(), words: entries.iter().map(Entry::name).collect() });
        for entry in entries {
            if let Entry::Group(group) = entry {
                walk(joined(path, group.name).as_str(), group.entries, all);
            }
        }
    }
    let mut all = Vec::new();
    walk("", COMMANDS, &mut all);
    all
}

/// Every command, in the order of the table.
pub(crate) fn commands() -> Vec<&'static Command> {
    commands_of(COMMANDS)
}

/// Every command of a table.
pub(crate) fn commands_of(entries: &'static [Entry]) -> Vec<&'static Command> {
    fn walk(entries: &'static [Entry], all: &mut Vec<&'static Command>) {
        for entry in entries {
            match entry {
                Entry::Group(group) => walk(group.entries, all),
                Entry::Command(command) => all.push(command),
                Entry::Both(command, entries) => {
                    all.push(command);
                    walk(entries, all);
                }
            }
        }
    }
    let mut all = Vec::new();
    walk(entries, &mut all);
    all
}

fn joined(path: &str, word: &str) -> String {
    if path.is_empty() { word.to_owned() } else { format!("{path} {word}") }
}

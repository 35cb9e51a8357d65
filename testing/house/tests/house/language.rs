//! Language: pages for operators have the terms of the field, and sources name their subjects.
//!
//! Pages are the documents, the README, the changelog and the manuals, which are made from the help
//! of the programs. Code is left out of them: it holds names and recorded outputs.

use std::path::{Path, PathBuf};

use crate::workspace::{files, text};

/// Words that say of a machine what is meant of a person: announced, reported, degraded, black hole,
/// outage, healthy and succeeded are meant.
const IMAGES: &[&str] = &["told", "ill", "dark", "darkness", "well", "deaf"];

/// Pronouns in the place of a noun: no peer, no caller, the sender, the holder are meant.
const PRONOUNS: &[&str] = &["nobody", "whoever", "whom"];

/// Folders whose sources are product code.
const PRODUCT: &[&str] = &["core", "drivers", "host", "tools", "sim"];

fn pages() -> Vec<PathBuf> {
    let mut pages = files("docs", "md");
    for section in ["1", "3", "8"] {
        pages.extend(files("docs/man", section));
    }
    pages.extend(["README.md", "CHANGELOG.md"].map(PathBuf::from));
    pages
}

/// The lines of a page with their numbers, without blocks and spans of code.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> + '_ {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(n, line)| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        let spans = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        (!fence && !in_code).then_some((n + 1, spans))
    })
}

/// Words in lower case. A name with hyphens (`dark-5s`) is one word, one with underscores is several.
fn words(line: &str) -> Vec<String> {
    let parts = line.split(|c: char| !c.is_alphanumeric() && c != '-');
    parts.filter(|w| !w.is_empty()).map(str::to_lowercase).collect()
}

/// The words of a line that a page must not have; "as well" is none.
fn images(line: &str) -> Vec<String> {
    let words = words(line);
    let before = |i: usize| i.checked_sub(1).and_then(|i| words.get(i));
    let is_image = |(i, word): (usize, &String)| {
        let word = word.as_str();
        let also = word == "well" && before(i).is_some_and(|w| w == "as");
        (IMAGES.contains(&word) || PRONOUNS.contains(&word)) && !also
    };
    words.iter().enumerate().filter(|w| is_image(*w)).map(|(_, word)| word.clone()).collect()
}

#[test]
fn pages_have_the_terms_of_the_field() {
    let mut found = Vec::new();
    let pages = pages();
    assert!(pages.len() > 40, "only {} pages found", pages.len());
    for page in pages {
        for (n, line) in prose(&text(&page)) {
            found.extend(images(&line).iter().map(|w| format!("{}:{n}: {w}", page.display())));
        }
    }
    assert!(found.is_empty(), "CONTRIBUTING.md, Language: {found:#?}");
}

#[test]
fn sources_name_their_subjects() {
    let is_banned = |word: &str| PRONOUNS.contains(&word) || word == "told";
    let mut found = Vec::new();
    for path in PRODUCT.iter().flat_map(|folder| files(folder, "rs")) {
        let lines = text(Path::new(&path));
        let hits = lines.lines().enumerate().filter(|(_, line)| {
            // Names count as well: `is_told` is two words.
            words(line).iter().flat_map(|w| w.split('-')).any(is_banned)
        });
        found
            .extend(hits.map(|(n, line)| format!("{}:{}: {}", path.display(), n + 1, line.trim())));
    }
    assert!(found.is_empty(), "CONTRIBUTING.md, Language: {found:#?}");
}

#[test]
fn code_and_the_word_for_also_are_no_images() {
    assert_eq!(images("a dark rail is ill, told to whom"), ["dark", "ill", "told", "whom"]);
    assert!(images("a copy as well; the run dark-5s").is_empty());
    let page = "a `told` b\n```\ntold\n```\nc";
    let lines: Vec<_> = prose(page).collect();
    assert_eq!(lines, [(1, "a ` b".to_owned()), (5, "c".to_owned())]);
}

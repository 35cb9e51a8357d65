//! Codes of statements in comments: each has a row in `docs/reference/`, or is a requirement.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{crate_files, files, text};

/// Areas whose names have several letters; any capital letter is one as well.
const AREAS: [&str; 8] = ["DEC", "HL", "HLD", "MR", "MRD", "PA", "RS", "UG"];

/// Whether a word is a code: an area, perhaps a command or subject in lower case, a number, perhaps a
/// letter (`H-12`, `C-netadd-6`, `K-30a`).
fn is_code(word: &str) -> bool {
    let Some((area, rest)) = word.split_once('-') else { return false };
    let is_area = matches!(area.as_bytes(), [b'A'..=b'Z']) || AREAS.contains(&area);
    let number = match rest.split_once('-') {
        Some((subject, number)) => {
            let is_subject = !subject.is_empty() && subject.chars().all(|c| c.is_ascii_lowercase());
            if is_subject { number } else { "" }
        }
        None => rest.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(rest),
    };
    is_area && !number.is_empty() && number.chars().all(|c| c.is_ascii_digit())
}

fn codes(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter(|word| is_code(word))
}

/// What follows `//` in a line, unless that is within a string.
fn comment(line: &str) -> Option<&str> {
    let (code, comment) = line.split_once("//")?;
    (code.matches('"').count() % 2 == 0).then_some(comment)
}

/// The first cells of a page's table.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let cells = page.lines().filter_map(|l| l.strip_prefix("| "));
    cells.filter_map(|l| l.split(" |").next()).filter(|cell| is_code(cell))
}

#[test]
fn codes_are_recognized_among_words() {
    for code in ["H-12", "DEC-6", "MR-snd-050", "C-netadd-6", "K-30a", "RS-002"] {
        assert!(is_code(code), "{code}");
    }
    for word in ["UTF-8", "H-", "H-1-2", "x-1", "C-net-", "SHA-256", "A-B", "DEC-six", "H-12ab"] {
        assert!(!is_code(word), "{word}");
    }
    let found: Vec<_> = codes("// Late (H-4, S-81.9), as MR-snd-085 has it.").collect();
    assert_eq!(found, ["H-4", "S-81", "MR-snd-085"]);
}

#[test]
fn every_code_in_a_comment_has_a_row_in_the_reference() {
    let pages: Vec<_> = files("docs/reference", "md").iter().map(text).collect();
    let mut known: BTreeSet<&str> = pages.iter().flat_map(|page| rows(page)).collect();
    let requirements = text("fixtures/requirements.tsv");
    known.extend(requirements.lines().filter_map(|l| l.split('\t').next()));

    let mut unknown: BTreeMap<String, String> = BTreeMap::new();
    let mut cited = 0;
    let profiles = ("docs/reference/profiles.md".into(), text("docs/reference/profiles.md"));
    let sources = crate_files("rs").into_iter().chain(files("fuzz", "rs"));
    let sources = sources.map(|path| {
        let text = text(&path);
        let comments: Vec<_> = text.lines().map(|l| comment(l).unwrap_or_default()).collect();
        (path, comments.join("\n"))
    });
    for (path, text) in sources.chain([profiles]) {
        for (number, line) in text.lines().enumerate() {
            for code in codes(line) {
                cited += 1;
                if !known.contains(code) {
                    let place = format!("{}:{}", path.display(), number + 1);
                    unknown.entry(code.to_owned()).or_insert(place);
                }
            }
        }
    }
    assert!(cited > 500, "only {cited} codes found");
    assert!(unknown.is_empty(), "without a row in docs/reference: {unknown:#?}");
}

//! A program is found by its word, and by the name that it has as a link.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::process::{Command, Output};

fn ulnet(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ulnet")).args(words).output().unwrap()
}

#[test]
fn a_program_answers_to_its_word_and_to_its_link() {
    for (link, word) in [("lnetd", "daemon"), ("lnetctl", "ctl"), ("lst", "selftest")] {
        let (by_link, by_word) = (ulnet(&[link, "--help"]), ulnet(&[word, "--help"]));
        assert!(by_link.status.success() && !by_link.stdout.is_empty(), "{by_link:?}");
        assert_eq!(by_link.stdout, by_word.stdout);
    }
}

#[test]
fn each_program_that_the_help_names_has_a_help() {
    let usage = String::from_utf8(ulnet(&["help"]).stdout).unwrap();
    let listed = usage.lines().skip_while(|line| *line != "Programs:").skip(1);
    let words = listed.take_while(|line| line.starts_with("  "));
    let words: Vec<&str> = words.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(words.len() >= 16, "{usage}");
    for word in words.into_iter().filter(|word| *word != "help") {
        let o = ulnet(&[word, "--help"]);
        let said = String::from_utf8_lossy(&o.stdout).to_lowercase();
        assert!(o.status.success() && said.contains("usage"), "{word}: {o:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_named_with_those_that_are() {
    let o = ulnet(&["lnetcfg"]);
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert_eq!(o.status.code(), Some(2));
    assert!(said.contains("'lnetcfg'") && said.contains("expected daemon, ctl"), "{said}");
}

//! All recordings of kernel nodes, with each of their nodes replaced by ours, in virtual time.
//!
//! `known.rs` has the differences that are known; `ratchet.txt` the number of equal messages by
//! recording and role, which may only rise. With `ULNET_CAPTURE=NAME` only recordings whose path has that
//! name are played, and each known difference is printed.

mod known;
mod locks;
mod sockets;
mod tshark;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use rpc_interop::report::{Allowed, Count, play};

use known::KNOWN;

const RATCHET: &str = include_str!("ratchet.txt");

/// The captures of a directory of fixtures, in the order of their names.
fn captures(name: &str, expected: usize) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    let mut captures: Vec<_> = std::fs::read_dir(&dir)
        .expect("fixtures")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    captures.sort();
    assert_eq!(captures.len(), expected, "captures of {name}");
    captures
}

/// The least number of equal messages by recording and role, and of all messages.
fn ratchet() -> BTreeMap<(String, String), (usize, usize)> {
    let rows = RATCHET.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let mut words = line.split_whitespace();
        let mut word = || words.next().expect("four words").to_owned();
        let (name, role) = (word(), word());
        let number = |word: String| word.parse().expect("a number");
        ((name, role), (number(word()), number(word())))
    })
    .collect()
}

fn row(name: &str, role: &str, count: &Count) -> String {
    let mut open = String::new();
    for (why, n) in &count.open {
        let _ = write!(open, "; {n} {why}");
    }
    format!("{name:28} {role:7} {:5} {:5}{open}", count.compared, count.equal)
}

#[test]
fn recorded_conversations_are_equal_but_for_known_differences() {
    let least = ratchet();
    let mut allowed = Allowed { known: KNOWN, used: BTreeSet::new() };
    let (mut unknown, mut fallen, mut written) = (Vec::new(), Vec::new(), String::new());
    println!("{:28} {:7} {:>5} {:>5}  open", "recording", "ours is", "all", "equal");
    let only = std::env::var("ULNET_CAPTURE").ok();
    for path in [captures("ptlrpc", 35), captures("lustre-client", 8)].concat() {
        if only.as_ref().is_some_and(|only| !path.to_string_lossy().contains(only)) {
            continue;
        }
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        for (role, count) in ["server", "client"].iter().zip(play(&path, &mut allowed)) {
            println!("{}", row(&name, role, &count));
            if only.is_some() {
                count.known.iter().for_each(|line| println!("    {line}"));
                count
                    .kept_back
                    .iter()
                    .for_each(|(why, n)| println!("    not handed on: {n} {why}"));
            }
            unknown.extend(count.unknown.iter().map(|why| format!("{name}, {role}: {why}")));
            let key = (name.clone(), (*role).to_owned());
            let (equal, all) = least.get(&key).copied().unwrap_or_default();
            if count.equal < equal || count.compared != all {
                fallen.push(format!(
                    "{name}, {role}: {} of {} are equal, expected at least {equal} of {all}",
                    count.equal, count.compared
                ));
            }
            let _ = writeln!(written, "{name} {role} {} {}", count.equal, count.compared);
        }
    }
    if std::env::var("ULNET_BLESS").is_ok() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/ratchet.txt");
        let head =
            "# recording, role of our node, equal messages, all messages. Equal may only rise.\n";
        std::fs::write(path, head.to_owned() + &written).expect("written");
        return;
    }
    assert!(unknown.is_empty(), "unknown differences:\n{}", unknown.join("\n"));
    assert!(fallen.is_empty(), "{}", fallen.join("\n"));
    for row in (0..KNOWN.len()).filter(|row| !allowed.used.contains(row)) {
        println!("no difference needs this row any more: {:?}", KNOWN[row]);
    }
}

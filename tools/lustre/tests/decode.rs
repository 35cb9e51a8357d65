//! The listing of every recording in `fixtures/ptlrpc`, compared with the one beside it, which another
//! program made: each of its lines is one of ours, in the same order. Ours shows more buffers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lustre::decode::decode;

fn captures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ptlrpc");
    let entries = std::fs::read_dir(dir).expect("fixtures/ptlrpc");
    let mut captures: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    captures.retain(|path| path.extension().is_some_and(|e| e == "pcap"));
    captures.sort();
    captures
}

/// A line without what both tell differently, and whether it is compared. The other program lists SYNs
/// and FINs that were repeated, counts connections by them, and shows no kind where a connection ends
/// that was open before the capture.
fn comparable(line: &str) -> Option<String> {
    if line.contains("  TCP ") || line.trim() == "lvb/layout=56B" {
        return None;
    }
    let mut line = line.trim_end().replace("ctype=NONE(-1)", "ctype=NONE");
    if !line.starts_with("        ") {
        let rest = line.split_off(line.find(" #").expect("a connection"));
        line.push(' ');
        let addresses = rest.find("10.").expect("an address");
        line.push_str(&rest[addresses..]);
    }
    Some(line)
}

/// The lines of a listing by frame: another order within one frame is no difference.
fn by_frame(listing: &str) -> BTreeMap<u32, Vec<String>> {
    let mut frames: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    let mut frame = 0;
    for line in listing.lines() {
        if !line.starts_with("        ") {
            frame = line[..5].trim().parse().expect("a frame number");
        }
        frames.entry(frame).or_default().push(line.to_owned());
    }
    frames
}

#[test]
fn every_line_of_every_listing_is_a_line_of_ours() {
    let names = [(10, "S"), (11, "K1"), (12, "K2"), (13, "O")];
    let names = names.map(|(host, name)| {
        (format!("10.78.0.{host}@tcp").parse().expect("a NID"), name.to_owned())
    });
    let names = BTreeMap::from(names);
    let captures = captures();
    assert_eq!(captures.len(), 35, "captures");
    let mut compared = 0;
    let mut wrong = Vec::new();
    for capture in captures {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        let path = capture.with_file_name("decoded").join(format!("{name}.txt"));
        let theirs = by_frame(&std::fs::read_to_string(path).expect("a listing"));
        let conversations = lnet_pcap::conversations(&capture).expect("a capture");
        let ours = by_frame(&decode(&conversations, &names));
        for (frame, lines) in theirs {
            let rest = ours.get(&frame).into_iter().flatten();
            let mut rest: Vec<String> = rest.filter_map(|line| comparable(line)).collect();
            for line in lines.iter().filter_map(|line| comparable(line)) {
                compared += 1;
                match rest.iter().position(|our| *our == line) {
                    Some(at) => drop(rest.remove(at)),
                    None => wrong.push(format!("{name}: {line}\n    {rest:#?}")),
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} lines:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 4300, "{compared} lines");
}

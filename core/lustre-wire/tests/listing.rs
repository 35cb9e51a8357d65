//! The listing of every RPC in the recordings of `fixtures/ptlrpc`, compared line by line with the one
//! beside each capture, which another program made.

mod support;

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use lustre_wire::ldlm::Intent;
use lustre_wire::listing::{buffers, head};
use lustre_wire::{Body, Msg, MsgKind, Opcode, Part, Variant};
use support::{captures, messages, rpc};

/// Whether the other program lists a buffer. What it leaves out, ours shows in addition.
fn is_listed(body: &Body, variant: Variant, part: Part) -> bool {
    let opcode = body.opcode;
    match part {
        Part::Acl
        | Part::Batch
        | Part::BatchReplySize
        | Part::DefaultMd
        | Part::EaData
        | Part::EaLengths
        | Part::InlineData
        | Part::LayoutIntent
        | Part::LogBlock
        | Part::LogHeader
        | Part::Md
        | Part::NidList
        | Part::SeqRanges => false,
        Part::Name => opcode == Opcode::LLOG_ORIGIN_HANDLE_CREATE,
        Part::MdtBody => {
            !matches!(opcode, Opcode::LLOG_ORIGIN_HANDLE_CREATE | Opcode::MDS_SYNC)
                && (body.kind, variant) != (MsgKind::REQUEST, Variant::Intent(Intent::GETXATTR))
        }
        Part::Record => opcode != Opcode::MDS_CLOSE,
        Part::SeqRange => opcode == Opcode::SEQ_QUERY,
        Part::Value => body.kind == MsgKind::REQUEST,
        Part::LockRequest => !matches!(variant, Variant::Reint(_)),
        _ => true,
    }
}

/// An RPC that the other program has lost: the reply of the read, in four segments.
const LOST: (&str, u32) = ("callback-resend", 57);

/// Lines that differ though both mean the same: what is left in the listing's line is ours.
fn without_wording(line: &str) -> String {
    // The layout that comes with a lock has a line of its own, where ours shows what it says.
    line.replace("lvb/layout=56B", "")
}

/// An RPC as text: the frame, then a line for the envelope and one for each buffer.
type Listed = (u32, Vec<String>);

fn ours(capture: &Path) -> Vec<Listed> {
    // xid and what was asked for, by the match bits of the reply.
    let mut requests: BTreeMap<u64, (u64, Variant)> = BTreeMap::new();
    let mut listed = Vec::new();
    for found in messages(capture) {
        let Some((_, match_bits, _)) = rpc(&found.hdr) else { continue };
        let message = Msg::parse(&found.payload).expect("a message");
        let body = message.body().expect("a body");
        let (xid, variant) = if body.kind == MsgKind::REQUEST {
            let request = (match_bits, Variant::of(&message, &body));
            let reply_bits = if body.mbits == 0 { match_bits } else { body.mbits };
            requests.insert(reply_bits, request);
            request
        } else {
            requests.get(&match_bits).copied().unwrap_or((match_bits, Variant::Plain))
        };
        let mut lines = vec![head(&message, &body, xid)];
        let kept = buffers(&message, &body, variant);
        let kept = kept.into_iter().filter(|line| is_listed(&body, variant, line.part));
        lines.extend(kept.map(|line| line.text));
        listed.push((found.frame, lines));
    }
    listed
}

fn theirs(listing: &str) -> Vec<Listed> {
    let mut listed: Vec<Listed> = Vec::new();
    let mut rpc = false;
    for line in listing.lines() {
        if let Some(buffer) = line.strip_prefix("        ") {
            if rpc {
                let buffer = without_wording(buffer);
                if !buffer.is_empty() {
                    listed.last_mut().expect("an RPC").1.push(buffer);
                }
            }
            continue;
        }
        let kinds = [" REQ ", " REP ", " ERR ", " EARLY "];
        let at = kinds.iter().find_map(|kind| line.find(kind));
        rpc = at.is_some();
        if let Some(at) = at {
            let frame = line[..5].trim().parse().expect("a frame");
            listed.push((frame, vec![line[at + 1..].to_owned()]));
        }
    }
    listed
}

#[test]
fn every_rpc_of_every_capture_is_listed_as_by_the_other_program() {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for capture in captures() {
        let name = capture.file_stem().expect("a name").to_string_lossy().into_owned();
        let path = capture.with_file_name("decoded").join(format!("{name}.txt"));
        let theirs = theirs(&std::fs::read_to_string(path).expect("a listing"));
        let mut left: BTreeMap<u32, VecDeque<Vec<String>>> = BTreeMap::new();
        for (frame, lines) in theirs {
            left.entry(frame).or_default().push_back(lines);
        }
        for (frame, lines) in ours(&capture) {
            let Some(their) = left.get_mut(&frame).and_then(VecDeque::pop_front) else {
                if (name.as_str(), frame) != LOST {
                    wrong.push(format!("{name} {frame}: not listed: {}", lines[0]));
                }
                continue;
            };
            compared += lines.len();
            if lines != their {
                wrong.push(format!("{name} {frame}:\n  ours   {lines:#?}\n  theirs {their:#?}"));
            }
        }
        for (frame, lines) in left {
            if !lines.is_empty() {
                wrong.push(format!("{name} {frame}: not ours: {lines:?}"));
            }
        }
    }
    assert!(compared > 4000, "{compared} lines compared");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
}

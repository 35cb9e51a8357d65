//! Recorded clients of kernel servers, played to our metadata target: what they asked is asked again in
//! the same order, in the same bytes, but for names that servers choose (open handles, sequences); the
//! answers are compared with the recorded ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lnet_types::Nid;
use lnet_wire::Kind;
use lustre_wire::dir::{PAGE_LEN, page};
use lustre_wire::fid::Valid;
use lustre_wire::ldlm::{Disposition, LockFlags, LockReply, LockRequest};
use lustre_wire::mds::{Epoch, MdtBody, ReintOp};
use lustre_wire::{Buffers, Fid, Layout, Msg, MsgKind, Opcode, Portal};
use ptlrpc::{Bulk, Call, Direction};

use super::{Bench, Client, LITTLE, ROOT};

/// Portals of requests to metadata targets.
const METADATA: [Portal; 3] = [Portal::MDS_REQUEST, Portal::MDS_IO, Portal::MDS_READPAGE];

/// A request with its answer, as recorded.
pub(super) struct Pair {
    pub(super) frame: u32,
    client: Nid,
    pub(super) portal: u32,
    pub(super) request: Vec<u8>,
    pub(super) reply: Vec<u8>,
    pub(super) bulk: Vec<u8>,
}

/// Requests to these portals, in the order of their answers.
pub(super) fn recorded(name: &str, portals: &[Portal]) -> Vec<Pair> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lustre-mount");
    let mut asked: BTreeMap<u64, Pair> = BTreeMap::new();
    let mut pairs = Vec::new();
    let mut bulks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let capture = lnet_pcap::conversations(dir.join(name).with_extension("pcap")).unwrap();
    for found in lnet_capture::messages(&capture).unwrap() {
        let Kind::Put { portal, match_bits: bits, offset, .. } = found.hdr.kind else { continue };
        if portal == Portal::MDS_BULK.0 {
            bulks.entry(bits & !127).or_default().extend_from_slice(&found.payload);
            continue;
        }
        let Some(head) = Msg::parse(&found.payload).ok().and_then(|msg| msg.body().ok()) else {
            continue;
        };
        if head.kind == MsgKind::REQUEST && portals.contains(&Portal(portal)) {
            let (frame, client, request) = (found.frame, found.hdr.src, found.payload.clone());
            let (reply, bulk) = (Vec::new(), Vec::new());
            asked.insert(bits, Pair { frame, client, portal, request, reply, bulk });
        } else if (offset != 0 || head.opcode.is_connect())
            && let Some(mut pair) = asked.remove(&bits)
        {
            pair.reply = found.payload.clone();
            pair.bulk = bulks.remove(&(bits & !127)).unwrap_or_default();
            pairs.push(pair);
        }
    }
    pairs
}

/// A FID of the second metadata target, as one of ours: each keeps a name of its own.
fn ours(fid: Fid) -> Fid {
    match fid.seq {
        0x2_4000_0400..0x2_8000_0400 => Fid { seq: fid.seq - 0x3ff0_0000, ..fid },
        _ => fid,
    }
}

/// Puts our names of files in place of those of the second target.
fn renamed(buffer: &[u8]) -> Vec<u8> {
    let mut out = buffer.to_vec();
    if [104, 136, 216].contains(&buffer.len()) {
        for at in (0..buffer.len() - 8).step_by(8) {
            let seq = u64::from_le_bytes(buffer[at..at + 8].try_into().unwrap());
            let fid = ours(Fid { seq, oid: 1, ver: 0 });
            out[at..at + 8].copy_from_slice(&fid.seq.to_le_bytes());
        }
    }
    out
}

/// What is compared of an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) result: i64,
    pub(super) found: u64,
    /// FID, type and permissions, links, owners, device, times; the size of a link.
    pub(super) attributes: Option<MdtBody>,
    text: Vec<u8>,
    names: BTreeSet<Vec<u8>>,
}

pub(super) fn seen(opcode: Opcode, intent: bool, reply: &Msg<'_>, bulk: &[u8]) -> Seen {
    let mut seen = Seen { result: reply.body().unwrap().status.into(), ..Seen::default() };
    let mut at = 1;
    if intent {
        let Ok(lock) = reply.get::<LockReply>(1) else { return seen };
        let plain = Disposition::NEGATIVE
            | Disposition::POSITIVE
            | Disposition::CREATED
            | Disposition::OPENED;
        seen.found = (Disposition::from_bits_retain(lock.policy_res1) & plain).bits();
        seen.result = i64::from(lock.policy_res2 as u32 as i32);
        at = 2;
        if seen.result != 0
            || lock.policy_res1 & Disposition::NEGATIVE.bits() != 0 && seen.found & 0x10 == 0
        {
            return seen;
        }
    }
    for bytes in bulk.chunks(PAGE_LEN) {
        let (head, entries) = page(LITTLE, bytes).unwrap();
        seen.names.extend(entries.map(|entry| entry.unwrap().name.to_vec()));
        if head.end == lustre_wire::dir::END_OF_DIRECTORY {
            break;
        }
    }
    let Ok(body) = reply.get::<MdtBody>(at) else { return seen };
    if seen.result < 0 || !body.valid.contains(Valid::TYPE) || opcode == Opcode::MDS_CLOSE {
        return seen;
    }
    let kind = body.mode & 0o170_000;
    seen.attributes = Some(MdtBody {
        fid1: ours(body.fid1),
        mode: body.mode,
        // Counts of links of directories are those of the storage.
        nlink: if kind == 0o040_000 { 0 } else { body.nlink },
        size: if kind == 0o120_000 { body.size } else { 0 },
        uid: body.uid,
        gid: body.gid,
        rdev: body.rdev,
        mtime: body.mtime,
        ctime: body.ctime,
        ..MdtBody::default()
    });
    if body.valid.contains(Valid::LINKNAME) {
        seen.text = reply.buffer(at + 1).unwrap_or_default().to_vec();
    }
    seen
}

/// Plays a recording; what differs, by frame.
fn play(name: &str, dir: (&str, Fid)) -> (BTreeMap<String, (usize, usize)>, Vec<String>) {
    let bench = &mut Bench::new(4);
    let root = bench.client("before", 0);
    let mut buffers = root.create(ROOT, dir.0, 1, 0o040_755, b"");
    buffers.get_mut(0).unwrap()[56..72].copy_from_slice(&dir.1.to_bytes(LITTLE));
    bench.reint(root, buffers).unwrap();
    let recording = recorded(name, &METADATA);
    let nids: BTreeSet<Nid> = recording.iter().map(|pair| pair.client).collect();
    let names: Vec<String> = nids.iter().map(ToString::to_string).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Their locks are given back when they are wanted.
    let made = bench.caching(&names);
    let clients: BTreeMap<Nid, Client> = nids.into_iter().zip(made).collect();
    let mut handles: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut table, mut odd) = (BTreeMap::new(), Vec::new());
    for Pair { frame, client, portal, request, reply, bulk } in recording {
        let (asked, said) = (Msg::parse(&request).unwrap(), Msg::parse(&reply).unwrap());
        let opcode = asked.body().unwrap().opcode;
        let intent = opcode == Opcode::LDLM_ENQUEUE;
        let lock = LockRequest::of(&asked, 1).ok();
        let has_intent = lock.is_some_and(|lock| lock.flags.contains(LockFlags::HAS_INTENT));
        let played = [
            Opcode::MDS_REINT,
            Opcode::MDS_CLOSE,
            Opcode::MDS_GETATTR,
            Opcode::MDS_GETATTR_NAME,
            Opcode::MDS_READPAGE,
        ];
        let is_intent = intent && has_intent && asked.buffer(2).is_some();
        if !(played.contains(&opcode) || is_intent) {
            continue;
        }
        let client = clients[&client];
        let mut buffers: Buffers = asked.buffers().skip(1).map(renamed).collect();
        if opcode == Opcode::MDS_CLOSE {
            let epoch: Epoch = asked.get(1).unwrap();
            let handle = handles.get(&epoch.handle).copied().unwrap_or(epoch.handle);
            buffers.replace(0, Epoch { handle }.to_bytes(LITTLE));
        }
        let mut call = Call::new(opcode, buffers);
        call.modifies = intent || call.modifies;
        call.portals = Some((Portal(portal), Portal::MDC_REPLY));
        call = call.answered_by(&[8192; 4]);
        let mut memory = None;
        if opcode == Opcode::MDS_READPAGE {
            let room = asked.get::<MdtBody>(1).unwrap().nlink;
            let made = bench.world.heap.memory(vec![0; room as usize]);
            call.bulk = Some(Bulk { direction: Direction::Read, memory: made.clone() });
            memory = Some(made);
        }
        let what = match asked.buffer(1).filter(|_| opcode == Opcode::MDS_REINT) {
            Some(record) => format!("{opcode} {}", ReintOp::get(LITTLE, record).0),
            None => opcode.to_string(),
        };
        let row: &mut (usize, usize) = table.entry(what.clone()).or_default();
        row.0 += 1;
        let id = bench.begin(client, call);
        let Some(end) = bench.end_of(client, id) else {
            odd.push(format!("{frame} {what}: no end"));
            continue;
        };
        let theirs = seen(opcode, intent, &said, &bulk);
        let mine = match end {
            Ok(reply) => {
                let msg = reply.msg().unwrap();
                if intent
                    && let (Ok(old), Ok(new)) = (said.get::<MdtBody>(2), msg.get::<MdtBody>(2))
                    && old.open_handle != 0
                {
                    handles.insert(old.open_handle, new.open_handle);
                }
                let pages: Vec<u8> = memory
                    .iter()
                    .flatten()
                    .flat_map(|span| lnet_types::Memory::bytes(&bench.world.heap, *span).to_vec())
                    .collect();
                seen(opcode, intent, &msg, &pages)
            }
            Err(e) => Seen { result: e.errno().negative().into(), ..Seen::default() },
        };
        if mine == theirs {
            row.1 += 1;
        } else {
            odd.push(format!("{frame} {what}: {mine:?}, recorded {theirs:?}"));
        }
    }
    (table, odd)
}

#[test]
fn recorded_changes_of_names_have_the_recorded_results() {
    let (table, mut odd) =
        play("namespace", ("f10", Fid { seq: 0x2_0000_0402, oid: 0x1461, ver: 0 }));
    for (what, (all, equal)) in &table {
        eprintln!("{what:<20} {equal:>3} of {all}");
    }
    // Of a directory on another target the recorded one knew the FID alone.
    let known = [442, 485];
    odd.retain(|line| !known.iter().any(|frame| line.starts_with(&format!("{frame} "))));
    assert_eq!(odd, Vec::<String>::new());
    assert!(table.values().map(|(all, _)| all).sum::<usize>() > 140);
}

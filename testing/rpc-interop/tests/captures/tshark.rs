//! tshark as a second judge of bodies: what its dissector reads in a message is what we read there, in
//! the kernel's recordings and in what our node has sent in their place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use interop::capture::Conn;
use interop::layout::End;
use interop::player::Sent;
use interop::{traffic, tshark};
use lnet_types::Nid;
use lnet_wire::sock::FrameHdr;
use lnet_wire::{ByteOrder, HdrForm};
use lustre_wire::Body;
use rpc_interop::recording::{Message, messages};
use rpc_interop::report::sent;

use super::captures;

/// A field by tshark's name, and what we read in its place.
type Field = (&'static str, fn(&Body) -> i64);

const FIELDS: [Field; 12] = [
    ("pb_opc", |b| b.opcode.0.into()),
    ("pb_type", |b| b.kind.0.into()),
    // The service in the high half is not shown.
    ("pb_version", |b| (b.version & 0xffff).into()),
    ("pb_status", |b| b.status.into()),
    ("pb_last_xid", |b| b.last_xid as i64),
    ("pb_last_committed", |b| b.last_committed as i64),
    ("pb_transno", |b| b.transno as i64),
    ("pb_conn_cnt", |b| b.conn_cnt.into()),
    ("pb_timeout", |b| b.timeout.into()),
    ("pb_service_time", |b| b.service_time.into()),
    ("pb_limit", |b| b.limit.into()),
    ("pb_slv", |b| b.slv as i64),
];

/// The bodies that tshark sees, by frame.
fn dissected(pcap: &Path) -> BTreeMap<u32, Vec<Vec<i64>>> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-Y", "lustre", "-T", "fields", "-E", "occurrence=a", "-e", "frame.number"]);
    for (name, _) in FIELDS {
        tshark.args(["-e", &format!("lustre.ptlrpc_body.{name}")]);
    }
    let output = tshark.arg("-r").arg(pcap).output().expect("tshark runs");
    let mut frames = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let mut columns = line.split('\t');
        let frame = columns.next().and_then(|n| n.parse().ok()).expect("a frame number");
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).map(|n| n as i64).ok(),
            None => text.parse().ok().or_else(|| text.parse::<u64>().map(|n| n as i64).ok()),
        };
        let columns: Vec<Vec<i64>> =
            columns.map(|column| column.split(',').filter_map(number).collect()).collect();
        let count = columns.first().map_or(0, Vec::len);
        let bodies: Vec<Vec<i64>> = (0..count)
            .map(|n| columns.iter().filter_map(|column| column.get(n).copied()).collect())
            .collect();
        frames.insert(frame, bodies);
    }
    frames
}

/// Our reading of a body.
fn read(message: &Message) -> Vec<i64> {
    let body = message.body();
    FIELDS.iter().map(|(_, field)| field(&body)).collect()
}

/// Compares tshark's reading of a capture with ours. How many bodies tshark has seen, of how many.
fn agree(name: &str, pcap: &Path, ours: &[Message]) -> (usize, usize) {
    let mut frames: BTreeMap<u32, Vec<Vec<i64>>> = BTreeMap::new();
    for message in ours.iter().filter(|message| message.rpc.is_some()) {
        frames.entry(message.frame).or_default().push(read(message));
    }
    let all = frames.values().map(Vec::len).sum();
    let mut seen = 0;
    for (frame, bodies) in dissected(pcap) {
        let mut rest = frames.remove(&frame).unwrap_or_default();
        for body in bodies {
            let at = rest.iter().position(|our| *our == body);
            let at = at.unwrap_or_else(|| panic!("{name}, frame {frame}: {body:?}, ours {rest:?}"));
            rest.remove(at);
            seen += 1;
        }
    }
    (seen, all)
}

/// What goes over made-up connections, one for each node of each play and each of its peers, each from
/// a port of its own: what tshark sees begins in the middle of them.
#[derive(Default)]
struct Traffic {
    conns: Vec<Conn>,
    sent: Vec<Sent>,
}

impl Traffic {
    fn add(&mut self, messages: &[Message]) {
        let first = self.conns.len();
        let mut peers: Vec<Nid> = Vec::new();
        for message in messages {
            let at = peers.iter().position(|peer| *peer == message.to()).unwrap_or_else(|| {
                let port = 1 + self.conns.len() as u16;
                let address = |nid: Nid, port| (nid.ip().expect("an address"), port).into();
                let (client, server) = (address(message.from(), port), address(message.to(), 988));
                self.conns.push(Conn { client, server });
                peers.push(message.to());
                peers.len() - 1
            });
            let mut bytes = FrameHdr::lnet(0, 0).to_bytes(ByteOrder::Little).to_vec();
            let start = bytes.len();
            bytes.resize(start + HdrForm::Short.len(), 0);
            message.hdr.emit(HdrForm::Short, &mut bytes[start..]).expect("room for a header");
            bytes.extend_from_slice(&message.payload);
            self.sent.push(Sent { at: message.at, conn: first + at, from: End::Client, bytes });
        }
    }
}

fn out(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rpc-interop");
    std::fs::create_dir_all(&dir).expect("a directory");
    dir.join(name).with_extension("pcap")
}

fn skipped() -> bool {
    if tshark::available() {
        return false;
    }
    netns::skipped("tshark on requests", "tshark is not installed");
    true
}

#[test]
fn tshark_reads_the_same_bodies_in_the_recordings() {
    if skipped() {
        return;
    }
    let (mut seen, mut all) = (0, 0);
    for path in captures("ptlrpc", 35) {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let (some, of) = agree(&name, &path, &messages(&path));
        (seen, all) = (seen + some, all + of);
    }
    println!("tshark has read {seen} of {all} recorded bodies as we do");
    assert!(seen * 100 > all * 98, "{seen} of {all}");
}

#[test]
fn tshark_reads_in_our_messages_what_we_have_written() {
    if skipped() {
        return;
    }
    let (mut traffic_of_all, mut rest) = (Traffic::default(), Vec::new());
    for path in captures("ptlrpc", 35) {
        for (_, written) in sent(&path) {
            traffic_of_all.add(&written);
            rest.extend(written.iter().filter(|m| m.rpc.is_some()).map(read));
        }
    }
    let all = rest.len();
    let pcap = out("ours");
    let bytes = traffic::pcap(&traffic_of_all.conns, &traffic_of_all.sent);
    std::fs::write(&pcap, bytes).expect("a file");
    let mut seen = 0;
    for body in dissected(&pcap).into_values().flatten() {
        let at = rest.iter().position(|our| *our == body);
        let at = at.unwrap_or_else(|| panic!("{body:?} is none of ours"));
        rest.remove(at);
        seen += 1;
    }
    println!("tshark has read {seen} of our {all} bodies as we have written them");
    assert!(seen * 100 > all * 98, "{seen} of {all}");
}

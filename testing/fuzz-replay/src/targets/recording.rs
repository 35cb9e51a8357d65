//! Recordings of nodes: files that `ulnet sim replay` is given.

use core::fmt::Write as _;
use core::time::Duration;
use std::sync::OnceLock;

use lnet::{
    MatchEntry, MdSpec, NetTunables, NiSpec, Node, NodeConfig, Profile, Recording, RecordingError,
    Tunables,
};
use lnet_types::{Instant, IoVec, Net, Nid, ProcessId, RegionId, Span};

/// Bytes of a recording before its body: magic, format, and the version with its length.
fn head_len(good: &[u8]) -> usize {
    let len = good.get(10).copied().unwrap_or_default();
    11 + usize::from(len)
}

/// The checksum at the end of a recording, FNV-1a: without a right one, nothing behind it is reached.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    bytes.extend(u64::to_le_bytes(sum));
    bytes
}

/// A recording of a node that has done a little of what nodes do; always the same.
fn good() -> Vec<u8> {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(record).clone()
}

fn record() -> Vec<u8> {
    let mut now = Instant::from_secs(1);
    let tunables = Tunables::new(Profile::Default);
    let mut node =
        Node::new(NodeConfig { seed: 1, interface_cookie: 7, ping_seq: 0, tunables }, now);
    node.record(8);
    let nid = |n: u32| Nid::new(Net::TCP, 0x0a4d_0000 + n);
    let tunables = NetTunables::SOCK;
    let spec = NiSpec { nid: nid(2), interface: None, tunables, lnd_timeout: None };
    let added = node.add_ni(now, spec);
    assert!(added.is_ok(), "a fresh node takes an interface");
    let buf = IoVec::from_slice(&[Span { region: RegionId(0), len: 512, offset: 0 }]);
    let _ = node.attach(now, 5, MatchEntry::bits(1), MdSpec::new(buf, 2));
    for n in 3..9 {
        now += Duration::from_millis(700);
        node.discover(now, nid(n % 3 + 3), false);
        node.ping(now, ProcessId::lustre(nid(n)), None, Duration::from_secs(1));
        node.handle_timeout(now);
        while node.poll_output().is_some() || node.poll_event().is_some() {}
    }
    node.recording().map(|r| r.to_bytes()).unwrap_or_default()
}

/// Any bytes, and a good recording with any changes, are a recording or a named error. What is one
/// comes back from its bytes, can be listed, and is replayed or differs at a named call.
pub fn recording(input: &[u8]) {
    let Some((&how, rest)) = input.split_first() else {
        return look(input);
    };
    match how % 3 {
        0 => look(rest),
        // A body of any bytes, under a good header.
        1 => {
            let good = good();
            let head = good.get(..head_len(&good)).unwrap_or_default();
            look(&sealed([head, rest].concat()));
        }
        // A good one with changes: each three bytes say where and which.
        _ => {
            let mut bytes = good();
            bytes.truncate(bytes.len().saturating_sub(8));
            for change in rest.chunks_exact(3) {
                if let [a, b, value] = *change {
                    let at = usize::from(u16::from_le_bytes([a, b])) % bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= value;
                    }
                }
            }
            look(&sealed(bytes));
        }
    }
}

fn look(bytes: &[u8]) {
    let recording = match Recording::from_bytes(bytes) {
        Ok(recording) => recording,
        Err(
            e
            @ (RecordingError::Foreign | RecordingError::Version { .. } | RecordingError::Damaged),
        ) => {
            assert!(!e.to_string().is_empty());
            return;
        }
    };
    // Numbers have more than one spelling, so the bytes may differ once; never twice.
    let again = recording.to_bytes();
    let back = Recording::from_bytes(&again);
    assert!(back.is_ok_and(|back| back.to_bytes() == again), "it does not come back");
    assert_eq!(recording.inputs().count(), recording.calls());
    let mut listed = String::new();
    for call in recording.inputs() {
        let _ = write!(listed, "{call:?}");
    }
    if let Err(difference) = recording.replay() {
        assert!(!difference.to_string().is_empty());
    }
}

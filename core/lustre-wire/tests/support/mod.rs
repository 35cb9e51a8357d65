//! The messages of LNet in the recordings of `fixtures/ptlrpc`.

use std::path::{Path, PathBuf};

use lnet_capture::Message;
use lnet_wire::{Hdr, Kind};

/// The captures, in the order of their names.
pub(crate) fn captures() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ptlrpc");
    let mut captures: Vec<_> = std::fs::read_dir(&dir)
        .expect("fixtures/ptlrpc")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    captures.sort();
    assert_eq!(captures.len(), 35, "captures");
    captures
}

/// All messages of a capture: by frame, and within a frame as they stand in the stream.
pub(crate) fn messages(capture: &Path) -> Vec<Message> {
    let conversations = lnet_pcap::conversations(capture).expect("a capture");
    lnet_capture::messages(&conversations).expect("messages")
}

/// Portal, match bits and offset of a PUT that carries an RPC: to any portal but that of pings and
/// those of bulk data.
pub(crate) fn rpc(hdr: &Hdr) -> Option<(u32, u64, u32)> {
    let Kind::Put { portal, match_bits, offset, .. } = hdr.kind else { return None };
    (!matches!(portal, 0 | 8 | 14 | 33)).then_some((portal, match_bits, offset))
}

//! The messages of LNet in the recordings of `fixtures/ptlrpc`.

use std::path::{Path, PathBuf};

use lnet_pcap::{Conversation, Direction};
use lnet_wire::acceptor::Request;
use lnet_wire::sock::{FrameHdr, FrameType, Hello};
use lnet_wire::{ByteOrder, Hdr, HdrForm, Kind, Need};

/// A message of LNet, and where it was found.
pub(crate) struct Found {
    /// Number of the frame in which it was complete.
    pub(crate) frame: u32,
    /// Its header.
    pub(crate) hdr: Hdr,
    /// Its payload.
    pub(crate) payload: Vec<u8>,
}

/// A header and its payload.
type Message = (Hdr, Vec<u8>);

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
pub(crate) fn messages(capture: &Path) -> Vec<Found> {
    let conversations = lnet_pcap::conversations(capture).expect("a capture");
    let mut found: Vec<_> = conversations.iter().flat_map(walk).collect();
    found.sort_by_key(|found| found.frame);
    found
}

fn walk(conversation: &Conversation) -> Vec<Found> {
    let mut found = Vec::new();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let mut stream = Vec::new();
        let mut greeted = false;
        let segments = conversation.segments.iter().filter(|s| s.direction == direction);
        for segment in segments {
            stream.extend_from_slice(&segment.bytes);
            while let Some((len, message)) = next(&stream, &mut greeted) {
                stream.drain(..len);
                if let Some((hdr, payload)) = message {
                    found.push(Found { frame: segment.frame, hdr, payload });
                }
            }
        }
    }
    found
}

/// The length of what a stream begins with, once it is whole, and the message if it is one. Most
/// captures begin in the middle of a connection, on the border of a frame.
fn next(b: &[u8], greeted: &mut bool) -> Option<(usize, Option<Message>)> {
    if b.len() < FrameHdr::LEN {
        return None;
    }
    if !*greeted && Request::need(b).is_ok() {
        let (_, len) = Request::parse(b).ok()?;
        return Some((len, None));
    }
    if !*greeted && Hello::need(b).is_ok() {
        let Ok(Need::Exactly(need)) = Hello::need(b) else { return None };
        if b.len() < need {
            return None;
        }
        *greeted = true;
        return Some((need, None));
    }
    *greeted = true;
    let frame = FrameHdr::parse(ByteOrder::Little, b).expect("a frame");
    if frame.kind == FrameType::Noop {
        return Some((FrameHdr::LEN, None));
    }
    let form = HdrForm::Short;
    let rest = &b[FrameHdr::LEN..];
    if rest.len() < form.len() {
        return None;
    }
    let hdr = Hdr::parse(form, rest).expect("a header");
    let len = form.len() + hdr.payload_len as usize;
    let payload = rest.get(form.len()..len)?.to_vec();
    Some((FrameHdr::LEN + len, Some((hdr, payload))))
}

/// Portal, match bits and offset of a PUT that carries an RPC: to any portal but that of pings and
/// those of bulk data.
pub(crate) fn rpc(hdr: &Hdr) -> Option<(u32, u64, u32)> {
    let Kind::Put { portal, match_bits, offset, .. } = hdr.kind else { return None };
    (!matches!(portal, 0 | 8 | 14 | 33)).then_some((portal, match_bits, offset))
}

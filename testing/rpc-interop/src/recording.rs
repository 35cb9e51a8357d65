//! A capture as a list of LNet messages, each with its frame, time, ends and payload.

use core::time::Duration;
use std::collections::BTreeSet;
use std::path::Path;

use lnet_capture::Message as Raw;
use lnet_types::Nid;
use lnet_wire::{Hdr, Kind};
use lustre_wire::{Body, Header, Msg, MsgKind};

/// Portals of bulk data: OST, MDS, MGS (P-31).
pub const BULK_PORTALS: [u32; 3] = [8, 14, 33];
/// Portals of callbacks: requests, replies (P-32).
pub const CALLBACK_PORTALS: (u32, u32) = (15, 16);

/// Role of a message in the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A request, callbacks included.
    Request,
    /// A reply or an error reply.
    Reply,
    /// An early reply.
    Early,
    /// A PUT of bulk data.
    BulkPut,
    /// A GET of bulk data.
    BulkGet,
    /// LNet's acknowledgement of a PUT.
    Ack,
    /// LNet's answer to a GET.
    Data,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// Number of the frame in which the message was complete; 0 for a message that was not recorded.
    pub frame: u32,
    /// Time since the capture began.
    pub at: Duration,
    /// Header; it names both ends.
    pub hdr: Hdr,
    /// Payload.
    pub payload: Vec<u8>,
    /// Role.
    pub role: Role,
    /// Header and body of the RPC message, for requests and replies.
    pub rpc: Option<(Header, Body)>,
}

impl Message {
    /// The message with its role; `None` for discovery, pings of LNet and what is no RPC.
    pub fn new(frame: u32, at: Duration, hdr: Hdr, payload: Vec<u8>) -> Option<Self> {
        let mut rpc = None;
        let role = match hdr.kind {
            Kind::Ack { .. } => Role::Ack,
            Kind::Reply { .. } => Role::Data,
            Kind::Get { portal, .. } if BULK_PORTALS.contains(&portal) => Role::BulkGet,
            Kind::Put { portal, .. } if BULK_PORTALS.contains(&portal) => Role::BulkPut,
            Kind::Put { portal, .. } if portal != 0 => {
                let msg = Msg::parse(&payload).ok()?;
                let body = msg.body().ok()?;
                rpc = Some((msg.header, body));
                match body.kind {
                    MsgKind::REQUEST => Role::Request,
                    _ if msg.header.cksum != 0 => Role::Early,
                    _ => Role::Reply,
                }
            }
            Kind::Put { .. } | Kind::Get { .. } => return None,
        };
        Some(Self { frame, at, hdr, payload, role, rpc })
    }

    /// Sender.
    pub fn from(&self) -> Nid {
        self.hdr.src
    }

    /// Receiver.
    pub fn to(&self) -> Nid {
        self.hdr.dst
    }

    /// The body; a default one for what is no RPC message.
    pub fn body(&self) -> Body {
        self.rpc.map(|(_, body)| body).unwrap_or_default()
    }

    /// Portal of a PUT or GET.
    pub fn portal(&self) -> Option<u32> {
        match self.hdr.kind {
            Kind::Put { portal, .. } | Kind::Get { portal, .. } => Some(portal),
            Kind::Ack { .. } | Kind::Reply { .. } => None,
        }
    }

    /// Match bits; 0 where there are none.
    pub fn bits(&self) -> u64 {
        match self.hdr.kind {
            Kind::Put { match_bits, .. }
            | Kind::Get { match_bits, .. }
            | Kind::Ack { match_bits, .. } => match_bits,
            Kind::Reply { .. } => 0,
        }
    }

    /// Whether the message belongs to a callback: a request of a server to its client.
    pub fn is_callback(&self) -> bool {
        let portal = self.portal();
        portal == Some(CALLBACK_PORTALS.0) || portal == Some(CALLBACK_PORTALS.1)
    }

    /// The buffers of an RPC message behind its body.
    pub fn buffers(&self) -> Vec<Vec<u8>> {
        let msg = Msg::parse(&self.payload).ok();
        let buffers = msg.iter().flat_map(|msg| msg.buffers().skip(1));
        buffers.map(|b| b.to_vec()).collect()
    }
}

/// All messages of a capture: by frame, within a frame as they stand in the stream. LNet's own (pings,
/// pushes, and what answers them) are left out: they are played by the crate `interop`.
///
/// # Panics
/// A capture that can't be read.
pub fn messages(capture: &Path) -> Vec<Message> {
    let conversations = lnet_pcap::conversations(capture).expect("a capture");
    let mut found = lnet_capture::messages(&conversations).expect("messages");
    let mut own = BTreeSet::new();
    for Raw { hdr, .. } in &found {
        match hdr.kind {
            Kind::Put { portal: 0, ack: handle, .. } | Kind::Get { portal: 0, ret: handle, .. } => {
                own.insert((hdr.src, handle.object));
            }
            _ => {}
        }
    }
    let is_own = |raw: &Raw| match raw.hdr.kind {
        Kind::Ack { dst, .. } | Kind::Reply { dst, .. } => own.contains(&(raw.hdr.dst, dst.object)),
        Kind::Put { .. } | Kind::Get { .. } => false,
    };
    found.retain(|raw| !is_own(raw));
    let message =
        |raw: Raw| Message::new(raw.frame, Duration::from_nanos(raw.time_ns), raw.hdr, raw.payload);
    found.into_iter().filter_map(message).collect()
}

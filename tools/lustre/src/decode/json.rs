//! The listing of a capture as a document: an object for each find, with what its line says as fields.

use std::collections::BTreeMap;

use lnet_capture::{Found, Kind, What, walk};
use lnet_pcap::Conversation;
use lnet_types::Nid;
use lnet_wire::{Handle, Hdr};
use lustre_wire::listing::buffers;
use lustre_wire::{Msg, Portal};
use serde::Serialize;

use super::{Requests, is_bulk, node_name, what_text};

/// A find, and where it was made.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    /// Number of the frame in which it was complete.
    frame: u32,
    /// Nanoseconds since the first frame of the file.
    time_ns: u64,
    /// Number of the connection, the first being 1.
    connection: usize,
    /// Type of the connection, where it is known.
    connection_type: Option<String>,
    /// Address and port of the sender.
    from: String,
    /// Address and port of the receiver.
    to: String,
    kind: &'static str,
    /// The line of the listing.
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lnet: Option<Lnet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rpc: Option<Rpc>,
}

/// The header of a message.
#[derive(Debug, Serialize)]
struct Lnet {
    r#type: &'static str,
    source: String,
    target: String,
    portal: Option<u32>,
    portal_name: Option<&'static str>,
    match_bits: Option<u64>,
    offset: Option<u32>,
    acknowledged: bool,
    bulk: bool,
    /// Bytes of the payload.
    length: usize,
}

/// The envelope of a request or a reply.
#[derive(Debug, Serialize)]
struct Rpc {
    kind: String,
    opcode: String,
    opcode_number: u32,
    /// That of the request, for a reply too.
    xid: u64,
    match_bits: u64,
    handle: u64,
    connection_count: u32,
    status: i32,
    transno: u64,
    last_xid: u64,
    last_committed: u64,
    timeout: u32,
    service_time: u32,
    tag: u16,
    flags: String,
    op_flags: String,
    header_flags: u32,
    early: bool,
    /// Bytes of all buffers, that of the body first.
    lengths: Vec<usize>,
    /// What the buffers behind the body hold; empty ones are left out.
    buffers: Vec<String>,
}

/// The finds of a capture. `names` are those of the nodes.
pub(super) fn entries(conversations: &[Conversation], names: &BTreeMap<Nid, String>) -> Vec<Entry> {
    let mut requests = Requests::default();
    walk(conversations).iter().map(|found| entry(found, names, &mut requests)).collect()
}

fn entry(found: &Found, names: &BTreeMap<Nid, String>, requests: &mut Requests) -> Entry {
    let text = what_text(&found.what, names, requests);
    let (kind, message) = match &found.what {
        What::Signal(_) => ("signal", None),
        What::Request(_) => ("connection request", None),
        What::Hello(_) => ("hello", None),
        What::Noop(_) => ("noop", None),
        What::Message(hdr, payload, _) => ("message", Some((hdr, payload))),
        What::Broken(_) => ("broken", None),
    };
    Entry {
        frame: found.frame,
        time_ns: found.time_ns,
        connection: found.connection,
        connection_type: match found.kind {
            Kind::Known(known) => Some(known.to_string()),
            Kind::Middle | Kind::Unknown => None,
        },
        from: found.from.to_string(),
        to: found.to.to_string(),
        kind,
        text: text.lines().next().unwrap_or_default().to_owned(),
        lnet: message.map(|(hdr, payload)| lnet(hdr, payload, names)),
        rpc: message.and_then(|(hdr, payload)| rpc(hdr, payload, requests)),
    }
}

fn lnet(hdr: &Hdr, payload: &[u8], names: &BTreeMap<Nid, String>) -> Lnet {
    let (portal, match_bits, offset, acknowledged) = match hdr.kind {
        lnet_wire::Kind::Put { ack, match_bits, portal, offset, .. } => {
            (Some(portal), Some(match_bits), Some(offset), ack != Handle::NONE)
        }
        lnet_wire::Kind::Get { match_bits, portal, offset, .. } => {
            (Some(portal), Some(match_bits), Some(offset), false)
        }
        lnet_wire::Kind::Ack { match_bits, .. } => (None, Some(match_bits), None, false),
        lnet_wire::Kind::Reply { .. } => (None, None, None, false),
    };
    Lnet {
        r#type: hdr.kind.msg_type().name(),
        source: node_name(hdr.src, names),
        target: node_name(hdr.dst, names),
        portal,
        portal_name: portal.and_then(|portal| Portal(portal).name()),
        match_bits,
        offset,
        acknowledged,
        bulk: portal.is_some_and(is_bulk),
        length: payload.len(),
    }
}

/// The envelope of what a PUT carries, if that is a request or a reply.
fn rpc(hdr: &Hdr, payload: &[u8], requests: &mut Requests) -> Option<Rpc> {
    let lnet_wire::Kind::Put { match_bits, portal, .. } = hdr.kind else { return None };
    let msg = Msg::parse(payload).ok().filter(|_| !is_bulk(portal))?;
    let body = msg.body().ok()?;
    let (xid, variant) = requests.of(&msg, match_bits);
    Some(Rpc {
        kind: body.kind.to_string(),
        opcode: body.opcode.to_string(),
        opcode_number: body.opcode.0,
        xid,
        match_bits: body.mbits,
        handle: body.handle,
        connection_count: body.conn_cnt,
        status: body.status,
        transno: body.transno,
        last_xid: body.last_xid,
        last_committed: body.last_committed,
        timeout: body.timeout,
        service_time: body.service_time,
        tag: body.tag,
        flags: body.flags.to_string(),
        op_flags: body.op_flags.to_string(),
        header_flags: msg.header.flags.bits(),
        early: msg.header.cksum != 0,
        lengths: msg.buffers().map(|buffer| buffer.len()).collect(),
        buffers: buffers(&msg, &body, variant).into_iter().map(|line| line.text).collect(),
    })
}

//! `ulnet rpc decode`: what a capture of socklnd connections holds, as text. A line for each message,
//! then a line for each buffer of an RPC. `json.rs` has the same as a document.

mod json;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow};
use clap::Args;
use lnet_capture::{Found, Kind, What, walk};
use lnet_pcap::Signal;
use lnet_types::Nid;
use lnet_wire::ping::{self, Features};
use lnet_wire::sock::Hello;
use lnet_wire::{Handle, Hdr, PingInfo};
use lustre_wire::listing::listing;
use lustre_wire::{Msg, MsgKind, Portal, Variant};

/// What is listed, and how.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
    ulnet rpc decode --name 10.0.0.1@tcp=server mount.pcap\n  \
    ulnet rpc decode --json mount.pcap | jq '.[] | select(.rpc.opcode == \"OST_WRITE\") | .rpc.xid'")]
pub struct Options {
    /// Capture: classic pcap of Ethernet frames, each of them whole
    file: PathBuf,
    /// Show a node by a name
    #[arg(long = "name", value_name = "NID=NAME", value_parser = named)]
    names: Vec<(Nid, String)>,
    /// Print one JSON document: an array with an object for each message
    #[arg(long)]
    json: bool,
}

fn named(text: &str) -> Result<(Nid, String)> {
    let (nid, name) = text.split_once('=').ok_or_else(|| anyhow!("expected NID=NAME"))?;
    Ok((nid.parse().with_context(|| format!("NID '{nid}'"))?, name.to_owned()))
}

/// Prints the listing of a capture.
///
/// # Errors
/// A file that cannot be read or is no capture, an output that cannot be written.
pub fn run(options: &Options) -> Result<()> {
    let conversations = lnet_pcap::conversations(&options.file)?;
    let names = options.names.iter().cloned().collect();
    let text = if options.json {
        serde_json::to_string_pretty(&json::entries(&conversations, &names))? + "\n"
    } else {
        decode(&conversations, &names)
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()) {
        // A reader that has enough is no failure.
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(e.into()),
        _ => Ok(()),
    }
}

/// The listing of the connections of a capture. `names` are those of the nodes.
pub fn decode(conversations: &[lnet_pcap::Conversation], names: &BTreeMap<Nid, String>) -> String {
    let mut text = String::new();
    let mut requests = Requests::default();
    for found in walk(conversations) {
        text.push_str(&place(&found));
        text.push_str(&what_text(&found.what, names, &mut requests));
        text.push('\n');
    }
    text
}

/// What was found. The buffers of an RPC are on lines of their own.
fn what_text(what: &What, names: &BTreeMap<Nid, String>, requests: &mut Requests) -> String {
    match what {
        What::Signal(Signal::Syn) => "TCP SYN".to_owned(),
        What::Signal(Signal::Fin) => "TCP FIN".to_owned(),
        What::Signal(Signal::Rst) => "TCP RST".to_owned(),
        What::Request(request) => {
            let (version, nid) = (request.version as u32, request.nid);
            format!("CONNREQ magic=0xacce7100 v{version} nid={nid}")
        }
        What::Hello(hello) => hello_text(hello),
        What::Noop(frame) => {
            format!("KSOCK NOOP zc=[{:#x},{:#x}]", frame.cookie0, frame.cookie1)
        }
        What::Message(hdr, payload, cookie) => message_text(hdr, payload, *cookie, names, requests),
        What::Broken(why) => format!("!! {why}"),
    }
}

/// Where a message was found.
fn place(found: &Found) -> String {
    let micros = found.time_ns / 1000;
    let kind = match found.kind {
        Kind::Middle => "(mid)".to_owned(),
        Kind::Unknown => "?".to_owned(),
        Kind::Known(kind) => kind.to_string(),
    };
    format!(
        "{:5} {:2}.{:06} #{:<2} {kind:<8} {} > {}  ",
        found.frame,
        micros / 1_000_000,
        micros % 1_000_000,
        found.connection,
        found.from,
        found.to,
    )
}

fn hello_text(hello: &Hello) -> String {
    format!(
        "HELLO {} src={} dst={} spid={} dpid={} sinc={:#x} dinc={:#x} ctype={} nips={}",
        hello.version,
        hello.src,
        hello.dst,
        hello.src_pid.0,
        hello.dst_pid.0,
        hello.src_incarnation,
        hello.dst_incarnation,
        hello.conn_type,
        hello.ips.len()
    )
}

/// What requests of the capture asked for, by the match bits of their replies: a reply does not say.
#[derive(Default)]
struct Requests(BTreeMap<u64, (u64, Variant)>);

impl Requests {
    /// The xid of a message, and what its request asked for.
    fn of(&mut self, message: &Msg<'_>, match_bits: u64) -> (u64, Variant) {
        let Ok(body) = message.body() else { return (match_bits, Variant::Plain) };
        if body.kind != MsgKind::REQUEST {
            return self.0.get(&match_bits).copied().unwrap_or((match_bits, Variant::Plain));
        }
        let request = (match_bits, Variant::of(message, &body));
        let reply_bits = if body.mbits == 0 { match_bits } else { body.mbits };
        self.0.insert(reply_bits, request);
        request
    }
}

/// The name of a node, or its NID if it has none.
fn node_name(nid: Nid, names: &BTreeMap<Nid, String>) -> String {
    names.get(&nid).cloned().unwrap_or_else(|| nid.to_string())
}

fn message_text(
    hdr: &Hdr,
    payload: &[u8],
    cookie: u64,
    names: &BTreeMap<Nid, String>,
    requests: &mut Requests,
) -> String {
    let node = |nid| node_name(nid, names);
    let mut text = format!("{}->{} {} ", node(hdr.src), node(hdr.dst), hdr.kind.msg_type().name());
    // Writing to a string does not fail.
    let _ = match hdr.kind {
        lnet_wire::Kind::Put { ack, match_bits, portal, offset, .. } => {
            let _ = write!(text, "{} mbits={match_bits} off={offset}", portal_text(portal));
            if ack != Handle::NONE {
                let _ = write!(text, " ACK-wanted {:x}", ack.object);
            }
            put_text(&mut text, (portal, match_bits), payload, requests)
        }
        lnet_wire::Kind::Get { ret, match_bits, portal, sink_len, .. } => {
            let bits = if is_bulk(portal) {
                format!("mbits={match_bits} BULK-WRITE")
            } else {
                format!("mbits={match_bits:#x}")
            };
            let wmd = ret.object;
            write!(text, "{} {bits} sink={sink_len} wmd={wmd:x}", portal_text(portal))
        }
        lnet_wire::Kind::Ack { dst, match_bits, mlength, .. } => {
            write!(text, "wmd={:x} mbits={match_bits} mlen={mlength}", dst.object)
        }
        lnet_wire::Kind::Reply { dst, .. } => {
            let ping = ping_text(payload).unwrap_or_default();
            write!(text, "wmd={:x} plen={}{ping}", dst.object, payload.len())
        }
    };
    if cookie != 0 {
        let _ = write!(text, " ZC-REQ={cookie:#x}");
    }
    text
}

fn put_text(
    text: &mut String,
    (portal, match_bits): (u32, u64),
    payload: &[u8],
    requests: &mut Requests,
) -> std::fmt::Result {
    if is_bulk(portal) {
        return write!(text, " BULK-READ data {}", payload.len());
    }
    if portal == ping::PORTAL {
        let ping = ping_text(payload).unwrap_or_default();
        return write!(text, " plen={}{ping}", payload.len());
    }
    match Msg::parse(payload) {
        Ok(message) => {
            let (xid, variant) = requests.of(&message, match_bits);
            write!(text, " {}", listing(&message, xid, variant))
        }
        Err(why) => write!(text, " plen={} !! {why}", payload.len()),
    }
}

const fn is_bulk(portal: u32) -> bool {
    matches!(Portal(portal), Portal::OST_BULK | Portal::MDS_BULK | Portal::MGS_BULK)
}

fn portal_text(portal: u32) -> String {
    match Portal(portal).name() {
        Some(name) => format!("{name}({portal})"),
        None => format!("{portal}({portal})"),
    }
}

/// Ping data, if it is some.
fn ping_text(payload: &[u8]) -> Option<String> {
    if !payload.starts_with(&ping::MAGIC.to_le_bytes()) {
        return None;
    }
    let got = PingInfo::parse(payload).ok()?;
    let info = &got.info;
    let large = info.features.contains(Features::LARGE_ADDR);
    let mut text = format!(
        " pinginfo feat={:#x}({}) pid={} nnis={} msgsize={} [lo(seq={})",
        info.features.bits(),
        info.features,
        info.pid.0,
        info.entries.len() + 1,
        if large { got.size } else { 0 },
        info.seq
    );
    for entry in &info.entries {
        let _ = write!(text, ", {}:{}", entry.nid, entry.status);
    }
    let cut = if got.truncated().is_some() { ", ...]" } else { "]" };
    Some(text + cut)
}

//! A recorded server on TCP, for programs that are run as their users run them: each request gets the
//! bytes that a kernel node sent in answer to a request like it.
//!
//! A request is like a recorded one if opcode and portal are the same, of a connect the target, too. What
//! a reply has from its request is made anew: match bits, and the flags that are granted, which a server
//! masks with those asked for (P-26). Everything else is as recorded. The two roles that are played and
//! compared are in `player/`.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use lnet_types::Nid;
use lnet_wire::{Hdr, Kind};
use lustre_wire::msg::pack;
use lustre_wire::{ConnectData, Layout, Msg, MsgKind, Opcode};

use crate::exchange::{Index, asked};
use crate::recording::{Message, Role, messages};
use crate::stage::{Peer, pong};

/// Between two looks at the sockets.
const LOOK: Duration = Duration::from_micros(200);

/// An answer that was recorded.
#[derive(Clone, Debug)]
struct Answer {
    opcode: Opcode,
    portal: Option<u32>,
    /// The target of a connect.
    target: Option<String>,
    /// Its match bits are those of bulk data in the request, not the xid.
    by_mbits: bool,
    reply: Message,
}

impl Answer {
    fn is_refusal(&self) -> bool {
        self.reply.body().kind == MsgKind::ERROR
    }
}

/// A server that says what was recorded. It ends when it is dropped.
pub struct KernelServer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KernelServer {
    /// A server with this NID, whose answers are those of the captures: of several that fit, the first.
    ///
    /// # Panics
    /// A capture that can't be read, or an address that can't be listened on.
    pub fn start(captures: &[&Path], nid: Nid, port: u16) -> Self {
        let answers: Vec<Answer> = captures.iter().flat_map(|path| recorded(path)).collect();
        let ip = nid.ip().expect("a NID with an address");
        let mut peer = Peer::listen(nid, ip, port);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                for (hdr, payload) in peer.poll() {
                    let reply = pong(&hdr).or_else(|| answer(&answers, hdr, payload));
                    if let Some((hdr, payload)) = reply {
                        peer.send(&hdr, &payload);
                    }
                }
                thread::sleep(LOOK);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for KernelServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// All answers of a capture.
fn recorded(path: &Path) -> Vec<Answer> {
    let messages = messages(path);
    let index = Index::new(&messages);
    let requests = messages.iter().enumerate().filter(|(_, m)| m.role == Role::Request);
    let answers = requests.filter_map(|(at, request)| {
        let reply = messages[index.reply_to(&messages, at)?].clone();
        let body = request.body();
        Some(Answer {
            opcode: body.opcode,
            portal: request.portal(),
            target: asked(request).filter(|_| body.opcode.is_connect()).map(|a| a.target),
            by_mbits: reply.bits() == body.mbits,
            reply,
        })
    });
    answers.collect()
}

/// The answer to a request; `None` to what no kernel node was asked in the captures.
fn answer(answers: &[Answer], hdr: Hdr, payload: Vec<u8>) -> Option<(Hdr, Vec<u8>)> {
    let request = Message::new(0, Duration::ZERO, hdr, payload)?;
    let body = request.body();
    let target = asked(&request).filter(|_| body.opcode.is_connect()).map(|a| a.target);
    let like = |a: &&Answer| a.opcode == body.opcode && a.portal == request.portal();
    let here = |a: &&Answer| like(a) && a.target == target && !a.is_refusal();
    // Of a target that is not there a server says so at once (P-68).
    let absent = |a: &&Answer| like(a) && target.is_some() && a.is_refusal();
    let found = answers.iter().find(here).or_else(|| answers.iter().find(absent))?;
    let mut payload = found.reply.payload.clone();
    if let Some(wanted) = asked(&request).filter(|_| !found.is_refusal()) {
        payload = granted(&payload, &wanted.data)?;
    }
    let match_bits = if found.by_mbits { body.mbits } else { request.bits() };
    let mut kind = found.reply.hdr.kind;
    if let Kind::Put { match_bits: bits, .. } = &mut kind {
        *bits = match_bits;
    }
    let hdr = Hdr {
        dst: hdr.src,
        src: hdr.dst,
        dst_pid: hdr.src_pid,
        src_pid: hdr.dst_pid,
        payload_len: payload.len() as u32,
        kind,
    };
    Some((hdr, payload))
}

/// A recorded reply to a connect, as it is for a client that asks for less.
fn granted(reply: &[u8], wanted: &ConnectData) -> Option<Vec<u8>> {
    let msg = Msg::parse(reply).ok()?;
    let data = ConnectData::of(&msg, 1).ok()?.masked(wanted.flags, wanted.flags2);
    let data = data.to_bytes(msg.order);
    let buffers: Vec<&[u8]> = msg.buffers().collect();
    let whole: Vec<&[u8]> =
        buffers.iter().enumerate().map(|(n, b)| if n == 1 { &data[..] } else { b }).collect();
    pack(msg.order, &msg.header, &whole).ok()
}

//! What the driver of one host has promised, kept beside it: deliveries that are open, messages in its
//! hands, credits.

use std::collections::BTreeMap;

use lnd_ib::emulated::Emulated;
use lnd_ib::{ConnId, Credits, Port};
use lnet::{Sink, Verdict};
use lnet_types::{IoVec, MsgId, Span};

use super::rig::Rig;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Messages that the driver has taken and not given back, with the memory that the data of a GET
    /// may be put into meanwhile.
    in_hand: BTreeMap<MsgId, IoVec>,
    /// Deliveries without end: the memory that adapters may write.
    open: BTreeMap<MsgId, IoVec>,
    pub(super) violations: Vec<String>,
}

impl Ledger {
    pub(super) fn in_hand(&self) -> usize {
        self.in_hand.len()
    }

    /// Whether nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        self.in_hand.is_empty() && self.open.is_empty()
    }

    pub(super) fn taken(&mut self, msg: MsgId, sink: IoVec) {
        if self.in_hand.insert(msg, sink).is_some() {
            self.violations.push(format!("{msg:?} was given to the driver twice"));
        }
    }

    pub(super) fn ended(&mut self, msg: MsgId) {
        if self.in_hand.remove(&msg).is_none() {
            self.violations.push(format!("{msg:?} has ended twice, or was never taken"));
        }
    }

    pub(super) fn decided(&mut self, verdict: &Verdict) {
        if let Verdict::Deliver { msg, sink } = verdict {
            let spans = match sink {
                Sink::Spans(spans) => spans.clone(),
                Sink::Bytes(_) => IoVec::new(),
            };
            self.open.insert(*msg, spans);
        }
    }

    pub(super) fn delivered(&mut self, msg: MsgId) {
        if self.open.remove(&msg).is_none() {
            self.violations.push(format!("the delivery of {msg:?} has ended twice"));
        }
    }

    /// The delivery is over, and nothing will be said of it.
    pub(super) fn abandoned(&mut self, msg: MsgId) {
        self.open.remove(&msg);
    }

    /// An adapter has written for a peer.
    pub(super) fn written(&mut self, spans: &[Span]) {
        for span in spans {
            let end = span.offset + u64::from(span.len);
            let holds = |open: &Span| {
                open.region == span.region
                    && open.offset <= span.offset
                    && end <= open.offset + u64::from(open.len)
            };
            if !self.open.values().chain(self.in_hand.values()).flatten().any(holds) {
                self.violations.push(format!("{span:?} is written behind the end of its delivery"));
            }
        }
    }
}

/// The credits of both ends of each connection: what one side holds and the other owes are the depth.
pub(super) fn balance(rigs: &[&Rig]) -> Result<(), String> {
    let ports = || rigs.iter().flat_map(|rig| rig.ports().map(move |port| (rig, port)));
    let credits = |port: &Port<Emulated>, peer, id: ConnId| -> Option<Credits> {
        port.ib.credits(peer).into_iter().find(|(conn, _)| *conn == id).map(|(_, c)| c.clone())
    };
    for (rig, port) in ports() {
        for conn in port.adapter.conns() {
            let Some((nid, number)) = port.adapter.other_end(conn) else { continue };
            let Some((theirs, other)) = ports().find(|(_, other)| other.ib.nid() == nid) else {
                continue;
            };
            let Some(far) = other.adapter.conn_of(number) else { continue };
            let still = port.adapter.is_still(conn) && other.adapter.is_still(far);
            if !still || !rig.is_idle() || !theirs.is_idle() {
                continue;
            }
            let mine = credits(port, nid, conn);
            let yours = credits(other, port.ib.nid(), far);
            let Some((mine, yours)) = mine.zip(yours) else { continue };
            if mine.held() + yours.owed() != mine.depth() || mine.reserved() != mine.depth() {
                let own = port.ib.nid();
                return Err(format!("credits of {own} to {nid}: {mine:?}, there {yours:?}"));
            }
        }
    }
    Ok(())
}

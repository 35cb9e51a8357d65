//! Arrivals: from the transport to the node, one by one, and no further while the node defers.

use lnet::{Rx, Sink, Verdict};
use lnet_types::{Pid, RxId};

use super::pair::ParcelId;
use super::{MessageEvent, Messages, Why};
use crate::directory::HostId;
use crate::fabric::Cx;
use crate::memory::Body;

impl Messages {
    /// A message has come over connection `made`, or over none (0).
    pub(super) fn arrive(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        made: u32,
        parcel: ParcelId,
    ) {
        if made == 0 {
            if self.way(cx, pair, dir).blocked {
                return self.parcels.drop(parcel);
            }
            let d = &mut self.pairs[pair as usize].dirs[dir];
            if d.deferred.is_some() {
                return d.held.push_back(parcel);
            }
            return self.deliver(cx, pair, dir, parcel);
        }
        if cx.links.is_disturbed()
            || self.host_at(cx, pair, 1 - dir).is_none()
            || !self.pairs[pair as usize].dirs[dir].stalled.is_empty()
        {
            if self.pairs[pair as usize].open[dir] != made {
                return self.parcels.drop(parcel);
            }
            // Nothing overtakes what is to be repeated.
            let behind = !self.pairs[pair as usize].dirs[dir].stalled.is_empty();
            if behind || self.way(cx, pair, dir).blocked {
                self.landed(pair, dir, parcel);
                return self.stall(cx, pair, dir, made, parcel);
            }
        }
        let p = &mut self.pairs[pair as usize];
        if p.open[1 - dir] != made {
            // The other end has no such connection: the sender is reset. What it wrote is in doubt until
            // the reset arrives.
            if p.open[dir] == made {
                if self.way(cx, pair, 1 - dir).blocked {
                    self.landed(pair, dir, parcel);
                    return self.stall(cx, pair, dir, made, parcel);
                }
                self.close(cx, pair, dir, Why::Reset);
            }
            return self.parcels.drop(parcel);
        }
        self.landed(pair, dir, parcel);
        let p = &mut self.pairs[pair as usize];
        p.heard[1 - dir] = cx.now;
        if p.dirs[dir].deferred.is_some() {
            return p.dirs[dir].held.push_back(parcel);
        }
        self.deliver(cx, pair, dir, parcel);
    }

    /// A message is not on its way any more.
    fn landed(&mut self, pair: u32, dir: usize, parcel: ParcelId) {
        let flying = &mut self.pairs[pair as usize].dirs[dir].flying;
        if flying.front() == Some(&parcel) {
            flying.pop_front();
        } else if let Some(at) = flying.iter().position(|flown| *flown == parcel) {
            flying.remove(at);
        }
    }

    /// How the receiver's driver calls what comes over this connection. As the driver of sockets does,
    /// it names the connection, which carries one message at a time; the next message has the same
    /// name.
    fn name(&self, pair: u32, dir: usize) -> RxId {
        let made = self.pairs[pair as usize].open[1 - dir];
        RxId(u64::from(made) << 33 | u64::from(pair) << 1 | dir as u64)
    }

    /// Shows the header to the node and does as it says.
    fn deliver(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, dir: usize, parcel: ParcelId) {
        let Some(id) = self.host_at(cx, pair, 1 - dir) else {
            return self.parcels.drop(parcel);
        };
        let ends = self.pairs[pair as usize].ends;
        let from = cx.directory.rail(ends[dir]).nid;
        let rx = self.name(pair, dir);
        let now = cx.now;
        let host = cx.host(id);
        if host.starved {
            self.parcels.drop(parcel);
            return self.reset(cx, pair);
        }
        let Some(ni) = host.ni_of(ends[1 - dir]) else { return self.parcels.drop(parcel) };
        let local = host.clock.local(now);
        let known = &mut self.pairs[pair as usize].peer_nis[1 - dir];
        *known = host.node.peer_ni(*known, from);
        let rx_info = Rx { ni, from, from_pid: Pid::LUSTRE, peer_ni: *known, id: rx };
        let verdict = host.node.rx_header(local, rx_info, &self.parcels[parcel].hdr);
        if matches!(verdict, Verdict::Defer) {
            let d = &mut self.pairs[pair as usize].dirs[dir];
            d.deferred = Some(rx);
            d.held.push_front(parcel);
            self.deferred.insert((id.0, rx.0), (pair, dir as u8));
            return;
        }
        self.place(cx, id, pair, dir, verdict, parcel);
    }

    /// Carries out a verdict that is not to wait, and drops the message.
    fn place(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        host: HostId,
        pair: u32,
        dir: usize,
        verdict: Verdict,
        id: ParcelId,
    ) {
        let parcel = &self.parcels[id];
        let len = parcel.wire_len();
        let now = cx.now;
        let host = cx.host(host);
        let local = host.clock.local(now);
        match verdict {
            Verdict::Deliver { msg, sink: Sink::Spans(iov) } => {
                host.mem.write(&iov, &parcel.body);
                host.node.rx_done(local, msg, Ok(&[]));
            }
            Verdict::Deliver { msg, sink: Sink::Bytes(max) } => {
                let bytes = match &parcel.body {
                    Body::Bytes(b) => &b[..b.len().min(max as usize)],
                    Body::Blank(_) => &[],
                };
                host.node.rx_done(local, msg, Ok(bytes));
            }
            Verdict::Drop(_) => {}
            Verdict::Close(_) => {
                self.parcels.drop(id);
                return self.reset(cx, pair);
            }
            Verdict::Defer => unreachable!("a deferred message is decided once"),
        }
        self.parcels.drop(id);
        let d = &mut self.pairs[pair as usize].dirs[dir];
        d.unread = d.unread.saturating_sub(len);
        if !d.queue.is_empty() {
            self.pump(cx, pair, dir);
        }
    }

    pub(super) fn resumed(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        id: HostId,
        rx: RxId,
        verdict: Verdict,
    ) {
        // Gone with its connection, and reported to the node.
        let Some((pair, dir)) = self.deferred.remove(&(id.0, rx.0)) else { return };
        let dir = usize::from(dir);
        let d = &mut self.pairs[pair as usize].dirs[dir];
        d.deferred = None;
        let Some(parcel) = d.held.pop_front() else { return };
        self.place(cx, id, pair, dir, verdict, parcel);
        // What has come behind it.
        loop {
            let d = &mut self.pairs[pair as usize].dirs[dir];
            if d.deferred.is_some() {
                return;
            }
            let Some(parcel) = d.held.pop_front() else { return };
            self.deliver(cx, pair, dir, parcel);
        }
    }
}

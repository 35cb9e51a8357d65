//! Message level: what a driver like socklnd would do with each message, without its bytes.
//!
//! On a *stream* network two rails have a connection, or try to get one. What is written to it is
//! reported as sent, and arrives in order after latency, jitter and the time that its bytes take on
//! both interfaces. What the fabric swallows is repeated by the transport at growing intervals; if
//! nothing gets through within the driver's time limit, the connection is closed: what was written
//! is lost without a word, what was not written comes back as a local time-out. The other end may
//! believe in the connection a while longer, until what it sends, or a keepalive, is answered with a
//! reset. An attempt to connect
//! is refused, times out, or makes a connection; after a failed one the driver refuses messages
//! until it is time for the next (1 s, doubling up to 60 s).
//!
//! On a *datagram* network there are no connections, and what the fabric swallows is lost.
//!
//! A receiver that defers a message does not read on: what follows waits, and when the window is
//! full its sender can't write. Drawing: `pair.rs`.

mod arrive;
mod clocks;
mod dial;
mod doubt;
mod pair;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeMap;

use lnet::{InDoubt, Transmit, Verdict};
use lnet_scenario::Transport;
use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId, ProcessId, RxId};

use crate::directory::{HostId, Lookup, RailIx};
use crate::fabric::{Cx, Fabric, GONE, Happening};
use crate::links::Way;
use crate::travel::{Cables, chance};
use pair::{Pair, Parcel, ParcelId, Parcels};

/// Bytes that a connection takes before the receiver has read any: the buffers of both ends.
const WINDOW: u64 = 512 << 10;
/// The transport's first wait before it repeats something.
const RTO: Duration = Duration::from_millis(200);
/// A connection that is open at one end only is found out after so long, also if nothing is sent.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The driver has no memory (DEC-19).
const NO_ROOM: Fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
/// The message was lost before it was sent.
const LOST_UNSENT: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
/// Not written in time (K-30a).
const UNWRITTEN: Fault = Fault::new(HealthStatus::LocalTimeout, Errno::ETIMEDOUT);
/// The connection was reset before the message was written (DEC-6).
const RESET: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::ECONNRESET);
/// It waited for a connection past its deadline (K-32).
const WAITED: Fault = Fault::new(HealthStatus::NetworkTimeout, Errno::ETIMEDOUT);

/// Why an end of a connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// Nothing was acknowledged in time.
    SendTimeout,
    /// The same between two that repeat what is lost: what waits goes over the next connection.
    Replaced,
    /// Reset by the other end, or on purpose.
    Reset,
    /// The interface goes.
    Stopped,
}

impl Why {
    const fn fault(self) -> Fault {
        match self {
            Self::SendTimeout | Self::Replaced => UNWRITTEN,
            Self::Reset => RESET,
            Self::Stopped => GONE,
        }
    }
}

/// Later events of the fabric.
#[derive(Debug)]
pub struct MessageEvent(What);

#[derive(Debug)]
enum What {
    /// A message arrives over connection `made`, or over none (0).
    Arrive { pair: u32, dir: u8, made: u32, parcel: ParcelId },
    /// The transport repeats what is stalled.
    Retry { pair: u32, dir: u8, made: u32 },
    /// Messages that are not written may be past their time.
    Expire { pair: u32, dir: u8 },
    /// An attempt to connect asks again.
    Syn { pair: u32, end: u8, attempt: u32, wait: Duration },
    /// It has got through.
    Up { pair: u32, end: u8, attempt: u32 },
    /// It was refused, or has taken too long.
    Failed { pair: u32, end: u8, attempt: u32, errno: Errno },
    /// What was swallowed then, or asked for, may still have no answer.
    Suspect { pair: u32, end: u8, since: Instant },
    /// A doubted rail is asked to prove itself.
    Proof { pair: u32, end: u8 },
    /// An end probes whether connection `made` is still open at the other one.
    Keepalive { pair: u32, end: u8, made: u32 },
    /// A connection may have been idle for too long (`clocks.rs`).
    Idle { pair: u32, end: u8, made: u32 },
    /// A probe of an idle connection may still have no answer.
    Unanswered { pair: u32, end: u8, made: u32, since: Instant },
    /// A network that stood still then may do so still.
    Suspended { pair: u32, made: u32, since: Instant },
    /// Nodes get a report of one that has died, by a rail of it.
    Death { rail: RailIx, at: Instant },
}

/// The message-level fabric.
#[derive(Debug, Default)]
pub struct Messages {
    pairs: Vec<Pair>,
    parcels: Parcels,
    /// Since when networks are suspended, by index.
    suspended: BTreeMap<u16, Instant>,
    by_ends: Lookup<(u32, u32), u32>,
    /// Pairs of each rail, oldest first.
    by_rail: Vec<Vec<u32>>,
    cables: Cables,
    deferred: Lookup<(u32, u64), (u32, u8)>,
    in_hand: usize,
}

impl Messages {
    /// A fabric without any message.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pair of two rails and the direction from the first to the second.
    fn pair(&mut self, from: RailIx, to: RailIx) -> (u32, usize) {
        let ends = [from.min(to), from.max(to)];
        let dir = usize::from(from != ends[0]);
        let key = (ends[0].0, ends[1].0);
        if let Some(&pair) = self.by_ends.get(&key) {
            return (pair, dir);
        }
        let pair = self.pairs.len() as u32;
        self.pairs.push(Pair::new(ends));
        self.by_ends.insert(key, pair);
        for end in ends.into_iter().skip(usize::from(from == to)) {
            let at = end.0 as usize;
            if self.by_rail.len() <= at {
                self.by_rail.resize(at + 1, Vec::new());
            }
            self.by_rail[at].push(pair);
        }
        (pair, dir)
    }

    fn way(&self, cx: &Cx<'_, MessageEvent>, pair: u32, dir: usize) -> Way {
        let ends = self.pairs[pair as usize].ends;
        cx.links.way(ends[dir], ends[1 - dir], cx.directory)
    }

    /// The host at an end, if it runs.
    fn host_at(&self, cx: &Cx<'_, MessageEvent>, pair: u32, end: usize) -> Option<HostId> {
        let rail = cx.directory.rail(self.pairs[pair as usize].ends[end]);
        rail.host.filter(|h| rail.present && cx.hosts[h.0 as usize].alive)
    }

    fn is_paused(&self, cx: &Cx<'_, MessageEvent>, pair: u32, end: usize) -> bool {
        self.host_at(cx, pair, end).is_some_and(|h| cx.hosts[h.0 as usize].paused)
    }

    /// Gives a message to the transport. It is out of the driver's hands.
    fn write(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        parcel: ParcelId,
        way: &Way,
    ) {
        let msg = self.parcels[parcel].msg;
        let sender = self.host_at(cx, pair, dir);
        if chance(cx.rng, way.drop_silent) {
            // Written, and never seen again.
            self.parcels.drop(parcel);
        } else if way.transport == Transport::Datagram {
            self.throw(cx, pair, dir, parcel, way);
        } else {
            let p = &mut self.pairs[pair as usize];
            let (made, d) = (p.open[dir], &mut p.dirs[dir]);
            d.unread += self.parcels[parcel].wire_len();
            if way.blocked || !d.stalled.is_empty() {
                self.stall(cx, pair, dir, made, parcel);
            } else {
                self.stream(cx, pair, dir, made, parcel, way);
            }
        }
        if let Some(host) = sender {
            cx.tx_done(host, msg, Ok(()));
        }
    }

    /// A datagram: it arrives or it does not, perhaps twice.
    fn throw(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        parcel: ParcelId,
        way: &Way,
    ) {
        if way.blocked || chance(cx.rng, way.loss) || chance(cx.rng, way.corrupt) {
            return self.parcels.drop(parcel);
        }
        let ends = self.pairs[pair as usize].ends;
        let ends = [ends[dir], ends[1 - dir]];
        let copy =
            chance(cx.rng, way.duplicate).then(|| self.parcels.add(self.parcels[parcel].clone()));
        let len = self.parcels[parcel].wire_len();
        for parcel in [Some(parcel), copy].into_iter().flatten() {
            let mut at = self.cables.pass(cx.now, cx.rng, ends, len, way);
            if chance(cx.rng, way.reorder.0) {
                at += way.reorder.1;
            }
            cx.at(at, MessageEvent(What::Arrive { pair, dir: dir as u8, made: 0, parcel }));
        }
    }

    /// Part of a stream: late perhaps, but in order.
    fn stream(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        made: u32,
        parcel: ParcelId,
        way: &Way,
    ) {
        let ends = self.pairs[pair as usize].ends;
        let ends = [ends[dir], ends[1 - dir]];
        let Parcel { limit, .. } = self.parcels[parcel];
        let mut at = self.cables.pass(cx.now, cx.rng, ends, self.parcels[parcel].wire_len(), way);
        let mut rto = RTO;
        let lost = way.loss.max(way.corrupt);
        while rto < limit && chance(cx.rng, lost) {
            at += rto;
            rto *= 2;
        }
        if chance(cx.rng, way.reorder.0) {
            at += way.reorder.1;
        }
        let d = &mut self.pairs[pair as usize].dirs[dir];
        at = at.max(d.last_arrival);
        d.last_arrival = at;
        if self.parcels[parcel].retention.is_some() {
            d.flying.push_back(parcel);
        }
        cx.at(at, MessageEvent(What::Arrive { pair, dir: dir as u8, made, parcel }));
    }

    /// The fabric has swallowed it; the transport will repeat it.
    fn stall(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        made: u32,
        parcel: ParcelId,
    ) {
        let d = &mut self.pairs[pair as usize].dirs[dir];
        if d.stalled.is_empty() {
            (d.stalled_since, d.rto) = (cx.now, RTO);
            let at = cx.now + RTO;
            cx.at(at, MessageEvent(What::Retry { pair, dir: dir as u8, made }));
            self.watch(cx, pair, dir);
        }
        self.pairs[pair as usize].dirs[dir].stalled.push_back(parcel);
    }

    fn retry(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, dir: usize, made: u32) {
        let p = &self.pairs[pair as usize];
        let d = &p.dirs[dir];
        if p.open[dir] != made {
            return;
        }
        let Some(longest) = d.stalled.iter().map(|x| self.parcels[*x].limit).max() else { return };
        let replaced_after = self.replaced_after(cx, pair, dir);
        let limit = replaced_after.unwrap_or(longest);
        let again = MessageEvent(What::Retry { pair, dir: dir as u8, made });
        if self.is_paused(cx, pair, dir) {
            return cx.at(cx.now + RTO, again);
        }
        let over = d.stalled_since + limit;
        let way = self.way(cx, pair, dir);
        if !way.blocked {
            let all = core::mem::take(&mut self.pairs[pair as usize].dirs[dir].stalled);
            for parcel in all {
                self.stream(cx, pair, dir, made, parcel, &way);
            }
            self.look(cx, pair, dir);
        } else if cx.now >= over {
            let replaced = replaced_after.is_some();
            self.close(cx, pair, dir, if replaced { Why::Replaced } else { Why::SendTimeout });
        } else {
            let longest = self.rto_max(cx, pair, dir);
            let d = &mut self.pairs[pair as usize].dirs[dir];
            d.rto = (d.rto * 2).min(longest);
            let at = (cx.now + d.rto).min(over);
            cx.at(at, again);
        }
    }

    /// After which time a silent connection is replaced, if the two ends repeat what it loses (DEC-47).
    fn replaced_after(&self, cx: &Cx<'_, MessageEvent>, pair: u32, end: usize) -> Option<Duration> {
        let host = self.host_at(cx, pair, end)?;
        let node = &cx.hosts[host.0 as usize].node;
        let replaces = self.pairs[pair as usize].repeats[end]
            && node.tunables().rail_suspicion != 0
            && node.tunables().reconnect_timeout != 0;
        let after = Duration::from_millis(node.tunables().reconnect_timeout as u64);
        replaces.then(|| after.min(node.tunables().lnd_timeout()))
    }

    /// The longest wait before something is sent again.
    fn rto_max(&self, cx: &Cx<'_, MessageEvent>, pair: u32, dir: usize) -> Duration {
        let host = self.host_at(cx, pair, dir);
        let millis = host.map_or(0, |h| cx.hosts[h.0 as usize].node.tunables().tcp_rto_max);
        if millis == 0 { Duration::MAX } else { Duration::from_millis(millis as u64) }
    }

    /// Puts a message behind others that can't be written now.
    fn enqueue(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, dir: usize, parcel: ParcelId) {
        cx.at(self.parcels[parcel].deadline, MessageEvent(What::Expire { pair, dir: dir as u8 }));
        self.in_hand += 1;
        self.pairs[pair as usize].dirs[dir].queue.push_back(parcel);
    }

    /// Writes what can be written now.
    fn pump(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, dir: usize) {
        loop {
            let p = &mut self.pairs[pair as usize];
            let d = &mut p.dirs[dir];
            let Some(&first) = d.queue.front() else { return };
            let len = self.parcels[first].wire_len();
            let full = d.unread > 0 && d.unread + len > WINDOW;
            if p.open[dir] == 0 || full || self.is_suspended(cx, pair) {
                return;
            }
            self.pairs[pair as usize].dirs[dir].queue.pop_front();
            self.in_hand -= 1;
            let way = self.way(cx, pair, dir);
            self.write(cx, pair, dir, first, &way);
        }
    }

    fn expire(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, dir: usize) {
        if self.is_paused(cx, pair, dir) {
            let at = cx.now + RTO;
            return cx.at(at, MessageEvent(What::Expire { pair, dir: dir as u8 }));
        }
        let p = &mut self.pairs[pair as usize];
        let fault = if p.open[dir] == 0 { WAITED } else { UNWRITTEN };
        let now = cx.now;
        let parcels = &self.parcels;
        let (late, rest): (Vec<_>, Vec<_>) = core::mem::take(&mut p.dirs[dir].queue)
            .into_iter()
            .partition(|x| parcels[*x].deadline <= now);
        p.dirs[dir].queue = rest.into();
        self.give_back(cx, pair, dir, late, fault);
    }

    /// Messages that were not written come back.
    fn give_back(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        dir: usize,
        parcels: impl IntoIterator<Item = ParcelId>,
        fault: Fault,
    ) {
        let host = self.host_at(cx, pair, dir);
        for parcel in parcels {
            self.in_hand -= 1;
            if let Some(host) = host {
                cx.tx_done(host, self.parcels[parcel].msg, Err(fault));
            }
            self.parcels.drop(parcel);
        }
    }

    /// One end does not believe in the connection any more.
    fn close(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize, why: Why) {
        if why != Why::Stopped {
            self.hand_back(cx, pair, end);
        }
        let was = self.forget(cx, pair, end);
        let p = &mut self.pairs[pair as usize];
        let (nid, heard) = (cx.directory.rail(p.ends[1 - end]).nid, p.heard[end]);
        let rail = p.ends[end];
        if why == Why::Replaced {
            self.hasten(cx, pair, end);
            // It is not too soon.
            let _ = self.want(cx, pair, end);
        } else {
            let queue = core::mem::take(&mut p.dirs[end].queue);
            self.give_back(cx, pair, end, queue, why.fault());
        }
        if was == 0 || why == Why::Stopped {
            return;
        }
        if let Some(host) = self.host_at(cx, pair, end) {
            let now = cx.now;
            let host = cx.host(host);
            if let Some(ni) = host.ni_of(rail) {
                let (now, heard) = (host.clock.local(now), host.clock.local(heard));
                host.node.written_lost(now, ni, nid);
                if why != Why::Replaced {
                    host.node.peer_down(now, ni, nid, heard);
                }
            }
        }
    }

    /// Forgets what an end has of a connection but for what it has not written; gives its number.
    fn forget(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) -> u32 {
        let p = &mut self.pairs[pair as usize];
        let was = core::mem::take(&mut p.open[end]);
        if was != 0 && p.open[1 - end] == was {
            self.left_alone(cx, pair, 1 - end);
        }
        let p = &mut self.pairs[pair as usize];
        let rail = p.ends[end];
        // The other end has no connection for what is still on its way.
        p.dirs[end].flying.clear();
        self.parcels.drop_all(p.dirs[end].stalled.drain(..));
        p.dirs[end].unread = 0;
        let inward = &mut p.dirs[1 - end];
        self.parcels.drop_all(inward.held.drain(..));
        inward.unread = 0;
        if let Some(rx) = inward.deferred.take()
            && let Some(host) = self.host_at(cx, pair, end)
        {
            self.deferred.remove(&(host.0, rx.0));
            let now = cx.now;
            let host = cx.host(host);
            if let Some(ni) = host.ni_of(rail) {
                host.node.rx_gone(host.clock.local(now), ni, rx);
            }
        }
        self.look(cx, pair, end);
        was
    }

    /// The other end has forgotten the connection that is still open at `end`.
    fn left_alone(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let made = self.pairs[pair as usize].open[end];
        if made != 0 {
            let end = end as u8;
            cx.at(cx.now + KEEPALIVE, MessageEvent(What::Keepalive { pair, end, made }));
        }
    }

    fn keepalive(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize, made: u32) {
        if self.pairs[pair as usize].open[end] != made {
            return;
        }
        let is_answered = self.host_at(cx, pair, 1 - end).is_some()
            && !self.is_paused(cx, pair, end)
            && !self.way(cx, pair, end).blocked
            && !self.way(cx, pair, 1 - end).blocked;
        match is_answered {
            true => self.close(cx, pair, end, Why::Reset),
            false => self.left_alone(cx, pair, end),
        }
    }

    /// An end gets the report that what it had written to a connection may be lost.
    fn report_lost(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        let ends = self.pairs[pair as usize].ends;
        let nid = cx.directory.rail(ends[1 - end]).nid;
        let Some(host) = self.host_at(cx, pair, end) else { return };
        let now = cx.now;
        let host = cx.host(host);
        if let Some(ni) = host.ni_of(ends[end]) {
            host.node.written_lost(host.clock.local(now), ni, nid);
        }
    }

    /// Both ends close, if they believe in the connection.
    fn reset(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32) {
        for end in 0..2 {
            if self.pairs[pair as usize].open[end] != 0 {
                self.close(cx, pair, end, Why::Reset);
            }
        }
    }

    /// An end goes, with its host or its interface. The other one finds out.
    fn end_gone(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize, in_order: bool) {
        let p = &mut self.pairs[pair as usize];
        p.doubted[end] = None;
        p.dial[end] = pair::Dial { attempt: p.dial[end].attempt + 1, ..Default::default() };
        if in_order {
            self.close(cx, pair, end, Why::Stopped);
            let way = self.way(cx, pair, end);
            if !way.blocked && self.pairs[pair as usize].open[1 - end] != 0 {
                self.close(cx, pair, 1 - end, Why::Reset);
            }
            return;
        }
        // The dead end gets no report. What the other end has received stays there.
        let d = &mut p.dirs[end];
        self.in_hand -= d.queue.len();
        self.parcels.drop_all(d.queue.drain(..).chain(d.stalled.drain(..)));
        let &mut pair::Dir { last_arrival, deferred, unread, ref mut held, .. } = d;
        let held = core::mem::take(held);
        *d = pair::Dir { last_arrival, deferred, held, unread, ..Default::default() };
        p.open[end] = 0;
        let inward = &mut p.dirs[1 - end];
        self.parcels.drop_all(inward.held.drain(..));
        if let (Some(rx), Some(host)) =
            (inward.deferred.take(), cx.directory.rail(p.ends[end]).host)
        {
            self.deferred.remove(&(host.0, rx.0));
        }
        self.left_alone(cx, pair, 1 - end);
    }

    fn pairs_of(&self, rail: RailIx) -> Vec<(u32, usize)> {
        let pairs = self.by_rail.get(rail.0 as usize).into_iter().flatten();
        pairs.map(|&p| (p, usize::from(self.pairs[p as usize].ends[0] != rail))).collect()
    }
}

impl Fabric for Messages {
    type Event = MessageEvent;
    const MOVES_BYTES: bool = false;

    fn send(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        host: HostId,
        transmit: &Transmit,
    ) -> Result<(), Fault> {
        let sender = &cx.hosts[host.0 as usize];
        let Some(from) = sender.rail_of(transmit.ni) else { return Err(GONE) };
        if sender.starved {
            return Err(NO_ROOM);
        }
        let net = cx.directory.rail(from).net;
        let to = cx.directory.number(transmit.to.nid, net);
        let (pair, dir) = self.pair(from, to);
        let way = self.way(cx, pair, dir);
        if chance(cx.rng, way.drop_reported) {
            return Err(LOST_UNSENT);
        }
        let body = sender.mem.read(&transmit.payload);
        let Transmit { msg, hdr, timeout, retention, repeats, .. } = *transmit;
        self.pairs[pair as usize].repeats[dir] = repeats;
        let clock = cx.links.clocks(net).timeout;
        let limit = timeout.min(crate::host::lnd_timeout(&sender.node, clock).unwrap_or(timeout));
        let parcel = Parcel { msg, hdr, body, deadline: cx.now + limit, limit, retention };
        let p = &self.pairs[pair as usize];
        let d = &p.dirs[dir];
        if way.transport == Transport::Datagram
            || (p.open[dir] != 0
                && d.queue.is_empty()
                && !self.is_suspended(cx, pair)
                && (d.unread == 0 || d.unread + parcel.wire_len() <= WINDOW))
        {
            let parcel = self.parcels.add(parcel);
            self.write(cx, pair, dir, parcel, &way);
            return Ok(());
        }
        if p.open[dir] == 0 {
            self.want(cx, pair, dir)?;
        }
        let parcel = self.parcels.add(parcel);
        self.enqueue(cx, pair, dir, parcel);
        Ok(())
    }

    fn recall(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        host: HostId,
        ni: NiId,
        to: ProcessId,
        msg: MsgId,
    ) -> bool {
        let Some(from) = cx.hosts[host.0 as usize].rail_of(ni) else { return false };
        let Some(to) = cx.directory.find(to.nid) else { return false };
        let (pair, dir) = self.pair(from, to);
        let queue = &mut self.pairs[pair as usize].dirs[dir].queue;
        let is_meant = |p: &ParcelId| self.parcels[*p].msg == msg;
        let Some(at) = queue.iter().position(is_meant) else { return false };
        if let Some(parcel) = queue.remove(at) {
            self.parcels.drop(parcel);
        }
        self.in_hand -= 1;
        true
    }

    fn reclaim(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        host: HostId,
        ni: NiId,
        to: Option<ProcessId>,
    ) -> Vec<InDoubt> {
        let Some(from) = cx.hosts[host.0 as usize].rail_of(ni) else { return Vec::new() };
        let to = match to {
            Some(to) => match cx.directory.find(to.nid) {
                Some(to) => Some(to),
                None => return Vec::new(),
            },
            None => None,
        };
        let is_meant = |pair: &Pair, end: usize| to.is_none_or(|to| pair.ends[1 - end] == to);
        let pairs = self.pairs_of(from).into_iter();
        let meant: Vec<_> =
            pairs.filter(|(pair, end)| is_meant(&self.pairs[*pair as usize], *end)).collect();
        meant.into_iter().flat_map(|(pair, end)| self.take_in_doubt(cx, pair, end)).collect()
    }

    fn resume(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        host: HostId,
        _ni: NiId,
        rx: RxId,
        verdict: Verdict,
    ) {
        self.resumed(cx, host, rx, verdict);
    }

    fn flush(&mut self, _cx: &mut Cx<'_, MessageEvent>, _host: HostId) {}

    fn event(&mut self, cx: &mut Cx<'_, MessageEvent>, event: MessageEvent) {
        match event.0 {
            What::Arrive { pair, dir, made, parcel } => {
                self.arrive(cx, pair, usize::from(dir), made, parcel);
            }
            What::Retry { pair, dir, made } => self.retry(cx, pair, usize::from(dir), made),
            What::Expire { pair, dir } => self.expire(cx, pair, usize::from(dir)),
            What::Syn { pair, end, attempt, wait } => {
                self.syn(cx, pair, usize::from(end), attempt, wait);
            }
            What::Up { pair, end, attempt } => self.up(cx, pair, usize::from(end), attempt),
            What::Failed { pair, end, attempt, errno } => {
                self.failed(cx, pair, usize::from(end), attempt, errno);
            }
            What::Suspect { pair, end, since } => {
                self.suspect(cx, pair, usize::from(end), since);
            }
            What::Proof { pair, end } => self.prove(cx, pair, usize::from(end)),
            What::Keepalive { pair, end, made } => {
                self.keepalive(cx, pair, usize::from(end), made);
            }
            What::Idle { pair, end, made } => self.idle(cx, pair, usize::from(end), made),
            What::Unanswered { pair, end, made, since } => {
                self.unanswered(cx, pair, usize::from(end), made, since);
            }
            What::Suspended { pair, made, since } => self.still_suspended(cx, pair, made, since),
            What::Death { rail, at } => self.report_death(cx, rail, at),
        }
    }

    fn happened(&mut self, cx: &mut Cx<'_, MessageEvent>, what: &Happening<'_>) {
        match *what {
            Happening::RailAdded(_) | Happening::LinksChanged => {}
            Happening::Suspended(nets) => self.suspend(cx, nets),
            Happening::Resumed(nets) => self.resume_nets(cx, nets),
            // At this level there are no adapters, and carriers that go are seen by the links.
            Happening::CarrierGone(_) | Happening::Adapter(..) => {}
            Happening::CarrierBack(rail) => {
                for (pair, end) in self.pairs_of(rail) {
                    self.hasten(cx, pair, end);
                }
            }
            Happening::RailRemoved(rail, _) => {
                for (pair, end) in self.pairs_of(rail) {
                    self.end_gone(cx, pair, end, true);
                }
            }
            Happening::HostDied(host) => {
                let rails: Vec<RailIx> =
                    cx.hosts[host.0 as usize].rails.iter().map(|r| r.ix).collect();
                for rail in rails {
                    self.schedule_report(cx, rail);
                    for (pair, end) in self.pairs_of(rail) {
                        self.end_gone(cx, pair, end, false);
                        let resets = cx.hosts[host.0 as usize].resets;
                        if resets && !self.way(cx, pair, end).blocked {
                            self.close(cx, pair, 1 - end, Why::Reset);
                        }
                    }
                }
            }
            Happening::Reset(is_meant) => {
                for pair in 0..self.pairs.len() {
                    let [a, b] = self.pairs[pair].ends;
                    if is_meant(a, b) {
                        self.reset(cx, pair as u32);
                    }
                }
            }
        }
    }

    fn in_hand(&self) -> usize {
        self.in_hand
    }
}

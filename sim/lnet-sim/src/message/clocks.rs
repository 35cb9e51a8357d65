//! Clocks of a network's drivers, and what a fabric such as Aries does to its connections: idle ones are
//! probed, a quiesce suspends what is to be sent, and nodes get a report of others that die.
//!
//! In a quiesce of a `gni` network nothing is written (PA-094). What drivers were given stays in order and
//! leaves afterwards; a quiesce that is longer than the driver's time limit ends connections (PA-095).
//! With `fast_reconnect` nodes connect to their gateways as soon as it is over (PA-097); without,
//! with the next message (PA-096). A new connection makes the gateway usable at once (PA-098).

use core::time::Duration;

use lnet_scenario::{Clocks, Transport};
use lnet_types::{Instant, Nid};

use super::{MessageEvent, Messages, What, Why};
use crate::directory::{HostId, RailIx};
use crate::fabric::Cx;
use crate::host::connect_timeout;

impl Messages {
    fn net_of(&self, cx: &Cx<'_, MessageEvent>, pair: u32) -> u16 {
        cx.directory.rail(self.pairs[pair as usize].ends[0]).net
    }

    /// The clocks of the network that a pair is on.
    pub(super) fn clocks(&self, cx: &Cx<'_, MessageEvent>, pair: u32) -> Clocks {
        cx.links.clocks(self.net_of(cx, pair))
    }

    /// Whether drivers hold what is to be sent, because their fabric stands still.
    pub(super) fn is_suspended(&self, cx: &Cx<'_, MessageEvent>, pair: u32) -> bool {
        !self.suspended.is_empty() && self.suspended.contains_key(&self.net_of(cx, pair))
    }

    /// Pairs of rails on a network.
    fn pairs_on(&self, cx: &Cx<'_, MessageEvent>, net: u16) -> Vec<u32> {
        let all = 0..self.pairs.len() as u32;
        all.filter(|pair| self.net_of(cx, *pair) == net).collect()
    }

    /// A connection has come into being.
    pub(super) fn connected(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32) {
        let (p, clocks) = (&self.pairs[pair as usize], self.clocks(cx, pair));
        let made = p.made;
        if let Some(after) = clocks.keepalive {
            for end in 0..2 {
                cx.at(cx.now + after, MessageEvent(What::Idle { pair, end, made }));
            }
        }
        if cx.links.transport(self.net_of(cx, pair).into()) != Transport::Gni {
            return;
        }
        for end in 0..2 {
            let other = cx.directory.rail(p.ends[1 - end]).nid;
            if let Some(host) = self.host_at(cx, pair, end) {
                report(cx, host, other, true, cx.now);
            }
        }
    }

    /// A connection is probed if nothing has come for too long; looked at again when that may be so.
    pub(super) fn idle(&self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize, made: u32) {
        let p = &self.pairs[pair as usize];
        let clocks = self.clocks(cx, pair);
        let (Some(after), true) = (clocks.keepalive, p.open[end] == made) else { return };
        let Some(host) = self.host_at(cx, pair, end) else { return };
        let (due, since, end) = (p.heard[end] + after, cx.now, end as u8);
        if due > since {
            return cx.at(due, MessageEvent(What::Idle { pair, end, made }));
        }
        let limit = connect_timeout(&cx.hosts[host.0 as usize].node, clocks.timeout);
        // The probe and its answer; the transport repeats both until the time is over.
        let (there, back) =
            (self.way(cx, pair, end.into()), self.way(cx, pair, 1 - usize::from(end)));
        let answered = !there.blocked && !back.blocked && p.open[1 - usize::from(end)] == made;
        let wait = if answered { (there.latency + back.latency).min(limit) } else { limit };
        cx.at(since + wait, MessageEvent(What::Unanswered { pair, end, made, since }));
    }

    /// A probe was answered, or the connection ends.
    pub(super) fn unanswered(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
        made: u32,
        since: Instant,
    ) {
        let p = &self.pairs[pair as usize];
        if p.open[end] != made {
            return;
        }
        let passes = !self.way(cx, pair, end).blocked && !self.way(cx, pair, 1 - end).blocked;
        let answered =
            passes && p.open[1 - end] == made && self.host_at(cx, pair, 1 - end).is_some();
        if !answered && p.heard[end] <= since {
            return self.close(cx, pair, end, Why::SendTimeout);
        }
        if answered {
            self.pairs[pair as usize].heard = [cx.now; 2];
        }
        let after = self.clocks(cx, pair).keepalive.unwrap_or(Duration::MAX);
        cx.at(cx.now + after, MessageEvent(What::Idle { pair, end: end as u8, made }));
    }

    /// Networks stand still: those of transport gni hold what is to be sent.
    pub(super) fn suspend(&mut self, cx: &mut Cx<'_, MessageEvent>, nets: &[u16]) {
        for net in nets {
            if cx.links.transport((*net).into()) != Transport::Gni
                || self.suspended.contains_key(net)
            {
                continue;
            }
            self.suspended.insert(*net, cx.now);
            let Some(limit) = cx.links.clocks(*net).timeout else { continue };
            for pair in self.pairs_on(cx, *net) {
                let (made, since) = (self.pairs[pair as usize].made, cx.now);
                cx.at(since + limit, MessageEvent(What::Suspended { pair, made, since }));
            }
        }
    }

    /// A quiesce has taken as long as a transmission may.
    pub(super) fn still_suspended(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        made: u32,
        since: Instant,
    ) {
        if self.suspended.get(&self.net_of(cx, pair)) != Some(&since) {
            return;
        }
        for end in 0..2 {
            if made != 0 && self.pairs[pair as usize].open[end] == made {
                self.close(cx, pair, end, Why::SendTimeout);
            }
        }
    }

    /// Networks go on: what was held leaves, in order.
    pub(super) fn resume_nets(&mut self, cx: &mut Cx<'_, MessageEvent>, nets: &[u16]) {
        for net in nets {
            if cx.links.is_quiet(*net) || self.suspended.remove(net).is_none() {
                continue;
            }
            for pair in self.pairs_on(cx, *net) {
                for dir in 0..2 {
                    let made = self.pairs[pair as usize].open[dir];
                    self.retry(cx, pair, dir, made);
                    self.pump(cx, pair, dir);
                }
            }
            if cx.links.clocks(*net).fast_reconnect {
                self.reconnect(cx, *net);
            }
        }
    }

    /// Each node of a network connects to those of its gateways that it has no connection to.
    fn reconnect(&mut self, cx: &mut Cx<'_, MessageEvent>, net: u16) {
        for id in (0..cx.hosts.len() as u32).map(HostId) {
            let host = &cx.hosts[id.0 as usize];
            if !host.is_running() {
                continue;
            }
            let own = |rail: &RailIx| cx.directory.rail(*rail).net == net;
            let Some(from) = host.rails.iter().map(|rail| rail.ix).find(own) else { continue };
            let mut gateways: Vec<Nid> =
                host.node.route_views().into_iter().map(|route| route.gateway).collect();
            gateways.sort_unstable();
            gateways.dedup();
            for gateway in gateways {
                let Some(to) = cx.directory.find(gateway) else { continue };
                if cx.directory.rail(to).net != net {
                    continue;
                }
                let (pair, end) = self.pair(from, to);
                if self.pairs[pair as usize].open[end] == 0 {
                    let dial = &mut self.pairs[pair as usize].dial[end];
                    // An attempt from the quiesce would be made again too late.
                    (dial.trying, dial.not_before) = (false, Instant::ZERO);
                    dial.backoff = Duration::ZERO;
                    // It is not too soon.
                    let _ = self.want(cx, pair, end);
                }
            }
        }
    }

    /// A rail goes with its node; others of its network get the report when the fabric has found out.
    pub(super) fn schedule_report(&self, cx: &mut Cx<'_, MessageEvent>, rail: RailIx) {
        let net = cx.directory.rail(rail).net;
        if let Some(after) = cx.links.clocks(net).node_events {
            let at = cx.now;
            cx.at(at + after, MessageEvent(What::Death { rail, at }));
        }
    }

    /// The fabric reports a dead node, if it is still dead.
    pub(super) fn report_death(&self, cx: &mut Cx<'_, MessageEvent>, rail: RailIx, at: Instant) {
        let info = *cx.directory.rail(rail);
        if info.present && info.host.is_some_and(|host| cx.hosts[host.0 as usize].alive) {
            return;
        }
        for id in (0..cx.hosts.len() as u32).map(HostId) {
            let host = &cx.hosts[id.0 as usize];
            let is_there = host.rails.iter().any(|r| cx.directory.rail(r.ix).net == info.net);
            if host.is_running() && is_there {
                report(cx, id, info.nid, false, at);
            }
        }
    }
}

/// A node is notified of another one.
fn report(cx: &mut Cx<'_, MessageEvent>, id: HostId, nid: Nid, up: bool, when: Instant) {
    let now = cx.now;
    let host = cx.host(id);
    let (now, when) = (host.clock.local(now), host.clock.local(when));
    // A node that is shutting down takes no notice.
    let _ = host.node.notify(now, nid, up, when);
}

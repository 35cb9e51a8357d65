//! Attempts to connect, as TCP makes them: asked again after 1, 2, 4 … seconds, refused, answered,
//! or given up; and the driver's patience between them (K-15).

use core::time::Duration;
use std::collections::VecDeque;

use lnet_types::{Errno, Fault, HealthStatus, Instant};

use super::{MessageEvent, Messages, What};
use crate::fabric::Cx;
use crate::host::connect_timeout;
use crate::travel::draw;

const RECONNECT_MIN: Duration = Duration::from_secs(1);
const RECONNECT_MAX: Duration = Duration::from_secs(60);
/// The first wait for an answer.
const SYN_WAIT: Duration = Duration::from_secs(1);

/// No connection, and too soon for another attempt (K-15).
const TOO_SOON: Fault = Fault::new(HealthStatus::RemoteError, Errno::EIO);
/// The same where rails are looked after: nothing was sent, so that another one may be tried.
const NOT_YET: Fault = Fault::new(HealthStatus::RemoteDropped, Errno::EIO);

/// The fate of messages that waited for an attempt that failed (K-40).
const fn connect_fault(errno: Errno) -> Fault {
    let status = match errno {
        Errno::ETIMEDOUT => HealthStatus::NetworkTimeout,
        _ => HealthStatus::RemoteDropped,
    };
    Fault::new(status, errno)
}

impl Messages {
    /// An end needs a connection.
    ///
    /// # Errors
    /// The last attempt has failed, and it is too soon for another one.
    pub(super) fn want(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
    ) -> Result<(), Fault> {
        let dial = &self.pairs[pair as usize].dial[end];
        if dial.trying {
            return Ok(());
        }
        if cx.now < dial.not_before {
            return Err(if self.looks_after_rails(cx, pair, end) { NOT_YET } else { TOO_SOON });
        }
        let clock = self.clocks(cx, pair).timeout;
        let limit = self
            .host_at(cx, pair, end)
            .map_or(Duration::MAX, |host| connect_timeout(&cx.hosts[host.0 as usize].node, clock));
        let dial = &mut self.pairs[pair as usize].dial[end];
        dial.trying = true;
        dial.attempt += 1;
        let (attempt, end) = (dial.attempt, end as u8);
        let errno = Errno::ETIMEDOUT;
        cx.at(cx.now + limit, MessageEvent(What::Failed { pair, end, attempt, errno }));
        cx.at(cx.now, MessageEvent(What::Syn { pair, end, attempt, wait: SYN_WAIT }));
        self.pairs[pair as usize].dial[usize::from(end)].since = cx.now;
        self.watch(cx, pair, usize::from(end));
        Ok(())
    }

    /// The own link is back: the next attempt need not wait, where rails are looked after.
    pub(super) fn hasten(&mut self, cx: &mut Cx<'_, MessageEvent>, pair: u32, end: usize) {
        if self.looks_after_rails(cx, pair, end) {
            let dial = &mut self.pairs[pair as usize].dial[end];
            (dial.not_before, dial.backoff) = (Instant::ZERO, Duration::ZERO);
            self.look(cx, pair, end);
        }
    }

    fn looks_after_rails(&self, cx: &Cx<'_, MessageEvent>, pair: u32, end: usize) -> bool {
        self.host_at(cx, pair, end).is_some_and(|host| {
            let host = &cx.hosts[host.0 as usize];
            host.node.tunables().rail_suspicion != 0
        })
    }

    /// Whether the process at the other end has died, and its kernel refuses connections.
    fn is_reset(&self, cx: &Cx<'_, MessageEvent>, pair: u32, end: usize) -> bool {
        let rail = cx.directory.rail(self.pairs[pair as usize].ends[1 - end]);
        rail.host.map(|host| &cx.hosts[host.0 as usize]).is_some_and(|h| !h.alive && h.resets)
    }

    fn is_trying(&self, pair: u32, end: usize, attempt: u32) -> bool {
        let dial = &self.pairs[pair as usize].dial[end];
        dial.trying && dial.attempt == attempt
    }

    pub(super) fn syn(
        &self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
        attempt: u32,
        wait: Duration,
    ) {
        if !self.is_trying(pair, end, attempt) {
            return;
        }
        let (there, back) = (self.way(cx, pair, end), self.way(cx, pair, 1 - end));
        let round = there.latency + back.latency;
        let end = end as u8;
        if there.blocked || back.blocked {
            let again = What::Syn { pair, end, attempt, wait: wait * 2 };
            cx.at(cx.now + wait, MessageEvent(again));
        } else if there.refused || back.refused || self.is_reset(cx, pair, usize::from(end)) {
            let errno = Errno::ECONNREFUSED;
            cx.at(cx.now + round, MessageEvent(What::Failed { pair, end, attempt, errno }));
        } else {
            // The transport's round, and that of the HELLOs.
            let at = cx.now + round * 2 + draw(cx.rng, there.jitter + back.jitter);
            cx.at(at, MessageEvent(What::Up { pair, end, attempt }));
        }
    }

    pub(super) fn up(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
        attempt: u32,
    ) {
        if !self.is_trying(pair, end, attempt) {
            return;
        }
        let (there, back) = (self.way(cx, pair, end), self.way(cx, pair, 1 - end));
        let refused = there.refused || back.refused || self.is_reset(cx, pair, end);
        if there.blocked || back.blocked || refused {
            return self.syn(cx, pair, end, attempt, SYN_WAIT);
        }
        for end in 0..2 {
            // An older connection makes room: what was written to it is lost, the rest goes over
            // this one.
            if self.pairs[pair as usize].open[end] != 0 {
                self.hand_back(cx, pair, end);
                self.forget(cx, pair, end);
                self.report_lost(cx, pair, end);
            }
        }
        let p = &mut self.pairs[pair as usize];
        p.made += 1;
        p.open = [p.made; 2];
        p.heard = [cx.now; 2];
        for (dial, dir) in p.dial.iter_mut().zip(&mut p.dirs) {
            (dial.trying, dial.not_before, dial.backoff) = (false, Instant::ZERO, Duration::ZERO);
            dir.unread = 0;
        }
        self.connected(cx, pair);
        (0..2).for_each(|end| self.look(cx, pair, end));
        self.pump(cx, pair, 0);
        self.pump(cx, pair, 1);
    }

    pub(super) fn failed(
        &mut self,
        cx: &mut Cx<'_, MessageEvent>,
        pair: u32,
        end: usize,
        attempt: u32,
        errno: Errno,
    ) {
        if !self.is_trying(pair, end, attempt) {
            return;
        }
        if self.is_paused(cx, pair, end) {
            let again = What::Failed { pair, end: end as u8, attempt, errno };
            return cx.at(cx.now + SYN_WAIT, MessageEvent(again));
        }
        // The attempts have had their time, which may not be all that each message has.
        let patient = errno == Errno::ETIMEDOUT && self.looks_after_rails(cx, pair, end);
        let p = &mut self.pairs[pair as usize];
        let dial = &mut p.dial[end];
        dial.trying = false;
        dial.backoff = (dial.backoff * 2).clamp(RECONNECT_MIN, RECONNECT_MAX);
        dial.not_before = cx.now + dial.backoff;
        // As if it had been open: its node gets the report that there is no connection.
        p.open[end] = 0;
        self.look(cx, pair, end);
        let p = &mut self.pairs[pair as usize];
        let (nid, heard, rail) =
            (cx.directory.rail(p.ends[1 - end]).nid, p.heard[end], p.ends[end]);
        let parcels = &self.parcels;
        let (kept, late): (VecDeque<_>, VecDeque<_>) = core::mem::take(&mut p.dirs[end].queue)
            .into_iter()
            .partition(|x| patient && parcels[*x].deadline > cx.now);
        let wanted = !kept.is_empty();
        let was_wanted = wanted || !late.is_empty();
        p.dirs[end].queue = kept;
        if was_wanted && self.looks_after_rails(cx, pair, end) {
            self.doubt(cx, pair, end);
        }
        self.give_back(cx, pair, end, late, connect_fault(errno));
        if wanted {
            self.hasten(cx, pair, end);
            // It is not too soon.
            let _ = self.want(cx, pair, end);
        }
        if let Some(host) = self.host_at(cx, pair, end) {
            let now = cx.now;
            let host = cx.host(host);
            if let Some(ni) = host.ni_of(rail) {
                let (now, heard) = (host.clock.local(now), host.clock.local(heard));
                host.node.peer_down(now, ni, nid, heard);
            }
        }
    }
}

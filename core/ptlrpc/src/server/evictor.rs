//! The ping evictor: clients that were silent for too long are dropped, so that nothing waits for the
//! dead. By the rule of `Evictor::Own` a timer runs (DEC-20); by the kernel's, a request of one client
//! looks after the others, so that a net without any traffic evicts no client (P-134, P-135).
//!
//! A request only moves the deadline in its export. The list by deadline follows when the old one has
//! come, so that an idle client costs one look in a whole term of silence, however often it pings.

use core::time::Duration;
use std::collections::BTreeSet;

use lnet_types::Instant;
use lustre_wire::{Body, ConnectData, ConnectFlags, Opcode};

use super::Server;
use super::export::Export;
use super::service::Origin;
use crate::common::Cx;
use crate::estimate::timeout_of;
use crate::event::EvictReason;
use crate::table::{ExportId, Table, TargetId};
use crate::timers::Timer;
use crate::tunables::{Evictor, Tunables};

/// A deadline that would move by less than this stays (P-134).
const STEP: Duration = Duration::from_secs(2);

/// What an export knows of its eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    /// Silent until then, it is evicted.
    at: Instant,
    /// Where it stands in the list: at a deadline that it had.
    listed: Instant,
}

impl Deadline {
    /// When it passes.
    pub(crate) const fn at(self) -> Instant {
        self.at
    }
}

/// The clients of one target that must be heard of.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    listed: BTreeSet<(Instant, ExportId)>,
    /// The last request of any client: when it came, and the deadline that it gave.
    newest: Option<(Instant, Instant)>,
    /// When silence is believed after a time without traffic (P-135).
    second: Option<Instant>,
}

impl Watch {
    /// A client must be heard of until `at`.
    fn add(&mut self, id: ExportId, export: &mut Export, at: Instant) {
        self.remove(id, export);
        self.listed.insert((at, id));
        export.deadline = Some(Deadline { at, listed: at });
    }

    fn remove(&mut self, id: ExportId, export: &mut Export) {
        if let Some(deadline) = export.deadline.take() {
            self.listed.remove(&(deadline.listed, id));
        }
    }

    /// The first of the clients that have been silent until their deadline. Each look at one that was
    /// heard of since it was listed is counted.
    fn overdue(
        &mut self,
        now: Instant,
        exports: &mut Table<ExportId, Export>,
        looks: &mut u64,
    ) -> Option<ExportId> {
        while let Some((listed, id)) = self.listed.first().copied().filter(|(at, _)| *at <= now) {
            let deadline = exports.get_mut(id).and_then(|export| export.deadline.as_mut());
            match deadline {
                Some(deadline) if deadline.at > now => {
                    *looks += 1;
                    self.listed.remove(&(listed, id));
                    self.listed.insert((deadline.at, id));
                    deadline.listed = deadline.at;
                }
                Some(_) => return Some(id),
                None => {
                    self.listed.remove(&(listed, id));
                }
            }
        }
        None
    }

    /// Whether the silent are to be evicted, at a request that moved the last deadline to `newest`
    /// (P-135).
    fn believes(
        &mut self,
        now: Instant,
        newest: Option<(Instant, Instant)>,
        net: Duration,
        t: &Tunables,
    ) -> bool {
        if let Some(second) = self.second {
            return now >= second;
        }
        // Another client was heard of lately: the net works.
        let fresh = newest.is_some_and(|(at, until)| now < at + until.saturating_since(at) / 2);
        if !fresh {
            self.second = Some(now + second_timer(net, t));
        }
        fresh
    }
}

/// How long after its last request a client is evicted by the kernel's rule (P-134), if its requests
/// are estimated to take `service`, and the way to it `net`.
fn term(service: Duration, net: Duration, t: &Tunables) -> Duration {
    if t.at_max.is_zero() {
        return t.obd_timeout / 2;
    }
    let whole = t.ping_interval * 2 + timeout_of(service) + net + t.initial_connect() + net;
    sixteenth_more(whole).max(t.ldlm_enqueue_min)
}

/// The second look after a time without traffic (P-135), at a client with such a way to it.
fn second_timer(net: Duration, t: &Tunables) -> Duration {
    sixteenth_more((t.initial_connect() + net.max(Duration::from_secs(50))) * 3)
}

fn sixteenth_more(time: Duration) -> Duration {
    time + Duration::from_secs(time.as_secs() / 16)
}

/// Whether a client pings, and so can be missed (P-134). What it asks for alone decides nothing: the
/// target must have granted it.
fn pings(granted: &ConnectData, connect: &Body, evictor: Evictor) -> bool {
    let quiet = ConnectFlags::PINGLESS | ConnectFlags::MDS_MDS;
    let mgs = evictor == Evictor::Kernel && connect.opcode == Opcode::MGS_CONNECT;
    !granted.flags.intersects(quiet) && !mgs
}

impl Server {
    /// A client has connected: it must be heard of from now on.
    pub(super) fn watch(&mut self, cx: &mut Cx<'_, '_>, id: ExportId, connect: &Body) {
        let now = cx.below.now();
        let tunables = &cx.common.tunables;
        let Some(export) = self.exports.get_mut(id) else { return };
        let watch = self.watches.entry(export.target).or_default();
        if !pings(&export.granted, connect, tunables.evictor) {
            return watch.remove(id, export);
        }
        let at = match tunables.evictor {
            Evictor::Own => now + tunables.evict_after(),
            Evictor::Kernel => now + tunables.ping_interval * 6,
        };
        let at = export.deadline.map_or(at, |before| before.at.max(at));
        watch.add(id, export, at);
        self.next_look(cx);
    }

    /// A client is gone.
    pub(super) fn unwatch(&mut self, id: ExportId, export: &mut Export) {
        if let Some(watch) = self.watches.get_mut(&export.target) {
            watch.remove(id, export);
        }
    }

    /// A request of a client has arrived.
    pub(super) fn heard_of(&mut self, cx: &mut Cx<'_, '_>, id: ExportId, origin: &Origin) {
        let now = cx.below.now();
        let tunables = &cx.common.tunables;
        let Some(export) = self.exports.get_mut(id) else { return };
        export.heard = now;
        let target = export.target;
        let Some(deadline) = &mut export.deadline else { return };
        match tunables.evictor {
            Evictor::Own => deadline.at = deadline.at.max(now + tunables.evict_after()),
            Evictor::Kernel => {
                let bounds = tunables.bounds();
                let service = self.services.get(origin.service);
                let service = service.map_or(bounds.min, |s| s.estimate.get(&bounds));
                let at = now + term(service, export.net.max(bounds.min), tunables);
                if at >= deadline.at + STEP {
                    deadline.at = at;
                }
                let heard = (now, deadline.at);
                let Some(watch) = self.watches.get_mut(&target) else { return };
                let newest = watch.newest.replace(heard);
                self.look(cx, target, newest);
            }
        }
    }

    /// The kernel's look after the others, at a request (P-135).
    fn look(&mut self, cx: &mut Cx<'_, '_>, target: TargetId, newest: Option<(Instant, Instant)>) {
        let now = cx.below.now();
        if self.recovers(target) {
            return;
        }
        let Some(watch) = self.watches.get_mut(&target) else { return };
        let looks = &mut self.stats.evictor_looks;
        let Some(first) = watch.overdue(now, &mut self.exports, looks) else {
            watch.second = watch.second.filter(|second| now < *second);
            return;
        };
        let tunables = &cx.common.tunables;
        let net = self.exports.get(first).map_or(Duration::ZERO, |export| export.net);
        if watch.believes(now, newest, net.max(tunables.at_min), tunables) {
            watch.second = None;
            while let Some(id) = self.overdue(now, target) {
                self.evict(cx, id, EvictReason::Silent);
            }
        }
    }

    fn overdue(&mut self, now: Instant, target: TargetId) -> Option<ExportId> {
        let watch = self.watches.get_mut(&target)?;
        watch.overdue(now, &mut self.exports, &mut self.stats.evictor_looks)
    }

    /// The timer of our own rule (DEC-20, DEC-42).
    pub(crate) fn silence_due(&mut self, cx: &mut Cx<'_, '_>) {
        if cx.common.tunables.evictor == Evictor::Kernel {
            return;
        }
        let now = cx.below.now();
        let targets: Vec<_> = self.watches.keys().copied().collect();
        for target in targets {
            let recovers = self.recovers(target);
            while let Some(id) = self.overdue(now, target) {
                let Some(export) = self.exports.get_mut(id) else { break };
                let later = if recovers {
                    // P-135: the recovery evicts silent clients itself.
                    Some(cx.common.tunables.evict_after())
                } else {
                    // It waits for us, and not we for it.
                    let waits = !export.in_work.is_empty();
                    waits.then_some(cx.common.tunables.ping_interval)
                };
                match (later, self.watches.get_mut(&target)) {
                    (Some(later), Some(watch)) => watch.add(id, export, now + later),
                    _ => self.evict(cx, id, EvictReason::Silent),
                }
            }
        }
        self.next_look(cx);
    }

    fn next_look(&self, cx: &mut Cx<'_, '_>) {
        if cx.common.tunables.evictor == Evictor::Kernel {
            return;
        }
        let firsts = self.watches.values().filter_map(|watch| watch.listed.first());
        if let Some(at) = firsts.map(|(at, _)| *at).min() {
            cx.common.timers.set(Timer::Silence, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn the_term_of_silence_adapts_and_has_a_floor() {
        // P-134: the floor with defaults; 190 s and a sixteenth with at_min 40; no adaptive time-outs.
        let t = Tunables::default();
        assert_eq!(term(secs(5), secs(5), &t), secs(100));
        assert_eq!(term(secs(40), secs(40), &t), secs(201));
        let without = Tunables { at_max: Duration::ZERO, ..Tunables::default() };
        assert_eq!(term(secs(5), secs(5), &without), secs(50));
        assert_eq!(second_timer(secs(5), &t), secs(175));
        assert_eq!(second_timer(secs(75), &t), secs(255));
    }

    #[test]
    fn clients_that_are_not_to_ping_are_not_missed() {
        let granted = |flags| ConnectData { flags, ..ConnectData::default() };
        let (none, mgs) = (ConnectFlags::empty(), Opcode::MGS_CONNECT);
        let rows = [
            (none, Opcode::OST_CONNECT, Evictor::Kernel, true),
            (none, mgs, Evictor::Kernel, false),
            (none, mgs, Evictor::Own, true),
            (ConnectFlags::PINGLESS, Opcode::OST_CONNECT, Evictor::Own, false),
            (ConnectFlags::MDS_MDS, Opcode::MDS_CONNECT, Evictor::Kernel, false),
        ];
        for (flags, opcode, evictor, expected) in rows {
            let connect = Body { opcode, ..Body::default() };
            assert_eq!(pings(&granted(flags), &connect, evictor), expected, "{opcode} {evictor:?}");
        }
    }

    #[test]
    fn a_client_that_pings_costs_one_look_in_a_term_of_silence() {
        let (mut watch, mut exports) = (Watch::default(), Table::default());
        let start = Instant::from_secs(1000);
        let mut ids = Vec::new();
        for n in 0..5000u64 {
            let export = Export::new(TargetId::from(0), n + 1, String::new(), start);
            let id = exports.insert(export);
            watch.add(id, exports.get_mut(id).unwrap(), start + secs(n % 150 + 1));
            ids.push(id);
        }
        let mut looks = 0;
        for second in 0..1500u64 {
            let now = start + secs(second);
            // Those whose turn it is ping, each in 25 s.
            for id in ids.iter().skip((second % 25) as usize).step_by(25) {
                exports.get_mut(*id).unwrap().deadline.as_mut().unwrap().at = now + secs(150);
            }
            assert_eq!(watch.overdue(now, &mut exports, &mut looks), None);
        }
        // 1500 s are ten terms, and 60 pings of each.
        assert!(looks <= 5000 * 13, "{looks} looks");
        for id in ids {
            watch.remove(id, exports.get_mut(id).unwrap());
        }
        assert!(watch.listed.is_empty(), "each stood in the list once");
    }

    #[test]
    fn silence_is_believed_when_another_client_was_heard_of_lately() {
        let t = Tunables::default();
        let at = Instant::from_secs(1000);
        let newest = Some((at, at + secs(100)));
        let believes =
            |watch: &mut Watch, after| watch.believes(at + secs(after), newest, secs(5), &t);
        assert!(believes(&mut Watch::default(), 49));
        // Half of its term is over: the net may have been away.
        let mut watch = Watch::default();
        assert!(!believes(&mut watch, 50));
        assert!(!believes(&mut watch, 51) && !believes(&mut watch, 50 + 174));
        assert!(believes(&mut watch, 50 + 175));
    }
}

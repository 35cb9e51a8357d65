//! What the requirement documents promise, with their figures. Each test names the ids that it
//! shows; docs/requirements.md lists them. The profile is `documents` wherever the letter of a
//! document is at stake, `default` elsewhere; a ruling that bends an acceptance is cited as DEC-n.

mod discovery;
mod ends;
mod failover;
mod flapping;
mod health;
mod notices;
mod recovery;
mod routers;
mod selection;
mod send;
mod stats;
mod table;
mod timeout;
mod usage;

use core::time::Duration;

use lnet_types::{Errno, Fault, HealthStatus, Instant, MsgId, NiId};
use lnet_wire::{Hdr, Kind, MsgType};

use super::world::{Fate, PT, World, nid};
use crate::{EventKind, InterfaceStats, NetTunables, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

const MS: Duration = Duration::from_millis(1);

/// Two nodes of the given NIDs that have discovered each other.
fn nodes(profile: Profile, a: &[&str], b: &[&str]) -> World {
    let mut w = World::new();
    w.host(profile, a);
    w.host(profile, b);
    w.discovered(0, b[0]);
    w
}

fn pair(profile: Profile) -> World {
    nodes(profile, &A, &B)
}

fn set(w: &mut World, host: usize, settings: &[(&str, i64)]) {
    let now = w.now;
    w.hosts[host].node.set_tunables(now, settings).unwrap();
}

fn fault(status: HealthStatus) -> Fault {
    Fault::new(status, Errno::EIO)
}

/// A PUT or GET of a test, as against pings and pushes.
fn is_request(hdr: &Hdr) -> bool {
    matches!(hdr.kind, Kind::Put { portal: PT, .. } | Kind::Get { portal: PT, .. })
}

/// The first `n` requests of tests fail so; everything else passes.
fn fail_first(w: &mut World, n: usize, with: Fault) {
    let mut left = n;
    w.decide = Box::new(move |t| {
        if is_request(&t.hdr) && left > 0 {
            left -= 1;
            Fate::Fail(with)
        } else {
            Fate::Pass
        }
    });
}

/// Requests of tests to any of these NIDs fail so, and their pings too; everything else passes.
fn fail_to(w: &mut World, dead: &[&str], with: Fault) {
    let dead: Vec<_> = dead.iter().map(|n| nid(n)).collect();
    w.decide =
        Box::new(move |t| if dead.contains(&t.hdr.dst) { Fate::Fail(with) } else { Fate::Pass });
}

/// Messages of this type are lost on the way.
fn lose(w: &mut World, lost: MsgType) {
    w.decide =
        Box::new(move |t| if t.hdr.kind.msg_type() == lost { Fate::Lose } else { Fate::Pass });
}

fn ni(w: &World, host: usize, n: &str) -> NiId {
    *w.hosts[host].nids.iter().find(|(_, x)| **x == nid(n)).unwrap().0
}

/// Counters of an interface of `host`.
fn ni_stats(w: &World, host: usize, n: &str) -> InterfaceStats {
    let views = w.hosts[host].node.net_views();
    views.iter().flat_map(|v| &v.nis).find(|v| v.nid == nid(n)).unwrap().stats
}

/// Counters that `host` keeps for an interface of a peer.
fn peer_stats(w: &World, host: usize, n: &str) -> InterfaceStats {
    let v = w.hosts[host].node.peer_view_of(nid(n)).unwrap();
    v.nis.iter().find(|v| v.nid == nid(n)).unwrap().stats
}

/// How many PUTs and GETs `host` has had delivered by the events of its test buffer.
fn delivered(w: &World, host: usize, kind: EventKind) -> usize {
    w.hosts[host].events.iter().filter(|e| e.user == 99 && e.kind == kind).count()
}

/// From now on requests stay in the driver, which ends each as `status` when the time limit is over
/// that it was given: call [`Stalled::run`] instead of [`World::run`].
struct Stalled {
    status: HealthStatus,
    taken: Vec<(Instant, usize, MsgId)>,
    /// The limits that were handed over, in order.
    limits: Vec<Duration>,
}

impl Stalled {
    fn new(w: &mut World, status: HealthStatus) -> Self {
        w.decide = Box::new(|t| if is_request(&t.hdr) { Fate::Hold } else { Fate::Pass });
        Self { status, taken: Vec::new(), limits: Vec::new() }
    }

    /// Lets `d` pass in steps of a millisecond.
    fn run(&mut self, w: &mut World, d: Duration) {
        let end = w.now + d;
        loop {
            // Whatever has no time at all ends without time passing.
            loop {
                w.drain();
                while let Some((host, t)) = w.held.pop_front() {
                    self.limits.push(t.timeout);
                    self.taken.push((w.now + t.timeout, host, t.msg));
                }
                let now = w.now;
                let due = self.taken.iter().position(|(at, ..)| *at <= now);
                let Some((_, host, msg)) = due.map(|i| self.taken.remove(i)) else { break };
                w.hosts[host].node.tx_done(
                    now,
                    msg,
                    Err(Fault::new(self.status, Errno::ETIMEDOUT)),
                );
            }
            if w.now >= end {
                return;
            }
            w.run(MS);
        }
    }
}

//! The discovery machine, every phase × every event (D-11 … D-16, D-30 … D-38, D-50 … D-54): where
//! it is afterwards, and the outcomes that its callers got.
//!
//! Two nodes that know each other; in the first one the peer is brought into a phase, and then
//! something happens. What the machine sends stays in the driver until an event says otherwise.

use core::cell::Cell;
use std::rc::Rc;

use lnet_types::{Errno, Fault, HealthStatus, Pid};
use lnet_wire::{Handle, Hdr, Kind};

use super::world::{Fate, World, nid};
use crate::peer::cause::Cause;
use crate::{NetTunables, Profile};

const A: [&str; 2] = ["10.77.0.2@tcp", "10.77.1.2@tcp"];
/// And one that it gets.
const OURS: [&str; 3] = [A[0], A[1], "10.77.2.2@tcp"];
const B: [&str; 2] = ["10.77.0.3@tcp", "10.77.1.3@tcp"];

#[derive(Clone, Copy, Debug)]
enum Phase {
    Idle,
    Due,
    Pinging,
    Pushing,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A caller requests discovery, whatever is known.
    Asked,
    /// What was sent arrives, and so do the answers.
    Answered,
    /// It cannot be sent.
    Unsendable,
    /// It is sent, and nothing ever comes, for 200 s.
    Silence,
    /// The peer pushes: it has a new interface.
    Pushed,
    /// An answer to something that was asked long ago.
    Stale,
    /// A message for the peer is sent.
    Used,
    /// Discovery is switched off.
    Off,
    /// The peer is deleted.
    Deleted,
}

const EVENTS: [Event; 9] = [
    Event::Asked,
    Event::Answered,
    Event::Unsendable,
    Event::Silence,
    Event::Pushed,
    Event::Stale,
    Event::Used,
    Event::Off,
    Event::Deleted,
];

/// What happens to messages of the first node.
#[derive(Clone, Copy)]
enum Wire {
    Holds,
    Passes,
    Loses,
}

struct Bench {
    w: World,
    wire: Rc<Cell<Wire>>,
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let mut w = World::new();
        w.host(profile, &A);
        w.host(profile, &B);
        w.discovered(0, B[0]);
        let wire = Rc::new(Cell::new(Wire::Holds));
        let now = Rc::clone(&wire);
        w.decide = Box::new(move |t| match now.get() {
            _ if !OURS.iter().any(|a| nid(a) == t.hdr.src) => Fate::Pass,
            _ if matches!(t.hdr.kind, Kind::Ack { .. } | Kind::Reply { .. }) => Fate::Pass,
            Wire::Holds => Fate::Hold,
            Wire::Passes => Fate::Pass,
            Wire::Loses => Fate::Lose,
        });
        Self { w, wire }
    }

    fn bring(&mut self, phase: Phase) {
        let w = &mut self.w;
        match phase {
            Phase::Idle => {}
            Phase::Due => {
                let now = w.now;
                let node = &mut w.hosts[0].node;
                let id = node.peers.owner(nid(B[0])).unwrap();
                node.query(now, id, Cause::Unreadable);
            }
            Phase::Pinging => {
                w.hosts[0].node.discover(w.now, nid(B[0]), true);
            }
            Phase::Pushing => {
                w.add_ni(0, OURS[2], NetTunables::SOCK);
            }
        }
        if !matches!(phase, Phase::Due) {
            w.drain();
        }
    }

    fn happen(&mut self, event: Event) {
        let w = &mut self.w;
        let now = w.now;
        match event {
            Event::Asked => {
                w.hosts[0].node.discover(now, nid(B[0]), true);
            }
            Event::Answered => {
                self.wire.set(Wire::Passes);
                while !w.held.is_empty() {
                    w.release();
                }
                w.secs(1);
            }
            Event::Unsendable => {
                let fault = Fault::new(HealthStatus::LocalError, Errno::ENOMEM);
                while let Some((_, t)) = w.held.pop_front() {
                    w.hosts[0].node.tx_done(now, t.msg, Err(fault));
                }
            }
            Event::Silence => {
                self.wire.set(Wire::Loses);
                while let Some((_, t)) = w.held.pop_front() {
                    w.hosts[0].node.tx_done(now, t.msg, Ok(()));
                }
                w.secs(200);
            }
            Event::Pushed => {
                w.add_ni(1, "10.77.2.3@tcp", NetTunables::SOCK);
                w.secs(1);
            }
            Event::Stale => {
                let hdr = Hdr {
                    dst: nid(A[0]),
                    src: nid(B[0]),
                    dst_pid: Pid::LUSTRE,
                    src_pid: Pid::LUSTRE,
                    payload_len: 0,
                    kind: Kind::Reply { dst: Handle { interface: 1, object: 2 }, pad: [0; 24] },
                };
                w.inject(0, nid(B[0]), &hdr, &[]);
            }
            Event::Used => w.put(0, B[0], 7, true),
            Event::Off => w.hosts[0].node.set_tunables(now, &[("discovery", 0)]).unwrap(),
            Event::Deleted => w.hosts[0].node.peer_del(now, nid(B[0]), &[], false).unwrap(),
        }
        // What is due is done, whatever the event was.
        self.w.hosts[0].node.handle_timeout(self.w.now);
        self.w.drain();
    }

    /// Phase, number of interfaces known, and what was reported.
    fn state(&self) -> String {
        let host = &self.w.hosts[0];
        let peers = &host.node.peers;
        let peer = peers.owner(nid(B[0])).and_then(|id| peers.peers.get(id));
        let phase = peer.map_or("gone", |peer| match &peer.disc {
            disc if disc.learn.in_flight().is_some() => "pinging",
            disc if disc.teach.in_flight().is_some() => "pushing",
            disc if disc.is_running => "due",
            _ => "idle",
        });
        let outcomes: Vec<String> = host
            .reports
            .iter()
            .map(|r| r.outcome.as_ref().map_or_else(ToString::to_string, |_| "found".to_owned()))
            .collect();
        let nids = peer.map_or(0, |peer| peer.ni_count());
        format!("{phase} {nids} {}", outcomes.join(",")).trim_end().to_owned()
    }
}

/// Phase afterwards, how many interfaces of the peer are known, and the outcomes of callers; by
/// columns as in `EVENTS`. `Pushed` differs: kernel nodes believe a push at once, ours asks the new
/// interface first, and that question stays in the driver here.
const TABLE: [(Phase, [&str; 9]); 4] = [
    (
        Phase::Idle,
        [
            "pinging 2",
            "idle 2",
            "idle 2",
            "idle 2",
            "idle 2",
            "idle 2",
            "idle 2",
            "pushing 2",
            "gone 0",
        ],
    ),
    (
        Phase::Due,
        [
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "gone 0",
        ],
    ),
    (
        Phase::Pinging,
        [
            "pinging 2",
            "idle 2 found",
            "idle 2 Cannot allocate memory",
            "idle 2 Connection timed out",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "pinging 2",
            "gone 0 No such file or directory",
        ],
    ),
    (
        Phase::Pushing,
        [
            "pushing 2",
            "idle 2",
            "idle 2",
            "idle 2",
            "pushing 2",
            "pushing 2",
            "pushing 2",
            "pushing 2",
            "gone 0",
        ],
    ),
];

#[test]
fn each_event_moves_each_phase_of_discovery_as_the_table_says() {
    for profile in [Profile::Default, Profile::Kernel] {
        for (phase, row) in TABLE {
            for (event, expected) in EVENTS.into_iter().zip(row) {
                let mut bench = Bench::new(profile);
                bench.bring(phase);
                bench.happen(event);
                let believed = matches!((profile, event), (Profile::Kernel, Event::Pushed));
                let expected =
                    if believed { expected.replace('2', "3") } else { expected.to_owned() };
                assert_eq!(bench.state(), expected, "{profile:?}, {phase:?}, {event:?}");
            }
        }
    }
}

//! Protocols as values on simulated hosts: the same ones as a real node's stack has.

use core::time::Duration;
use std::sync::Arc;

use lnet::upper::{Below, Upper, UpperId};
use lnet::{Event, EventKind, MatchEntry, MdOptions, MdSpec, Put, Report, Unlink};
use lnet_scenario::Fidelity;
use lnet_sim::{Bounds, Bytes, Fabric, HostId, Messages, Sim, all_checkers};
use lnet_types::{Instant, IoVec, Nid, ProcessId};

const TWO: &str = r#"
name = "two"
duration = "20s"
[[net]]
name = "tcp"
latency = "20ms"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[fault]]
at = "10s"
for = "2s"
kind = "kill"
on = "b"
"#;

const PORTAL: u32 = 60;
const LEN: u32 = 100;

/// Sends a message of this life to `to` once a second, and keeps what others send.
struct Caller {
    life: u32,
    to: Option<Nid>,
    due: Instant,
    discovered: usize,
    heard: Vec<(u8, Instant)>,
}

impl Caller {
    fn post(below: &mut Below<'_>) {
        let spans = IoVec::from([below.alloc(LEN).unwrap()]);
        let once = MdSpec { threshold: Some(1), unlink: Unlink::Auto, ..MdSpec::new(spans, 1) };
        let spec = MdSpec { options: MdOptions::OP_PUT, ..once };
        below.attach(PORTAL, MatchEntry::bits(7), spec).unwrap();
    }

    fn call(&self, to: Nid, below: &mut Below<'_>) {
        let span = below.alloc(LEN).unwrap();
        below.bytes_mut(span).fill(self.life as u8);
        let spec = MdSpec::new(IoVec::from([span]), 2);
        let md = below.bind(MdSpec { threshold: Some(1), unlink: Unlink::Auto, ..spec }).unwrap();
        let put = Put {
            md,
            ack: false,
            src: None,
            target: ProcessId::lustre(to),
            portal: PORTAL,
            match_bits: 7,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        };
        below.put(put).unwrap();
    }
}

impl Upper for Caller {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        let spans = below.payload(event);
        if event.kind == EventKind::Put {
            assert_eq!(event.user, 1);
            // One that was cut off by the death of its sender brings nothing.
            if event.status.is_ok() {
                let bytes = below.bytes(spans[0]);
                assert_eq!((bytes.len(), spans.len()), (LEN as usize, 1));
                self.heard.push((bytes[0], below.now()));
            }
            Self::post(below);
        }
        if event.unlinked {
            spans.iter().for_each(|span| below.free(*span));
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {
        self.discovered += 1;
    }

    fn handle_timeout(&mut self, below: &mut Below<'_>) {
        match (self.due, self.to) {
            (Instant::ZERO, Some(to)) => _ = below.discover(to),
            (Instant::ZERO, None) => (0..4).for_each(|_| Self::post(below)),
            (_, Some(to)) => self.call(to, below),
            (_, None) => {}
        }
        self.due = below.now() + Duration::from_secs(1);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Some(self.due)
    }
}

/// What both have heard: `a` from both lives of `b`, and `b` in its second life.
fn played<F: Fabric>(mut sim: Sim<F>) -> Vec<(u8, Instant)> {
    let nid = |sim: &Sim<F>, n: usize| sim.view().scenario.world.nodes[n].rails[0].nid;
    let (a_nid, b_nid) = (nid(&sim, 0), nid(&sim, 1));
    let stand = |sim: &mut Sim<F>, host, to| {
        let make = move |life| -> Box<dyn Upper> {
            let (due, heard) = (Instant::ZERO, Vec::new());
            Box::new(Caller { life, to, due, discovered: 0, heard })
        };
        sim.stand(HostId(host), Box::new(make)).unwrap()
    };
    // Each host has one that listens, and one that calls the other host's.
    let listens = [stand(&mut sim, 0, None), stand(&mut sim, 1, None)];
    let calls = [stand(&mut sim, 0, Some(b_nid)), stand(&mut sim, 1, Some(a_nid))];
    for checker in all_checkers(&Bounds::for_scenario(sim.view().scenario)) {
        sim.observe(checker);
    }
    let heard = |sim: &mut Sim<F>, host: usize, id: UpperId| {
        sim.with_upper(HostId(host as u32), id, |c: &mut Caller, _| c.heard.clone())
    };
    sim.run_until(Instant::from_secs(9)).unwrap_or_else(|v| panic!("{v}"));
    let early = [heard(&mut sim, 0, listens[0]).unwrap(), heard(&mut sim, 1, listens[1]).unwrap()];
    for early in &early {
        assert!((8..=9).contains(&early.len()), "{early:?}");
        assert!(early.iter().all(|(life, _)| *life == 1), "{early:?}");
    }
    sim.run_until(Instant::from_secs(11)).unwrap_or_else(|v| panic!("{v}"));
    assert_eq!(heard(&mut sim, 1, listens[1]), None, "it is dead");
    sim.run().unwrap_or_else(|v| panic!("{v}"));
    for (host, id) in [(HostId(0), calls[0]), (HostId(1), calls[1])] {
        assert_eq!(sim.with_upper(host, id, |c: &mut Caller, _| c.discovered), Some(1));
    }
    // Its callers live twice, and so does what listens there.
    let from_b = heard(&mut sim, 0, listens[0]).unwrap();
    assert!(from_b.iter().any(|(life, _)| *life == 2), "{from_b:?}");
    let after = heard(&mut sim, 1, listens[1]).unwrap();
    assert!(after.first().is_some_and(|(_, at)| *at > early[1][0].1), "memory of the life before");
    from_b.into_iter().chain(after).collect()
}

fn scenario() -> Arc<lnet_scenario::Scenario> {
    Arc::new(lnet_scenario::parse("two", TWO).unwrap())
}

#[test]
fn uppers_of_two_hosts_talk_by_the_clock_of_the_world_and_live_again() {
    let run = || played(Sim::new(scenario(), Some(3), Messages::new()));
    assert_eq!(run(), run(), "the same each time");
}

#[test]
fn uppers_talk_over_simulated_streams() {
    let mut scenario = lnet_scenario::Scenario::clone(&scenario());
    scenario.set_fidelity(Fidelity::Bytes).unwrap();
    let fabric = Bytes::new(scenario.bytes);
    played(Sim::new(Arc::new(scenario), Some(3), fabric));
}

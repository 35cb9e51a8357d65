//! Checkers object to what they are there for.

use core::time::Duration;
use std::sync::Arc;

use lnet::{Payload, Transmit};
use lnet_scenario::{Transport, parse};
use lnet_sim::{
    AttemptId, Bounds, HostId, Messages, Observer, RailIx, Seen, Sim, View, Violation,
    all_checkers, play, play_before,
};
use lnet_types::{IoVec, MsgId, NiId, Nid, Pid, ProcessId};
use lnet_wire::{Handle, Hdr, Kind};

const ONE: &str = r#"
name = "one"
duration = "10s"
[[net]]
name = "tcp"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[workload]]
kind = "put"
from = "a"
to = "b"
every = "100ms"
size = 64
"#;

fn world(text: &str) -> Sim {
    Sim::new(Arc::new(parse("one", text).unwrap()), None, Messages::new())
}

/// What the checker called `name` says to these, one after the other.
fn objections(name: &str, seen: &[Seen<'_>]) -> Vec<String> {
    objections_in(ONE, name, seen)
}

fn objections_in(text: &str, name: &str, seen: &[Seen<'_>]) -> Vec<String> {
    let sim = world(text);
    let bounds = Bounds::for_scenario(sim.view().scenario);
    let mut checker = all_checkers(&bounds).into_iter().find(|c| c.name() == name).unwrap();
    seen.iter().filter_map(|s| checker.see(s, &sim.view()).err()).collect()
}

#[test]
fn a_message_that_comes_twice_or_damaged_is_objected_to() {
    let came = |attempt, intact| Seen::Delivered {
        host: HostId(1),
        attempt: AttemptId(attempt),
        answer: false,
        intact,
    };
    let good = [came(1 << 24, Some(true)), came(2 << 24, None)];
    assert_eq!(objections("once-and-intact", &good), [] as [String; 0]);
    assert_eq!(objections("once-and-intact", &[came(1 << 24, Some(false))]).len(), 1);
    let twice = [came(1 << 24, None), came(2 << 24, None), came(1 << 24, None)];
    assert_eq!(objections("once-and-intact", &twice).len(), 1);
}

#[test]
fn health_beyond_its_bounds_is_objected_to() {
    let of = |to| Seen::Health { host: HostId(0), nid: Nid::LOOPBACK, from: 1000, to };
    assert_eq!(objections("health", &[of(0), of(1000)]).len(), 0);
    assert_eq!(objections("health", &[of(1001)]).len(), 1);
}

#[test]
fn more_pings_than_programs_want_and_nodes_need_are_objected_to() {
    let ping = Transmit {
        repeats: false,
        msg: MsgId::default(),
        ni: NiId::default(),
        to: ProcessId::lustre(Nid::LOOPBACK),
        peer_ni: None,
        hdr: Hdr {
            dst: Nid::LOOPBACK,
            src: Nid::LOOPBACK,
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len: 0,
            kind: Kind::Get {
                ret: Handle { interface: 0, object: 0 },
                match_bits: 0,
                portal: 0,
                offset: 0,
                sink_len: 272,
                pad: [0; 4],
            },
        },
        payload: Payload::Bytes(Arc::default()),
        sink: IoVec::new(),
        timeout: Duration::ZERO,
        retention: None,
    };
    let sent = |host| Seen::Sent { host, rail: RailIx(0), transmit: &ping, refused: None };
    // A hundred, and a dozen for each node.
    let many = vec![sent(HostId(0)); 124];
    assert_eq!(objections("control-traffic", &many), [] as [String; 0]);
    assert_eq!(objections("control-traffic", &[&many[..], &many[..1]].concat()).len(), 1);

    let wants = ONE.replace("\"put\"", "\"ping\"").replace("size = 64\n", "");
    let to = parse("one", &wants).unwrap().world.nodes[1].rails[0].nid;
    let attempt = AttemptId(1 << 24);
    let begun = Seen::Begun { host: HostId(0), workload: 0, attempt, to, again: 0 };
    let failed = Seen::Failed { host: HostId(0), attempt, why: None };
    let took = Duration::ZERO;
    let well = Seen::Ended { host: HostId(0), workload: 0, attempt, took, well: true };
    for (end, host) in [(&failed, 0), (&well, 0), (&failed, 1)] {
        let most = [&[begun.clone(), end.clone()][..], &vec![sent(HostId(host)); 128]].concat();
        assert_eq!(objections_in(&wants, "control-traffic", &most), [] as [String; 0]);
        let more = [&most[..], &[sent(HostId(host))]].concat();
        assert_eq!(objections_in(&wants, "control-traffic", &more).len(), 1);
    }
    // An exchange of another kind is none.
    let other = [&[begun][..], &many, &many[..1]].concat();
    assert_eq!(objections("control-traffic", &other).len(), 1);
}

/// Objects to the first thing that it sees.
struct Grumbler;

impl Observer for Grumbler {
    fn name(&self) -> &'static str {
        "grumbler"
    }

    fn see(&mut self, _seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        if view.now.as_secs() < 3 { Ok(()) } else { Err("enough".to_owned()) }
    }
}

#[test]
fn the_first_objection_ends_the_run() {
    let mut sim = world(ONE);
    sim.observe(Box::new(Grumbler));
    let Violation { at, checker, what } = sim.run().unwrap_err();
    assert_eq!((at.as_secs(), checker, what.as_str()), (3, "grumbler", "enough"));
}

#[test]
fn figures_of_a_run_that_ends_early_count_what_nodes_did_until_then() {
    let fault = "[[fault]]\nat = \"1s\"\nkind = \"duplicate\"\non = \"b\"\nshare = \"100%\"\n";
    let text = ONE.replace("name = \"tcp\"\n", "name = \"tcp\"\ntransport = \"datagram\"\n");
    let scenario = Arc::new(parse("one", &format!("{text}{fault}")).unwrap());
    let played = play_before(scenario, None, Default::default(), vec![Box::new(Grumbler)]);
    assert_eq!(played.violation.unwrap().checker, "grumbler");
    let drops = &played.summary.drops;
    assert!(drops.iter().any(|(why, n)| why == "Duplicate" && *n > 5), "{drops:?}");
}

#[test]
fn copies_made_by_a_datagram_fabric_are_counted_apart_from_duplicates() {
    let fault = "[[fault]]\nat = \"2s\"\nkind = \"duplicate\"\non = \"b\"\nshare = \"100%\"\n";
    let text = ONE.replace("name = \"tcp\"\n", "name = \"tcp\"\ntransport = \"datagram\"\n");
    let scenario = parse("one", &format!("{text}{fault}")).unwrap();
    assert_eq!(scenario.world.nets[0].transport, Transport::Datagram);
    // Kernel nodes take every copy; ours drop what they had (DEC-6).
    for (profile, doubled) in [(lnet::Profile::Kernel, true), (lnet::Profile::Default, false)] {
        let mut scenario = scenario.clone();
        scenario.set_profile(profile).unwrap();
        let played = play(Arc::new(scenario), None, Default::default());
        assert_eq!(played.summary.duplicates > 50, doubled, "{}", played.summary);
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
    }
}

#[test]
fn copies_that_a_datagram_network_on_the_way_may_have_made_are_no_fault_of_a_node() {
    let near = "[[net]]\nname = \"tcp\"\n";
    let text =
        ONE.replace(near, &format!("{near}[[net]]\nname = \"tcp1\"\ntransport = \"datagram\"\n"));
    let sim = world(&text);
    let bounds = Bounds::for_scenario(sim.view().scenario);
    let mut checkers = all_checkers(&bounds).into_iter();
    let mut checker = checkers.find(|c| c.name() == "once-and-intact").unwrap();
    let (host, attempt) = (HostId(1), AttemptId(1 << 24));
    let came = Seen::Delivered { host, attempt, answer: false, intact: None };
    assert_eq!(checker.see(&came, &sim.view()), Ok(()));
    assert_eq!(checker.see(&came, &sim.view()), Ok(()));
}

/// A program that has died and come back waits no longer for an answer than it did before.
#[test]
fn the_programs_of_a_restarted_host_lose_patience_as_before() {
    let faults = "[[fault]]\nat = \"1s\"\nkind = \"drop\"\non = \"b\"\nshare = \"100%\"\n\
                  [[fault]]\nat = \"5s\"\nfor = \"2s\"\nkind = \"kill\"\non = \"a\"\n";
    let text =
        ONE.replace("\"10s\"", "\"30s\"").replace("size = 64", "size = 64\ntimeout = \"1s\"");
    let played =
        play(Arc::new(parse("one", &format!("{text}{faults}")).unwrap()), None, Default::default());
    // One every 100 ms, from the first fault on, but for the two seconds and the last one.
    assert!(played.summary.errors > 230, "{}", played.summary);
}

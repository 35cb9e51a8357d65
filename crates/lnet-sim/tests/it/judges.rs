//! Checkers object to what they are there for.

use std::sync::Arc;

use lnet_scenario::{Transport, parse};
use lnet_sim::{
    AttemptId, Bounds, HostId, Messages, Observer, Seen, Sim, View, Violation, all_checkers, play,
};
use lnet_types::Nid;

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
    let sim = world(ONE);
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
fn a_fabric_of_datagrams_that_doubles_messages_is_counted_and_copies_are_told_apart() {
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

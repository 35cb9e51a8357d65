//! Words of scenarios, each by what it does in a small world, at both fidelities.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet_scenario::{Fidelity, parse};
use lnet_sim::{Detail, Observer, Seen, Summary, View, play_before};

const WORLD: &str = r#"
name = "words"
duration = "10s"
[[net]]
name = "tcp"
[[node]]
name = "client"
rails = ["tcp", "tcp"]
[[node]]
name = "server"
rails = ["tcp"]
"#;

/// Most exchanges under way at any time.
#[derive(Clone, Default)]
struct UnderWay(Rc<RefCell<(i64, i64)>>);

impl Observer for UnderWay {
    fn name(&self) -> &'static str {
        "under-way"
    }

    fn see(&mut self, seen: &Seen<'_>, _view: &View<'_>) -> Result<(), String> {
        let (now, most) = &mut *self.0.borrow_mut();
        match seen {
            Seen::Begun { .. } => *now += 1,
            Seen::Ended { .. } => *now -= 1,
            _ => {}
        }
        *most = (*most).max(*now);
        Ok(())
    }
}

/// Plays the world with more in its text: the figures, and the most that was under way.
fn played(fidelity: Fidelity, more: &str) -> (Summary, i64) {
    let mut scenario = parse("words", &format!("{WORLD}{more}")).unwrap();
    scenario.set_fidelity(fidelity).unwrap();
    let under_way = UnderWay::default();
    let played =
        play_before(Arc::new(scenario), None, Detail::Moments, vec![Box::new(under_way.clone())]);
    assert_eq!(played.violation, None);
    let most = under_way.0.borrow().1;
    (played.summary, most)
}

const BOTH: [Fidelity; 2] = [Fidelity::Messages, Fidelity::Bytes];

#[test]
fn a_request_with_ack_is_four_messages() {
    let ask = "[[workload]]\nkind = \"request\"\nfrom = \"client\"\nto = \"server\"\n\
               every = \"10ms\"\nsize = 100\nreply = 100\n";
    for fidelity in BOTH {
        let (without, _) = played(fidelity, ask);
        let (with, _) = played(fidelity, &format!("{ask}ack = true\n"));
        assert_eq!((without.errors, with.errors), (0, 0));
        assert_eq!(without.completed, with.completed);
        let more = with.messages - without.messages;
        assert_eq!(more, 2 * with.completed, "{with}");
    }
}

#[test]
fn an_rpc_moves_its_bulk_whole() {
    for (fidelity, kind) in BOTH.into_iter().flat_map(|f| [(f, "read"), (f, "write")]) {
        let rpc = format!(
            "[[workload]]\nkind = \"{kind}\"\nfrom = \"client\"\nto = \"server\"\nevery = \"20ms\"\n\
             size = \"256KiB\"\n"
        );
        let (summary, _) = played(fidelity, &rpc);
        assert_eq!((summary.errors, summary.damaged, summary.duplicates), (0, 0, 0), "{summary}");
        assert!(summary.completed >= 499, "{summary}");
        let bulk = summary.completed * (256 << 10);
        // Besides it requests, replies and discovery.
        assert!((bulk..bulk + bulk / 100).contains(&summary.bytes), "{kind}: {summary}");
    }
}

#[test]
fn no_more_is_under_way_than_the_window_allows_and_what_waits_begins_when_one_ends() {
    let put = "[[workload]]\nkind = \"put\"\nfrom = \"client\"\nto = \"server\"\nsize = \"64KiB\"\n\
               rate = \"64MiB/s\"\nwindow = 3\ntimeout = \"8s\"\n\
               [[fault]]\nkind = \"cut\"\non = \"server\"\nat = \"2s\"\nfor = \"2s\"\n";
    for fidelity in BOTH {
        let (summary, most) = played(fidelity, put);
        assert_eq!((summary.errors, most), (0, 3), "{summary}");
        // 1,024 a second, but for the two seconds and what finding the way again takes.
        assert!((6_000..=8 * 1024).contains(&summary.completed), "{summary}");
    }
}

#[test]
fn a_dead_process_is_noticed_by_its_hosts_refusals_sooner_than_a_dead_machine() {
    let kill = "[[workload]]\nkind = \"put\"\nfrom = \"client\"\nto = \"server\"\nevery = \"1ms\"\n\
                size = 100\ntimeout = \"8s\"\n\
                [[fault]]\nkind = \"kill\"\non = \"server\"\nat = \"2s\"\nfor = \"3s\"\n";
    for fidelity in BOTH {
        let noticed = |more: &str| {
            let (summary, _) = played(fidelity, &format!("{kill}{more}"));
            assert_eq!((summary.errors, summary.duplicates), (0, 0), "{summary}");
            let fault = &summary.faults[0];
            let by = fault.noticed_by.clone().unwrap();
            assert!(by.ends_with("silent"), "{by}");
            fault.noticed_after.unwrap()
        };
        let (process, machine) = (noticed("process = true\n"), noticed(""));
        assert!(process < 10_000_000 && machine > 50_000_000, "{process} ns, {machine} ns");
    }
}

#[test]
fn a_node_learns_of_a_carrier_that_went_when_the_text_says_so() {
    let carrier = "[[workload]]\nkind = \"put\"\nfrom = \"client\"\nto = \"server\"\nevery = \"1ms\"\n\
                   size = 100\n\
                   [[fault]]\nkind = \"carrier\"\non = \"client/0\"\nat = \"2s\"\nfor = \"3s\"\n";
    for fidelity in BOTH {
        let (at_once, _) = played(fidelity, carrier);
        let (later, _) = played(fidelity, &format!("{carrier}known_after = \"30ms\"\n"));
        assert_eq!((at_once.errors, later.errors), (0, 0));
        assert_eq!(later.faults[0].noticed_after, Some(30_000_000), "{later}");
        assert_eq!(at_once.faults[0].noticed_after, Some(0), "{at_once}");
        // What is sent until then waits for it.
        assert!(later.stall_max > 25_000_000, "{later}");
    }
}

#[test]
fn a_burst_passes_at_once_and_what_is_behind_it_at_the_rate_of_the_link() {
    let put = "[[workload]]\nkind = \"put\"\nfrom = \"client\"\nto = \"server\"\nsize = \"64KiB\"\n\
               every = \"50ms\"\nverify = false\n";
    for fidelity in BOTH {
        let longest = |net: &str| {
            let text = format!("{WORLD}{put}").replacen(
                "name = \"tcp\"\n",
                &format!("name = \"tcp\"\n{net}"),
                1,
            );
            let mut scenario = parse("burst", &text).unwrap();
            scenario.set_fidelity(fidelity).unwrap();
            let played = play_before(Arc::new(scenario), None, Detail::Moments, Vec::new());
            played.summary.stall_p50
        };
        // 2.6 ms at 200 Mbit/s.
        let slow = longest("bandwidth = \"200Mbit/s\"\n");
        let bursts = longest("bandwidth = \"200Mbit/s\"\nburst = \"128KiB\"\n");
        let half = longest("bandwidth = \"200Mbit/s\"\nburst = \"32KiB\"\n");
        assert!(slow > 2_600_000, "{slow} ns");
        // Up to three round trips, as the window of the connection allows.
        assert!(bursts < 350_000, "{bursts} ns");
        assert!((1_200_000..2_000_000).contains(&half), "{half} ns");
    }
}

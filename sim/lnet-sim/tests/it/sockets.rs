//! The scenarios of real sockets (`scenarios/sockets`), played here from the same files. What both
//! worlds make of them is beside each other in `docs/simulation.md`.

use crate::scenarios::{load, must_hold};

/// A test for each file: no exchange fails, none comes twice, and no checker objects.
macro_rules! sockets {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                let played = must_hold(&load(concat!("sockets/", $name)), None);
                assert_eq!((played.summary.errors, played.summary.duplicates), (0, 0));
                assert!(played.summary.completed > 1000, "{}", played.summary);
            }
        )*

        #[test]
        fn every_scenario_of_real_sockets_has_its_test() {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/sockets");
            let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let mut names: Vec<String> =
                files.map(|p| p.file_stem().unwrap().to_string_lossy().into_owned()).collect();
            names.sort();
            let mut tested = [$($name),*];
            tested.sort_unstable();
            assert_eq!(names, tested);
        }
    };
}

sockets! {
    black_hole: "black-hole";
    black_hole_in: "black-hole-in";
    black_hole_noack: "black-hole-noack";
    black_hole_one_net: "black-hole-one-net";
    black_hole_out: "black-hole-out";
    carrier_down: "carrier-down";
    dark_20s: "dark-20s";
    dark_5s: "dark-5s";
    flapping: "flapping";
    loss: "loss";
    ni_change: "ni-change";
    node_restart: "node-restart";
    outage_carrier: "outage-carrier";
    outage_hole: "outage-hole";
    outage_hole_in: "outage-hole-in";
    outage_hole_out: "outage-hole-out";
    outage_loss: "outage-loss";
    reset: "reset";
    router_death: "router-death";
    router_far_down: "router-far-down";
    selftest_carrier: "selftest-carrier";
    selftest_hole: "selftest-hole";
    selftest_hole_two_nets: "selftest-hole-two-nets";
    selftest_reset: "selftest-reset";
    slow: "slow";
    slow_64k: "slow-64k";
    slow_kernel: "slow-kernel";
    slow_one_net: "slow-one-net";
}

/// A reply that is with its driver when its interface is taken from the peer goes by another one at once,
/// and does not wait for the end of its attempt, a third of five seconds.
#[test]
fn a_reply_on_its_way_to_an_interface_that_is_removed_goes_by_another() {
    let played = must_hold(&load("sockets/ni-change"), Some(2));
    assert!(played.summary.stall_max < 100_000_000, "{}", played.summary);
}

/// A descriptor that goes after its ACK has come, and before the reply, is no failure of the request.
#[test]
fn a_request_whose_ack_has_come_waits_for_its_reply_alone() {
    must_hold(&load("sockets/dark-20s"), Some(2));
}

/// All sixteen reads of 1 MiB stood for the ten seconds of a lost link in three of eight seeds: what the
/// server of a selftest sent was bound to the interface that had been asked, and what waited there for
/// credits of the client's interface held up its answers by the other one.
#[test]
fn what_answers_by_a_lost_link_holds_up_no_kind_of_traffic() {
    for seed in [3, 8] {
        must_hold(&load("sockets/outage-carrier"), Some(seed));
    }
}

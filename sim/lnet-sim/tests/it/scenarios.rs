//! The scenarios of the project, each with its bars. A failure prints how to see the run.

use std::sync::Arc;

use lnet_scenario::{Scenario, parse};
use lnet_sim::{Detail, Played, play};

pub(crate) fn load(name: &str) -> Arc<Scenario> {
    let path = format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    Arc::new(parse(&path, &std::fs::read_to_string(&path).unwrap()).unwrap())
}

pub(crate) fn must_hold(scenario: &Arc<Scenario>, seed: Option<u64>) -> Played {
    let played = play(scenario.clone(), seed, Detail::Moments);
    if !played.holds() {
        let lines = played.lines.join("\n");
        let violation = played.violation.map(|v| v.to_string()).unwrap_or_default();
        panic!(
            "{lines}\n{}VIOLATION {violation}\nulnet sim run scenarios/{}.toml --seed {}",
            played.summary, scenario.name, played.summary.seed
        );
    }
    played
}

/// A test for each scenario: its bars hold, under all checkers.
macro_rules! scenarios {
    ($($test:ident: $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                must_hold(&load($name), None);
            }
        )*

        #[test]
        fn every_scenario_of_the_project_has_its_test() {
            let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
            let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
            let mut names: Vec<String> = files
                .filter(|p| p.extension().is_some_and(|e| e == "toml"))
                .map(|p| p.file_stem().unwrap().to_string_lossy().into_owned())
                .collect();
            // A site of hundreds of clients: `cabinets.rs` plays it with fewer.
            names.retain(|name| !name.starts_with("xc30-"));
            names.sort();
            let mut tested = [$($name),*];
            tested.sort_unstable();
            assert_eq!(names, tested);
        }
    };
}

scenarios! {
    no_program_is_left_without_an_answer_when_a_router_dies: "router-death";
    a_carrier_that_goes_is_noticed_at_once: "carrier-down";
    a_rail_that_swallows_everything_is_left: "black-hole";
    a_slow_rail_gets_no_load_while_the_other_one_is_held_up: "slow-shaken";
    a_rail_that_comes_and_goes_does_not_stop_the_other: "flapping";
    a_client_without_any_rail_goes_on_after_the_outage: "dark";
    pings_of_many_clients_to_an_unreachable_server_stay_bounded: "dark-server";
    two_nodes_discover_each_other_in_the_same_moment: "discovery-both-ways";
    a_push_that_crosses_a_ping_is_not_lost: "push-during-ping";
    discovery_is_switched_off_while_it_runs: "discovery-switched-off";
    a_peer_comes_back_under_other_nids: "other-nids";
    a_router_that_lost_its_far_side_is_left: "router-lost-net";
    without_a_way_back_everything_fails_in_order: "no-way-back";
    a_back_off_does_not_outlive_the_repair: "repaired";
    a_herd_that_reconnects_is_served: "thundering-herd";
    messages_late_behind_a_slow_router_do_not_stay_there: "slow-behind-router";
    an_answer_longer_than_the_first_buffer_is_asked_for_again: "many-interfaces";
    damage_that_tcp_does_not_notice_is_found_by_checksums: "damaged";
    connections_that_stand_half_open_are_found_out: "half-open";
    a_peer_deleted_during_its_discovery_is_found_again: "deleted-during-discovery";
    an_announcement_is_accepted_when_its_sequence_number_wraps: "sequence-wraps";
    selftest_has_no_error_while_rails_go: "selftest";
    a_lost_request_is_sent_again_after_its_deadline: "rpc-lost-request";
    a_lost_reply_is_given_again_from_its_record: "rpc-lost-reply";
    lost_bulk_data_bring_the_whole_request_again: "rpc-lost-bulk";
    a_lost_connect_is_tried_again: "rpc-lost-connect";
    early_replies_keep_calls_to_a_slow_server_alive: "rpc-slow-handler";
    copies_of_requests_slower_than_at_max_are_folded: "rpc-beyond-at-max";
    clients_repeat_what_a_server_lost: "rpc-server-restart";
    keys_are_as_their_clients_left_them_after_a_crash: "rpc-kv-restart";
    requests_to_a_store_that_fails_come_again_until_it_works: "rpc-store-broken";
    a_full_store_refuses_values_and_nothing_else: "rpc-store-full";
    parts_of_requests_that_get_lost_bring_them_again_once: "rpc-lost-parts";
    a_target_recovers_without_a_client_that_is_dead: "rpc-recovery-without-client";
    a_target_recovers_from_a_death_in_recovery: "rpc-both-die";
    a_client_that_dies_is_evicted_and_others_go_on: "rpc-client-dies";
    all_clients_are_back_after_an_outage: "rpc-darkness";
    an_evicted_client_connects_anew: "rpc-evicted";
    a_client_that_floods_a_server_is_served_beside_others: "rpc-flood";
    changes_wait_for_a_disk_that_stands_still: "rpc-commit-stall";
    clients_follow_a_target_to_its_other_server: "rpc-failover";
    clients_leave_a_silent_server_for_its_partner_before_their_deadlines: "rpc-silent-takeover";
    calls_go_on_through_a_rolling_restart: "rpc-rolling-restart";
    a_rail_of_ones_own_that_is_dead_is_no_fault_of_the_gateways: "own-rail-dead";
    a_holder_that_hangs_is_evicted_when_its_timer_ends: "lock-holder-hangs";
    a_client_with_io_under_its_lock_is_not_evicted: "lock-long-io";
    locks_are_replayed_to_a_server_that_comes_back: "lock-server-restart";
}

#[test]
fn routes_do_not_flap_because_of_the_observers_own_dead_rail() {
    for (name, flaps) in [("own-rail-dead", false), ("router-death", true)] {
        let played = must_hold(&load(name), None);
        let routes = played.lines.iter().filter(|line| line.contains(" route by ")).count();
        assert_eq!(routes > 0, flaps, "{name}: {routes}");
    }
}

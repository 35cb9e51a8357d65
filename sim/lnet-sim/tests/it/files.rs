//! Files in virtual time: rounds of the swarm, and single faults upon a file system and its visitors.

use std::sync::Arc;

use lnet_scenario::{Scenario, parse};
use lnet_sim::{Detail, Floor, Played, play, seed_of};

use crate::rounds;

/// A file system on two servers, so many clients, and what befalls them.
fn scenario(clients: u32, load: &str, faults: &str) -> Arc<Scenario> {
    checked_at(900, clients, load, faults)
}

/// The same, whose directories are read again after so many seconds.
fn checked_at(check: u32, clients: u32, load: &str, faults: &str) -> Arc<Scenario> {
    parsed(text(check, clients, load, faults))
}

/// The same, with a second metadata target, on the other server.
fn of_two(clients: u32, load: &str, faults: &str) -> Arc<Scenario> {
    let second =
        "[[target]]\nname = \"lfs-MDT0001_UUID\"\nkind = \"mdt\"\non = \"s1\"\ncommit = \"5s\"\n";
    let text = text(900, clients, load, faults);
    parsed(text.replacen("[[client]]", &format!("{second}[[client]]"), 1))
}

fn parsed(text: String) -> Arc<Scenario> {
    Arc::new(parse("files.toml", &text).unwrap_or_else(|e| panic!("{e}\n{text}")))
}

fn text(check: u32, clients: u32, load: &str, faults: &str) -> String {
    let mut text = String::from(
        "name = \"files\"\nduration = \"1000s\"\n[rpc]\nobd_timeout = \"10s\"\nping_interval = \"2s\"\n\
         [[net]]\nname = \"tcp\"\n",
    );
    let names: Vec<String> = (0..clients).map(|n| format!("c{n}")).collect();
    for name in ["s0", "s1"].into_iter().chain(names.iter().map(String::as_str)) {
        text.push_str(&format!("[[node]]\nname = \"{name}\"\nrails = [\"tcp\"]\n"));
    }
    for (name, kind, on) in [
        ("MGS", "mgs", "s0"),
        ("lfs-MDT0000_UUID", "mdt", "s0"),
        ("lfs-OST0000_UUID", "ost", "s1"),
        ("lfs-OST0001_UUID", "ost", "s1"),
        ("lfs-OST0002_UUID", "ost", "s0"),
    ] {
        text.push_str(&format!(
            "[[target]]\nname = \"{name}\"\nkind = \"{kind}\"\non = \"{on}\"\ncommit = \"5s\"\n"
        ));
    }
    let from = format!("{names:?}");
    text.push_str(&format!(
        "[[client]]\non = {from}\n[[workload]]\nkind = \"files\"\nfrom = {from}\n\
         to = \"lfs-MDT0000_UUID\"\nuntil = \"300s\"\ncheck = \"{check}s\"\n{load}\n{faults}\n"
    ));
    text
}

const LOAD: &str = "names = 3\nsize = \"200KiB\"\nstripes = 3\nwindow = 1\nthink = \"200ms\"";

fn holds(clients: u32, faults: &str) -> Played {
    holds_in(scenario(clients, LOAD, faults))
}

fn holds_in(scenario: Arc<Scenario>) -> Played {
    let played = play(scenario, None, Detail::Moments);
    if let Some(violation) = &played.violation {
        panic!("{}\n{violation}\n{}", played.lines.join("\n"), played.summary);
    }
    assert!(played.summary.completed > 300, "{}", played.summary);
    played
}

#[test]
fn one_visitor_finds_the_files_that_a_tree_in_memory_has() {
    let played = holds(1, "");
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
}

#[test]
fn several_visitors_leave_the_files_that_others_find() {
    let played = holds(3, "");
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
}

#[test]
fn directories_on_two_metadata_targets_are_those_of_a_tree_in_memory() {
    for load in [LOAD.to_owned(), format!("{LOAD}\nshared = true")] {
        let played = holds_in(of_two(2, &load, ""));
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
    }
}

#[test]
fn nothing_is_lost_when_either_of_two_metadata_targets_dies() {
    for server in ["s0", "s1"] {
        let fault =
            format!("[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"70s\"\non = \"{server}\"");
        let played = holds_in(of_two(2, LOAD, &fault));
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
    }
}

#[test]
fn nothing_is_lost_when_a_server_dies_in_the_middle() {
    for server in ["s0", "s1"] {
        let fault =
            format!("[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"70s\"\non = \"{server}\"");
        let played = holds(2, &fault);
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
    }
}

#[test]
fn a_drawn_scenario_of_files_is_valid_and_has_each_kind_of_fault() {
    let (kinds, _) = rounds::drawn(Floor::Files);
    let all = [
        "commit_stall",
        "cut",
        "drop",
        "evict",
        "failover",
        "handler_delay",
        "kill",
        "pause",
        "rpc_lose",
        "store_error",
        "store_full",
    ];
    assert_eq!(kinds, all);
}

#[test]
fn some_rounds_of_files_hold() {
    for seed in (0..8).map(|n| seed_of(3, n)) {
        let played = rounds::holds(Floor::Files, seed);
        assert!(played.summary.completed > 50, "seed {seed}: {}", played.summary);
    }
}

/// Rounds in which the swarm of files has found something, as docs/simulation.md lists it.
#[test]
fn earlier_findings_of_the_swarm_of_files_hold_now() {
    let found = [
        4281745098173131714,
        8098173216680035476,
        5313283239355333746,
        // A full store refuses what a client has cached.
        4661362546194355450,
        // A program is at work while its directory is read again.
        8863561413271799506,
        // A visitor that does nothing is evicted, and has a file that is not committed.
        7559938134413224447,
        // A client asks for a size while it writes back what makes the object longer.
        8808364851846141439,
        // A metadata target says late which of its changes are under way.
        8771219862917873811,
        // Clients with answered data that is not committed are evicted after a crash of its target.
        2097394196814498768,
        1936120450211500287,
        // A directory of another target is gone when its name is removed, which a file has by now.
        154891759186898554,
        // A file that a truncate has made longer has the data of one that is written after a crash.
        175991331111111069,
        // The name that is renamed is gone, and the other one leads to another target.
        9000676826378563301,
        7792624605893922047,
    ];
    for seed in found {
        rounds::holds(Floor::Files, seed);
    }
}

#[test]
fn two_runs_of_a_round_of_files_are_equal() {
    rounds::is_equal_twice(Floor::Files);
}

#[test]
fn new_files_are_made_after_a_crash_of_all_servers_and_clients() {
    let fault = "[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"70s\"\n\
                 on = [\"s0\", \"s1\", \"c0\", \"c1\"]";
    let played = holds(2, fault);
    assert_eq!(played.summary.errors, 0, "{}\n{}", played.lines.join("\n"), played.summary);
}

#[test]
fn files_that_are_made_while_object_targets_are_dead_have_their_objects() {
    // Before the objects that were made ahead are committed for another reason.
    for at in [1, 2, 3] {
        let fault = format!(
            "[[fault]]\nkind = \"kill\"\nat = \"{at}s\"\nuntil = \"{}s\"\non = \"s1\"",
            at + 3
        );
        let played = holds(3, &fault);
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
    }
}

#[test]
fn programs_that_change_the_names_of_one_directory_have_an_order() {
    let load = "names = 3\nshared = true\nwindow = 1\nthink = \"20ms\"";
    let fault = "[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"65s\"\non = \"s0\"";
    let played = play(scenario(3, load, fault), None, Detail::Moments);
    if let Some(violation) = &played.violation {
        panic!("{}\n{violation}\n{}", played.lines.join("\n"), played.summary);
    }
    assert!(played.summary.completed > 3000, "{}", played.summary);
}

/// Programs that cache the data of their files, and visitors that look at it.
const CACHED: &str = "names = 3\nsize = \"200KiB\"\nstripes = 3\nwindow = 1\nthink = \"200ms\"\n\
                      cached = true";

fn holds_cached(faults: &str) -> Played {
    holds_cached_in(scenario(2, CACHED, faults))
}

fn holds_cached_in(scenario: Arc<Scenario>) -> Played {
    let played = play(scenario, None, Detail::Moments);
    if let Some(violation) = &played.violation {
        panic!("{}\n{violation}\n{}", played.lines.join("\n"), played.summary);
    }
    assert!(played.summary.completed > 300, "{}", played.summary);
    played
}

#[test]
fn cached_data_is_what_visitors_find() {
    let played = holds_cached("");
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
}

#[test]
fn cached_data_survives_servers_and_its_loss_is_reported() {
    let server = "[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"70s\"\non = \"s1\"";
    assert_eq!(holds_cached(server).summary.errors, 0);
    // Upon cached data now and then.
    let evictions: Vec<String> = (20..280)
        .step_by(7)
        .map(|at| {
            let target = at % 3;
            format!(
                "[[fault]]\nkind = \"evict\"\nat = \"{at}s\"\non = \"c0\"\n\
                 target = \"lfs-OST{target:04x}_UUID\"\n"
            )
        })
        .collect();
    let played = holds_cached(&evictions.concat());
    assert!(played.summary.errors > 0, "{}", played.summary);
}

#[test]
fn answered_data_that_object_targets_lose_is_written_again() {
    let kill = |at: u32| {
        let until = at + 2;
        format!("[[fault]]\nkind = \"kill\"\nat = \"{at}s\"\nuntil = \"{until}s\"\non = \"s1\"\n")
    };
    let faults: String = (20..280).step_by(20).map(kill).collect();
    let text = text(900, 2, CACHED, &faults).replace("commit = \"5s\"", "commit = \"60s\"");
    let played = holds_cached_in(parsed(text));
    assert_eq!(played.summary.errors, 0, "{}", played.summary);
}

/// Programs that make small files whole, beside all else.
const WHOLE: &str = "names = 3\nsize = \"70KiB\"\nwindow = 1\nthink = \"100ms\"\nwhole = true";

#[test]
fn files_that_are_made_whole_are_there_with_all_that_is_in_them() {
    for stripes in ["stripes = 1", "stripes = 3", "on_mdt = true"] {
        let load = format!("{WHOLE}\n{stripes}");
        let played = holds_in(scenario(2, &load, ""));
        assert_eq!(played.summary.errors, 0, "{}", played.summary);
        for server in ["s0", "s1"] {
            let fault = format!(
                "[[fault]]\nkind = \"kill\"\nat = \"60s\"\nuntil = \"70s\"\non = \"{server}\""
            );
            let played = holds_in(scenario(2, &load, &fault));
            assert_eq!(played.summary.errors, 0, "{}", played.summary);
        }
    }
}

#[test]
fn file_that_was_made_whole_is_empty_or_whole_when_its_program_and_servers_have_died() {
    let kill = |at: u32| {
        let until = at + 2;
        format!(
            "[[fault]]\nkind = \"kill\"\nat = \"{at}s\"\nuntil = \"{until}s\"\n\
             on = [\"s0\", \"s1\", \"c0\", \"c1\"]\n"
        )
    };
    let faults: String = (20..280).step_by(20).map(kill).collect();
    for stripes in [1, 3] {
        let load = format!("{WHOLE}\nstripes = {stripes}");
        let text = text(900, 2, &load, &faults).replace("commit = \"5s\"", "commit = \"60s\"");
        holds_in(parsed(text));
    }
}

#[test]
fn restarted_server_does_not_wait_for_a_visitor_whose_disconnect_was_lost() {
    // The visit ends at 300 s.
    let faults = "[[fault]]\nkind = \"rpc_lose\"\nat = \"299s\"\nuntil = \"304s\"\non = \"c0\"\n\
                  opcode = \"disconnect\"\npart = \"request\"\n\
                  [[fault]]\nkind = \"kill\"\nat = \"312s\"\nuntil = \"314s\"\non = \"s1\"";
    let played = play(checked_at(315, 1, LOAD, faults), None, Detail::Moments);
    assert_eq!(played.violation, None);
    let read = played.lines.iter().find(|line| line.contains("are read again")).unwrap();
    let at: f64 = read.split_whitespace().next().unwrap().parse().unwrap();
    assert!(at < 320.0, "a target waits for 30 s for a client that it knows: {read}");
}

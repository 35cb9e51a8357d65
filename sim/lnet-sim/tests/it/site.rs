//! A site before and after an advice: `ulnet tuning advise --prove`.

use lnet_sim::prove;
use lustre_tuning::{NetKind, Site};

const TCP: Site = Site {
    routed: false,
    clients: None,
    targets: None,
    quiesce: Some(140),
    load: None,
    net: NetKind::Tcp,
};

#[test]
fn pa127_outage_that_evicts_clients_with_defaults_evicts_none_as_advised() {
    let proof = prove(&TCP, 12, 2).unwrap();
    for event in &proof.events {
        println!("{}\n  {}\n  {}", event.what, event.defaults, event.advised);
    }
    let last = proof.events.last().unwrap();
    assert!(last.what.starts_with("the network stands still for 1"), "{}", last.what);
    assert!(last.defaults.evicted > 0, "{}", last.defaults);
    // The clients were away for most of the span that the advice is for, and no longer.
    let span = last.advised.span.unwrap().as_secs();
    assert!((70..=140).contains(&span), "{}", last.advised);
    assert!(proof.holds());
    // A short outage costs no connection, where defaults lose some.
    let first = &proof.events[0];
    assert!(first.advised.reconnects < first.defaults.reconnects, "{}", first.what);
    assert_eq!(prove(&TCP, 12, 2).unwrap(), proof, "a seed is a play");
}

#[test]
fn advice_for_each_network_with_routers_evicts_no_client_that_lives() {
    for (net, quiesce) in [(NetKind::Gni, None), (NetKind::O2ib, Some(300))] {
        let site = Site { routed: true, net, quiesce, ..TCP };
        let proof = prove(&site, 8, 2).unwrap();
        for event in &proof.events {
            println!("{}\n  {}\n  {}", event.what, event.defaults, event.advised);
        }
        assert!(proof.holds(), "{site:?}");
        assert_eq!((proof.routers, proof.clients), (4, 8));
    }
}

#[test]
fn site_smaller_than_the_play_is_played_whole_and_one_away_too_long_is_refused() {
    let site = Site { clients: Some(3), targets: Some(1), quiesce: None, ..TCP };
    let proof = prove(&site, 48, 1).unwrap();
    assert_eq!((proof.clients, proof.targets), (3, 1));
    let error = prove(&Site { quiesce: Some(1801), ..TCP }, 48, 1).unwrap_err();
    assert_eq!(error, "quiesce 1801: limit of a play is 1800 s");
}

/// Clients and servers with the values that the paper recommends, and outages drawn from a seed: of one
/// to a hundred seconds, of a client, a server or all of them, one after the other.
fn outages(seed: u64) -> String {
    let mut prng = lnet_types::Prng::new(seed);
    let mut text = String::from(
        r#"
name = "outages"
duration = "2400s"
profile = "documents"
[rpc]
profile = "documents"
obd_timeout = "300s"
ping_interval = "75s"
at_min = "40s"
at_max = "400s"
ldlm_enqueue_min = "260s"
[[net]]
name = "tcp"
latency = "50us"
[[node]]
name = "client"
count = 8
rails = ["tcp"]
[[node]]
name = "server"
count = 2
rails = ["tcp"]
[[target]]
name = "a"
kind = "lock"
on = "server-1"
[[target]]
name = "b"
kind = "lock"
on = "server-2"
[[client]]
on = "client"
[[workload]]
kind = "lock"
from = "client"
to = ["a", "b"]
names = 6
modes = ["PR", "PW"]
hold = "2s"
io = "1s"
window = 1
think = "5s"
until = "2000s"
"#,
    );
    for n in 0..6 {
        let (at, long) = (200 + 300 * n + prng.below(50), 1 + prng.below(100));
        let nodes = match prng.below(3) {
            0 => format!("on = \"client-{}\"", 1 + prng.below(8)),
            1 => format!("on = \"server-{}\"", 1 + prng.below(2)),
            _ => "on = [\"server-1\", \"server-2\"]".to_owned(),
        };
        text += &format!(
            "[[fault]]\nat = \"{at}s\"\nfor = \"{long}s\"\nkind = \"drop\"\n{nodes}\nshare = \"100%\"\n"
        );
    }
    text
}

#[test]
fn pa004_outages_of_up_to_100_s_break_no_io_with_the_recommended_values() {
    for seed in 1..=8 {
        let scenario = lnet_scenario::parse("outages", &outages(seed)).unwrap();
        let played = lnet_sim::play(scenario.into(), Some(seed), lnet_sim::Detail::Moments);
        assert!(played.violation.is_none(), "{seed}: {:?}", played.violation);
        let rpc = played.summary.rpc.clone().unwrap();
        assert_eq!(rpc.evictions, 0, "{seed}: {}", played.summary);
        // The outages were felt.
        assert!(rpc.reconnects > 0, "{seed}: {}", played.summary);
        let bad = |line: &&String| {
            ["I/O failed", "lost at", "refused by"].iter().any(|w| line.contains(w))
        };
        let bad: Vec<&String> = played.lines.iter().filter(bad).collect();
        assert!(bad.is_empty(), "{seed}: {bad:?}");
        assert!(played.summary.completed > 500, "{seed}: {}", played.summary);
    }
}

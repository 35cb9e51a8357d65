//! Clients that say anything.

use lnet_types::Prng;

use super::bench::{APPEND, Bench, append_log};
use super::raw::{connect_message, throw};

#[test]
fn garbage_is_counted_and_others_are_served() {
    let mut bench = Bench::new(append_log());
    let mut prng = Prng::new(7);
    for n in 0..3000u64 {
        let len = 1 + prng.below(600) as usize;
        let bytes: Vec<u8> = (0..len).map(|_| prng.next_u64() as u8).collect();
        throw(&mut bench, &bytes, n);
    }
    let stats = bench.party_of(bench.server, |p, _| p.ptlrpc.server_stats());
    assert_eq!((stats.malformed, stats.served), (3000, 0));
    let call = bench.call(Bench::say(APPEND, "one"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 1);
}

#[test]
fn every_field_of_a_request_may_be_anything() {
    let mut bench = Bench::new(append_log());
    let call = bench.call(Bench::say(APPEND, "one"));
    assert!(bench.end_of(call).unwrap().is_ok());
    let good = connect_message("client-x");
    let mut prng = Prng::new(9);
    for n in 0..20_000u64 {
        let mut bytes = good.clone();
        for _ in 0..1 + prng.below(4) {
            let at = prng.below(bytes.len() as u64) as usize;
            bytes[at] = prng.next_u64() as u8;
        }
        throw(&mut bench, &bytes, n + 1);
    }
    bench.secs(400);
    // Their exports are gone with their silence, and the one who pings is still there.
    let exports = bench.party_of(bench.server, |p, _| p.ptlrpc.export_views());
    assert_eq!(exports.len(), 1, "{exports:?}");
    let call = bench.call(Bench::say(APPEND, "two"));
    assert_eq!(bench.end_of(call).unwrap().unwrap().transno, 2);
}

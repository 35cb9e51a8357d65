//! Holders that die with their locks, and what that costs the client that comes after them: the ping
//! evictor takes the locks of the dead away before anyone asks for them (PA-009, PA-010).

use ldlm::Mode;
use lustre_wire::Opcode;
use ptlrpc::{EvictReason, Part, Tunables};

use super::{Bench, Fate, whole};

/// Longer than this no client keeps a lock that was called back: 1.5 times the least (L-47).
const TIMER: u64 = 152;

fn name(n: usize) -> String {
    format!("jobs/{n}")
}

/// So many clients, each with a lock of its own, which all die at once.
fn dead(holders: usize, tunables: Tunables) -> Bench {
    let mut bench = Bench::with(7, tunables);
    for n in 0..holders {
        let who = bench.client(&format!("dead-{n}"));
        bench.ask(who, &whole(&name(n), Mode::Ex));
    }
    assert_eq!(bench.server_locks(), holders);
    bench.others();
    // Their node is dead as well: no message to it says so.
    bench.lose(Opcode::LDLM_BL_CALLBACK, Part::Request, u32::MAX);
    // What the dead were granted is no matter any more.
    drop(bench.seen());
    bench
}

/// No client is evicted for its silence within the hours of a test.
fn without_evictor() -> Tunables {
    Tunables { evict_factor: 100_000, ..Tunables::default() }
}

/// How long a client takes that wants all those locks, one after another, and asks for the first when
/// the holders were dead for so long; and whose connections that cost.
fn cascade(holders: usize, silence: u64, tunables: Tunables) -> (u64, Fate) {
    let mut bench = dead(holders, tunables);
    bench.secs(silence);
    let who = bench.client("living");
    let (mut waited, mut fate) = (0, Fate::default());
    for n in 0..holders {
        let hold = bench.ask(who, &whole(&name(n), Mode::Ex));
        loop {
            fate.take(bench.seen());
            if fate.granted.contains_key(&hold) {
                break;
            }
            assert!(waited < TIMER * (holders as u64 + 1), "{waited} s for {n} locks");
            bench.secs(1);
            waited += 1;
        }
    }
    (waited, fate)
}

#[test]
fn pa009_dead_holders_cost_a_timer_each_unless_the_evictor_was_there_before() {
    let mut last = 0;
    for holders in [1, 5, 10] {
        let (without, fate) = cascade(holders, 151, without_evictor());
        let reasons: Vec<_> = fate.evicted.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, vec![EvictReason::LockCallback; holders], "{fate:?}");
        let (with, fate) = cascade(holders, 151, Tunables::default());
        let reasons: Vec<_> = fate.evicted.iter().map(|(_, reason)| *reason).collect();
        assert_eq!(reasons, vec![EvictReason::Silent; holders], "{fate:?}");
        println!("{holders:>2} dead holders: {with:>4} s, without evictor {without:>4} s");
        assert!(with < TIMER, "{with} s");
        // PA-010: it grows with their number.
        assert!(without >= holders as u64 * 100, "{without} s for {holders}");
        assert!(without > last);
        last = without;
    }
}

#[test]
fn pa010_the_cascade_of_holders_that_die_while_they_are_waited_for_ends_with_the_evictor() {
    // Nothing was found out before: the evictor ends the wait for all of them together.
    let (with, fate) = cascade(10, 0, Tunables::default());
    assert!((140..=TIMER).contains(&with), "{with} s");
    assert_eq!(fate.evicted.len(), 10);
}

#[test]
fn pa073_a_client_that_was_killed_has_no_locks_after_one_and_a_half_obd_timeouts() {
    let mut bench = dead(3, Tunables::default());
    bench.secs(148);
    assert_eq!(bench.server_locks(), 3);
    bench.secs(3);
    assert_eq!(bench.server_locks(), 0);
    let mut fate = Fate::default();
    fate.take(bench.seen());
    let reasons: Vec<_> = fate.evicted.iter().map(|(_, reason)| *reason).collect();
    assert_eq!(reasons, [EvictReason::Silent; 3]);
}

#[test]
fn pa007_a_late_answer_and_silence_are_two_reasons_to_evict_and_have_words_of_their_own() {
    let mut bench = Bench::new(7);
    let (late, other) = (bench.client("late"), bench.client("other"));
    bench.ask(late, &whole("jobs/42", Mode::Ex));
    bench.ask(other, &whole("jobs/42", Mode::Ex));
    // It pings, and keeps its lock.
    bench.secs(TIMER);
    let mut fate = Fate::default();
    fate.take(bench.seen());
    assert_eq!(fate.evicted, [("late".to_owned(), EvictReason::LockTimeout)]);
    bench.others();
    bench.secs(TIMER);
    let mut fate = Fate::default();
    fate.take(bench.seen());
    let silent = |name: &str| (name.to_owned(), EvictReason::Silent);
    fate.evicted.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(fate.evicted, [silent("late"), silent("other")]);
    let words = [EvictReason::LockTimeout, EvictReason::Silent].map(|reason| reason.to_string());
    assert_ne!(words[0], words[1]);
}

//! The same seed, the same run.

use lnet_sim::{Detail, play};

use crate::scenarios::load;

#[test]
fn a_run_is_the_same_every_time_and_another_seed_gives_another_one() {
    let scenario = load("router-death");
    let run = |seed| play(scenario.clone(), Some(seed), Detail::Moments);
    let (one, two, other) = (run(7), run(7), run(8));
    assert_eq!(one.summary.trace_hash, two.summary.trace_hash);
    assert_eq!(one.lines, two.lines);
    assert_eq!(one.summary.messages, two.summary.messages);
    assert_ne!(one.summary.trace_hash, other.summary.trace_hash);
}

//! Rounds of swarms, for the tests of each floor.

use std::collections::BTreeSet;

use lnet_sim::{Detail, Floor, Played, Round, seed_of};

/// Plays the round of a seed, in which nothing may be found.
#[track_caller]
pub(crate) fn holds(floor: Floor, seed: u64) -> Played {
    let round = Round::draw_on(floor, seed).unwrap();
    let played = round.play(Detail::default());
    if let Some(violation) = &played.violation {
        let floor = floor.name();
        panic!("ulnet sim swarm --floor {floor} --seed {seed} --one\n{violation}\n{}", round.text);
    }
    played
}

/// Draws 500 rounds, each twice the same: the kinds of their faults in ascending order, and all texts.
#[track_caller]
pub(crate) fn drawn(floor: Floor) -> (Vec<&'static str>, String) {
    let (mut kinds, mut texts) = (BTreeSet::new(), String::new());
    for n in 0..500 {
        let seed = seed_of(1, n);
        let round = Round::draw_on(floor, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(round.text, Round::draw_on(floor, seed).unwrap().text, "seed {seed}");
        kinds.extend(round.scenario.faults.iter().map(|f| f.kind.name()));
        texts.push_str(&round.text);
    }
    (kinds.into_iter().collect(), texts)
}

/// Plays a round twice: all that is seen must be the same.
#[track_caller]
pub(crate) fn is_equal_twice(floor: Floor) {
    let round = Round::draw_on(floor, seed_of(3, 1)).unwrap();
    let hash = || round.play(Detail::Hash).summary.trace_hash;
    assert_eq!(hash(), hash());
}

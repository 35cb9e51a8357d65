//! The corpus passes, so does a fixed number of its mutations, and what is written from the table
//! of targets is up to date.

use std::collections::BTreeSet;

use fuzz_replay::{TARGETS, corpus, fuzz_dir, generate, mutate};
use lnet_types::Prng;

#[test]
fn every_input_of_the_corpus_and_some_mutations_keep_the_promises() {
    const SEED: u64 = 1;
    for target in TARGETS {
        let corpus = corpus::load(target).expect("a corpus");
        assert!(!corpus.is_empty(), "{}: no inputs", target.name);
        for (path, input) in &corpus {
            assert!(target.survives(input), "{}", path.display());
        }
        let inputs: Vec<_> = corpus.into_iter().map(|(_, input)| input).collect();
        let mut prng = Prng::new(SEED);
        for run in 0..2000 {
            let input = mutate::mutation(&mut prng, &inputs);
            assert!(
                target.survives(&input),
                "{}: mutation {run} of seed {SEED}: {input:02x?}",
                target.name
            );
        }
    }
}

#[test]
fn mutations_differ_and_stay_small() {
    let corpus = [vec![0; 72]];
    let mut prng = Prng::new(7);
    let made: BTreeSet<_> = (0..500).map(|_| mutate::mutation(&mut prng, &corpus)).collect();
    assert!(made.len() > 400, "{} different ones", made.len());
    assert!(made.iter().all(|input| input.len() <= mutate::LEN_MAX));
}

#[test]
fn a_target_that_panics_is_noticed() {
    let target = fuzz_replay::Target { name: "broken", run: |input| assert!(input.is_empty()) };
    assert!(target.survives(b""));
    assert!(!target.survives(b"x"));
}

#[test]
fn the_libfuzzer_side_is_what_the_table_of_targets_says() {
    let mut stale = Vec::new();
    for (path, text) in generate::files() {
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text.as_str()) {
            stale.push(path);
        }
    }
    assert!(stale.is_empty(), "run `cargo run -p fuzz-replay -- --generate`: {stale:#?}");
    let names: BTreeSet<_> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets of one name");
    for entry in std::fs::read_dir(fuzz_dir().join("corpus")).expect("fuzz/corpus") {
        let name = entry.expect("an entry").file_name();
        assert!(
            names.contains(name.to_str().expect("a name")),
            "a corpus without target: {name:?}"
        );
    }
}

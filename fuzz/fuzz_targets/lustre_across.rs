//! libFuzzer on `lustre_across`; the code is in `testing/fuzz-replay`.
#![no_main]

use fuzz_replay::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    (Target::named("lustre_across").expect("a row of the table").run)(input)
});

//! libFuzzer on `nid_list`; the code is in `testing/fuzz-replay`.
#![no_main]

use fuzz_replay::Target;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    (Target::named("nid_list").expect("a row of the table").run)(input)
});

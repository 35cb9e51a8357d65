//! The libFuzzer side, written from the table of targets: `fuzz/Cargo.toml` and one small file for
//! each target.

use std::path::PathBuf;

use crate::{TARGETS, fuzz_dir};

const MANIFEST: &str = "\
# Written by `cargo run -p fuzz-replay -- --generate`. For cargo-fuzz and a nightly toolchain:
# `cargo +nightly fuzz run hello`.
[package]
name = \"ulnet-fuzz\"
version = \"0.0.0\"
edition = \"2024\"
publish = false

[package.metadata]
cargo-fuzz = true

[workspace]

[dependencies]
fuzz-replay = { path = \"../testing/fuzz-replay\" }
libfuzzer-sys = \"0.4\"
";

/// The files and what is in them.
pub fn files() -> Vec<(PathBuf, String)> {
    let fuzz = fuzz_dir();
    let mut manifest = MANIFEST.to_owned();
    let mut files = Vec::new();
    for target in TARGETS {
        let name = target.name;
        manifest += &format!(
            "\n[[bin]]\nname = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"\ntest = false\n\
             doc = false\nbench = false\n"
        );
        let source = format!(
            "//! libFuzzer on `{name}`; the code is in `testing/fuzz-replay`.\n#![no_main]\n\n\
             use fuzz_replay::Target;\n\n\
             libfuzzer_sys::fuzz_target!(|input: &[u8]| {{\n    \
             (Target::named(\"{name}\").expect(\"a row of the table\").run)(input)\n}});\n"
        );
        files.push((fuzz.join("fuzz_targets").join(format!("{name}.rs")), source));
    }
    files.push((fuzz.join("Cargo.toml"), manifest));
    files
}

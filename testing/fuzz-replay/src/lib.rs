//! One total function per decoder, fed with any bytes: it must neither panic nor break what it
//! promises (parse, emit, parse again: equal). The functions are run three ways: over the committed
//! corpus and its mutations by the tests and the binary of this crate, on the stable toolchain; and
//! by libFuzzer from `fuzz/`.
//!
//! To add a target: write the function under `targets/`, add its row to [`TARGETS`], put at least
//! one input into `fuzz/corpus/NAME/`, and run `cargo run -p fuzz-replay -- --generate`, which
//! writes the libFuzzer side. `corpus.rs` reads and writes inputs, `mutate.rs` changes them,
//! `import.rs` and `import_lustre.rs` make inputs of the golden bytes and captures.

pub mod corpus;
pub mod generate;
pub mod import;
mod import_lustre;
pub mod mutate;
pub mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use targets::{control, ib, lustre, node, pcap, recording, sock, types, wire};

/// A decoder under test.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name: of the corpus folder, and of the libFuzzer binary.
    pub name: &'static str,
    /// Panics where the decoder panics or breaks a promise.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "acceptor", run: wire::acceptor },
    Target { name: "hello", run: wire::hello },
    Target { name: "frame", run: wire::frame },
    Target { name: "hdr", run: wire::hdr },
    Target { name: "ping_info", run: wire::ping_info },
    Target { name: "selftest", run: wire::selftest },
    Target { name: "ib", run: wire::ib },
    Target { name: "lustre_msg", run: lustre::msg },
    Target { name: "lustre_fixed", run: lustre::fixed },
    Target { name: "lustre_lock", run: lustre::lock },
    Target { name: "lustre_record", run: lustre::record },
    Target { name: "lustre_striping", run: lustre::striping },
    Target { name: "lustre_log", run: lustre::log },
    Target { name: "lustre_table", run: lustre::table },
    Target { name: "lustre_files", run: lustre::files },
    Target { name: "lustre_directory", run: lustre::directory },
    Target { name: "lustre_acl", run: lustre::acl },
    Target { name: "lustre_across", run: lustre::across },
    Target { name: "net", run: types::net },
    Target { name: "nid", run: types::nid },
    Target { name: "nid_list", run: types::nid_list },
    Target { name: "pcap", run: pcap::pcap },
    Target { name: "admin_frames", run: control::admin_frames },
    Target { name: "config", run: control::config },
    Target { name: "words", run: control::words },
    Target { name: "scenario", run: control::scenario },
    Target { name: "legacy", run: control::legacy },
    Target { name: "node", run: node::node },
    Target { name: "recording", run: recording::recording },
    Target { name: "conn", run: sock::conn },
    Target { name: "ib_conn", run: ib::ib_conn },
];

impl Target {
    /// The target of that name.
    pub fn named(name: &str) -> Option<Self> {
        TARGETS.iter().copied().find(|target| target.name == name)
    }

    /// Runs the target over `input`; the panic has been printed when this returns false.
    pub fn survives(&self, input: &[u8]) -> bool {
        catch_unwind(AssertUnwindSafe(|| (self.run)(input))).is_ok()
    }
}

/// The folder `fuzz` of the repository.
pub fn fuzz_dir() -> PathBuf {
    repository().join("fuzz")
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

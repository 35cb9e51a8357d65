//! Captures and stages for the tests.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use interop::capture::Capture;
use interop::stage::Stage;

/// The path of a recorded capture.
pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../fixtures/pcap/{name}.pcap"))
}

/// A recorded capture.
pub(crate) fn capture(name: &str) -> Capture {
    Capture::load(&path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// Addresses from their texts.
pub(crate) fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect("an address")).collect()
}

/// The stage for a capture; `None`, said loudly, where there cannot be one.
pub(crate) fn stage(case: &str, capture: &Capture, node: &[IpAddr]) -> Option<Stage> {
    match Stage::set("interop", capture, node) {
        Ok(stage) => Some(stage.expect("a stage can be set")),
        Err(why) => {
            netns::skipped(&format!("interop {case}"), why);
            None
        }
    }
}

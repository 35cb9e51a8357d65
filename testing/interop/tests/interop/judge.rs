//! tshark on the kernel's captures alone: what it shows there is the measure for ours, so it is
//! fixed here what that measure holds.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use interop::capture::{Capture, What};
use interop::player::Sent;
use interop::tshark::{self, Kinds};
use interop::{report, traffic};

use crate::support::{capture, path};

/// Captures with TCP connections of kernel nodes, one of each sort.
const KERNEL: &[&str] = &[
    "tcp-hello-ping",
    "discovery-push",
    "nonmr-ping",
    "keepalive-noop",
    "conn-race",
    "conns-per-peer-2",
    "selftest-ping",
    "selftest-brw-small",
    "ipv6-large-nid",
    "raw-peer-ping-versions",
    "raw-peer-message-errors",
    "raw-peer-v2-csum",
];

/// Where reports and captures of our own traffic go.
pub(crate) fn out_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("interop")
}

/// What tshark sees of all kernel nodes; `None`, said loudly, without tshark.
pub(crate) fn kernel(case: &str) -> Option<Kinds> {
    if !tshark::available() {
        netns::skipped(&format!("tshark on {case}"), "tshark is not installed");
        return None;
    }
    static SEEN: OnceLock<Kinds> = OnceLock::new();
    let look = || {
        let mut all = Kinds::new();
        for name in KERNEL {
            let seen = tshark::dissect(&path(name), &[]).unwrap_or_else(|e| panic!("{name}: {e}"));
            tshark::merge(&mut all, seen);
        }
        all
    };
    Some(SEEN.get_or_init(look).clone())
}

/// What was sent in a capture, as the player would have recorded it.
fn sent(capture: &Capture) -> Vec<Sent> {
    let sent = |event: &interop::capture::Event| match &event.what {
        What::Item(item) => Some(Sent {
            at: event.at,
            conn: event.conn,
            from: event.from,
            bytes: item.bytes.clone(),
        }),
        _ => None,
    };
    capture.events.iter().filter_map(sent).collect()
}

#[test]
fn tshark_shows_the_fields_of_every_kind_of_kernel_message() {
    let Some(kernel) = kernel("the kernel's captures") else { return };
    for (kind, fields) in [("ACK (0)", 16), ("PUT (1)", 18), ("GET (2)", 18), ("REPLY (3)", 14)] {
        let seen = kernel.get(kind).unwrap_or_else(|| panic!("no {kind} in {:?}", kernel.keys()));
        assert!(seen.fields.len() >= fields, "{kind}: {:?}", seen.fields);
    }
    assert!(kernel.contains_key("NOOP"), "{:?}", kernel.keys());
    let mut table = "tshark on the kernel's captures\n".to_owned();
    for (kind, seen) in &kernel {
        let (count, fields) = (seen.count, seen.fields.len());
        table.push_str(&format!("  {kind}: {count} seen, {fields} fields in each"));
        table.push_str(&format!(", complaints {:?}\n", seen.complaints));
    }
    report::save(&out_dir(), "00-tshark-kernel", &table).unwrap();
}

#[test]
fn made_up_headers_do_not_change_what_tshark_sees() {
    if kernel("made-up headers").is_none() {
        return;
    }
    fs::create_dir_all(out_dir()).unwrap();
    for name in ["discovery-push", "ipv6-large-nid", "keepalive-noop"] {
        let capture = capture(name);
        let file = out_dir().join(format!("{name}.rewritten.pcap"));
        fs::write(&file, traffic::pcap(&capture.conns, &sent(&capture))).unwrap();
        let (recorded, rewritten) =
            (tshark::dissect(&path(name), &[]).unwrap(), tshark::dissect(&file, &[]).unwrap());
        assert_eq!(recorded, rewritten, "{name}");
    }
}

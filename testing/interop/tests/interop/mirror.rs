//! The judge judged: a player in the part of the kernel node, against the player of the others. What
//! it sends is the capture itself, so nothing may be different; and what is changed on purpose must
//! be found.

use std::thread;
use std::time::Duration;

use interop::capture::{Capture, What};
use interop::layout::Kind;
use interop::player::{Outcome, Player, Setting, WAIT};

use crate::support::{addresses, capture, stage};

/// Plays `theirs` to a player that plays `node`'s part of `ours`.
fn mirror(
    case: &str,
    theirs: &Capture,
    ours: &Capture,
    node: &[&str],
    wait: Duration,
) -> Option<Outcome> {
    let node = addresses(node);
    let stage = stage(case, theirs, &node)?;
    let others: Vec<_> =
        theirs.addresses().into_iter().filter(|address| !node.contains(address)).collect();
    let theirs = Setting { capture: theirs, node: &node, host: &stage.player, port: 988, wait };
    let ours = Setting { capture: ours, node: &others, host: &stage.node, port: 988, wait: WAIT };
    let (mut ignore, mut ignore_too) = (|(): &()| {}, |(): &()| {});
    // Both listen before the first connection.
    let part = Player::new(&ours, Vec::new(), &mut ignore, |_| false).expect("addresses are there");
    let player =
        Player::new(&theirs, Vec::new(), &mut ignore_too, |_| false).expect("addresses are there");
    thread::scope(|scope| {
        let player = scope.spawn(|| player.play());
        let part = part.play();
        let outcome = player.join().expect("it plays");
        drop(part);
        Some(outcome)
    })
}

/// For what is known not to come.
const SHORT: Duration = Duration::from_secs(2);

fn differences(outcome: &Outcome) -> Vec<String> {
    outcome.rows.iter().flat_map(|row| row.differences.clone()).collect()
}

#[test]
fn a_capture_played_to_itself_shows_no_difference() {
    let cases: [(&str, &[&str]); 6] = [
        ("discovery-push", &["10.77.0.3", "10.77.1.3"]),
        ("discovery-push", &["10.77.0.2", "10.77.1.2"]),
        ("ipv6-large-nid", &["fd77::3", "10.77.0.3"]),
        ("conn-race", &["10.77.0.3"]),
        ("nonmr-ping", &["10.77.0.2", "10.77.1.2"]),
        ("selftest-brw-small", &["10.77.0.3"]),
    ];
    for (name, node) in cases {
        let capture = capture(name);
        let Some(outcome) = mirror(name, &capture, &capture, node, WAIT) else { return };
        assert_eq!(differences(&outcome), [""; 0], "{name} as {node:?}");
        let compared: usize = outcome.rows.iter().map(|row| row.compared).sum();
        assert!(compared > 3, "{name}: only {compared} messages compared");
    }
}

#[test]
fn a_changed_a_missing_and_a_surplus_message_are_found() {
    let name = "tcp-hello-ping";
    let kernel = capture(name);
    let is_reply = |what: &What| matches!(what, What::Item(item) if item.kind == Kind::Reply);
    let at = kernel.events.iter().position(|event| is_reply(&event.what)).unwrap();

    let mut changed = kernel.clone();
    if let What::Item(item) = &mut changed.events[at].what {
        let features = item.fields().into_iter().find(|f| f.name == "ping.features").unwrap();
        item.bytes[features.range.start] ^= 1;
    }
    let Some(outcome) = mirror(name, &kernel, &changed, &["10.77.0.3"], SHORT) else { return };
    let found = differences(&outcome);
    assert_eq!(found, ["REPLY ping.features: expected 0x1e, got 0x1f"]);

    let mut laden = kernel.clone();
    if let What::Item(item) = &mut laden.events[at].what {
        // The second cookie of the frame: an acknowledgement without a request.
        item.bytes[16] = 7;
    }
    let outcome = mirror(name, &kernel, &laden, &["10.77.0.3"], SHORT).unwrap();
    assert_eq!(differences(&outcome), ["surplus: acknowledgement of zero-copy cookie 0x7"]);

    let mut missing = kernel.clone();
    missing.events.remove(at);
    let outcome = mirror(name, &kernel, &missing, &["10.77.0.3"], SHORT).unwrap();
    assert_eq!(differences(&outcome), ["did not send REPLY payload_length 0x40"], "{outcome:?}");

    let mut surplus = kernel.clone();
    surplus.events.insert(at, kernel.events[at].clone());
    let outcome = mirror(name, &kernel, &surplus, &["10.77.0.3"], SHORT).unwrap();
    assert_eq!(differences(&outcome), ["surplus: REPLY payload_length 0x40"]);
}

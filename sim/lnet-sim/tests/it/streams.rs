//! What connections at message level do as TCP's would.

use std::sync::Arc;

use lnet_scenario::parse;
use lnet_sim::{Played, play};

fn two(every: &str, fault: &str) -> Played {
    let text = format!(
        r#"
name = "two"
duration = "100s"
profile = "kernel"
[[net]]
name = "tcp"
[[node]]
name = "a"
rails = ["tcp"]
[[node]]
name = "b"
rails = ["tcp"]
[[workload]]
kind = "request"
from = "a"
to = "b"
every = "{every}"
size = 64
reply = 64
timeout = "20s"
[[fault]]
at = "5s"
{fault}
"#
    );
    play(Arc::new(parse("two", &text).unwrap()), None, Default::default())
}

#[test]
fn messages_lost_in_a_total_outage_are_repeated_soon_after() {
    for kind in ["loss", "corrupt"] {
        let fault = format!("kind = \"{kind}\"\nfor = \"2s\"\non = \"b\"\nshare = \"100%\"");
        let summary = two("100ms", &fault).summary;
        // The transport asks after 0.2, 0.6, 1.4, 3 s.
        assert!(summary.errors == 0 && summary.stall_max < 4_000_000_000, "{kind}: {summary}");
    }
}

#[test]
fn a_half_open_connection_is_noticed_by_an_idle_holder() {
    let played = two("40s", "kind = \"kill\"\nfor = \"1s\"\non = \"b\"");
    assert_eq!((played.summary.completed, played.summary.errors), (3, 0), "{}", played.summary);
}

/// Its header is with the receiver's node, and the rest in the receiver's socket. It came with the bytes
/// of what the sender's next life sent.
#[test]
fn a_message_that_its_receiver_deferred_outlives_its_sender() {
    const ROUTED: &str = r#"
name = "deferred"
duration = "30s"
[[net]]
name = "tcp"
peer_credits = 1
[[net]]
name = "o2ib"
peer_credits = 1
[[node]]
name = "r"
rails = ["tcp", "o2ib"]
router = true
tunables = { tiny_buffers = 512, small_buffers = 256, large_buffers = 32, peer_buffer_credits = 1 }
[[node]]
name = "c"
rails = ["tcp"]
routes = [{ net = "o2ib", gateway = "r" }]
[[node]]
name = "s"
rails = ["o2ib"]
routes = [{ net = "tcp", gateway = "r" }]
[[workload]]
kind = "put"
from = "s"
to = "c"
size = 65536
every = "100ms"
ack = false
timeout = "5s"
[[fault]]
kind = "slow"
at = "5s"
for = "15s"
on = "r/0"
bandwidth = "1Mbit/s"
[[fault]]
kind = "kill"
at = "8s"
for = "200ms"
on = "s"
[[fault]]
kind = "kill"
at = "12s"
for = "200ms"
on = "s"
"#;
    let scenario = parse("deferred", ROUTED).unwrap();
    let played = play(Arc::new(scenario), None, Default::default());
    assert!(played.summary.completed > 50, "{}", played.summary);
    assert_eq!((played.summary.damaged, played.violation), (0, None));
}

//! The request layer: `ulnet sim paper rpc`.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use lnet_types::Instant;
use lnet_wire::Kind;
use lustre_wire::ImportKind;
use ptlrpc::ImportState;

use super::PaperRow;
use crate::directory::HostId;
use crate::message::Messages;
use crate::observe::{Observer, Seen, View};
use crate::rpc::RpcSeen;
use crate::sim::Sim;

/// The client and the server of each world.
const CLIENT: HostId = HostId(0);

/// What was seen of a world.
#[derive(Default)]
struct Notes {
    /// When the client handed requests to its driver.
    requests: Vec<Instant>,
    rpc: Vec<(Instant, HostId, RpcSeen)>,
    died: Option<Instant>,
}

struct Watcher(Rc<RefCell<Notes>>);

impl Observer for Watcher {
    fn name(&self) -> &'static str {
        "paper"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        let mut notes = self.0.borrow_mut();
        let requests = ImportKind::Osc.portals().0.0;
        match *seen {
            Seen::Sent { host: CLIENT, transmit, .. } => {
                if matches!(transmit.hdr.kind, Kind::Put { portal, .. } if portal == requests) {
                    notes.requests.push(view.now);
                }
            }
            Seen::Rpc { host, seen } => notes.rpc.push((view.now, host, seen.clone())),
            Seen::Died { .. } => notes.died = Some(view.now),
            _ => {}
        }
        Ok(())
    }
}

impl Notes {
    /// When something of the request layer was first seen, from `from` on.
    fn first(&self, from: Instant, is: impl Fn(&RpcSeen) -> bool) -> Option<Instant> {
        self.rpc.iter().find(|(at, _, seen)| *at >= from && is(seen)).map(|(at, _, _)| *at)
    }

    /// The longest that a call took.
    fn longest(&self) -> Option<Duration> {
        let took = self.rpc.iter().filter_map(|(_, _, seen)| match seen {
            RpcSeen::Ended { took, .. } => Some(*took),
            _ => None,
        });
        took.max()
    }

    /// The last call that was begun before `at`, until the client gave up the connection.
    fn gave_up(&self, at: Instant) -> Option<Duration> {
        let called = |seen: &RpcSeen| matches!(seen, RpcSeen::Called { .. });
        let begun = self.first(at, called)?;
        let lost = |seen: &RpcSeen| {
            matches!(seen, RpcSeen::State { state: ImportState::Disconnected, .. })
        };
        Some(self.first(begun, lost)?.saturating_since(begun))
    }
}

/// Plays a client that calls a server from second `start` to `until`, once a second.
fn watch(top: &str, rails: &str, (start, until): (u64, u64), faults: &str) -> Notes {
    let calls = format!("every = \"1s\"\nstart = \"{start}s\"\nuntil = \"{until}s\"");
    watch_calls(top, rails, &calls, faults)
}

/// Plays a client that calls a server at the pace that is given.
fn watch_calls(top: &str, rails: &str, calls: &str, faults: &str) -> Notes {
    let text = format!(
        r#"
name = "paper"
duration = "4000s"
{top}
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
rails = [{rails}]
[[node]]
name = "server"
rails = [{rails}]
[[target]]
name = "t"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
{calls}
{faults}
"#
    );
    let notes = Rc::new(RefCell::new(Notes::default()));
    // The text is ours; a test plays each.
    let Ok(scenario) = lnet_scenario::parse("paper", &text) else { return Notes::default() };
    let mut sim = Sim::new(Arc::new(scenario), Some(1), Messages::new());
    sim.observe(Box::new(Watcher(notes.clone())));
    // The watcher objects to nothing.
    let _ = sim.run();
    notes.take()
}

const fn secs(n: u64) -> Instant {
    Instant::from_secs(n)
}

/// From one ping of an idle client to the next.
fn ping(top: &str) -> Option<Duration> {
    let notes = watch(top, "\"tcp\"", (0, 1), "");
    let [.., one, next] = notes.requests[..] else { return None };
    Some(next.saturating_since(one))
}

/// From the last request of a client that dies to its eviction.
fn eviction(top: &str) -> Option<Duration> {
    let fault = "[[fault]]\nat = \"100s\"\nkind = \"kill\"\non = \"client\"";
    let notes = watch(top, "\"tcp\"", (0, 90), fault);
    let last = *notes.requests.iter().rfind(|at| Some(**at) <= notes.died)?;
    let evicted = notes.first(last, |seen| matches!(seen, RpcSeen::Evicted { .. }))?;
    Some(evicted.saturating_since(last))
}

/// From a request that is lost without a report until the client notices.
fn silent_loss(top: &str) -> Option<Duration> {
    let fault = "[[fault]]\nat = \"99500ms\"\nfor = \"1s\"\nkind = \"drop\"\non = \"server\"\nshare = \"100%\"";
    watch(top, "\"tcp\"", (90, 101), fault).gave_up(secs(100))
}

/// By how much the longest call after one silent loss is longer than the deadline of its request, for
/// several at_min (PA-120).
fn beyond_deadline() -> Option<Duration> {
    let fault = "[[fault]]\nat = \"99500ms\"\nfor = \"1s\"\nkind = \"drop\"\non = \"server\"\nshare = \"100%\"";
    let beyond = [5, 10, 20, 40, 60].map(|at_min| {
        let top = format!("[rpc]\nprofile = \"documents\"\nat_min = \"{at_min}s\"");
        let longest = watch(&top, "\"tcp\"", (90, 101), fault).longest()?;
        longest.checked_sub(Duration::from_secs(2 * at_min))
    });
    beyond.into_iter().collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// From a request to a server whose process is dead until the client notices.
fn send_failure() -> Option<Duration> {
    let fault = "[[fault]]\nat = \"99500ms\"\nkind = \"kill\"\non = \"server\"\nprocess = true";
    watch("", "\"tcp\"", (90, 101), fault).gave_up(secs(100))
}

/// How long early replies keep a client waiting for a server that does not come to an end.
fn given_up(at_max: u64) -> Option<Duration> {
    let top = format!("[rpc]\nat_max = \"{at_max}s\"");
    let fault = "[[fault]]\nat = \"99500ms\"\nfor = \"2s\"\nkind = \"handler_delay\"\ntarget = \"t\"\nby = \"1500s\"";
    watch(&top, "\"tcp\"", (90, 101), fault).gave_up(secs(100))
}

/// The longest call while one of two rails goes black, by the rules of a profile of LNet.
fn rail(profile: &str) -> Option<Duration> {
    let top = format!("profile = \"{profile}\"");
    let fault = "[[fault]]\nat = \"100s\"\nfor = \"60s\"\nkind = \"carrier\"\non = \"server/0\"\nknown_after = \"60s\"";
    watch(&top, "\"tcp\", \"tcp\"", (0, 200), fault).longest()
}

/// The longest that a request may take, with both estimates at their bounds: the server's part was
/// learnt from a handler that took at_max, the net's from a server that stood still as long, and the
/// request after both is lost.
fn longest_request(profile: &str, at_max: u64) -> Option<Duration> {
    let top = format!(
        "tunables = {{ transaction_timeout = 4000 }}\n[rpc]\nprofile = \"{profile}\"\nat_max = \"{at_max}s\"\nat_history = \"9000s\"\nobd_timeout = \"2000s\"\nping_interval = \"900s\""
    );
    // The calls begin at 10 s, `still` and `lost + 1`.
    let (still, lost) = (20 + at_max * 3 / 2, 29 + at_max * 3);
    let calls = format!("every = \"{}ms\"\nstart = \"10s\"", at_max * 1500 + 10_000);
    let faults = format!(
        r#"
[[fault]]
kind = "handler_delay"
at = "9s"
for = "5s"
target = "t"
by = "{}s"
[[fault]]
kind = "pause"
at = "{}500ms"
for = "{}s"
on = "server"
[[fault]]
kind = "rpc_lose"
at = "{lost}s"
on = "server"
part = "request"
"#,
        at_max - 1,
        still - 1,
        at_max + 1,
    );
    watch_calls(&top, "\"tcp\"", &calls, &faults).gave_up(secs(lost))
}

/// How long a handler of 1076 s keeps its client waiting, without the limit of early replies and with
/// it.
fn beyond_at_max(defect: bool) -> Option<Duration> {
    let top = format!("[rpc]\nprofile = \"documents\"\nearly_reply_defect = {defect}");
    let fault = "[[fault]]\nat = \"99500ms\"\nfor = \"1s\"\nkind = \"handler_delay\"\ntarget = \"t\"\nby = \"1076s\"";
    let notes = watch(&top, "\"tcp\"", (100, 101), fault);
    notes.gave_up(secs(100)).or_else(|| notes.longest())
}

/// How long a server waits for bulk data that were lost, where a request may take 400 s.
fn lost_bulk(bulk_timeout: u64) -> Option<Duration> {
    let top = format!(
        "[rpc]\nprofile = \"documents\"\nat_max = \"400s\"\nbulk_timeout = \"{bulk_timeout}s\""
    );
    let calls = "every = \"1s\"\nstart = \"100s\"\nuntil = \"101s\"\nbulk = \"1MiB\"";
    let fault =
        "[[fault]]\nat = \"90s\"\nkind = \"rpc_lose\"\non = \"server\"\npart = \"bulk\"\ncount = 1";
    let notes = watch_calls(&top, "\"tcp\"", calls, fault);
    notes.rpc.iter().find_map(|(_, _, seen)| match seen {
        RpcSeen::Unmoved { took, .. } => Some(*took),
        _ => None,
    })
}

/// The table.
pub fn paper_rpc() -> Vec<PaperRow> {
    let long = "[rpc]\nobd_timeout = \"300s\"\nping_interval = \"75s\"";
    let slow = "[rpc]\nat_min = \"40s\"";
    let paper = "[rpc]\nprofile = \"documents\"\nat_min = \"40s\"";
    let row = PaperRow::time;
    vec![
        row("ping of an idle client, obd_timeout 100", "25 s", ping("")).near(25.0),
        row("ping of an idle client, obd_timeout 300", "75 s", ping(long)).near(75.0),
        row("eviction of a dead client, obd_timeout 100", "150 s", eviction(""))
            .near(150.0)
            .because("DEC-20"),
        row("eviction of a dead client, obd_timeout 300", "450 s", eviction(long))
            .near(450.0)
            .because("DEC-20"),
        row("silent loss noticed, at_min 5", "-", silent_loss(""))
            .near(16.0)
            .because("P-95: 11 s and 5 s"),
        row("silent loss noticed, at_min 40, documents", "80 s", silent_loss(paper))
            .near(80.0)
            .because("DEC-38"),
        row("silent loss noticed, at_min 40, default", "-", silent_loss(slow))
            .near(95.0)
            .because("P-95: 55 s and 40 s"),
        row(
            "a lost request, at_min 5 to 60: longest beyond its deadline",
            "reconnect",
            beyond_deadline(),
        )
        .within(0.0, 1.0)
        .because("the reconnect, which nothing delays here"),
        row("send failure noticed", "< 5 s", send_failure()).within(0.0, 5.0),
        row("longest RPC, at_max 600, documents", "1200 s", longest_request("documents", 600))
            .near(1200.0)
            .because("DEC-38"),
        row("longest RPC, at_max 600, kernel", "-", longest_request("kernel", 600))
            .near(1355.0)
            .because("1355 s by P-95"),
        row("longest RPC, at_max 400, documents", "800 s", longest_request("documents", 400))
            .near(800.0)
            .because("DEC-38"),
        row("longest RPC, at_max 400, kernel", "-", longest_request("kernel", 400))
            .near(905.0)
            .because("905 s by P-95"),
        row("endless handler given up, at_max 600", "-", given_up(600))
            .near(605.0)
            .because("arrival + 600 s, and the net"),
        row("endless handler given up, at_max 400", "-", given_up(400))
            .near(405.0)
            .because("arrival + 400 s, and the net"),
        row("handler of 1076 s given up, at_max 600, documents", "600 s", beyond_at_max(false))
            .near(605.0)
            .because("PA-101: arrival + 600 s, and the net"),
        row("the same with the defect: answered", "> 1000 s", beyond_at_max(true))
            .near(1076.0)
            .because("early_reply_defect, PA-101"),
        row("lost bulk data given up, at_max 400", "100 s", lost_bulk(100))
            .near(100.0)
            .because("bulk_timeout, PA-106"),
        row("the same without bulk_timeout", "400 s", lost_bulk(0)).near(400.0).because("at_max"),
        row("longest call, one of two rails black, profile default", "-", rail("default"))
            .within(0.0, 1.0)
            .because("suspicion"),
        row("longest call, one of two rails black, profile kernel", "-", rail("kernel"))
            .because("the kernel's rules"),
        row("longest call, one of two rails black, profile off", "-", rail("off"))
            .because("no retries of LNet"),
    ]
}

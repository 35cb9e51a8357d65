//! Values of the paper that weigh one cost against another, swept: `ulnet sim paper sweeps`. Clients call a
//! list on one server; what befalls them is in the text of each world.

use core::time::Duration;
use std::sync::Arc;

use lnet_types::Instant;

use super::{PaperRow, Unit};
use crate::message::Messages;
use crate::rpc::RpcFigures;
use crate::sim::Sim;

/// Plays clients that call a list once a second, with these tunables and faults.
fn calls(tunables: &str, faults: &str) -> Option<RpcFigures> {
    let text = format!(
        r#"
name = "paper"
duration = "800s"
profile = "off"
tunables = {{ discovery = 0, transaction_timeout = 60 }}
[rpc]
profile = "documents"
obd_timeout = "300s"
ping_interval = "75s"
{tunables}
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
count = 2
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "list"
kind = "list"
on = "server"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "list"
window = 1
think = "1s"
until = "200s"
{faults}
"#
    );
    // The text is ours; a test plays each.
    let scenario = Arc::new(lnet_scenario::parse("paper", &text).ok()?);
    let mut sim = Sim::new(scenario.clone(), Some(1), Messages::new());
    // No observer is there to object.
    let _ = sim.run_until(Instant::ZERO + scenario.duration);
    sim.tally().rpc.figures()
}

fn at_min(seconds: u32, fault: &str) -> Option<RpcFigures> {
    calls(&format!("at_min = \"{seconds}s\"\nat_max = \"600s\""), fault)
}

fn at_max(seconds: u32, fault: &str) -> Option<RpcFigures> {
    calls(&format!("at_min = \"40s\"\nat_max = \"{seconds}s\""), fault)
}

/// Connections that were made again: each is a request that timed out.
fn timeouts(what: &'static str, played: Option<RpcFigures>) -> PaperRow {
    let played = played.map(|rpc| rpc.reconnects as f64);
    PaperRow { played, unit: Unit::Plain, ..PaperRow::time(what, "-", None) }
}

/// The longest call.
fn longest(what: &'static str, played: Option<RpcFigures>) -> PaperRow {
    PaperRow::time(what, "-", played.map(|rpc| Duration::from_nanos(rpc.longest)))
}

/// The table.
pub fn paper_sweeps() -> Vec<PaperRow> {
    const QUIESCE: &str = "[[fault]]\nat = \"60s\"\nfor = \"15s\"\nkind = \"quiesce\"\n";
    const LOSS: &str = "[[fault]]\nat = \"60s\"\nkind = \"rpc_lose\"\non = \"server\"\npart = \"reply\"\nopcode = \"append\"\ncount = 1\n";
    const BUSY: &str = "[[fault]]\nat = \"60s\"\nfor = \"300s\"\nkind = \"handler_delay\"\ntarget = \"list\"\nby = \"250s\"\n";
    let never = f64::INFINITY;
    vec![
        timeouts("15 s quiesce, at_min 5: requests that time out", at_min(5, QUIESCE))
            .within(1.0, never),
        timeouts("the same, at_min 20", at_min(20, QUIESCE)).within(0.0, 0.0),
        timeouts("the same, at_min 40", at_min(40, QUIESCE)).within(0.0, 0.0),
        timeouts("the same, at_min 60", at_min(60, QUIESCE)).within(0.0, 0.0),
        longest("a lost reply, at_min 5: the call takes", at_min(5, LOSS)).within(9.0, 16.0),
        longest("the same, at_min 20", at_min(20, LOSS)).within(39.0, 46.0),
        longest("the same, at_min 40", at_min(40, LOSS)).within(79.0, 86.0),
        longest("the same, at_min 60", at_min(60, LOSS)).within(119.0, 126.0),
        timeouts("servers at rest, at_max 200: requests that time out", at_max(200, ""))
            .within(0.0, 0.0),
        timeouts("the same, at_max 400", at_max(400, "")).within(0.0, 0.0),
        timeouts("the same, at_max 600", at_max(600, "")).within(0.0, 0.0),
        timeouts("servers take 250 s, at_max 100: requests that time out", at_max(100, BUSY))
            .within(1.0, never),
        timeouts("the same, at_max 400", at_max(400, BUSY)).within(0.0, 0.0),
        timeouts("the same, at_max 600", at_max(600, BUSY)).within(0.0, 0.0),
    ]
}

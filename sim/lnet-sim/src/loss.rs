//! What lost messages cost the request layer (PA-033): one world, played with more and more of them
//! lost. `ulnet sim paper loss` prints it.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use crate::message::Messages;
use crate::rpc::RpcFigures;
use crate::sim::Sim;

/// How long messages get lost, seconds.
const SPAN: u64 = 600;

/// One play.
#[derive(Clone, Debug)]
pub struct LossRow {
    /// Messages that are lost, of a hundred.
    pub percent: u64,
    /// Its figures.
    pub figures: RpcFigures,
}

impl LossRow {
    /// What stands above the columns of its text.
    pub const HEAD: &'static str =
        "lost  calls/s  failed         p99     longest  connected again  copies  evicted";

    /// Calls that were answered in a second.
    pub fn rate(&self) -> f64 {
        self.figures.answered as f64 / SPAN as f64
    }
}

impl fmt::Display for LossRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |nanos| format!("{:.4} s", Duration::from_nanos(nanos).as_secs_f64());
        let RpcFigures { failed, p99, longest, reconnects, copies, evictions, .. } = self.figures;
        write!(
            f,
            "{:>3}%  {:>7.1}  {failed:>6}  {:>10}  {:>10}  {reconnects:>15}  {copies:>6}  {evictions:>7}",
            self.percent,
            self.rate(),
            show(p99),
            show(longest),
        )
    }
}

/// Eight clients that call a server, four calls at a time each, with this part of all messages lost
/// without a report.
fn play(percent: u64) -> Option<RpcFigures> {
    let text = format!(
        r#"
name = "loss"
duration = "{SPAN}s"
[[net]]
name = "tcp"
latency = "100us"
[[node]]
name = "client"
count = 8
rails = ["tcp"]
[[node]]
name = "server"
rails = ["tcp"]
[[target]]
name = "t"
kind = "list"
on = "server"
commit = "1s"
[[client]]
on = "client"
[[workload]]
kind = "rpc"
from = "client"
to = "t"
window = 4
think = "100ms"
reads = "30%"
[[fault]]
kind = "drop"
at = "0s"
on = "tcp"
share = "{percent}%"
"#
    );
    let scenario = lnet_scenario::parse("loss", &text).ok()?;
    let mut sim = Sim::new(Arc::new(scenario), Some(1), Messages::new());
    // No observer is there to object.
    let _ = sim.run();
    sim.tally().rpc.figures()
}

/// The sweep: 0 to 5 of a hundred messages lost.
pub fn loss_sweep() -> Vec<LossRow> {
    let row = |percent| Some(LossRow { percent, figures: play(percent)? });
    (0..=5).filter_map(row).collect()
}

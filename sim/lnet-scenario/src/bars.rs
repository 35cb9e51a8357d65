//! Reads `[bars]`: what must hold at the end.

use crate::error::ScenarioError;
use crate::model::{Bars, SocketBars};
use crate::read::Table;

pub(crate) fn read(top: &mut Table<'_, '_>) -> Result<Bars, ScenarioError> {
    let Some(v) = top.take("bars") else { return Ok(Bars::default()) };
    let mut t = v.table()?;
    let mut bars = Bars::default();
    for (key, field) in [
        ("errors", &mut bars.errors),
        ("duplicates", &mut bars.duplicates),
        ("completed", &mut bars.completed),
        ("resends", &mut bars.resends),
        ("retries", &mut bars.retries),
        ("control_rate", &mut bars.control_rate),
        ("executed_twice", &mut bars.executed_twice),
        ("lost_writes", &mut bars.lost_writes),
        ("evictions", &mut bars.evictions),
    ] {
        *field = t.take(key).map(|v| v.number(0, i64::MAX)).transpose()?.map(|n| n as u64);
    }
    for (key, field) in [
        ("stall_max", &mut bars.stall_max),
        ("stall_p99", &mut bars.stall_p99),
        ("gap_max", &mut bars.gap_max),
        ("detection_max", &mut bars.detection_max),
        ("recovery_max", &mut bars.recovery_max),
        ("rpc_longest_max", &mut bars.rpc_longest_max),
    ] {
        *field = t.take(key).map(|v| v.duration()).transpose()?;
    }
    bars.control_share = t.take("control_share").map(|v| v.share()).transpose()?;
    if let Some(v) = t.take("sockets") {
        bars.sockets = sockets(v.table()?)?;
    }
    t.finish()?;
    Ok(bars)
}

fn sockets(mut t: Table<'_, '_>) -> Result<SocketBars, ScenarioError> {
    let mut bars = SocketBars::default();
    for (key, field) in [
        ("stall_max", &mut bars.stall_max),
        ("stall_per_minute", &mut bars.stall_per_minute),
        ("back_max", &mut bars.back_max),
    ] {
        *field = t.take(key).map(|v| v.duration()).transpose()?;
    }
    for (key, field) in
        [("p50_percent", &mut bars.p50_percent), ("p99_percent", &mut bars.p99_percent)]
    {
        let most = i64::from(u32::MAX);
        *field = t.take(key).map(|v| v.number(100, most)).transpose()?.map(|n| n as u32);
    }
    t.finish()?;
    Ok(bars)
}

//! Reads `[bars]`: what must hold at the end.

use crate::error::ScenarioError;
use crate::model::Bars;
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
        ("control_rate", &mut bars.control_rate),
    ] {
        *field = t.take(key).map(|v| v.number(0, i64::MAX)).transpose()?.map(|n| n as u64);
    }
    for (key, field) in [
        ("stall_max", &mut bars.stall_max),
        ("stall_p99", &mut bars.stall_p99),
        ("gap_max", &mut bars.gap_max),
        ("detection_max", &mut bars.detection_max),
        ("recovery_max", &mut bars.recovery_max),
    ] {
        *field = t.take(key).map(|v| v.duration()).transpose()?;
    }
    bars.control_share = t.take("control_share").map(|v| v.share()).transpose()?;
    t.finish()?;
    Ok(bars)
}

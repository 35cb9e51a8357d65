//! The tables that a run leaves: one file for each case, shown by `.ci/run` and kept for the closing
//! note of a change.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::layout::End;
use crate::player::Outcome;

/// A difference that we mean.
#[derive(Clone, Copy, Debug)]
pub struct ByDesign {
    /// The case; empty for any.
    pub case: &'static str,
    /// The address of the other side; empty for any.
    pub peer: &'static str,
    /// Words that the difference contains.
    pub words: &'static str,
    /// Why we do it our way.
    pub reason: &'static str,
}

/// A judged case.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The table, ready to print.
    pub table: String,
    /// Unintended differences.
    pub unexpected: Vec<String>,
}

/// Sorts differences into meant and not meant, and makes the table.
pub fn judge(case: &str, outcome: &Outcome, tshark: &[String], by_design: &[ByDesign]) -> Verdict {
    let mut table = format!("{case}\n");
    let mut unexpected = Vec::new();
    let ends = outcome.node_ends.iter().flatten();
    for (row, end) in outcome.rows.iter().zip(ends) {
        let peer = row.conn.addr(end.other());
        let role = if *end == End::Server { "accepts from" } else { "connects to" };
        let (compared, differences) = (row.compared, row.differences.len());
        let _ = write!(table, "  {role} {peer}: {compared} compared, {differences} different");
        if row.left_out > 0 {
            let _ = write!(table, ", {} left out", row.left_out);
        }
        table.push('\n');
        for difference in &row.differences {
            let meant = by_design.iter().find(|rule| {
                (rule.case.is_empty() || rule.case == case)
                    && (rule.peer.is_empty() || peer.ip().to_string() == rule.peer)
                    && difference.contains(rule.words)
            });
            let _ = match meant {
                Some(rule) => writeln!(table, "    by design: {difference} — {}", rule.reason),
                None => writeln!(table, "    DIFFERENT: {difference}"),
            };
            if meant.is_none() {
                unexpected.push(format!("{case}: {role} {peer}: {difference}"));
            }
        }
    }
    for difference in tshark {
        let _ = writeln!(table, "    DIFFERENT to tshark: {difference}");
        unexpected.push(format!("{case}: tshark: {difference}"));
    }
    Verdict { table, unexpected }
}

/// Writes a table below the directory that `.ci/run` shows.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn save(dir: &Path, case: &str, table: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join(format!("{case}.txt")), table)
}

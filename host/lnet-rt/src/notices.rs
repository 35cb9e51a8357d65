//! The node's notices as log lines, at the levels that they ask for. A flood of them (a peer that
//! sends rubbish, a rail that loses everything) costs a bounded number of lines a second.

use lnet::{Level, Notice};
use lnet_types::Instant;

/// Lines in one second; what comes beyond is counted and reported in the next.
const LINES_PER_SECOND: u32 = 50;

/// How much has been printed lately.
#[derive(Debug, Default)]
pub(crate) struct Log {
    second: u64,
    lines: u32,
    skipped: u64,
}

impl Log {
    /// Prints a notice, or counts it. Returns whether it was printed.
    pub(crate) fn print(&mut self, now: Instant, notice: &Notice) -> bool {
        if now.as_secs() != self.second {
            self.second = now.as_secs();
            self.lines = 0;
            let skipped = core::mem::take(&mut self.skipped);
            if skipped > 0 {
                tracing::warn!("{skipped} more lines were not printed");
            }
        }
        if self.lines >= LINES_PER_SECOND {
            self.skipped += 1;
            return false;
        }
        self.lines += 1;
        match notice.level() {
            Level::Error => tracing::error!(target: "lnet", "{notice}"),
            Level::Warn => tracing::warn!(target: "lnet", "{notice}"),
            Level::Info => tracing::info!(target: "lnet", "{notice}"),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_each_second_and_what_was_cut_is_counted() {
        let mut log = Log::default();
        let notice = Notice::Lost(1);
        let printed = |log: &mut Log, second| {
            let now = Instant::from_secs(second);
            (0..200).filter(|_| log.print(now, &notice)).count()
        };
        assert_eq!(printed(&mut log, 7), 50);
        assert_eq!(log.skipped, 150);
        assert_eq!(printed(&mut log, 8), 50);
        assert_eq!(log.skipped, 150);
    }
}

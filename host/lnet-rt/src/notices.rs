//! The node's notices as log lines, at the levels that they ask for. A flood of them (a peer that
//! sends rubbish, a rail that loses everything) costs a bounded number of lines a second, and what is said
//! several times in a second (each message of a process that has ended) costs two.

use lnet::{Level, Notice};
use lnet_types::Instant;

/// Lines in one second; what comes beyond is counted and reported in the next.
const LINES_PER_SECOND: usize = 50;

/// What was printed lately.
#[derive(Debug, Default)]
pub(crate) struct Log {
    second: u64,
    /// The notices of this second, and how often each came again.
    said: Vec<(Notice, u64)>,
    skipped: u64,
    /// Whether something was counted.
    counted: bool,
}

impl Log {
    /// Says what was counted, once its second is over.
    pub(crate) fn turn(&mut self, now: Instant) {
        if self.counted && now.as_secs() != self.second {
            self.begin(now);
        }
    }

    fn begin(&mut self, now: Instant) {
        self.second = now.as_secs();
        self.counted = false;
        self.report();
    }

    /// Prints a notice, or counts it. Returns whether it was printed.
    pub(crate) fn print(&mut self, now: Instant, notice: &Notice) -> bool {
        if now.as_secs() != self.second {
            self.begin(now);
        }
        if let Some((_, again)) = self.said.iter_mut().find(|(said, _)| said == notice) {
            *again += 1;
            self.counted = true;
            return false;
        }
        if self.said.len() >= LINES_PER_SECOND {
            self.skipped += 1;
            self.counted = true;
            return false;
        }
        line(notice, 0);
        self.said.push((notice.clone(), 0));
        true
    }

    /// Says what was counted in the second that is over.
    fn report(&mut self) {
        for (notice, again) in self.said.drain(..).filter(|(_, again)| *again > 0) {
            line(&notice, again);
        }
        let skipped = core::mem::take(&mut self.skipped);
        if skipped > 0 {
            tracing::warn!("{skipped} more lines were not printed");
        }
    }
}

/// A line; `again`: it says how often the notice came again.
fn line(notice: &Notice, again: u64) {
    let more =
        if again > 0 { format!(" ({again} more in the same second)") } else { String::new() };
    match notice.level() {
        Level::Error => tracing::error!(target: "lnet", "{notice}{more}"),
        Level::Warn => tracing::warn!(target: "lnet", "{notice}{more}"),
        Level::Info => tracing::info!(target: "lnet", "{notice}{more}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_each_second_and_what_was_cut_is_counted() {
        let mut log = Log::default();
        let printed = |log: &mut Log, second| {
            let now = Instant::from_secs(second);
            (0..200).filter(|n| log.print(now, &Notice::Lost(*n))).count()
        };
        assert_eq!(printed(&mut log, 7), 50);
        assert_eq!(log.skipped, 150);
        assert_eq!(printed(&mut log, 8), 50);
        assert_eq!(log.skipped, 150);
    }

    #[test]
    fn what_is_said_again_in_a_second_is_one_line_and_a_count() {
        let mut log = Log::default();
        let now = Instant::from_secs(7);
        let printed = [1, 2, 1, 1].map(|n| log.print(now, &Notice::Lost(n)));
        assert_eq!(printed, [true, true, false, false]);
        assert_eq!(log.said, [(Notice::Lost(1), 2), (Notice::Lost(2), 0)]);
        log.turn(now);
        assert_eq!(log.said.len(), 2, "the second is not over");
        log.turn(Instant::from_secs(8));
        assert_eq!(log.said, []);
        assert!(log.print(Instant::from_secs(8), &Notice::Lost(1)), "another second");
    }
}

//! The account of a client: a line for each thing that it did, written as it happens, so that the account
//! of a client that is killed is there as well. Times are nanoseconds of the machine's monotonic clock.

use std::fmt::{Display, Write as _};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use lustre::history::Op;
use rustix::time::{ClockId, clock_gettime};

use super::{BLOCKS, OBJECTS};

/// The time now, of all processes of this machine.
pub(super) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    let part = |n: i64| u64::try_from(n).unwrap_or_default();
    part(t.tv_sec) * 1_000_000_000 + part(t.tv_nsec)
}

/// The object of a block, among all objects, and the target of an object.
pub(super) const fn object_of(block: u32) -> u32 {
    block / BLOCKS
}

pub(super) const fn target_of(object: u32) -> u32 {
    object / OBJECTS
}

/// Writes an account.
pub(super) struct Pen(File);

impl Pen {
    pub(super) fn new(path: &Path) -> Result<Self> {
        Ok(Self(File::create(path).with_context(|| path.display().to_string())?))
    }

    fn line(&mut self, line: impl Display) -> Result<()> {
        Ok(self.0.write_all(format!("{line}\n").as_bytes())?)
    }

    /// A write begins.
    pub(super) fn writes(&mut self, block: u32, value: u64) -> Result<()> {
        self.line(format_args!("write {block} {value} {}", now()))
    }

    /// The last write has ended.
    pub(super) fn wrote(&mut self, good: bool) -> Result<()> {
        self.line(format_args!("wrote {} {good}", now()))
    }

    /// A read has ended.
    pub(super) fn read(&mut self, block: u32, value: u64, begin: u64) -> Result<()> {
        self.line(format_args!("read {block} {value} {begin} {}", now()))
    }

    /// A block is of several writes, or of none.
    pub(super) fn torn(&mut self, block: u32) -> Result<()> {
        self.line(format_args!("torn {block}"))
    }

    /// All writes to an object have reached its target, or not.
    pub(super) fn settled(&mut self, object: u32, good: bool) -> Result<()> {
        self.line(format_args!("settled {object} {good}"))
    }

    /// An operation failed.
    pub(super) fn failed(&mut self, what: &str, why: &dyn Display) -> Result<()> {
        self.line(format_args!("failed {what}: {why}"))
    }

    /// The client has learnt that a target has evicted it.
    pub(super) fn evicted(&mut self, target: u32) -> Result<()> {
        self.line(format_args!("evicted {target} {}", now()))
    }

    /// A line of a journal was written, or refused for its number.
    pub(super) fn noted(&mut self, journal: u32, line: &str, written: bool) -> Result<()> {
        let what = if written { "noted" } else { "refused" };
        self.line(format_args!("{what} {journal} {line}"))
    }
}

/// What an account says.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) ops: Vec<Op>,
    pub(super) torn: u64,
    pub(super) failed: Vec<String>,
    /// By target, when it was known.
    pub(super) evicted: Vec<(u32, u64)>,
    /// Lines by journal.
    pub(super) noted: Vec<(u32, String)>,
    pub(super) refused: u64,
}

impl Account {
    /// Reads one. `killed`: what was not settled at its end has no outcome.
    pub(super) fn parse(text: &str, client: u32, killed: bool) -> Result<Self> {
        let mut account = Self::default();
        // A line that was under way when its process was killed.
        let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
        let mut open: Vec<usize> = Vec::new();
        let mut unsettled: Vec<usize> = Vec::new();
        for line in whole.lines() {
            account
                .line(line, client, &mut open, &mut unsettled)
                .with_context(|| format!("client {client}: '{line}'"))?;
        }
        if killed {
            for n in open.into_iter().chain(unsettled) {
                account.unsure(n);
            }
        }
        Ok(account)
    }

    fn unsure(&mut self, n: usize) {
        if let Some(op) = self.ops.get_mut(n) {
            op.unsure = true;
        }
    }

    fn line(
        &mut self,
        line: &str,
        client: u32,
        open: &mut Vec<usize>,
        unsettled: &mut Vec<usize>,
    ) -> Result<()> {
        let (what, rest) = line.split_once(' ').context("expected words")?;
        let mut words = rest.split(' ');
        let mut word = || words.next().context("a word is missing");
        match what {
            "write" => {
                let (block, value, begin) = (word()?.parse()?, word()?.parse()?, word()?.parse()?);
                open.push(self.ops.len());
                let (end, unsure) = (u64::MAX, false);
                self.ops.push(Op { block, client, value, writes: true, begin, end, unsure });
            }
            "wrote" => {
                let n = open.pop().context("no write is under way")?;
                let (end, good): (u64, bool) = (word()?.parse()?, word()?.parse()?);
                let op = self.ops.get_mut(n).context("no write")?;
                (op.end, op.unsure) = (end, !good);
                unsettled.push(n);
            }
            "read" => {
                let (block, value) = (word()?.parse()?, word()?.parse()?);
                let (begin, end) = (word()?.parse()?, word()?.parse()?);
                let unsure = false;
                self.ops.push(Op { block, client, value, writes: false, begin, end, unsure });
            }
            "settled" => {
                let (object, good): (u32, bool) = (word()?.parse()?, word()?.parse()?);
                let of = |op: Option<&Op>| op.is_some_and(|op| object_of(op.block) == object);
                let (settled, left) = unsettled.drain(..).partition(|n| of(self.ops.get(*n)));
                *unsettled = left;
                let settled: Vec<usize> = settled;
                if !good {
                    settled.into_iter().for_each(|n| self.unsure(n));
                }
            }
            "torn" => self.torn += 1,
            "failed" => self.failed.push(rest.to_owned()),
            "evicted" => self.evicted.push((word()?.parse()?, word()?.parse()?)),
            "noted" => {
                let journal = word()?.parse()?;
                self.noted.push((journal, words.collect::<Vec<_>>().join(" ")));
            }
            "refused" => self.refused += 1,
            _ => anyhow::bail!("unknown word"),
        }
        Ok(())
    }

    /// Leaves out reads that a client made after it was stopped and before it learnt that the target had
    /// evicted it meanwhile: it reads what it had cached, and cannot know better.
    pub(super) fn without_reads_under_lost_locks(&mut self, stopped: u64) {
        for &(target, known) in &self.evicted {
            self.ops.retain(|op| {
                let there = target_of(object_of(op.block)) == target;
                op.writes || !there || op.end < stopped || op.begin > known
            });
        }
    }
}

/// What is wrong with a journal: its numbers must rise, and its lines be those of the accounts.
pub(super) fn judge_journal(text: &str, noted: &[Vec<String>], killed: &[u32]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last = 0;
    let mut left: Vec<std::collections::VecDeque<&str>> =
        noted.iter().map(|lines| lines.iter().map(String::as_str).collect()).collect();
    for line in text.lines() {
        let mut words = line.split(' ').map(|word| word.parse::<u64>().ok());
        let (Some(Some(fence)), Some(Some(client))) = (words.next(), words.next()) else {
            wrong.push(format!("'{line}' is no line of a client"));
            continue;
        };
        if fence <= last {
            wrong.push(format!("'{line}' follows number {last}"));
        }
        last = fence;
        let place = usize::try_from(client).unwrap_or(usize::MAX);
        let own = left.get_mut(place);
        let known = own.is_some_and(|lines| match lines.front() {
            Some(next) if *next == line => lines.pop_front().is_some(),
            _ => false,
        });
        let dead = killed.iter().any(|dead| u64::from(*dead) == client);
        // A client that was killed may not have come to note its last line.
        let of_dead = dead && left.get(place).is_some_and(|lines| lines.is_empty());
        if !known && !of_dead {
            wrong.push(format!("'{line}' is not what client {client} has written next"));
        }
    }
    for (client, lines) in left.iter().enumerate() {
        if let Some(line) = lines.front() {
            let mut text = String::new();
            let _ = write!(text, "'{line}' of client {client} is missing, of {}", lines.len());
            wrong.push(text);
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use lustre::history::contradictions;

    use super::*;

    #[test]
    fn account_of_a_killed_client_has_no_outcome_for_what_was_not_settled() {
        let text = "write 0 7 10\nwrote 20 true\nsettled 0 true\nwrite 0 8 30\nwrote 40 true\n\
                    write 9 9 50\nread 0 8";
        let unsure = |killed| {
            let account = Account::parse(text, 3, killed).unwrap();
            account.ops.iter().map(|op| (op.value, op.unsure)).collect::<Vec<_>>()
        };
        assert_eq!(unsure(true), [(7, false), (8, true), (9, true)]);
        assert_eq!(unsure(false), [(7, false), (8, false), (9, false)]);
        assert!(Account::parse("write 0\n", 0, false).is_err());
    }

    #[test]
    fn fsync_that_fails_takes_the_outcome_of_writes_to_its_object_alone() {
        let text = format!(
            "write 0 7 1\nwrote 2 true\nwrite {BLOCKS} 8 3\nwrote 4 true\nsettled 0 false\n\
             write 0 9 5\nwrote 6 true\nsettled 0 true\n"
        );
        let ops = Account::parse(&text, 0, false).unwrap().ops;
        assert_eq!(ops.iter().map(|op| op.unsure).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn reads_from_a_cache_whose_locks_are_lost_count_again_once_the_eviction_is_known() {
        let text = "read 0 0 1 2\nread 0 0 11 12\nread 0 0 31 32\nevicted 0 20\n";
        let mut account = Account::parse(text, 0, false).unwrap();
        account.without_reads_under_lost_locks(5);
        assert_eq!(account.ops.iter().map(|op| op.begin).collect::<Vec<_>>(), [1, 31]);
        let other =
            Account::parse("write 0 7 3\nwrote 4 true\nsettled 0 true\n", 1, false).unwrap();
        assert_eq!(contradictions(&[&account.ops[..1], &other.ops].concat()), 0);
        assert_eq!(contradictions(&[&account.ops[..], &other.ops].concat()), 1);
    }

    #[test]
    fn journal_that_differs_from_the_accounts_is_found() {
        let noted = [vec!["1 0 1".to_owned(), "4 0 2".to_owned()], vec!["3 1 1".to_owned()]];
        let wrong = |text: &str, killed: &[u32]| judge_journal(text, &noted, killed).len();
        assert_eq!(wrong("1 0 1\n3 1 1\n4 0 2\n", &[]), 0);
        assert_eq!(wrong("3 1 1\n1 0 1\n4 0 2\n", &[]), 1, "numbers that fall");
        assert_eq!(wrong("1 0 1\n3 1 1\n", &[]), 1, "a line is missing");
        assert_eq!(wrong("1 0 1\n3 1 1\n4 0 2\n5 1 2\n", &[]), 1, "a line of no account");
        assert_eq!(wrong("1 0 1\n3 1 1\n4 0 2\n5 1 2\n", &[1]), 0, "by a client that was killed");
        assert_eq!(wrong("1 0 1\n3 1 1\n4 0 x2\n", &[]), 2, "other bytes");
    }
}

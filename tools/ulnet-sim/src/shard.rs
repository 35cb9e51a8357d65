//! Results of a run that is one of many parts: the settings of the run and a line for each result, in
//! a file that grows while it runs. A killed run continues from there (`--resume`); `merge.rs` joins
//! the files of all parts.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Part `i` of `n`, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Shard {
    pub(super) i: u64,
    pub(super) n: u64,
}

impl Shard {
    /// Whether this part plays number `at`, from 0, of all.
    pub(super) fn plays(self, at: u64) -> bool {
        at % self.n == self.i - 1
    }
}

/// Most parts of one run.
const PARTS_MAX: u64 = 1_000_000;

/// Reads `I/N`, or `K+1/N` for batch systems that count from 0.
pub(super) fn shard(text: &str) -> Result<Shard, String> {
    let number = |i: &str| match i.strip_suffix("+1") {
        Some(from_0) => from_0.parse::<u64>().ok()?.checked_add(1),
        None => i.parse().ok(),
    };
    let parts = text.split_once('/').and_then(|(i, n)| Some((number(i)?, n.parse().ok()?)));
    parts
        .filter(|(i, n)| *i >= 1 && i <= n && *n <= PARTS_MAX)
        .map(|(i, n)| Shard { i, n })
        .ok_or_else(|| format!("'{text}': expected I/N with I from 1 to N, like 3/8"))
}

/// A file of one part: a first line with the settings of the run, then a line for each result. While
/// a run adds to it, it is locked.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Begins a file, or continues one with the same settings (`resume`), and gives the results that
    /// it holds. A last line that is cut off, as by the end of a killed program, is dropped.
    ///
    /// # Errors
    /// The file cannot be written, another run writes it, it has other settings, or it has results
    /// and is not to be continued.
    pub(super) fn open<H, R>(path: &Path, head: &H, resume: bool) -> anyhow::Result<(Self, Vec<R>)>
    where
        H: Serialize + DeserializeOwned + PartialEq,
        R: DeserializeOwned,
    {
        let shown = path.display();
        let file = OpenOptions::new().read(true).append(true).create(true).open(path);
        let mut file = file.with_context(|| format!("can't write {shown}"))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => bail!("{shown}: another run writes this part"),
            // A file system without locks.
            Err(TryLockError::Error(_)) | Ok(()) => {}
        }
        let mut text = String::new();
        file.read_to_string(&mut text).with_context(|| format!("can't read {shown}"))?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut results = Vec::new();
        if whole > 0 {
            let (before, lines) = parse::<H, R>(&text).with_context(|| shown.to_string())?;
            if before != *head {
                bail!(
                    "{shown}: the settings of these results must be the same; another --out begins anew"
                );
            }
            if !resume && !lines.is_empty() {
                bail!(
                    "{shown} has {} results: --resume continues, another --out begins anew",
                    lines.len()
                );
            }
            results = lines;
        }
        file.set_len(whole as u64).with_context(|| format!("can't write {shown}"))?;
        let mut log = Self { path: path.to_owned(), file };
        if whole == 0 {
            log.add(head)?;
        }
        Ok((log, results))
    }

    /// Adds a result.
    pub(super) fn add(&mut self, result: &impl Serialize) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(result)?;
        line.push('\n');
        let written = self.file.write_all(line.as_bytes());
        written.with_context(|| format!("can't write {}", self.path.display()))
    }
}

/// The head and the results of a file's text.
///
/// # Errors
/// The number of the line that is malformed; a last line without an end is none.
pub(super) fn parse<H: DeserializeOwned, R: DeserializeOwned>(
    text: &str,
) -> anyhow::Result<(H, Vec<R>)> {
    let whole = text.rfind('\n').map_or("", |end| text.get(..end).unwrap_or_default());
    let mut lines = whole.lines().enumerate();
    let head = lines.next().map_or("", |(_, line)| line);
    let head = serde_json::from_str(head).context("line 1: expected the settings of a run")?;
    let results = lines.map(|(at, line)| {
        serde_json::from_str(line).with_context(|| format!("line {}: expected a result", at + 1))
    });
    Ok((head, results.collect::<anyhow::Result<Vec<R>>>()?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_number_is_played_by_exactly_one_part() {
        for n in 1..5 {
            for at in 0..40 {
                let parts = (1..=n).filter(|i| Shard { i: *i, n }.plays(at));
                assert_eq!(parts.count(), 1, "{at} of {n}");
            }
        }
    }

    #[test]
    fn malformed_shards_are_refused() {
        for text in ["", "1", "0/1", "2/1", "a/b", "1/0", "1/2/3", "1/1000001"] {
            assert!(shard(text).is_err(), "{text}");
        }
        assert_eq!(shard("3/8"), Ok(Shard { i: 3, n: 8 }));
        assert_eq!(shard("7+1/8"), Ok(Shard { i: 8, n: 8 }));
        assert!(shard("8+1/8").is_err());
    }

    /// A folder for one test.
    fn folder(name: &str) -> PathBuf {
        let dir = fresh::path(&format!("shard-{name}"));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_torn_last_line_is_dropped_when_a_run_resumes() {
        let dir = folder("torn");
        let path = dir.join("x.jsonl");
        let (mut log, none) = Log::open::<u32, u32>(&path, &7, false).unwrap();
        assert!(none.is_empty());
        log.add(&1).unwrap();
        log.add(&2).unwrap();
        log.file.write_all(b"33").unwrap();
        drop(log);
        let (mut log, seen) = Log::open::<u32, u32>(&path, &7, true).unwrap();
        assert_eq!(seen, [1, 2]);
        log.add(&4).unwrap();
        drop(log);
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n1\n2\n4\n");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn results_are_neither_overwritten_nor_mixed_nor_written_twice_at_a_time() {
        let dir = folder("kept");
        let path = dir.join("x.jsonl");
        let refused = |head, resume| {
            Log::open::<u32, u32>(&path, &head, resume).map(|_| ()).unwrap_err().to_string()
        };
        let (mut log, _) = Log::open::<u32, u32>(&path, &7, false).unwrap();
        log.add(&1).unwrap();
        assert!(refused(7, true).contains("another run"));
        drop(log);
        assert!(refused(8, true).contains("must be the same"));
        assert!(refused(7, false).contains("has 1 results: --resume"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n1\n");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_whose_first_line_is_cut_off_begins_anew() {
        let dir = folder("head");
        let path = dir.join("x.jsonl");
        fs::write(&path, "12").unwrap();
        let (_, none) = Log::open::<u32, u32>(&path, &7, true).unwrap();
        assert!(none.is_empty());
        assert_eq!(fs::read_to_string(&path).unwrap(), "7\n");
        fs::remove_dir_all(&dir).unwrap();
    }
}

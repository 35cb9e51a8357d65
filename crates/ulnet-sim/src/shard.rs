//! What a run that is one of many leaves behind: which part it played, and its results, in a file
//! that grows while it runs. A run that was killed goes on from there (`--resume`); `merge.rs` joins
//! the files of all parts.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
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

/// Reads `I/N`, or `K+1/N` where a batch system counts from 0.
pub(super) fn shard(text: &str) -> Result<Shard, String> {
    let number = |i: &str| match i.strip_suffix("+1") {
        Some(from_0) => from_0.parse::<u64>().ok()?.checked_add(1),
        None => i.parse().ok(),
    };
    let parts = text.split_once('/').and_then(|(i, n)| Some((number(i)?, n.parse().ok()?)));
    parts
        .filter(|(i, n)| *i >= 1 && i <= n)
        .map(|(i, n)| Shard { i, n })
        .ok_or_else(|| format!("'{text}': expected I/N with I from 1 to N, like 3/8"))
}

/// A file of one part: a first line that says what is played, then a line for each result.
pub(super) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Begins a file, or goes on with one that was begun with the same words (`resume`), and gives
    /// the results that it holds. A last line that was cut off by the end of the program is dropped.
    ///
    /// # Errors
    /// The file cannot be written, or was begun with other words.
    pub(super) fn open<H, R>(path: &Path, head: &H, resume: bool) -> anyhow::Result<(Self, Vec<R>)>
    where
        H: Serialize + DeserializeOwned + PartialEq,
        R: DeserializeOwned,
    {
        let shown = path.display();
        let (mut kept, mut results) = (String::new(), Vec::new());
        if resume && path.exists() {
            let text = fs::read_to_string(path).with_context(|| format!("can't read {shown}"))?;
            let (before, lines) = parse::<H, R>(&text).with_context(|| format!("{shown}"))?;
            if before != *head {
                bail!("{shown} was begun with other settings: expected the same, or no --resume");
            }
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            kept = text.get(..whole).unwrap_or_default().to_owned();
            results = lines;
        }
        if kept.is_empty() {
            kept = serde_json::to_string(head)?;
            kept.push('\n');
        }
        // A new file takes the place of the old one at once: a reader never sees half of it.
        let new = path.with_extension("new");
        fs::write(&new, kept).with_context(|| format!("can't write {}", new.display()))?;
        fs::rename(&new, path).with_context(|| format!("can't write {shown}"))?;
        let file = OpenOptions::new().append(true).open(path);
        let file = file.with_context(|| format!("can't write {shown}"))?;
        Ok((Self { path: path.to_owned(), file }, results))
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
        for text in ["", "1", "0/1", "2/1", "a/b", "1/0", "1/2/3"] {
            assert!(shard(text).is_err(), "{text}");
        }
        assert_eq!(shard("3/8"), Ok(Shard { i: 3, n: 8 }));
        assert_eq!(shard("7+1/8"), Ok(Shard { i: 8, n: 8 }));
        assert!(shard("8+1/8").is_err());
    }

    #[test]
    fn a_torn_last_line_is_dropped_when_a_run_resumes() {
        let dir = std::env::temp_dir().join(format!("ulnet-shard-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
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
        assert!(Log::open::<u32, u32>(&path, &8, true).is_err(), "other settings");
        let (_, anew) = Log::open::<u32, u32>(&path, &8, false).unwrap();
        assert!(anew.is_empty());
        fs::remove_dir_all(&dir).unwrap();
    }
}

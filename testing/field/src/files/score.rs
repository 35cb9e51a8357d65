//! The account of a program: what it did, what failed, what differed from what it expected.

use std::future::Future;
use std::time::Instant;

use lnet_types::Errno;
use lustre_rt::visitor::VisitError;
use serde::{Deserialize, Serialize};

/// Sentences about errors and differences that are kept.
const SAID_MAX: usize = 20;

/// What came of a number of operations.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Score {
    /// Operations.
    pub ops: u64,
    /// Operations that failed although nothing stood against them.
    pub errors: u64,
    /// Results other than the ones expected: bytes, names, attributes, refusals.
    pub differences: u64,
    /// The longest operation, seconds.
    pub longest: f64,
    /// The first errors and differences, a sentence each.
    pub said: Vec<String>,
}

impl Score {
    /// Measures an operation.
    pub(super) async fn timed<T>(&mut self, operation: impl Future<Output = T>) -> T {
        let begun = Instant::now();
        let result = operation.await;
        self.ops += 1;
        self.longest = self.longest.max(begun.elapsed().as_secs_f64());
        result
    }

    /// Counts an error.
    pub(super) fn error(&mut self, what: &str, why: &dyn std::fmt::Display) {
        self.errors += 1;
        self.say(format!("{what}: {why}"));
    }

    /// Counts a difference.
    pub(super) fn differs(&mut self, what: &str, how: &str) {
        self.differences += 1;
        self.say(format!("{what}: {how}"));
    }

    fn say(&mut self, sentence: String) {
        if self.said.len() < SAID_MAX {
            self.said.push(sentence);
        }
    }

    /// Holds the end of an operation against the one expected. The value, if both succeeded; `Err` if
    /// the ends differ.
    pub(super) fn judge<T>(
        &mut self,
        what: &str,
        expected: Result<(), Errno>,
        end: Result<T, VisitError>,
    ) -> Result<Option<T>, ()> {
        match (expected, end) {
            (Ok(()), Ok(value)) => Ok(Some(value)),
            (Err(expected), Err(e)) if e.errno() == expected => Ok(None),
            (Ok(()), Err(e)) => {
                self.error(what, &e);
                Err(())
            }
            (Err(expected), Ok(_)) => {
                self.differs(what, &format!("done, expected {expected}"));
                Err(())
            }
            (Err(expected), Err(e)) => {
                self.error(what, &format!("{e}, expected {expected}"));
                Err(())
            }
        }
    }

    /// Adds the account of another program of the same kind.
    pub(super) fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.errors += other.errors;
        self.differences += other.differences;
        self.longest = self.longest.max(other.longest);
        for sentence in other.said {
            self.say(sentence);
        }
    }
}

/// Numbers that look random and are the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must be greater than 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// Bytes of which none is zero, so that a hole is seen.
    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes().map(|byte| byte | 1));
        }
        bytes.truncate(len);
        bytes
    }
}

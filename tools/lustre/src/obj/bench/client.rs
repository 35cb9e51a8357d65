//! One client of a run: writes, reads and fsyncs of blocks that all clients share, and what came of
//! them. A block names its value in each of its words, so a torn one is recognised.

use std::time::{Duration, Instant};

use lnet_types::Prng;
use lustre_rt::{LockWaits, Object, Objects};

use super::history::{NEVER, Op};
use crate::stop::Stop;

/// Blocks of each object.
pub(super) const BLOCKS: u32 = 8;
/// Operations between two fsyncs.
const FSYNC_EVERY: u64 = 32;
/// Of so many operations one writes.
const WRITE_EVERY: u64 = 3;
/// Value and block are mixed with it into words.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// What a client did.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) ops: Vec<Op>,
    pub(super) writes: u64,
    pub(super) reads: u64,
    /// Reads whose words were of one value.
    pub(super) whole: u64,
    pub(super) failed: u64,
    pub(super) first_failure: String,
    pub(super) evicted: bool,
    pub(super) waits: LockWaits,
    pub(super) retries: u64,
}

/// A client: its connections, the objects, the length of a block.
pub(super) struct Client {
    pub(super) n: u32,
    pub(super) targets: Vec<Objects>,
    pub(super) objects: Vec<Object>,
    pub(super) size: usize,
    /// The beginning of the run.
    pub(super) since: Instant,
}

fn word(block: u32, value: u64, n: usize) -> u64 {
    value ^ (u64::from(block) << 48 | n as u64).wrapping_mul(MIX)
}

/// The bytes of a block.
fn fill(block: u32, value: u64, size: usize) -> Vec<u8> {
    let words = (0..size / 8).map(|n| if n == 0 { value } else { word(block, value, n) });
    words.flat_map(u64::to_le_bytes).collect()
}

/// The value of a block; `None` for bytes of several, or of none.
fn value_of(block: u32, bytes: &[u8]) -> Option<u64> {
    let (words, []) = bytes.as_chunks::<8>() else { return None };
    let value = words.first().map_or(NEVER, |word| u64::from_le_bytes(*word));
    let right = |(n, word): (usize, &[u8; 8])| {
        let wanted = if value == NEVER { 0 } else { self::word(block, value, n) };
        u64::from_le_bytes(*word) == wanted
    };
    words.iter().enumerate().skip(1).all(right).then_some(value)
}

impl Client {
    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn place(&self, block: u32) -> (Option<&Object>, u64) {
        let object = self.objects.get((block / BLOCKS) as usize);
        (object, u64::from(block % BLOCKS) * self.size as u64)
    }

    fn write(&self, account: &mut Account, block: u32, value: u64) {
        let (Some(object), offset) = self.place(block) else { return };
        let begin = self.now();
        let result = object.write_at(offset, fill(block, value, self.size)).blocking();
        let end = self.now();
        account.writes += 1;
        let unsure = result.is_err();
        account.note(result.err());
        let client = self.n;
        account.ops.push(Op { block, client, value, writes: true, begin, end, unsure });
    }

    /// Reads a block.
    pub(super) fn read(&self, account: &mut Account, block: u32) {
        let (Some(object), offset) = self.place(block) else { return };
        let begin = self.now();
        let result = object.read_at(offset, vec![0; self.size]).blocking();
        let end = self.now();
        let (mut bytes, read) = match result {
            Ok((buffer, read)) => (buffer.into_vec(), read),
            Err(e) => return account.note(Some(e)),
        };
        account.reads += 1;
        // Behind the end of the object no write has been.
        bytes.truncate(read);
        bytes.resize(self.size, 0);
        let Some(value) = value_of(block, &bytes) else { return };
        account.whole += 1;
        let client = self.n;
        account.ops.push(Op { block, client, value, writes: false, begin, end, unsure: false });
    }

    /// What was written to an object survives its target, or what was lost is said.
    fn settle(&self, account: &mut Account, n: usize, from: &mut [usize], closes: bool) {
        let (Some(object), Some(from)) = (self.objects.get(n), from.get_mut(n)) else { return };
        // A target may commit what a close brings to it later.
        let synced = object.fsync().blocking();
        let failed = match closes {
            true => object.clone().close().blocking().and(synced).err(),
            false => synced.err(),
        };
        if failed.is_some() {
            let of = |op: &&mut Op| op.writes && (op.block / BLOCKS) as usize == n;
            account.ops.iter_mut().skip(*from).filter(of).for_each(|op| op.unsure = true);
            account.note(failed);
        }
        *from = account.ops.len();
    }

    /// Works until the time comes or the user wants the end, then closes all objects.
    pub(super) fn run(&self, until: Duration, stop: &Stop) -> Account {
        let mut account = Account::default();
        let mut prng = Prng::new(u64::from(self.n) + 1);
        let mut from = vec![0; self.objects.len()];
        let blocks = self.objects.len() as u64 * u64::from(BLOCKS);
        let mut turn = 0;
        while self.since.elapsed() < until && !stop.is_wanted() {
            turn += 1;
            // Below the number of blocks.
            let block = prng.below(blocks) as u32;
            match prng.below(WRITE_EVERY) {
                0 => self.write(&mut account, block, (u64::from(self.n) + 1) << 40 | turn),
                _ => self.read(&mut account, block),
            }
            if turn.is_multiple_of(FSYNC_EVERY) {
                self.settle(&mut account, (block / BLOCKS) as usize, &mut from, false);
            }
        }
        for n in 0..self.objects.len() {
            self.settle(&mut account, n, &mut from, true);
        }
        for target in &self.targets {
            if let Ok((stats, waits, _)) = target.stats() {
                account.evicted |= stats.evicted > 0;
                account.retries += stats.retries;
                account.waits.merge(&waits);
            }
        }
        account
    }
}

impl Account {
    fn note(&mut self, failure: Option<lustre_rt::ObjectsError>) {
        let Some(e) = failure else { return };
        if self.failed == 0 {
            self.first_failure = e.to_string();
        }
        self.failed += 1;
    }

    /// Adds what another client did.
    pub(super) fn add(&mut self, other: Self) {
        if self.failed == 0 {
            self.first_failure = other.first_failure;
        }
        self.ops.extend(other.ops);
        self.writes += other.writes;
        self.reads += other.reads;
        self.whole += other.whole;
        self.failed += other.failed;
        self.retries += other.retries;
        self.waits.merge(&other.waits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_names_its_value_and_a_torn_one_has_none() {
        for value in [1, 1 << 40 | 7] {
            let block = fill(3, value, 4096);
            assert_eq!((block.len(), value_of(3, &block)), (4096, Some(value)));
            assert_eq!(value_of(4, &block), None, "another block");
            let torn = [&block[..2048], &fill(3, value + 1, 4096)[2048..]].concat();
            assert_eq!(value_of(3, &torn), None);
        }
        assert_eq!(value_of(3, &[0; 4096]), Some(NEVER));
        let hole = [&fill(3, 1, 4096)[..2048], &[0; 2048]].concat();
        assert_eq!(value_of(3, &hole), None);
    }
}

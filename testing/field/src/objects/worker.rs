//! What runs in the host of a client: blocks of shared objects are written and read under locks that are
//! cached, and lines are added to journals under locks by name, until standard input ends.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lnet_rt::{Nid, NodeBuilder, RouteSpec};
use lnet_types::Prng;
use lustre::history::NEVER;
use lustre_rt::{Locks, Mode, Object, ObjectId, Objects, RpcNode, Tunables};
use serde::{Deserialize, Serialize};

use super::account::{Pen, now, object_of, target_of};
use super::{ALL_BLOCKS, BLOCKS, JOURNALS, LOCKS, OBJECTS, TARGETS, target_name};
use crate::load::talk::NodeSpec;

/// How long an operation may take, whatever befalls servers and routers.
const LIMIT: Duration = Duration::from_secs(300);
/// Bytes of a block, and words of eight bytes in it.
const SIZE: usize = 4096;
/// Operations between two fsyncs.
const FSYNC_EVERY: u64 = 16;
/// A pause after each operation: eight clients share two processors.
const PAUSE: Duration = Duration::from_millis(2);

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Part {
    /// Make the objects.
    Make,
    /// Write, read, and add lines, until standard input ends.
    Work,
    /// Read all blocks once.
    Compare,
}

/// What a process is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Task {
    /// Its node.
    pub(super) node: NodeSpec,
    /// NIDs of the nodes that may serve each target, and the target of locks behind them.
    pub(super) targets: Vec<Vec<String>>,
    /// Where its account goes, and journals are.
    pub(super) dir: PathBuf,
    /// Number of this client.
    pub(super) client: u32,
    /// What it does.
    pub(super) part: Part,
    /// As its servers have it.
    pub(super) obd_timeout: Duration,
}

/// Runs the process. Its task is its argument.
pub(crate) fn main(task: &str) -> ExitCode {
    let run = || -> Result<()> {
        let task: Task = serde_json::from_str(task).context("task")?;
        task.run()
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("client: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The file of an account.
pub(super) fn account_file(dir: &Path, client: u32, part: &str) -> PathBuf {
    dir.join(format!("account-{client}-{part}"))
}

/// The file of a journal.
pub(super) fn journal_file(dir: &Path, journal: u32) -> PathBuf {
    dir.join(format!("journal-{journal}"))
}

/// The bytes of a value: each word names it.
fn fill(value: u64) -> Vec<u8> {
    (0..SIZE as u64 / 8).flat_map(|n| (value ^ n << 52).to_le_bytes()).collect()
}

/// The value of a block; `None` for bytes of several.
fn value_of(bytes: &[u8]) -> Option<u64> {
    let value = bytes.first_chunk().map_or(NEVER, |word| u64::from_le_bytes(*word));
    let empty = value == NEVER && bytes.iter().all(|byte| *byte == 0);
    (empty || bytes == fill(value)).then_some(value)
}

/// Adds a line under a lock with this number, unless one with a later number was added. `false`: it was.
fn append(path: &Path, fence: u64, line: &str) -> Result<bool> {
    let mut file: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // Of this machine: what a store does that compares numbers.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let last = text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
    if last.is_some_and(|last| last >= fence) {
        return Ok(false);
    }
    file.seek(SeekFrom::End(0))?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(true)
}

impl Task {
    fn run(&self) -> Result<()> {
        let mut builder = NodeBuilder::new();
        for nid in &self.node.nids {
            let nid: Nid = nid.parse()?;
            builder = builder.tcp_on(
                nid.net(),
                nid.ip().context("a NID with an address")?,
                self.node.port,
            );
        }
        let node = builder.start()?;
        for line in &self.node.routes {
            let (net, gateway) = (line.net.parse()?, line.gateway.parse()?);
            let route = RouteSpec { net, gateway, hops: line.hops, priority: line.priority };
            node.call(move |stack, now| stack.node_mut().add_route(now, route)).blocking()??;
        }
        // A client that waits for a lock asks for nothing else: it must ping before it counts as silent.
        let ping_interval = self.obd_timeout / 4;
        let tunables =
            Tunables { obd_timeout: self.obd_timeout, ping_interval, ..Tunables::default() };
        let rpc = RpcNode::start(&node, tunables)?;
        let uuid = format!("client-{}-{}", self.client, std::process::id());
        let nids = |n: usize| -> Result<Vec<Nid>> {
            let nids = self.targets.get(n).context("no target")?.iter();
            Ok(nids.map(|nid| nid.parse()).collect::<Result<_, _>>()?)
        };
        let mut targets = Vec::new();
        for n in 0..TARGETS {
            let name = target_name(n);
            let objects = Objects::new(&rpc, &name, &format!("{uuid}-{n}"), nids(n as usize)?)?;
            targets.push(objects.with_limit(LIMIT));
        }
        if self.part == Part::Make {
            for target in &targets {
                for id in 1..=u64::from(OBJECTS) {
                    let made = target.create()?;
                    ensure!(made == ObjectId::old(id), "object {id} of a new target is {made:?}");
                }
            }
        }
        let objects = targets
            .iter()
            .flat_map(|target| (1..=u64::from(OBJECTS)).map(|id| target.open(ObjectId::old(id))));
        let pen = |name| Pen::new(&account_file(&self.dir, self.client, name));
        let worker = |pen| Worker {
            pen,
            objects: objects.collect(),
            evictions: vec![0; targets.len()],
            targets: targets.clone(),
        };
        match self.part {
            Part::Make => {}
            Part::Compare => worker(pen("compare")?).compare()?,
            Part::Work => {
                let nids = nids(TARGETS as usize)?;
                let locks = Locks::new(&rpc, LOCKS, &format!("{uuid}-l"), nids)?;
                self.work(worker(pen("work")?), &locks)?;
                locks.disconnect()?;
            }
        }
        // Servers that recover wait for clients that have not left.
        targets.into_iter().try_for_each(|target| target.disconnect().map(|_| ()))?;
        node.stop(Duration::from_secs(1)).blocking();
        Ok(())
    }

    fn work(&self, mut worker: Worker, locks: &Locks) -> Result<()> {
        let stop = AtomicBool::new(false);
        let goes_on = || !stop.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let blocks = scope.spawn(|| worker.work(self.client, &goes_on));
            let lines = scope.spawn(|| self.lines(locks, &goes_on));
            // The harness ends its end of the pipe, or has ended itself.
            let _ = std::io::stdin().lock().read_to_end(&mut Vec::new());
            stop.store(true, Ordering::Relaxed);
            let ended = |_| anyhow::anyhow!("a program has panicked");
            blocks.join().map_err(ended)??;
            lines.join().map_err(ended)?
        })
    }

    /// Adds lines to journals.
    fn lines(&self, locks: &Locks, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let mut pen = Pen::new(&account_file(&self.dir, self.client, "lines"))?;
        let mut prng = Prng::new(u64::from(self.client) + 100);
        let mut turn = 0_u64;
        while goes_on() {
            turn += 1;
            // Below the number of journals.
            let journal = prng.below(u64::from(JOURNALS)) as u32;
            let name = format!("journal-{journal}");
            let lock = match locks.enqueue(&name, Mode::Ex).limit(LIMIT).blocking() {
                Ok(lock) => lock,
                Err(e) => {
                    pen.failed(&name, &e)?;
                    continue;
                }
            };
            let fence = lock.fence().context("a lock without a number")?;
            std::thread::sleep(PAUSE);
            let line = format!("{fence} {} {turn}", self.client);
            let written = append(&journal_file(&self.dir, journal), fence, &line)?;
            pen.noted(journal, &line, written)?;
            drop(lock);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

struct Worker {
    pen: Pen,
    objects: Vec<Object>,
    targets: Vec<Objects>,
    /// Evictions from each target that are known.
    evictions: Vec<u64>,
}

impl Worker {
    fn place(&self, block: u32) -> Option<(&Object, u64)> {
        let object = self.objects.get(object_of(block) as usize)?;
        Some((object, u64::from(block % BLOCKS) * SIZE as u64))
    }

    fn work(&mut self, client: u32, goes_on: &dyn Fn() -> bool) -> Result<()> {
        let mut prng = Prng::new(u64::from(client) + 1);
        let mut turn = 0;
        while goes_on() {
            turn += 1;
            // Below the number of blocks.
            let block = prng.below(u64::from(ALL_BLOCKS)) as u32;
            match prng.below(3) {
                // Below the bits that number words.
                0 => self.write(block, (u64::from(client) + 1) << 32 | turn)?,
                _ => self.read(block)?,
            }
            self.look(target_of(object_of(block)))?;
            if turn.is_multiple_of(FSYNC_EVERY) {
                let object = object_of(block);
                if let Some(open) = self.objects.get(object as usize) {
                    let end = open.fsync().blocking();
                    self.settled(object, end.map_err(|e| e.to_string()))?;
                }
            }
            std::thread::sleep(PAUSE);
        }
        for (n, object) in (0..).zip(std::mem::take(&mut self.objects)) {
            // A target may commit what a close brings to it after this process has ended.
            let synced = object.fsync().blocking();
            let end = object.close().blocking().and(synced);
            self.settled(n, end.map_err(|e| e.to_string()))?;
        }
        Ok(())
    }

    /// Whether the target has evicted this client.
    fn look(&mut self, target: u32) -> Result<()> {
        let n = target as usize;
        let (Some(objects), Some(known)) = (self.targets.get(n), self.evictions.get_mut(n)) else {
            return Ok(());
        };
        let evicted = objects.stats()?.0.evicted;
        if evicted > *known {
            *known = evicted;
            self.pen.evicted(target)?;
        }
        Ok(())
    }

    fn settled(&mut self, object: u32, end: Result<u64, String>) -> Result<()> {
        if let Err(why) = &end {
            self.pen.failed("fsync", why)?;
        }
        self.pen.settled(object, end.is_ok())
    }

    fn write(&mut self, block: u32, value: u64) -> Result<()> {
        self.pen.writes(block, value)?;
        let (object, offset) = self.place(block).context("no such block")?;
        let end = object.write_at(offset, fill(value)).blocking();
        self.pen.wrote(end.is_ok())?;
        if let Err(e) = end {
            self.pen.failed("write", &e)?;
        }
        Ok(())
    }

    fn read(&mut self, block: u32) -> Result<()> {
        let begin = now();
        let (object, offset) = self.place(block).context("no such block")?;
        match object.read_at(offset, vec![0; SIZE]).blocking() {
            Ok((buffer, read)) => {
                let mut bytes = buffer.into_vec();
                // Behind the end of the object no write has been.
                bytes.truncate(read);
                bytes.resize(SIZE, 0);
                match value_of(&bytes) {
                    Some(value) => self.pen.read(block, value, begin),
                    None => self.pen.torn(block),
                }
            }
            Err(e) => self.pen.failed("read", &e),
        }
    }

    fn compare(mut self) -> Result<()> {
        (0..ALL_BLOCKS).try_for_each(|block| self.read(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_names_its_value_and_a_torn_one_has_none() {
        for value in [1, 9 << 32 | 77] {
            assert_eq!(value_of(&fill(value)), Some(value));
            let torn = [&fill(value)[..2048], &fill(value + 1)[2048..]].concat();
            assert_eq!(value_of(&torn), None);
        }
        assert_eq!(value_of(&[0; SIZE]), Some(NEVER));
        let half = [&fill(1)[..2048], &[0; 2048]].concat();
        assert_eq!(value_of(&half), None);
    }

    #[test]
    fn line_of_an_earlier_lock_is_refused() {
        let path = fresh::path("journal");
        let _ = std::fs::remove_file(&path);
        let lines = [(3, true), (5, true), (4, false), (5, false), (6, true)];
        for (fence, written) in lines {
            assert_eq!(append(&path, fence, &format!("{fence} 0")).unwrap(), written, "{fence}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "3 0\n5 0\n6 0\n");
        std::fs::remove_file(&path).unwrap();
    }
}

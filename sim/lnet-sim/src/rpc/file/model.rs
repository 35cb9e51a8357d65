//! The reference model of files, which knows no target, no lock and no message:
//!
//! - *Must not*: an operation has another result than a tree in memory gives (`tree.rs`); a visitor that has
//!   to do with none of it finds another tree than its program has left; what was answered to a client that
//!   lives and was not evicted is gone, or what was synced before a client or a server died.
//! - *Must*: once the world has been left alone for a while each operation ends, none fails but as the tree
//!   says, and all directories can be read.
//! - In a directory that several programs change, operations on names have an order that gives each of them
//!   its result (`shared.rs`).
//! - *Must*: what a client that caches data was evicted with is there, or its next fsync or close of the file
//!   fails. Until then it may read what it has lost. So does what a store has refused that is full or broken.
//!
//! What a client that died or was evicted has not synced may be lost, and what one has not that left and
//! heard of it: of names the last first, of the data of a file what each of its objects has got since; of what
//! it had cached and its targets have answered only what was so before a server died. An operation whose
//! outcome its program has not learned may have happened, or a part of its bytes. A directory is judged that
//! was left alone while it was read again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use lnet_scenario::{FaultKind, LoadKind, NodeId, RpcLoad, Scenario};
use lnet_types::{Errno, Instant};
use lustre_client::visitor::CACHING;

use super::super::model::settled_at;
use super::super::seen::RpcSeen;
use super::FileSeen;
use super::op::{FileAnswer, FileOp};
use super::program::{ALL, CACHED, prefix_of};
use super::seen::{Dump, Dumps, FileFailure};
use super::shared::Shared;
use super::tree::{Id, Manner, May, Tree, Versions, difference};
use crate::directory::HostId;
use crate::observe::{Observer, Seen, View};

/// The directory of a visit.
#[derive(Debug)]
struct Kept {
    host: HostId,
    client: String,
    /// The tree after each operation since the last sync, one at least.
    states: Vec<Tree>,
    /// By metadata target: from which of these states on it has committed all.
    floors: BTreeMap<u32, usize>,
    /// What the data of each file have been since it was synced.
    versions: Versions,
    /// Which of them the targets have at least, of files of a program with a cache, if none has died since: a
    /// target commits later what it has answered.
    answered: BTreeMap<Id, usize>,
    /// The operation under way, and when it was begun.
    doing: Option<(FileOp, Instant)>,
    /// What the tree is if the last operation, of unknown outcome, has happened.
    doubt: Option<Tree>,
    /// The client does not repeat to a server what that has lost.
    gone: bool,
    /// When something was done in it last.
    moved: Instant,
    checked: bool,
}

impl Kept {
    fn last(&self) -> Tree {
        self.states.last().cloned().unwrap_or_default()
    }

    /// The operation under way, or that has just failed, has happened or not.
    fn doubt(&mut self, op: &FileOp) {
        let mut after = self.last();
        // One that can't succeed changes nothing.
        let _ = after.apply(op);
        self.doubt = Some(after);
    }

    /// All that is in this tree is committed.
    fn committed(&mut self, tree: Tree) {
        self.states = vec![tree];
        self.floors.clear();
    }

    /// All that the target of a synced file has is committed: all, if it is the only one.
    fn synced(&mut self, tree: Tree, id: Id) {
        if !tree.is_on_two() {
            return self.committed(tree);
        }
        let on = tree.on(id);
        self.states.push(tree);
        self.floors.insert(on, self.states.len() - 1);
    }

    /// What may be left: the last tree, or of a client that is gone each one before it. Each of two targets
    /// may have lost what it had last.
    fn left_trees(&self, after: Option<&Tree>) -> Vec<Tree> {
        let first = if self.gone { 0 } else { self.states.len().saturating_sub(1) };
        let all: Vec<(usize, &Tree)> =
            self.states.iter().chain(after).enumerate().skip(first).collect();
        if !all.iter().any(|(_, tree)| tree.is_on_two()) {
            return all.into_iter().map(|(_, tree)| tree.clone()).collect();
        }
        let from = |on: u32| {
            let floor = self.floors.get(&on).copied().unwrap_or_default();
            all.iter().filter(move |(at, _)| *at >= floor).map(|(_, tree)| *tree)
        };
        let pairs = from(0).flat_map(|here| from(1).map(move |there| (here, there)));
        pairs.filter_map(|(here, there)| here.with_others_of(there)).collect()
    }

    /// Whether the directory of a change over two targets may be lost: the target that has lost it with the
    /// visit's eviction says so to the other one, before the visit has heard of it.
    fn may_have_lost_directory(&self, op: &FileOp) -> bool {
        let lacks = |mut tree: Tree| !tree.is_there() || tree.apply(op) == Err(Errno::ENOENT);
        self.gone && self.last().is_of_two(op) && self.left_trees(None).into_iter().any(lacks)
    }

    /// The visit has ended; `whole`: it has heard of no loss in its end. One that was evicted may have heard of
    /// it before. What is cached has its own targets for that.
    fn left(&mut self, whole: bool) {
        let (last, whole) = (self.last(), whole && !self.gone);
        if whole && !last.manner.cached {
            self.versions.values_mut().for_each(newest);
        }
        if whole {
            self.committed(last);
        }
        self.gone = true;
    }

    /// Why what was found can't be what this visit has left.
    fn differs(&self, found: Option<&Dump>) -> Option<String> {
        let mut after = self.doubt.clone();
        if let Some((op, _)) = &self.doing {
            let mut tree = self.last();
            let _ = tree.apply(op);
            after = Some(tree);
        }
        let last = self.last();
        let mut versions = Versions::new();
        if self.gone {
            versions = self.versions.clone();
            for (id, from) in &self.answered {
                let all = versions.entry(*id).or_default();
                all.drain(..all.len().min(*from));
            }
        }
        if let Some(after) = &after {
            for (id, data) in after.changed(&last) {
                let all = versions.entry(id).or_default();
                all.extend(last.data(id).ok().cloned());
                // A file that was not there, or is cut off, is empty at first.
                all.extend([data, Default::default()]);
            }
        }
        // What a file has been at any time it may have been when its names were what they are.
        let exact = |id| self.states.iter().chain(&after).all(|tree| tree.is_exact(id));
        let may = May { versions: &versions, exact: &exact, times: !self.gone && after.is_none() };
        let mut why = None;
        for tree in self.left_trees(after.as_ref()) {
            let difference = match found {
                Some(dump) if tree.is_there() => tree.differs(dump, &may),
                None if !tree.is_there() => None,
                Some(_) => Some("the directory is there".to_owned()),
                None => Some("the directory is gone".to_owned()),
            };
            why = Some(difference?);
        }
        why
    }
}

/// Data are committed: what they were before is not there any more.
fn newest(versions: &mut Vec<Arc<Vec<u8>>>) {
    versions.drain(..versions.len().saturating_sub(1));
}

/// A visit to a directory that other programs change too.
#[derive(Debug)]
struct Guest {
    host: HostId,
    tree: String,
    /// When the operation under way was begun.
    since: Option<Instant>,
    left: bool,
}

/// A directory of several programs.
#[derive(Debug, Default)]
struct Common {
    shared: Shared,
    /// When something was done in it last.
    moved: Instant,
    checked: bool,
}

/// See the module's head.
#[derive(Debug, Default)]
pub struct FileModel {
    trees: BTreeMap<String, Kept>,
    /// Directories of several programs.
    shared: BTreeMap<String, Common>,
    guests: BTreeMap<String, Guest>,
    /// When visits that read all again have begun.
    checks: BTreeMap<String, Instant>,
    /// The directory of each visit.
    visits: BTreeMap<String, String>,
    /// From then on nothing fails; `None`: a fault lasts.
    settled: Option<Instant>,
    /// Whether a store is full at some time.
    fills: bool,
    /// What the directories of loads begin with whose files have one holder of data each.
    singles: Vec<String>,
    /// Stores that are full or broken now: what is cached in the meantime may be refused when it is written back.
    refusing: usize,
}

/// What an operation gives, as a line.
fn shown(result: &Result<FileAnswer, Errno>) -> String {
    match result {
        Ok(FileAnswer::Bytes(bytes)) => format!("{} bytes", bytes.len()),
        Ok(answer) => format!("{answer:?}"),
        Err(errno) => errno.to_string(),
    }
}

impl FileModel {
    /// The model of a scenario.
    pub fn new(scenario: &Scenario) -> Self {
        let mut faults = scenario.faults.iter();
        let fills = faults.any(|fault| matches!(fault.kind, FaultKind::StoreFull(_)));
        let loads = scenario.rpc.loads.iter().enumerate();
        let single = |load: &RpcLoad| match load.kind {
            LoadKind::Files(files) => files.stripes == 1 && !files.on_mdt && !files.cached,
            _ => false,
        };
        let singles = loads.filter(|(_, load)| single(load)).map(|(load, _)| prefix_of(load));
        let (settled, singles) = (settled_at(scenario), singles.collect());
        Self { settled, fills, singles, ..Self::default() }
    }

    /// Whether a scenario has something for it.
    pub(crate) fn is_about(scenario: &Scenario) -> bool {
        scenario.rpc.fsname().is_some()
    }

    /// Of a directory that several programs change. `None`: the client has one of its own.
    fn shared_of(&mut self, client: &str) -> Option<(&mut Guest, &mut Shared)> {
        let guest = self.guests.get_mut(client)?;
        let common = self.shared.get_mut(&guest.tree)?;
        Some((guest, &mut common.shared))
    }

    /// Something was done in the directory of a client.
    fn move_on(&mut self, client: &str, now: Instant) {
        if let Some(guest) = self.guests.get(client)
            && let Some(common) = self.shared.get_mut(&guest.tree)
        {
            common.moved = now;
        }
        if let Some(kept) = self.kept(client) {
            kept.moved = now;
        }
    }

    /// A client does not repeat any more what a server has lost, and others may have seen it.
    fn lost(&mut self, client: &str) {
        if let Some((guest, shared)) = self.shared_of(client)
            && !guest.left
        {
            (guest.left, guest.since, shared.void) = (true, None, true);
        }
    }

    /// How a program works with the data of its files.
    fn manner_of(&self, tree: &str) -> Manner {
        let single = self.singles.iter().any(|prefix| tree.starts_with(prefix));
        Manner { cached: tree.ends_with(CACHED), single }
    }

    fn begun(&mut self, host: HostId, client: &str, tree: &str, op: &FileOp, now: Instant) {
        if tree.ends_with(ALL) {
            self.shared.entry(tree.to_owned()).or_default().shared.begun(client, op);
            let (tree, since, left) = (tree.to_owned(), Some(now), false);
            self.guests.insert(client.to_owned(), Guest { host, tree, since, left });
            return;
        }
        self.visits.insert(client.to_owned(), tree.to_owned());
        let manner = self.manner_of(tree);
        let gone = manner.cached && self.refusing > 0;
        let kept = self.trees.entry(tree.to_owned()).or_insert_with(|| Kept {
            host,
            client: client.to_owned(),
            states: vec![Tree::of(manner)],
            floors: BTreeMap::new(),
            versions: Versions::new(),
            answered: BTreeMap::new(),
            doing: None,
            doubt: None,
            gone,
            moved: now,
            checked: false,
        });
        kept.doing = Some((op.clone(), now));
    }

    fn kept(&mut self, client: &str) -> Option<&mut Kept> {
        let client = client.strip_suffix(CACHING).unwrap_or(client);
        self.trees.get_mut(self.visits.get(client)?)
    }

    fn ended(
        &mut self,
        client: &str,
        result: &Result<FileAnswer, FileFailure>,
    ) -> Result<(), String> {
        let settled = self.settled;
        if let Err(e) = result
            && e.errno == Errno::ENOSPC
            && !self.fills
        {
            return Err(format!("{client}: no store was full: {e}"));
        }
        if let Some((guest, shared)) = self.shared_of(client) {
            let begun = guest.since.take();
            let outcome = match result {
                Err(e) if !e.said => {
                    shared.doubt(client);
                    // It hears of what others have not seen either.
                    let hears = shared.void && e.errno == Errno::EIO;
                    let peace = begun.zip(settled).is_some_and(|(begun, at)| begun >= at);
                    return match peace && !hears {
                        true => Err(format!("{client} failed in peace: {e}")),
                        false => Ok(()),
                    };
                }
                Err(e) => Err(e.errno),
                Ok(answer) => Ok(answer.clone()),
            };
            return match shared.ended(client, &outcome) {
                true => Ok(()),
                false => Err(format!(
                    "{client}: no order of operations in {} gives {}",
                    guest.tree,
                    shown(&outcome)
                )),
            };
        }
        let Some(kept) = self.kept(client) else { return Ok(()) };
        let Some((op, begun)) = kept.doing.take() else {
            return Err(format!("{client}: an operation ended that was not begun"));
        };
        let mut tree = kept.last();
        let expected = tree.apply(&op);
        let result = match result {
            Err(e) if !e.said => {
                // What was not committed, or was cached, may have been lost before.
                let lost = e.errno == Errno::EIO || tree.manner.cached && e.errno == Errno::ENOSPC;
                let hears = kept.gone && lost;
                if settled.is_some_and(|at| begun >= at) && !hears {
                    return Err(format!("{client}: {op:?} failed in peace: {e}"));
                }
                kept.gone |= tree.manner.cached;
                kept.doubt(&op);
                return Ok(());
            }
            Err(e) => Err(e.errno),
            Ok(answer) => Ok(answer.clone()),
        };
        // One that has lost what it had cached has not heard of it yet.
        let of_data = matches!(op, FileOp::Read(_) | FileOp::ReadOpen(_) | FileOp::Stat(_));
        if kept.gone && tree.manner.cached && of_data && expected.is_ok() == result.is_ok() {
            return Ok(());
        }
        // Its opens have ended with the eviction.
        let ends = kept.gone && kept.last().is_nameless(&op);
        let lost = ends || kept.may_have_lost_directory(&op);
        if lost && matches!(result, Err(Errno::ENOENT | Errno::ESTALE)) {
            return Ok(());
        }
        if let (Ok(FileAnswer::Bytes(want)), Ok(FileAnswer::Bytes(have))) = (&expected, &result)
            && want != have
        {
            return Err(format!("{client}: {op:?}: {}", difference("the file", want, have)));
        }
        // Nothing was changed: programs copy then.
        if result == Err(Errno::EXDEV) && kept.last().may_be_refused(&op) {
            return Ok(());
        }
        if expected != result {
            let (have, want) = (shown(&result), shown(&expected));
            return Err(format!("{client}: {op:?} gave {have}: expected {want}"));
        }
        if result.is_ok() {
            let last = kept.last();
            for (id, data) in tree.changed(&last) {
                let all = kept.versions.entry(id).or_default();
                // A mixture may be shorter in any case.
                if tree.is_exact(id) && (op.cuts() || last.data(id).is_err()) {
                    all.push(Arc::default());
                }
                all.push(data);
            }
            let synced = tree.synced(&op);
            let back = last.written_back(&op).or_else(|| tree.written_back(&op));
            if let Some(id) = synced.or_else(|| tree.stored(&op)) {
                newest(kept.versions.entry(id).or_default());
            }
            if op == FileOp::Settle && !tree.manner.cached {
                kept.versions.values_mut().for_each(newest);
            }
            for id in synced.into_iter().chain(back).filter(|_| tree.manner.cached) {
                let last = kept.versions.get(&id).map_or(0, |all| all.len().saturating_sub(1));
                kept.answered.insert(id, last);
            }
            // A sync of one file commits all names of its target.
            match synced {
                Some(id) => kept.synced(tree, id),
                None if matches!(op, FileOp::Sync | FileOp::Settle) || last.is_of_two(&op) => {
                    kept.committed(tree);
                }
                None if op.reads() => {
                    kept.states.pop();
                    kept.states.push(tree);
                }
                None => kept.states.push(tree),
            }
        }
        Ok(())
    }

    /// Directories of a load were read by a visit that has to do with none of them, and that began then.
    fn checked(&mut self, load: usize, since: Instant, found: &Dumps) -> Result<(), String> {
        let prefix = prefix_of(load);
        let known = |name: &str| self.trees.contains_key(name) || self.shared.contains_key(name);
        if let Some(name) = found.keys().find(|name| !known(name)) {
            return Err(format!("{name} is there, and no program has made it"));
        }
        let dump = |name: &String| match found.get(name).map(Result::as_ref) {
            None => Ok(None),
            Some(Ok(dump)) => Ok(Some(dump)),
            Some(Err(e)) => Err(format!("{name} can't be read: {e}")),
        };
        let guests = self.guests.values().filter(|guest| guest.since.is_some());
        let busy: BTreeSet<&String> = guests.map(|guest| &guest.tree).collect();
        for (name, common) in &mut self.shared {
            let rests = common.moved < since && !busy.contains(name);
            if name.starts_with(&prefix) && rests {
                common.checked = true;
                if let Some(why) = common.shared.differs(dump(name)?) {
                    return Err(format!("{name} is not as its programs have left it: {why}"));
                }
            }
        }
        for (name, kept) in &mut self.trees {
            let rests = kept.moved < since && kept.doing.is_none();
            if name.starts_with(&prefix) && rests {
                kept.checked = true;
                if let Some(why) = kept.differs(dump(name)?) {
                    return Err(format!("{name} is not as {} has left it: {why}", kept.client));
                }
            }
        }
        Ok(())
    }

    /// A host has died, which may have targets.
    fn died(&mut self, host: HostId, serves: bool, now: Instant) {
        let here = self.guests.iter().filter(|(_, guest)| guest.host == host);
        let here: Vec<String> = here.map(|(client, _)| client.clone()).collect();
        here.iter().for_each(|client| self.lost(client));
        if serves {
            self.trees.values_mut().for_each(|kept| kept.answered.clear());
        }
        for kept in self.trees.values_mut().filter(|kept| kept.host == host) {
            (kept.gone, kept.moved) = (true, now);
            if let Some((op, _)) = kept.doing.take() {
                kept.doubt(&op);
            }
        }
    }

    fn see_files(&mut self, host: HostId, seen: &FileSeen, now: Instant) -> Result<(), String> {
        match seen {
            FileSeen::Begun { client, tree, op } => {
                self.begun(host, client, tree, op, now);
                Ok(())
            }
            FileSeen::Ended { client, result, .. } => {
                self.move_on(client, now);
                self.ended(client, result)
            }
            FileSeen::Left { client, result } => {
                self.move_on(client, now);
                if let Some((guest, shared)) = self.shared_of(client) {
                    (guest.left, guest.since) = (true, None);
                    shared.void |= result.is_err();
                }
                if let Some(kept) = self.kept(client) {
                    kept.left(result.is_ok());
                }
                Ok(())
            }
            FileSeen::Stayed { client, failure } => {
                if let Some((guest, shared)) = self.shared_of(client) {
                    guest.since = None;
                    shared.doubt(client);
                }
                if let Some(kept) = self.kept(client) {
                    kept.doing = None;
                }
                match self.settled.is_some_and(|at| now >= at) {
                    true => Err(format!("{client} could not begin in peace: {failure}")),
                    false => Ok(()),
                }
            }
            FileSeen::Checks { client } => {
                self.checks.insert(client.clone(), now);
                Ok(())
            }
            FileSeen::Checked { client, load, trees } => match trees {
                Ok(found) => {
                    let since = self.checks.get(client).copied().unwrap_or_default();
                    self.checked(*load, since, found)
                }
                Err(e) => Err(format!("the directories of load {load} can't be read: {e}")),
            },
        }
    }
}

impl Observer for FileModel {
    fn name(&self) -> &'static str {
        "file-model"
    }

    fn see(&mut self, seen: &Seen<'_>, view: &View<'_>) -> Result<(), String> {
        match *seen {
            Seen::Rpc { host, seen: RpcSeen::File { seen } } => {
                self.see_files(host, seen, view.now)
            }
            Seen::Rpc { seen: RpcSeen::Evicted { client, .. }, .. } => {
                self.lost(client);
                if let Some(kept) = self.kept(client) {
                    kept.gone = true;
                }
                Ok(())
            }
            Seen::Fault {
                kind: FaultKind::StoreFull(_) | FaultKind::StoreError { .. },
                begins,
                ..
            } => {
                if begins {
                    self.refusing += 1;
                    let cached = |name: &String| name.ends_with(CACHED);
                    let trees = self.trees.iter_mut().filter(|(name, _)| cached(name));
                    trees.for_each(|(_, kept)| kept.gone = true);
                } else {
                    self.refusing = self.refusing.saturating_sub(1);
                }
                Ok(())
            }
            Seen::Died { host } => {
                let node = Some(NodeId(host.0));
                let mut targets = view.scenario.rpc.targets.iter();
                let serves = targets.any(|t| Some(t.on) == node || t.failover == node);
                self.died(host, serves, view.now);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(settled) = self.settled.filter(|at| view.now >= *at) else { return Ok(()) };
        for (name, kept) in &self.trees {
            if let Some((op, begun)) = &kept.doing
                && *begun <= settled
            {
                return Err(format!("{}: {op:?} in {name} has no end", kept.client));
            }
        }
        for (client, guest) in &self.guests {
            if guest.since.is_some_and(|begun| begun <= settled) {
                return Err(format!("{client}: an operation in {} has no end", guest.tree));
            }
        }
        for (load, l) in view.scenario.rpc.loads.iter().enumerate() {
            let LoadKind::Files(files) = l.kind else { continue };
            let Some(at) = files.check.map(|at| Instant::ZERO + at) else { continue };
            let prefix = prefix_of(load);
            let own = self.trees.iter().map(|(name, kept)| (name, kept.checked, kept.moved));
            let common = self.shared.iter();
            let shared = common.map(|(name, common)| (name, common.checked, common.moved));
            let mut mine = own.chain(shared).filter(|(name, ..)| name.starts_with(&prefix));
            // What was still at work then was not judged.
            if let Some((name, ..)) = mine.find(|(_, checked, moved)| !checked && *moved < at)
                && at > settled
            {
                return Err(format!("{name} was not read again"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::super::op::{FileAt, FileBytes, FilePath, FileShown};
    use super::super::seen::Found;
    use super::*;

    const HOST: HostId = HostId(3);
    const CLIENT: &str = "v0-0-1-0-1";

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn name() -> FilePath {
        FilePath(vec![1])
    }

    /// An operation that takes a second.
    fn done(
        model: &mut FileModel,
        op: FileOp,
        second: u64,
        result: Result<FileAnswer, Errno>,
    ) -> bool {
        done_in(model, "f0-d", op, second, result)
    }

    fn done_in(
        model: &mut FileModel,
        tree: &str,
        op: FileOp,
        second: u64,
        result: Result<FileAnswer, Errno>,
    ) -> bool {
        let result = result.map_err(|errno| FileFailure {
            errno,
            text: errno.to_string(),
            said: true,
            over: false,
        });
        let (client, tree, took) = (CLIENT.to_owned(), tree.to_owned(), Duration::from_secs(1));
        let begun = FileSeen::Begun { client: client.clone(), tree, op };
        let ended = FileSeen::Ended { client, took, result };
        model.see_files(HOST, &begun, at(second)).unwrap();
        model.see_files(HOST, &ended, at(second + 1)).is_ok()
    }

    fn with_a_file() -> FileModel {
        let mut model = FileModel::default();
        for (second, op) in [FileOp::Base, FileOp::Create(name())].into_iter().enumerate() {
            assert!(done(&mut model, op, second as u64, Ok(FileAnswer::Done)));
        }
        model
    }

    /// What a visit finds that reads all again from then to then: a file of so many bytes that shows a size.
    fn found(model: &mut FileModel, from: u64, to: u64, size: u64) -> Result<(), String> {
        found_in(model, "f0-d", (from, to), (Vec::new(), size))
    }

    fn found_in(
        model: &mut FileModel,
        tree: &str,
        when: (u64, u64),
        data: (Vec<u8>, u64),
    ) -> Result<(), String> {
        found_at(model, tree, when, data, 0)
    }

    fn found_at(
        model: &mut FileModel,
        tree: &str,
        (from, to): (u64, u64),
        (bytes, size): (Vec<u8>, u64),
        mtime: i64,
    ) -> Result<(), String> {
        let client = "v0-0-1-9-1".to_owned();
        model.see_files(HOST, &FileSeen::Checks { client: client.clone() }, at(from))?;
        let (kind, mode) = (FileShown::File, super::super::work::FILE_MODE);
        let file = Found { fid: (1, 1), kind, mode, nlink: 1, bytes, size, mtime };
        let dump = Dump::from([(b"n1".to_vec(), file)]);
        let trees = Ok(Dumps::from([(tree.to_owned(), Ok(dump))]));
        model.see_files(HOST, &FileSeen::Checked { client, load: 0, trees }, at(to))
    }

    #[test]
    fn directory_is_judged_that_no_program_has_changed_while_it_was_read() {
        let mut model = with_a_file();
        assert_eq!(found(&mut model, 5, 9, 0), Ok(()));
        let rests = found(&mut model, 5, 9, 7).unwrap_err();
        assert!(rests.ends_with("n1 shows a size of 7 and has 0 bytes"), "{rests}");
        assert!(done(&mut model, FileOp::Sync, 6, Ok(FileAnswer::Done)));
        assert_eq!(found(&mut model, 5, 9, 7), Ok(()));
        assert!(found(&mut model, 8, 9, 7).is_err());
    }

    #[test]
    fn answered_data_of_a_dead_cache_may_be_lost_by_a_server_that_died_after_the_answer_alone() {
        for (before, after, synced) in
            [(false, false, false), (true, false, false), (false, true, false), (false, true, true)]
        {
            let mut model = FileModel::default();
            let tree = format!("f0-d{CACHED}");
            let bytes = |fill| FileBytes { at: FileAt::Offset(0), len: 4, fill };
            let write = |fill, fsync| {
                let (create, truncate) = (true, false);
                FileOp::Write { path: name(), create, truncate, data: bytes(fill), fsync }
            };
            for (second, op) in [(0, FileOp::Base), (2, write(7, true))] {
                assert!(done_in(&mut model, &tree, op, second, Ok(FileAnswer::Done)));
            }
            if before {
                model.died(HostId(0), true, at(4));
            }
            assert!(done_in(&mut model, &tree, write(8, synced), 6, Ok(FileAnswer::Done)));
            if after {
                model.died(HostId(0), true, at(8));
            }
            // Of names, and of what the visitor itself has changed.
            assert!(done_in(&mut model, &tree, FileOp::Sync, 9, Ok(FileAnswer::Done)));
            model.died(HOST, false, at(11));
            let old = found_in(&mut model, &tree, (12, 13), (bytes(7).bytes(0), 4));
            assert_eq!(old.is_ok(), after && !synced, "{before} {after} {synced}: {old:?}");
            let new = found_in(&mut model, &tree, (14, 15), (bytes(8).bytes(0), 4));
            assert_eq!(new, Ok(()), "{before} {after} {synced}");
        }
    }

    #[test]
    fn evicted_client_may_lose_a_file_that_it_has_open_and_removed() {
        for (removes, evicted) in [(true, true), (true, false), (false, true)] {
            let mut model = with_a_file();
            assert!(done(&mut model, FileOp::Open(0, name(), false), 2, Ok(FileAnswer::Done)));
            if let Some(kept) = model.kept(CLIENT) {
                kept.gone = evicted;
            }
            if removes {
                assert!(done(&mut model, FileOp::Remove(name()), 3, Ok(FileAnswer::Done)));
            }
            for op in [FileOp::ReadOpen(0), FileOp::Sync] {
                let read = done(&mut model, op.clone(), 5, Err(Errno::ENOENT));
                assert_eq!(read, removes && evicted, "{op:?} {removes} {evicted}");
            }
        }
    }

    /// A copy of four bytes, from a time of 9 s.
    fn copied(model: &mut FileModel, second: u64) -> bool {
        let data = FileBytes { at: FileAt::Offset(0), len: 4, fill: 7 };
        let whole = FileOp::Whole { path: name(), data, times: (5, 9) };
        done(model, whole, second, Ok(FileAnswer::Done))
    }

    #[test]
    fn copy_that_is_not_committed_is_whole_or_empty_and_one_that_is_settled_is_whole() {
        let bytes = FileBytes { at: FileAt::Offset(0), len: 4, fill: 7 }.bytes(0);
        let half = [&bytes[..2], &[0, 0]].concat();
        for (gone, settled, found, may) in [
            (false, false, &bytes[..], true),
            (false, false, &[], false),
            (true, false, &bytes, true),
            (true, false, &[], true),
            (true, false, &half, false),
            (true, false, &bytes[..2], false),
            (true, true, &bytes, true),
            (true, true, &[], false),
        ] {
            let mut model = FileModel::default();
            assert!(done(&mut model, FileOp::Base, 0, Ok(FileAnswer::Done)));
            assert!(copied(&mut model, 2));
            let sync = if settled { FileOp::Settle } else { FileOp::Sync };
            assert!(done(&mut model, sync, 4, Ok(FileAnswer::Done)));
            if let Some(kept) = model.kept(CLIENT) {
                kept.gone = gone;
            }
            let seen = (found.to_vec(), found.len() as u64);
            let checked = found_at(&mut model, "f0-d", (6, 7), seen, 9);
            assert_eq!(checked.is_ok(), may, "{gone} {settled} {found:?}: {checked:?}");
        }
    }

    #[test]
    fn copy_has_the_time_of_its_source_until_it_is_written() {
        for (writes, mtime, may) in [(false, 9, true), (false, 8, false), (true, 8, true)] {
            let mut model = FileModel::default();
            assert!(done(&mut model, FileOp::Base, 0, Ok(FileAnswer::Done)));
            assert!(copied(&mut model, 2));
            let data = FileBytes { at: FileAt::Offset(0), len: 4, fill: 7 };
            if writes {
                let (path, create, truncate, fsync) = (name(), false, false, false);
                let write = FileOp::Write { path, create, truncate, data, fsync };
                assert!(done(&mut model, write, 4, Ok(FileAnswer::Done)));
            }
            let checked = found_at(&mut model, "f0-d", (6, 7), (data.bytes(0), 4), mtime);
            assert_eq!(checked.is_ok(), may, "{writes} {mtime}: {checked:?}");
        }
    }

    #[test]
    fn what_is_written_to_a_single_holder_is_there_when_the_write_has_ended() {
        for (single, may) in [(false, true), (true, false)] {
            let mut model = with_a_file();
            model.singles.extend(single.then(|| prefix_of(0)));
            let mut model = FileModel { trees: BTreeMap::new(), ..model };
            let bytes = |fill| FileBytes { at: FileAt::Offset(0), len: 4, fill };
            for (second, fill) in [(0, 0), (2, 7), (4, 8)] {
                let (path, create, truncate, fsync) = (name(), true, false, false);
                let write = FileOp::Write { path, create, truncate, data: bytes(fill), fsync };
                let op = if second == 0 { FileOp::Base } else { write };
                assert!(done(&mut model, op, second, Ok(FileAnswer::Done)));
            }
            model.died(HOST, false, at(6));
            let old = found_in(&mut model, "f0-d", (8, 9), (bytes(7).bytes(0), 4));
            assert_eq!(old.is_ok(), may, "{single}: {old:?}");
            let new = found_in(&mut model, "f0-d", (10, 11), (bytes(8).bytes(0), 4));
            assert_eq!(new, Ok(()), "{single}");
        }
    }
}

//! Names of one directory that several programs change at a time: their operations must have some order in
//! which a tree in memory gives each of them the result that it got, each between its beginning and its end.
//!
//! An operation is one or two steps that each happen at once: a visitor looks a name up, and then asks for a
//! change of it, or of the file that it has found. All orders of steps that are possible are followed
//! ([`Shared::begun`], [`Shared::ended`]); what is left when there is none is a contradiction.

use std::collections::BTreeMap;

use lnet_types::Errno;

use super::op::{FileAnswer, FileOp, FileShown};
use super::seen::Dump;
use super::tree::{Id, May, Tree, Versions};

/// Most orders that are followed: with more of them nothing is said any more.
const ORDERS_MAX: usize = 400;

type Outcome = Result<FileAnswer, Errno>;

/// How far an operation is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    /// The name was looked up: the file, and what it had.
    Found(Id, Box<FileAnswer>),
    Ended(Outcome),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Order {
    tree: Tree,
    /// Operations under way, by their clients.
    doing: BTreeMap<String, (FileOp, Stage)>,
}

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    orders: Vec<Order>,
    /// Nothing can be said any more: there are too many orders, or a client that is gone may have lost what
    /// others have seen.
    pub(super) void: bool,
}

impl Default for Shared {
    fn default() -> Self {
        let order = Order { tree: Tree::default(), doing: BTreeMap::new() };
        Self { orders: vec![order], void: false }
    }
}

/// The next step of an operation, and what may come of it.
fn step(tree: &Tree, op: &FileOp, stage: &Stage) -> Vec<(Tree, Stage)> {
    let mut after = tree.clone();
    let ended = |tree: Tree, outcome| vec![(tree, Stage::Ended(outcome))];
    match (op, stage) {
        (_, Stage::Ended(_)) => Vec::new(),
        // The name is looked up.
        (
            FileOp::Remove(path)
            | FileOp::Rename(path, _)
            | FileOp::Link(path, _)
            | FileOp::Stat(path)
            | FileOp::ReadLink(path),
            Stage::Begun,
        ) => {
            let shown = after.apply(&FileOp::Stat(path.clone()));
            match (tree.find(path, false), shown) {
                (Ok(id), Ok(shown)) => vec![(after, Stage::Found(id, Box::new(shown)))],
                (Err(errno), _) | (_, Err(errno)) => ended(after, Err(errno)),
            }
        }
        (FileOp::Stat(_), Stage::Found(id, shown)) => {
            let mut all = ended(after.clone(), Ok((**shown).clone()));
            // Its size is asked for elsewhere, where it may be gone with its last name.
            let is_file = matches!(**shown, FileAnswer::Attributes { kind: FileShown::File, .. });
            if is_file && tree.is_gone(*id) {
                all.extend(ended(after, Err(Errno::ENOENT)));
            }
            all
        }
        (FileOp::ReadLink(_), Stage::Found(id, _)) => {
            let text = tree.text(*id);
            ended(after, text)
        }
        (FileOp::Link(_, to), Stage::Found(id, _)) => {
            let outcome = after.link(*id, to).map(|()| FileAnswer::Done);
            let mut all = ended(after, outcome);
            if tree.on(*id) != 0 {
                all.extend(ended(tree.clone(), Err(Errno::EXDEV)));
            }
            all
        }
        // Between two targets nothing is changed.
        (FileOp::Rename(_, to), Stage::Found(..))
            if tree.may_be_refused(op) || tree.leads_away(to) =>
        {
            let outcome = after.apply(op);
            let mut all = ended(after, outcome);
            all.extend(ended(tree.clone(), Err(Errno::EXDEV)));
            all
        }
        // What has the name by now is removed, if it is a directory as before, or none.
        (FileOp::Remove(path), Stage::Found(found, shown)) => {
            let was_dir = matches!(**shown, FileAnswer::Attributes { kind: FileShown::Dir, .. });
            let is_dir = tree.find(path, false).map(|id| tree.kind(id) == FileShown::Dir);
            let outcome = match (was_dir, is_dir) {
                (_, Err(errno)) => Err(errno),
                (true, Ok(false)) => Err(Errno::ENOTDIR),
                (false, Ok(true)) => Err(Errno::EISDIR),
                _ => after.apply(op),
            };
            let mut all = ended(after, outcome);
            // A directory of another target than its name is removed there, by both. Where it is gone, who asks
            // is sent to the target of the name.
            if tree.find(path, false).is_ok_and(|id| id != *found && tree.on(*found) != 0) {
                all.extend(ended(tree.clone(), Err(Errno::ENOENT)));
            }
            all
        }
        _ => {
            let outcome = after.apply(op);
            ended(after, outcome)
        }
    }
}

impl Shared {
    /// A client begins an operation.
    pub(super) fn begun(&mut self, client: &str, op: &FileOp) {
        for order in &mut self.orders {
            order.doing.insert(client.to_owned(), (op.clone(), Stage::Begun));
        }
    }

    /// A client learns nothing of the end of its operation: it happens at some time, or never.
    pub(super) fn doubt(&mut self, client: &str) {
        for order in &mut self.orders {
            if let Some(doing) = order.doing.remove(client) {
                order.doing.insert(format!("{client} in doubt"), doing);
            }
        }
    }

    /// All orders that begin with these, with steps of any operations behind them.
    fn follow(&mut self) {
        let mut at = 0;
        while let Some(order) = self.orders.get(at).cloned() {
            at += 1;
            for (client, (op, stage)) in &order.doing {
                for (tree, stage) in step(&order.tree, op, stage) {
                    let mut doing = order.doing.clone();
                    doing.insert(client.clone(), (op.clone(), stage));
                    let next = Order { tree, doing };
                    if !self.orders.contains(&next) {
                        self.orders.push(next);
                    }
                }
            }
            if self.orders.len() > ORDERS_MAX {
                self.void = true;
                self.orders.clear();
            }
        }
    }

    /// The operation of a client has ended so. `false`: there is no order in which it may.
    pub(super) fn ended(&mut self, client: &str, outcome: &Outcome) -> bool {
        if self.void {
            return true;
        }
        self.follow();
        self.orders.retain_mut(|order| match order.doing.remove(client) {
            Some((_, Stage::Ended(ended))) => ended == *outcome,
            _ => false,
        });
        // Orders that differ in this operation alone are the same from now on.
        let mut all: Vec<Order> = Vec::with_capacity(self.orders.len());
        for order in core::mem::take(&mut self.orders) {
            if !all.contains(&order) {
                all.push(order);
            }
        }
        self.orders = all;
        self.void || !self.orders.is_empty()
    }

    /// Why what was found can't be what is left.
    pub(super) fn differs(&mut self, found: Option<&Dump>) -> Option<String> {
        if self.void {
            return None;
        }
        self.follow();
        // Programs work on names alone.
        let may = May { versions: &Versions::new(), exact: &|_| true, times: true };
        let mut why = None;
        for order in &self.orders {
            why = Some(match found {
                Some(dump) => order.tree.differs(dump, &may)?,
                None if order.tree.is_there() => "the directory is gone".to_owned(),
                None => return None,
            });
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::FilePath;
    use super::*;

    fn path(name: u8) -> FilePath {
        FilePath(vec![name])
    }

    fn made() -> Shared {
        let mut shared = Shared::default();
        for op in [FileOp::Base, FileOp::Create(path(1))] {
            shared.begun("a", &op);
            assert!(shared.ended("a", &Ok(FileAnswer::Done)));
        }
        shared
    }

    const DONE: Outcome = Ok(FileAnswer::Done);

    #[test]
    fn one_of_two_that_remove_a_name_finds_it_gone() {
        for (first, second, may) in [
            (DONE, Err(Errno::ENOENT), true),
            (Err(Errno::ENOENT), DONE, true),
            (DONE, DONE, false),
            (Err(Errno::ENOENT), Err(Errno::ENOENT), false),
        ] {
            let mut shared = made();
            shared.begun("a", &FileOp::Remove(path(1)));
            shared.begun("b", &FileOp::Remove(path(1)));
            let both = shared.ended("a", &first) && shared.ended("b", &second);
            assert_eq!(both, may, "{first:?} {second:?}");
        }
    }

    #[test]
    fn name_of_a_directory_that_is_gone_on_its_target_is_removed_as_what_it_is_now() {
        for (end, may) in [(Errno::ENOTDIR, true), (Errno::ENOENT, true), (Errno::EISDIR, false)] {
            let mut shared = made();
            shared.begun("a", &FileOp::MkdirOn(path(2), 1));
            assert!(shared.ended("a", &DONE));
            shared.begun("a", &FileOp::Remove(path(2)));
            shared.begun("b", &FileOp::Remove(path(2)));
            assert!(shared.ended("a", &DONE));
            shared.begun("a", &FileOp::Create(path(2)));
            assert!(shared.ended("a", &DONE));
            assert_eq!(shared.ended("b", &Err(end)), may, "{end}");
        }
    }

    #[test]
    fn an_operation_that_has_ended_is_seen_by_one_that_begins_later() {
        let mut shared = made();
        shared.begun("a", &FileOp::Remove(path(1)));
        shared.begun("b", &FileOp::List(FilePath::default()));
        let mut other = shared.clone();
        assert!(other.ended("b", &Ok(FileAnswer::Names(vec![b"n1".to_vec()]))));
        assert!(shared.ended("a", &DONE));
        shared.begun("c", &FileOp::List(FilePath::default()));
        assert!(!shared.clone().ended("c", &Ok(FileAnswer::Names(vec![b"n1".to_vec()]))));
        assert!(shared.ended("c", &Ok(FileAnswer::Names(Vec::new()))));
    }

    #[test]
    fn an_operation_in_doubt_has_happened_or_not() {
        let mut shared = made();
        shared.begun("a", &FileOp::Remove(path(1)));
        shared.doubt("a");
        for names in [Vec::new(), vec![b"n1".to_vec()]] {
            let mut either = shared.clone();
            either.begun("b", &FileOp::List(FilePath::default()));
            assert!(either.ended("b", &Ok(FileAnswer::Names(names))));
        }
    }

    #[test]
    fn a_file_that_was_found_gets_its_link_although_it_has_another_name_by_then() {
        let mut shared = made();
        shared.begun("a", &FileOp::Link(path(1), path(2)));
        shared.begun("b", &FileOp::Rename(path(1), path(3)));
        assert!(shared.ended("b", &DONE));
        shared.begun("c", &FileOp::List(FilePath::default()));
        assert!(shared.ended("c", &Ok(FileAnswer::Names(vec![b"n3".to_vec()]))));
        assert!(shared.ended("a", &DONE));
        shared.begun("c", &FileOp::List(FilePath::default()));
        assert!(shared.ended("c", &Ok(FileAnswer::Names(vec![b"n2".to_vec(), b"n3".to_vec()]))));
    }
}

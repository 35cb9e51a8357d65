//! Trees over two metadata targets: which operations are of both, and what is left of a tree when each of the
//! two has lost what it had last.

use super::{BASE, Body, FileOp, FilePath, Tree};

impl Tree {
    /// Whether a change is of two targets, so that the servers may refuse it with `EXDEV`.
    pub(in crate::rpc::file) fn may_be_refused(&self, op: &FileOp) -> bool {
        match op {
            FileOp::Link(from, to) => {
                let id = self.find(from, false);
                id.is_ok_and(|id| self.parent(to).is_ok_and(|(dir, _)| self.on(id) != self.on(dir)))
            }
            FileOp::Rename(from, to) => {
                let (Ok(id), Ok((source, _)), Ok((target, new))) =
                    (self.find(from, false), self.parent(from), self.parent(to))
                else {
                    return false;
                };
                let victim = self.entries(target).ok().and_then(|entries| entries.get(&new));
                let all = [source, target].into_iter().chain(victim.copied());
                // The way up of a directory that moves may lead over another target.
                let moves = source != target && self.entries(id).is_ok();
                let on = self.on(id);
                all.into_iter().any(|other| self.on(other) != on)
                    || moves && self.inodes.keys().any(|other| self.on(*other) != on)
            }
            _ => false,
        }
    }

    /// Whether a change is of two targets: when it has ended both have committed all that was changed before.
    pub(in crate::rpc::file) fn is_of_two(&self, op: &FileOp) -> bool {
        match op {
            FileOp::MkdirOn(path, mdt) => {
                self.parent(path).is_ok_and(|(dir, _)| self.on(dir) != *mdt)
            }
            FileOp::Remove(path) => self.find(path, false).is_ok_and(|id| {
                self.parent(path).is_ok_and(|(dir, _)| self.on(id) != self.on(dir))
            }),
            _ => false,
        }
    }

    /// Whether a name is that of a directory of another target: a rename onto it goes to that one, which
    /// refuses it, whether or not there is something to rename by then.
    pub(in crate::rpc::file) fn leads_away(&self, path: &FilePath) -> bool {
        let Ok((dir, name)) = self.parent(path) else { return false };
        let there = self.entries(dir).ok().and_then(|entries| entries.get(&name));
        there.is_some_and(|id| self.on(*id) != self.on(dir))
    }

    /// Whether more than the first target has a part of it.
    pub(in crate::rpc::file) fn is_on_two(&self) -> bool {
        self.inodes.keys().any(|id| self.on(*id) != self.on(BASE))
    }

    /// What the first target has of this tree, with what others have of another state of it. `None`: a name
    /// is there without its file, so that no servers have both.
    pub(in crate::rpc::file) fn with_others_of(&self, others: &Self) -> Option<Self> {
        let here = self.inodes.iter().filter(|(id, _)| self.on(**id) == 0);
        let there = others.inodes.iter().filter(|(id, _)| others.on(**id) != 0);
        let inodes = here.chain(there).map(|(id, inode)| (*id, inode.clone())).collect();
        let away = self.away.iter().chain(&others.away).map(|(id, mdt)| (*id, *mdt)).collect();
        let merged = Self { inodes, away, ..self.clone() };
        let dangles = merged.inodes.values().any(|inode| match &inode.body {
            Body::Dir(entries) => entries.values().any(|id| !merged.inodes.contains_key(id)),
            _ => false,
        });
        (!dangles).then_some(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::op::FilePath;
    use super::*;

    fn path(names: &[u8]) -> FilePath {
        FilePath(names.to_vec())
    }

    /// `/1` is on the first target, `/2` on the second one; each has a file 3.
    fn two() -> Tree {
        let mut tree = Tree::default();
        for op in [
            FileOp::Base,
            FileOp::MkdirOn(path(&[1]), 0),
            FileOp::MkdirOn(path(&[2]), 1),
            FileOp::Create(path(&[1, 3])),
            FileOp::Create(path(&[2, 3])),
        ] {
            tree.apply(&op).unwrap();
        }
        tree
    }

    #[test]
    fn links_and_renames_between_targets_may_be_refused() {
        let tree = two();
        let rename = |from: &[u8], to: &[u8]| FileOp::Rename(path(from), path(to));
        for (op, may) in [
            (rename(&[1, 3], &[4]), false),
            (rename(&[1, 3], &[2, 4]), true),
            (rename(&[1, 3], &[2]), true),
            (rename(&[2], &[4]), true),
            (rename(&[2, 3], &[2, 4]), false),
            (FileOp::Link(path(&[1, 3]), path(&[2, 4])), true),
            (FileOp::Link(path(&[2, 3]), path(&[2, 4])), false),
            (FileOp::Link(path(&[9]), path(&[2, 4])), false),
        ] {
            assert_eq!(tree.may_be_refused(&op), may, "{op:?}");
        }
        assert!(tree.is_of_two(&FileOp::Remove(path(&[2]))));
        assert!(!tree.is_of_two(&FileOp::Remove(path(&[2, 3]))));
        assert!(tree.is_of_two(&FileOp::MkdirOn(path(&[2, 4]), 0)));
        assert!(!tree.is_of_two(&FileOp::MkdirOn(path(&[2, 4]), 1)));
    }

    #[test]
    fn each_target_keeps_what_it_has_of_a_tree() {
        let before = two();
        let mut after = before.clone();
        after.apply(&FileOp::Remove(path(&[1, 3]))).unwrap();
        after.apply(&FileOp::Remove(path(&[2, 3]))).unwrap();
        let has = |tree: &Tree, names: &[u8]| tree.find(&path(names), true).is_ok();
        let first = after.with_others_of(&before).unwrap();
        assert_eq!((has(&first, &[1, 3]), has(&first, &[2, 3])), (false, true));
        let second = before.with_others_of(&after).unwrap();
        assert_eq!((has(&second, &[1, 3]), has(&second, &[2, 3])), (true, false));
        // A directory of the second target is made on both, or on none.
        let mut empty = Tree::default();
        empty.apply(&FileOp::Base).unwrap();
        assert_eq!(before.with_others_of(&empty), None);
    }
}

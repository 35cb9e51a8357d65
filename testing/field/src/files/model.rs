//! A tree of names in memory: what a program expects of its directory, with the refusals of POSIX.

use std::collections::BTreeMap;

use lnet_types::Errno;
use serde::{Deserialize, Serialize};

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry {
    /// A directory.
    Dir,
    /// A file, by its number.
    File(u64),
    /// A symbolic link with this text.
    Link(String),
}

/// A file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileState {
    /// Names that it has.
    pub(super) nlink: u32,
    /// Permissions.
    pub(super) mode: u32,
    /// Bytes.
    pub(super) size: u64,
}

/// Names by their paths below the program's directory, which itself is the empty path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Model {
    entries: BTreeMap<String, Entry>,
    files: BTreeMap<u64, FileState>,
    next: u64,
}

/// The directory of a path, and the name in it.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The path of a name in a directory.
pub(super) fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

impl Model {
    pub(super) fn get(&self, path: &str) -> Option<&Entry> {
        self.entries.get(path)
    }

    pub(super) fn file(&self, number: u64) -> FileState {
        self.files.get(&number).cloned().unwrap_or_default()
    }

    /// All paths, in ascending order.
    pub(super) fn paths(&self) -> Vec<&str> {
        self.entries.keys().map(String::as_str).collect()
    }

    /// All directories, the program's own among them.
    pub(super) fn dirs(&self) -> Vec<&str> {
        let dirs = self.entries.iter().filter(|(_, entry)| **entry == Entry::Dir);
        std::iter::once("").chain(dirs.map(|(path, _)| path.as_str())).collect()
    }

    /// Names in a directory, in ascending order.
    pub(super) fn names(&self, dir: &str) -> Vec<&str> {
        let inside = self.entries.keys().map(|path| split(path)).filter(|(of, _)| *of == dir);
        let mut names: Vec<&str> = inside.map(|(_, name)| name).collect();
        names.sort_unstable();
        names
    }

    /// Links of a directory: its name, its own dot, and those of the directories in it.
    pub(super) fn dir_links(&self, dir: &str) -> u32 {
        let inside = self.entries.iter().filter(|(path, entry)| {
            split(path).0 == dir && !path.is_empty() && **entry == Entry::Dir
        });
        2 + inside.count() as u32
    }

    /// Makes a directory or a symbolic link.
    pub(super) fn make(&mut self, path: &str, entry: Entry) -> Result<(), Errno> {
        if self.entries.contains_key(path) {
            return Err(Errno::EEXIST);
        }
        self.entries.insert(path.to_owned(), entry);
        Ok(())
    }

    /// Makes a file.
    pub(super) fn create(&mut self, path: &str, mode: u32, size: u64) -> Result<(), Errno> {
        let number = self.next;
        self.make(path, Entry::File(number))?;
        self.files.insert(number, FileState { nlink: 1, mode, size });
        self.next += 1;
        Ok(())
    }

    /// Gives a file one more name.
    pub(super) fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let number = match self.entries.get(from) {
            Some(Entry::File(number)) => *number,
            Some(Entry::Dir) => return Err(Errno::EPERM),
            _ => return Err(Errno::ENOENT),
        };
        self.make(to, Entry::File(number))?;
        self.files.entry(number).or_default().nlink += 1;
        Ok(())
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, path: &str) -> Result<(), Errno> {
        match self.entries.get(path) {
            None => return Err(Errno::ENOENT),
            Some(Entry::Dir) if !self.names(path).is_empty() => return Err(Errno::ENOTEMPTY),
            Some(_) => {}
        }
        if let Some(Entry::File(number)) = self.entries.remove(path)
            && let Some(file) = self.files.get_mut(&number)
        {
            file.nlink -= 1;
            if file.nlink == 0 {
                self.files.remove(&number);
            }
        }
        Ok(())
    }

    /// Gives something another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let entry = self.entries.get(from).cloned().ok_or(Errno::ENOENT)?;
        if let (Entry::File(one), Some(Entry::File(other))) = (&entry, self.entries.get(to))
            && one == other
        {
            return Ok(());
        }
        if from == to {
            return Ok(());
        }
        let is_dir = entry == Entry::Dir;
        if is_dir && to.starts_with(&format!("{from}/")) {
            return Err(Errno::EINVAL);
        }
        match self.entries.get(to) {
            Some(Entry::Dir) if !is_dir => return Err(Errno::EISDIR),
            Some(Entry::Dir) if !self.names(to).is_empty() => return Err(Errno::ENOTEMPTY),
            Some(Entry::File(_) | Entry::Link(_)) if is_dir => return Err(Errno::ENOTDIR),
            Some(_) => self.remove(to)?,
            None => {}
        }
        let below = format!("{from}/");
        let moved: Vec<String> =
            self.entries.keys().filter(|path| path.starts_with(&below)).cloned().collect();
        for path in moved {
            if let Some(entry) = self.entries.remove(&path) {
                let rest = path.get(below.len()..).unwrap_or_default();
                self.entries.insert(join(to, rest), entry);
            }
        }
        self.entries.remove(from);
        self.entries.insert(to.to_owned(), entry);
        Ok(())
    }

    /// Takes a file in that is there, by its number in the file system.
    pub(super) fn found(&mut self, path: &str, number: u64, file: FileState) {
        self.entries.insert(path.to_owned(), Entry::File(number));
        self.files.insert(number, file);
        self.next = self.next.max(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_a_directory_that_is_renamed() {
        let mut model = Model::default();
        model.make("d", Entry::Dir).unwrap();
        model.make("e", Entry::Dir).unwrap();
        model.create("d/f", 0o644, 7).unwrap();
        model.link("d/f", "g").unwrap();
        assert_eq!(model.rename("d", "d/x"), Err(Errno::EINVAL));
        assert_eq!(model.rename("g", "e"), Err(Errno::EISDIR));
        assert_eq!(model.rename("e", "d"), Err(Errno::ENOTEMPTY));
        assert_eq!(model.rename("d", "g"), Err(Errno::ENOTDIR));
        assert_eq!(model.rename("g", "d/f"), Ok(()), "two names of one file stay");
        model.rename("d", "e").unwrap();
        assert_eq!(model.paths(), ["e", "e/f", "g"]);
        let Some(Entry::File(number)) = model.get("e/f") else { panic!("a file") };
        assert_eq!(model.file(*number), FileState { nlink: 2, mode: 0o644, size: 7 });
        assert_eq!(model.remove("e"), Err(Errno::ENOTEMPTY));
        model.remove("e/f").unwrap();
        model.remove("g").unwrap();
        assert_eq!((model.names("e").len(), model.dir_links(""), model.files.len()), (0, 3, 0));
    }
}

//! Who has written to an object, and is to hear of what was lost (C-232): each of them once with its next fsync,
//! and once with its next close. Pure.

use lnet_types::Errno;

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A program without open files: all of it.
    Program,
    /// An open file, by its handle.
    File(u64),
    /// All of them together, where none of them is left.
    Every,
}

#[derive(Debug)]
struct Entry {
    writer: Writer,
    fsync: Option<Errno>,
    close: Option<Errno>,
}

/// Those of one object.
#[derive(Debug, Default)]
pub(super) struct Writers(Vec<Entry>);

impl Writers {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn entry(&mut self, writer: Writer) -> Option<&mut Entry> {
        self.0.iter_mut().find(|entry| entry.writer == writer)
    }

    pub(super) fn add(&mut self, writer: Writer) {
        if self.entry(writer).is_none() {
            self.0.push(Entry { writer, fsync: None, close: None });
        }
    }

    /// Data was lost. The first reason counts.
    pub(super) fn fail(&mut self, errno: Errno) {
        if self.is_empty() {
            self.add(Writer::Program);
        }
        for entry in &mut self.0 {
            entry.fsync.get_or_insert(errno);
            entry.close.get_or_insert(errno);
        }
    }

    /// A writer was to hear of a loss, and has not.
    pub(super) fn unheard(&mut self, writer: Writer, errno: Errno) {
        self.add(writer);
        if let Some(entry) = self.entry(writer) {
            entry.fsync.get_or_insert(errno);
            entry.close.get_or_insert(errno);
        }
    }

    /// What the fsync of a writer says.
    pub(super) fn fsynced(&mut self, writer: Writer) -> Option<Errno> {
        if writer == Writer::Every {
            let all = core::mem::take(&mut self.0);
            return all.into_iter().find_map(|entry| entry.fsync.or(entry.close));
        }
        self.entry(writer).and_then(|entry| entry.fsync.take())
    }

    /// What the close of a writer says. A file that is closed writes no more.
    pub(super) fn closed(&mut self, writer: Writer) -> Option<Errno> {
        let said = self.entry(writer).and_then(|entry| entry.close.take());
        let stays = |entry: &Entry| entry.writer != writer || entry.fsync.is_some();
        match writer {
            Writer::File(_) => self.0.retain(|entry| entry.writer != writer),
            Writer::Program | Writer::Every => self.0.retain(stays),
        }
        said
    }

    /// Whether something is to be said.
    pub(super) fn has_errors(&self) -> bool {
        self.0.iter().any(|entry| entry.fsync.or(entry.close).is_some())
    }

    /// Whether a writer has heard nothing of a loss so far.
    pub(super) fn is_unsaid(&self) -> bool {
        self.0.iter().any(|entry| entry.fsync.is_some() && entry.close.is_some())
    }

    #[cfg(test)]
    pub(super) fn first(&self) -> Option<Errno> {
        self.0.first().and_then(|entry| entry.fsync)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Option<Errno> = Some(Errno::EIO);

    #[test]
    fn c232_each_open_file_hears_of_a_loss_once_with_its_fsync_and_once_with_its_close() {
        let mut writers = Writers::new();
        let (one, other) = (Writer::File(1), Writer::File(2));
        writers.add(one);
        writers.add(other);
        writers.fail(Errno::EIO);
        writers.fail(Errno::ENOSPC);
        assert_eq!((writers.fsynced(one), writers.fsynced(one)), (LOST, None));
        assert_eq!((writers.closed(one), writers.closed(one)), (LOST, None));
        assert_eq!(writers.fsynced(Writer::File(3)), None, "it has written nothing");
        // What a close has said is not said to a file that is opened later, nor kept.
        assert_eq!((writers.closed(other), writers.is_empty()), (LOST, true));
    }

    #[test]
    fn l57_program_without_files_hears_once_with_its_fsync_and_once_with_its_close() {
        let mut writers = Writers::new();
        writers.fail(Errno::EIO);
        assert!(writers.is_unsaid());
        assert_eq!(
            (writers.closed(Writer::Program), writers.closed(Writer::Program)),
            (LOST, None)
        );
        assert!(!writers.is_unsaid() && writers.has_errors());
        assert_eq!((writers.fsynced(Writer::Program), writers.has_errors()), (LOST, false));
    }

    #[test]
    fn c232_loss_whose_fsync_was_given_up_is_said_by_the_next_one() {
        let mut writers = Writers::new();
        let one = Writer::File(1);
        writers.add(one);
        writers.fail(Errno::EIO);
        let said = writers.fsynced(one);
        said.into_iter().for_each(|errno| writers.unheard(one, errno));
        assert_eq!(writers.fsynced(one), LOST);
        writers.fail(Errno::EIO);
        assert_eq!((writers.fsynced(Writer::Every), writers.is_empty()), (LOST, true));
    }
}

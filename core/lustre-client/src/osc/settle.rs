//! What a target has answered and may still lose. It commits in its own time where space was promised for
//! the data (L-92); until then their memory stays with the request, which is repeated to a target that has
//! lost it (P-74). An eviction makes it void: the data are lost then.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::Errno;
use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use ptlrpc::{CallError, CallId, Reply};

use super::data::Io;
use super::dirty::Piece;
use super::locks::{Key, Object};
use super::wire::Said;
use super::{FilePart, Osc};

/// Writes that are answered, and not known to be committed.
#[derive(Debug, Default)]
pub(super) struct Uncommitted {
    kept: BTreeMap<CallId, Written>,
    /// Their bytes.
    bytes: u64,
    /// Bytes on their way that may become such.
    reserved: u64,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) key: Key,
    pub(super) id: ObjectId,
    pub(super) part: Option<FilePart>,
    /// The target has taken it; otherwise it was made again, or has failed.
    pub(super) good: bool,
    pub(super) pieces: Vec<Piece>,
}

impl Written {
    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len).sum()
    }
}

impl Uncommitted {
    /// Whether a write of so many bytes may be answered before it is committed, with at most `max` bytes of
    /// such writes.
    pub(super) fn reserve(&mut self, len: u64, max: u64) -> bool {
        let fits = self.bytes.saturating_add(self.reserved).saturating_add(len) <= max;
        self.reserved += if fits { len } else { 0 };
        fits
    }

    /// Such a write is over.
    pub(super) fn unreserve(&mut self, len: u64) {
        self.reserved = self.reserved.saturating_sub(len);
    }

    /// A write is answered, and its memory stays.
    pub(super) fn keep(&mut self, call: CallId, written: Written) {
        self.bytes += written.len();
        self.kept.insert(call, written);
    }

    pub(super) fn has(&self, call: CallId) -> bool {
        self.kept.contains_key(&call)
    }

    /// Whether any of them are of an object.
    pub(super) fn is_of(&self, key: Key) -> bool {
        self.kept.values().any(|written| written.key == key)
    }

    fn take(&mut self, call: CallId) -> Option<Written> {
        let written = self.kept.remove(&call)?;
        self.bytes = self.bytes.saturating_sub(written.len());
        Some(written)
    }
}

impl Osc {
    /// Objects whose data may not survive the target, or are lost, which no fsync and no close has said, each
    /// with its file: what an [`Osc::fsync`] would wait for or say.
    pub fn unsettled(&self) -> Vec<(ObjectId, Fid)> {
        let moving: BTreeSet<Key> = self.ios.values().filter_map(Io::written).collect();
        let open = self.objects.iter().filter(|(key, object)| {
            let lost = object.writers.is_unsaid();
            lost || !object.dirty.is_empty() || moving.contains(*key)
        });
        let file = |part: Option<FilePart>| part.map(|part| part.file).unwrap_or_default();
        let mut all: BTreeMap<Key, (ObjectId, Fid)> =
            open.map(|(key, object)| (*key, (object.id, file(object.part)))).collect();
        let kept = self.uncommitted.kept.values();
        all.extend(kept.map(|written| (written.key, (written.id, file(written.part)))));
        all.into_values().collect()
    }

    /// Bytes that the target has answered and may lose.
    pub const fn uncommitted(&self) -> u64 {
        self.uncommitted.bytes
    }

    /// A write was repeated to a target that had lost it (P-71).
    pub(super) fn replayed(&mut self, call: CallId, result: Result<&Reply, &CallError>) {
        let Some(written) = self.uncommitted.kept.get(&call) else { return };
        let said = result.ok().and_then(Said::of);
        if written.good && !said.is_some_and(|said| said.is_written(None)) {
            fail(&mut self.objects, written);
        }
    }

    /// A write is repeated no more: it is committed, or void.
    pub(super) fn unretained(&mut self, call: CallId, committed: bool) {
        let Some(written) = self.uncommitted.take(call) else { return };
        written.pieces.iter().for_each(|piece| self.free(piece));
        if !committed && written.good {
            self.stats.lost += written.len();
            fail(&mut self.objects, &written);
        }
    }

    /// The import is closed: nothing is repeated any more.
    pub(super) fn free_kept(&mut self) {
        let kept = core::mem::take(&mut self.uncommitted.kept);
        self.uncommitted.bytes = 0;
        for piece in kept.into_values().flat_map(|written| written.pieces) {
            self.free(&piece);
        }
    }
}

/// The data of a write are lost: its object says so.
fn fail(objects: &mut BTreeMap<Key, Object>, written: &Written) {
    let object = objects.entry(written.key).or_insert_with(|| Object::new(written.id));
    object.part = object.part.or(written.part);
    object.writers.fail(Errno::EIO);
}

#[cfg(test)]
mod tests {
    use ptlrpc::ImportId;

    use super::super::OscConfig;
    use super::*;

    /// A client with two writes that are answered and not committed, of which the second had failed.
    fn client() -> Osc {
        let mut osc = Osc::new(ImportId::from(1), OscConfig::default());
        for (call, good) in [(1, true), (2, false)] {
            let (key, id) = ([call; 4], ObjectId::old(call));
            let written = Written { key, id, part: None, good, pieces: Vec::new() };
            osc.uncommitted.keep(CallId::from(call), written);
        }
        osc
    }

    fn errors(osc: &Osc) -> Vec<(u64, Option<Errno>)> {
        osc.objects.iter().map(|(key, object)| (key[0], object.writers.first())).collect()
    }

    #[test]
    fn p71_write_whose_replay_is_refused_is_lost_and_its_object_says_so() {
        let mut osc = client();
        for call in [1, 2] {
            let refused = CallError::Refused(Errno::ENOENT);
            osc.replayed(CallId::from(call), Err(&refused));
        }
        assert_eq!(errors(&osc), [(1, Some(Errno::EIO))], "the other one was made again before");
        osc.unretained(CallId::from(1), true);
        assert_eq!(osc.unsettled().len(), 2, "an error that was not said, and the other write");
    }

    #[test]
    fn c261_write_is_to_be_synced_until_it_is_known_to_be_committed() {
        let mut osc = client();
        assert_eq!(osc.unsettled().len(), 2);
        for call in [1, 2] {
            osc.unretained(CallId::from(call), true);
        }
        assert_eq!((osc.unsettled(), errors(&osc)), (vec![], vec![]));
    }

    #[test]
    fn p76_write_that_an_eviction_makes_void_is_lost() {
        let mut osc = client();
        for call in [1, 2] {
            osc.unretained(CallId::from(call), false);
        }
        assert_eq!(errors(&osc), [(1, Some(Errno::EIO))]);
    }

    #[test]
    fn l92_writes_under_way_count_for_what_may_be_uncommitted() {
        let mut uncommitted = Uncommitted::default();
        assert!(uncommitted.reserve(60, 100) && !uncommitted.reserve(41, 100));
        assert!(uncommitted.reserve(40, 100));
        uncommitted.unreserve(60);
        assert!(uncommitted.reserve(60, 100) && !uncommitted.reserve(1, 100));
    }
}

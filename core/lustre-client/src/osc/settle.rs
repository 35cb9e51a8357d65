//! What a target has answered and may still lose. Most commit a write before they answer it; replies of the
//! others say so, by the number of the last transaction that is committed (P-75). A write has bulk data and
//! is not repeated: only a sync makes it certain.

use std::collections::{BTreeMap, BTreeSet};

use lnet_types::Errno;
use lustre_wire::Fid;
use lustre_wire::fid::ObjectId;
use ptlrpc::Reply;

use super::data::Io;
use super::locks::{Key, Object};
use super::{Cx, Osc};

/// Objects with writes that are answered, and not known to be committed.
#[derive(Debug, Default)]
pub(super) struct Uncommitted(BTreeMap<Key, Written>);

#[derive(Clone, Copy, Debug)]
struct Written {
    id: ObjectId,
    file: Fid,
    transno: u64,
}

impl Uncommitted {
    /// A target has answered: of a write what it was.
    pub(super) fn hear(&mut self, reply: &Reply, write: Option<(Key, ObjectId, Fid)>) {
        let committed =
            reply.msg().and_then(|msg| msg.body()).map_or(0, |body| body.last_committed);
        self.heard(reply.transno, committed, write);
    }

    fn heard(&mut self, transno: u64, committed: u64, write: Option<(Key, ObjectId, Fid)>) {
        if let Some((key, id, file)) = write {
            self.0.insert(key, Written { id, file, transno });
        }
        self.0.retain(|_, written| written.transno > committed);
    }

    /// The target has lost what is not committed: the objects with such writes. Numbers after a restart begin
    /// above all of these, and would pass for their commit.
    fn lost(&mut self, committed: u64) -> Vec<(Key, ObjectId)> {
        let all = core::mem::take(&mut self.0).into_iter();
        let lost = all.filter(|(_, written)| written.transno > committed);
        lost.map(|(key, written)| (key, written.id)).collect()
    }
}

impl Osc {
    /// Objects whose data may not survive the target, or are lost, which no fsync and no close has said, each
    /// with its file: what an [`Osc::fsync`] would wait for or say.
    pub fn unsettled(&self) -> Vec<(ObjectId, Fid)> {
        let moving: BTreeSet<Key> = self.ios.values().filter_map(Io::written).collect();
        let open = self.objects.iter().filter(|(key, object)| {
            let lost = object.fsync_error.is_some() && object.close_error.is_some();
            lost || !object.dirty.is_empty() || moving.contains(*key)
        });
        let file = |object: &Object| object.part.map(|part| part.file).unwrap_or_default();
        let mut all: BTreeMap<Key, (ObjectId, Fid)> =
            open.map(|(key, object)| (*key, (object.id, file(object)))).collect();
        let answered = self.uncommitted.0.iter();
        all.extend(answered.map(|(key, written)| (*key, (written.id, written.file))));
        all.into_values().collect()
    }

    /// The target recovers, or has evicted this client: what was not committed does not come back.
    pub(super) fn lose_uncommitted(&mut self, cx: &Cx<'_, '_, '_>) {
        if self.uncommitted.0.is_empty() {
            return;
        }
        let committed = cx.rpc.committed_of(self.import).unwrap_or_default();
        for (key, id) in self.uncommitted.lost(committed) {
            self.objects.entry(key).or_insert_with(|| Object::new(id)).fail(Errno::EIO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c261_write_is_to_be_synced_until_a_reply_says_that_it_is_committed() {
        let mut all = Uncommitted::default();
        let write = |key: u64| Some(([key; 4], ObjectId::old(key), Fid::default()));
        all.heard(5, 5, write(1));
        assert_eq!(all.0.len(), 0, "committed before it was answered");
        all.heard(6, 5, write(1));
        all.heard(7, 5, write(2));
        all.heard(8, 5, write(1));
        assert_eq!(all.0.keys().map(|key| key[0]).collect::<Vec<_>>(), [1, 2]);
        all.heard(0, 7, None);
        assert_eq!(all.0.keys().map(|key| key[0]).collect::<Vec<_>>(), [1]);
        all.heard(0, 9, None);
        assert!(all.0.is_empty(), "what is below is committed too");
    }

    #[test]
    fn c261_restarted_target_has_lost_the_writes_that_it_had_not_committed() {
        let mut all = Uncommitted::default();
        for (key, transno) in [(1, 6), (2, 7), (3, 8)] {
            all.heard(transno, 5, Some(([key; 4], ObjectId::old(key), Fid::default())));
        }
        let lost: Vec<u64> = all.lost(6).into_iter().map(|(key, _)| key[0]).collect();
        assert_eq!((lost, all.0.len()), (vec![2, 3], 0));
    }
}

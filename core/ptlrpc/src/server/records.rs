//! Answers to requests of one client that have changed something, kept until the client has them
//! (P-141, P-142).

use std::collections::BTreeMap;

use super::target::ReplyRecord;
use crate::numbered::Numbered;

/// The records of one client.
#[derive(Debug, Default)]
pub(crate) struct Records {
    by_xid: Numbered<ReplyRecord>,
    /// The xid that used a slot last.
    by_tag: BTreeMap<u16, u64>,
    /// Bytes of their buffers.
    bytes: usize,
}

fn bytes_of(record: &ReplyRecord) -> usize {
    record.buffers.total()
}

impl Records {
    pub(crate) fn len(&self) -> usize {
        self.by_xid.len()
    }

    /// Bytes of the buffers of all.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, xid: u64) -> Option<&ReplyRecord> {
        self.by_xid.get(xid)
    }

    /// Keeps an answer. An older one of the same slot goes: the client has it, or it would not have
    /// used the slot again.
    pub(crate) fn keep(&mut self, record: ReplyRecord) {
        self.release_slot(record.tag, record.xid);
        if record.tag != 0 {
            self.by_tag.insert(record.tag, record.xid);
        }
        self.bytes += bytes_of(&record);
        if let Some(before) = self.by_xid.insert(record.xid, record) {
            self.bytes -= bytes_of(&before);
        }
    }

    /// A request uses a slot: the answer to an older one in it was received.
    pub(crate) fn release_slot(&mut self, tag: u16, xid: u64) {
        if let Some(old) = self.by_tag.get(&tag).copied().filter(|old| *old < xid) {
            self.by_tag.remove(&tag);
            self.remove(old);
        }
    }

    fn remove(&mut self, xid: u64) {
        if let Some(record) = self.by_xid.remove(xid) {
            self.bytes -= bytes_of(&record);
        }
    }

    /// The client has the answers up to this xid.
    pub(crate) fn acknowledge(&mut self, last_xid: u64) {
        while let Some((_, record)) = self.by_xid.pop_up_to(last_xid) {
            self.bytes -= bytes_of(&record);
            if self.by_tag.get(&record.tag) == Some(&record.xid) {
                self.by_tag.remove(&record.tag);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(xid: u64, tag: u16) -> ReplyRecord {
        ReplyRecord { xid, tag, transno: xid, ..ReplyRecord::default() }
    }

    fn xids(records: &Records) -> Vec<u64> {
        records.by_xid.values().map(|record| record.xid).collect()
    }

    #[test]
    fn a_record_goes_when_its_slot_is_used_again() {
        let mut records = Records::default();
        for (xid, tag) in [(10, 1), (20, 2), (30, 1)] {
            records.keep(record(xid, tag));
        }
        assert_eq!(xids(&records), [20, 30]);
        records.release_slot(2, 40);
        assert_eq!(xids(&records), [30]);
        // An older request of the slot says nothing.
        records.release_slot(1, 25);
        assert_eq!(xids(&records), [30]);
    }

    #[test]
    fn a_record_goes_when_the_client_has_the_answers_up_to_it() {
        let mut records = Records::default();
        for xid in [10, 20, 30] {
            records.keep(record(xid, xid as u16));
        }
        records.acknowledge(20);
        assert_eq!((xids(&records), records.by_tag.len()), (vec![30], 1));
        records.acknowledge(u64::MAX);
        assert_eq!((records.len(), records.by_tag.len()), (0, 0));
    }

    #[test]
    fn records_without_a_slot_stay_beside_each_other() {
        let mut records = Records::default();
        for xid in [10, 20, 30] {
            records.keep(record(xid, 0));
        }
        assert_eq!(xids(&records), [10, 20, 30]);
    }
}

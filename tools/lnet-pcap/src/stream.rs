//! One direction of a connection: packets in any order and any number of times, bytes in order and
//! once.

use std::collections::BTreeMap;

/// What is known of one direction.
#[derive(Default)]
pub(crate) struct Stream {
    /// Number of the first byte.
    first: Option<u32>,
    /// Bytes that have been given out, hence the place of the next one.
    done: u64,
    /// Bytes that came too early, by their place.
    early: BTreeMap<u64, Vec<u8>>,
}

impl Stream {
    /// Number of the first byte, once it is known.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first
    }

    /// Says that the stream begins at `seq`; only the first time counts.
    pub(crate) fn open(&mut self, seq: u32) {
        self.first.get_or_insert(seq);
    }

    /// Takes the bytes numbered from `seq`; returns those that have become readable.
    pub(crate) fn take(&mut self, seq: u32, bytes: &[u8]) -> Vec<u8> {
        if bytes.is_empty() {
            return Vec::new();
        }
        let first = *self.first.get_or_insert(seq);
        // Numbers wrap; what is meant lies within 2³¹ of the next byte.
        let next = first.wrapping_add(self.done as u32);
        let Some(place) = self.done.checked_add_signed(seq.wrapping_sub(next).cast_signed().into())
        else {
            return Vec::new();
        };
        let longest = self.early.entry(place).or_default();
        if longest.len() < bytes.len() {
            *longest = bytes.to_vec();
        }
        let mut ready = Vec::new();
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.done
        {
            let (place, bytes) = entry.remove_entry();
            // A gap between `place` and `done` is what we had already.
            let had = usize::try_from(self.done - place).unwrap_or(usize::MAX);
            if let Some(new) = bytes.get(had..) {
                ready.extend_from_slice(new);
                self.done += new.len() as u64;
            }
        }
        ready
    }
}

#[cfg(test)]
mod tests {
    use super::Stream;

    #[test]
    fn bytes_come_out_in_order_and_once_however_the_packets_came() {
        let mut s = Stream::default();
        s.open(u32::MAX - 1);
        s.open(77);
        assert_eq!(s.take(u32::MAX - 1, b"ab"), b"ab");
        assert_eq!(s.take(2, b"ef"), b"", "too early, behind the wrap");
        assert_eq!(s.take(4, b"gh"), b"");
        assert_eq!(s.take(2, b"e"), b"", "a shorter repetition");
        assert_eq!(s.take(u32::MAX - 1, b"abc"), b"c", "a longer repetition");
        assert_eq!(s.take(1, b"d"), b"defgh");
        assert_eq!(s.take(0, b"cdefghi"), b"i");
        assert_eq!(s.take(u32::MAX - 7, b"before"), b"", "before the beginning");
    }
}

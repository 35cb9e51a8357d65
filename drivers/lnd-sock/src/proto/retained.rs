//! Messages that were written to a connection and are not acknowledged by the other end's transport,
//! towards a peer that recognizes duplicates: what a connection leaves in doubt when it ends.
//!
//! Payload is copied here when the last byte of a message is written, so that its memory is free
//! again at once, and dropped when the stream's acknowledged position has passed it. Positions are
//! looked up in the transport when the rail is looked at, and each time that [`RELEASE_EVERY`] more
//! bytes are retained: a message costs the copy and no system call.

use std::collections::VecDeque;

use lnet::{InDoubt, Payload, Retention};
use lnet_types::{Memory, NiId, Nid};
use lnet_wire::Hdr;

/// Retained bytes between two looks at what is acknowledged: few enough for a processor's cache.
pub(crate) const RELEASE_EVERY: usize = 256 << 10;

/// The retained messages of one connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    messages: VecDeque<Message>,
    /// Their payloads, one behind the other.
    payload: VecDeque<u8>,
    /// How many bytes are retained when the transport is to be asked again.
    release_at: usize,
}

#[derive(Debug)]
struct Message {
    /// Where it ends in the stream.
    end: u64,
    hdr: Hdr,
    retention: Retention,
}

impl Retained {
    /// A message was written whole; its last byte is the one before `end` of the stream.
    pub(crate) fn retain(
        &mut self,
        end: u64,
        hdr: &Hdr,
        payload: &Payload,
        retention: Retention,
        mem: &dyn Memory,
    ) {
        match payload {
            Payload::Spans(spans) => {
                spans.iter().for_each(|span| self.payload.extend(mem.bytes(*span)));
            }
            Payload::Bytes(bytes) => self.payload.extend(bytes.iter()),
        }
        self.messages.push_back(Message { end, hdr: *hdr, retention });
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.messages.len() * size_of::<Message>()
    }

    /// Whether it has no more memory than for a look at what is acknowledged.
    pub(crate) fn is_small(&self) -> bool {
        let messages = self.messages.capacity() * size_of::<Message>();
        self.payload.capacity() + messages <= 2 * RELEASE_EVERY
    }

    /// Whether the transport is to be asked what it has acknowledged.
    pub(crate) fn is_release_due(&self) -> bool {
        self.bytes() >= self.release_at.max(RELEASE_EVERY)
    }

    /// The transport has acknowledged the stream up to `acked`.
    pub(crate) fn acknowledged(&mut self, acked: u64) {
        let covered = self.messages.partition_point(|m| m.end <= acked);
        let bytes: usize = self.messages.drain(..covered).map(|m| m.hdr.payload_len as usize).sum();
        self.payload.drain(..bytes);
        self.release_at = self.bytes() + RELEASE_EVERY;
    }

    /// Gives everything back; nothing is retained any more.
    pub(crate) fn take(&mut self, ni: NiId, to: Nid) -> Vec<InDoubt> {
        let mut payload = core::mem::take(&mut self.payload);
        self.release_at = 0;
        core::mem::take(&mut self.messages)
            .into_iter()
            .map(|Message { hdr, retention, .. }| {
                let bytes: Vec<u8> = payload.drain(..hdr.payload_len as usize).collect();
                InDoubt { ni, to, hdr, payload: Payload::Bytes(bytes.into()), retention }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{Instant, IoVec, Net, Pid, RegionId, Span};
    use lnet_wire::{Handle, Kind};

    use super::*;

    struct Mem(Vec<u8>);

    impl Memory for Mem {
        fn bytes(&self, s: Span) -> &[u8] {
            &self.0[s.offset as usize..][..s.len as usize]
        }
        fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
            &mut self.0[s.offset as usize..][..s.len as usize]
        }
    }

    const TERMS: Retention =
        Retention { born: Instant::ZERO, until: Instant::FAR_FUTURE, bound: false };

    fn hdr(payload_len: u32, match_bits: u64) -> Hdr {
        Hdr {
            dst: Nid::new(Net::TCP, 2),
            src: Nid::new(Net::TCP, 1),
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind: Kind::Put { ack: Handle::NONE, match_bits, hdr_data: 2, portal: 3, offset: 0 },
        }
    }

    /// Messages of 1, 2, 3 … bytes, each 100 bytes of the stream.
    fn filled(count: u32) -> Retained {
        let mem = Mem((0..=255).collect());
        let mut retained = Retained::default();
        for n in 1..=count {
            let half = n / 2;
            let span = |offset, len| Span { region: RegionId(0), len, offset };
            let parts: IoVec =
                [span(0, half), span(u64::from(half), n - half)].into_iter().collect();
            let (end, hdr) = (u64::from(n) * 100, hdr(n, n.into()));
            retained.retain(end, &hdr, &Payload::Spans(parts), TERMS, &mem);
        }
        retained
    }

    fn lens(messages: &[InDoubt]) -> Vec<u64> {
        messages.iter().map(|m| m.payload.len()).collect()
    }

    #[test]
    fn a_message_is_released_with_its_last_byte_and_not_before() {
        for (acked, left) in [(0, 3), (99, 3), (100, 2), (299, 1), (300, 0), (900, 0)] {
            let mut retained = filled(3);
            retained.acknowledged(acked);
            let back = retained.take(NiId::default(), Nid::ANY);
            assert_eq!(lens(&back), (4 - left..4).collect::<Vec<_>>(), "{acked} bytes");
            assert_eq!(retained.bytes(), 0);
        }
    }

    #[test]
    fn payload_comes_back_as_it_was_when_it_was_written() {
        let mut retained = filled(40);
        retained.acknowledged(1000);
        for m in retained.take(NiId::default(), Nid::ANY) {
            let Payload::Bytes(bytes) = m.payload else { panic!("bytes of its own") };
            assert_eq!(*bytes, (0..m.hdr.payload_len as u8).collect::<Vec<_>>()[..]);
        }
    }

    #[test]
    fn the_transport_is_asked_once_for_each_quarter_of_a_mebibyte() {
        let mem = Mem(vec![0; 1 << 16]);
        let mut retained = Retained::default();
        let whole = IoVec::from_slice(&[Span { region: RegionId(0), len: 1 << 16, offset: 0 }]);
        let mut asked = 0;
        for n in 1..=64 {
            retained.retain(n << 16, &hdr(1 << 16, n), &Payload::Spans(whole.clone()), TERMS, &mem);
            if retained.is_release_due() {
                asked += 1;
                // Nothing gets through.
                retained.acknowledged(0);
            }
        }
        assert_eq!(asked, 16);
    }

    #[test]
    fn memory_is_worth_keeping_while_it_is_no_more_than_between_two_looks() {
        let mut retained = filled(100);
        retained.acknowledged(u64::MAX);
        assert!(retained.bytes() == 0 && retained.is_small());
        let mem = Mem(vec![0; 2 * RELEASE_EVERY + 1]);
        let whole = Span { region: RegionId(0), len: mem.0.len() as u32, offset: 0 };
        let payload = Payload::Spans(IoVec::from([whole]));
        retained.retain(1, &hdr(whole.len, 1), &payload, TERMS, &mem);
        retained.acknowledged(u64::MAX);
        assert!(retained.bytes() == 0 && !retained.is_small());
    }
}

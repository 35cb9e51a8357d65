//! Messages that were written to a connection and are not acknowledged by the other end's transport,
//! towards a peer that recognizes duplicates: what a connection leaves in doubt when it ends.
//!
//! Payload is copied here when the last byte of a message is written, so that its memory is free
//! again at once, and dropped when the stream's acknowledged position has passed it. That of a large
//! REPLY, for whose end no program waits, is *lent* instead: the message has ended when it is
//! acknowledged, and its payload is copied only if that takes longer than [`LENT_MAX`]. What is written
//! behind a lent message is lent too, so that all that is copied is older than all that is lent.
//!
//! Positions are looked up in the transport when the rail is looked at, each time that
//! [`RELEASE_EVERY`] more bytes are retained, and in each turn while something is lent: a small message
//! costs the copy and no system call.

use core::time::Duration;
use std::collections::VecDeque;

use lnet::{InDoubt, Payload, Retention};
use lnet_types::{Instant, Memory, MsgId, NiId, Nid};
use lnet_wire::{Hdr, MsgType};

/// Retained bytes between two looks at what is acknowledged: few enough for a processor's cache.
pub(crate) const RELEASE_EVERY: usize = 256 << 10;
/// Payloads of at least so many bytes are lent: a copy of fewer finds them in the cache.
pub(crate) const LENT_MIN: u64 = 256 << 10;
/// The longest that a message is lent. What holds it up is a slow link or a long way, where the copy
/// costs little beside them.
pub(crate) const LENT_MAX: Duration = Duration::from_millis(4);

/// The retained messages of one connection, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Retained {
    messages: VecDeque<Message>,
    /// Their payloads, one behind the other.
    payload: VecDeque<u8>,
    /// What was written behind them, and lies where it was.
    lent: VecDeque<Lent>,
    /// Bytes of that.
    lent_bytes: usize,
    /// How many bytes are retained when the transport is to be asked again.
    release_at: usize,
}

/// What was written.
#[derive(Debug)]
pub(crate) struct Message {
    /// Where it ends in the stream.
    pub(crate) end: u64,
    pub(crate) hdr: Hdr,
    pub(crate) retention: Retention,
}

/// A message that has not ended: its memory is the driver's until then.
#[derive(Debug)]
struct Lent {
    msg: MsgId,
    message: Message,
    payload: Payload,
    since: Instant,
}

/// A message that was lent when its connection ended. Its payload is copied before it ends too.
#[derive(Debug)]
pub(crate) struct Orphan {
    pub(crate) msg: MsgId,
    pub(crate) in_doubt: InDoubt,
}

impl Message {
    fn in_doubt(&self, ni: NiId, to: Nid, payload: Payload) -> InDoubt {
        InDoubt { ni, to, hdr: self.hdr, payload, retention: self.retention }
    }
}

impl Retained {
    /// The message `msg` was written whole. Whether it has ended with that.
    pub(crate) fn retain(
        &mut self,
        now: Instant,
        msg: MsgId,
        message: Message,
        payload: &Payload,
        mem: &dyn Memory,
    ) -> bool {
        let lends = payload.len() >= LENT_MIN && message.hdr.kind.msg_type() == MsgType::Reply;
        if self.lent.is_empty() && !lends {
            self.copy(message, payload, mem);
            return true;
        }
        self.lent_bytes += message.hdr.payload_len as usize;
        self.lent.push_back(Lent { msg, message, payload: payload.clone(), since: now });
        false
    }

    fn copy(&mut self, message: Message, payload: &Payload, mem: &dyn Memory) {
        match payload {
            Payload::Spans(spans) => {
                spans.iter().for_each(|span| self.payload.extend(mem.bytes(*span)));
            }
            Payload::Bytes(bytes) => self.payload.extend(bytes.iter()),
        }
        self.messages.push_back(message);
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let messages = self.messages.len() * size_of::<Message>();
        let lent = self.lent_bytes + self.lent.len() * size_of::<Lent>();
        self.payload.len() + messages + lent
    }

    /// Whether it has no more memory than for a look at what is acknowledged.
    pub(crate) fn is_small(&self) -> bool {
        let messages = self.messages.capacity() * size_of::<Message>();
        let lent = self.lent.capacity() * size_of::<Lent>();
        self.payload.capacity() + messages + lent <= 2 * RELEASE_EVERY
    }

    /// Whether something is lent.
    pub(crate) fn lends(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Whether the transport is to be asked what it has acknowledged.
    pub(crate) fn is_release_due(&self) -> bool {
        self.bytes() >= self.release_at.max(RELEASE_EVERY)
    }

    /// The transport has acknowledged the stream up to `acked`. Those that were lent have `ended`.
    pub(crate) fn acknowledged(&mut self, acked: u64, ended: &mut Vec<MsgId>) {
        let covered = self.messages.partition_point(|m| m.end <= acked);
        let bytes: usize = self.messages.drain(..covered).map(|m| m.hdr.payload_len as usize).sum();
        self.payload.drain(..bytes);
        let covered = self.lent.partition_point(|lent| lent.message.end <= acked);
        for Lent { msg, message, .. } in self.lent.drain(..covered) {
            self.lent_bytes -= message.hdr.payload_len as usize;
            ended.push(msg);
        }
        self.release_at = self.bytes() + RELEASE_EVERY;
    }

    /// Copies what has been lent for too long, which has `ended` with that.
    pub(crate) fn call_in(&mut self, now: Instant, mem: &dyn Memory, ended: &mut Vec<MsgId>) {
        let due = |lent: &Lent| lent.since + LENT_MAX <= now;
        while self.lent.front().is_some_and(due)
            && let Some(lent) = self.lent.pop_front()
        {
            self.lent_bytes -= lent.message.hdr.payload_len as usize;
            self.copy(lent.message, &lent.payload, mem);
            ended.push(lent.msg);
        }
    }

    /// Gives everything back; nothing is retained any more.
    pub(crate) fn take(&mut self, ni: NiId, to: Nid) -> (Vec<InDoubt>, Vec<Orphan>) {
        let Self { messages, mut payload, lent, .. } = core::mem::take(self);
        let copied = messages.into_iter().map(|message| {
            let bytes: Vec<u8> = payload.drain(..message.hdr.payload_len as usize).collect();
            message.in_doubt(ni, to, Payload::Bytes(bytes.into()))
        });
        let orphan = |lent: Lent| {
            let in_doubt = lent.message.in_doubt(ni, to, lent.payload);
            Orphan { msg: lent.msg, in_doubt }
        };
        (copied.collect(), lent.into_iter().map(orphan).collect())
    }
}

impl Orphan {
    /// The message in doubt, with bytes of its own.
    pub(crate) fn copied(self, mem: &dyn Memory) -> InDoubt {
        let Self { in_doubt: InDoubt { payload, .. }, .. } = &self;
        let payload = match payload {
            Payload::Spans(spans) => {
                let bytes = spans.iter().flat_map(|span| mem.bytes(*span)).copied();
                Payload::Bytes(bytes.collect())
            }
            Payload::Bytes(bytes) => Payload::Bytes(bytes.clone()),
        };
        InDoubt { payload, ..self.in_doubt }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{IoVec, Net, Pid, RegionId, Span};
    use lnet_wire::{Handle, Kind};
    use slotmap::KeyData;

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
    const LARGE: u32 = LENT_MIN as u32;

    /// A REPLY if `n` is even, a PUT otherwise.
    fn hdr(payload_len: u32, n: u64) -> Hdr {
        let kind = match n % 2 {
            0 => Kind::Reply { dst: Handle { interface: 1, object: n }, pad: [0; 24] },
            _ => Kind::Put { ack: Handle::NONE, match_bits: n, hdr_data: 2, portal: 3, offset: 0 },
        };
        Hdr {
            dst: Nid::new(Net::TCP, 2),
            src: Nid::new(Net::TCP, 1),
            dst_pid: Pid::LUSTRE,
            src_pid: Pid::LUSTRE,
            payload_len,
            kind,
        }
    }

    fn msg(n: u32) -> MsgId {
        MsgId::from(KeyData::from_ffi(1 << 32 | u64::from(n)))
    }

    /// Retains message `n`, the first `len` bytes of the memory, which ends at byte 100 `n` of the stream.
    fn retain(retained: &mut Retained, now: Instant, n: u32, len: u32, mem: &Mem) -> bool {
        let half = len / 2;
        let span = |offset, len| Span { region: RegionId(0), len, offset };
        let parts: IoVec = [span(0, half), span(half.into(), len - half)].into_iter().collect();
        let (end, hdr) = (u64::from(n) * 100, hdr(len, n.into()));
        let message = Message { end, hdr, retention: TERMS };
        retained.retain(now, msg(n), message, &Payload::Spans(parts), mem)
    }

    /// Messages of 1, 2, 3 … bytes, each 100 bytes of the stream.
    fn filled(count: u32) -> Retained {
        let mem = Mem((0..=255).collect());
        let mut retained = Retained::default();
        for n in 1..=count {
            assert!(retain(&mut retained, Instant::ZERO, n, n, &mem), "it has ended");
        }
        retained
    }

    fn acknowledge(retained: &mut Retained, acked: u64) -> Vec<MsgId> {
        let mut ended = Vec::new();
        retained.acknowledged(acked, &mut ended);
        ended
    }

    fn copied(retained: &mut Retained) -> Vec<InDoubt> {
        let (copied, orphans) = retained.take(NiId::default(), Nid::ANY);
        assert!(orphans.is_empty(), "{orphans:?}");
        copied
    }

    fn lens(messages: &[InDoubt]) -> Vec<u64> {
        messages.iter().map(|m| m.payload.len()).collect()
    }

    #[test]
    fn a_message_is_released_with_its_last_byte_and_not_before() {
        for (acked, left) in [(0, 3), (99, 3), (100, 2), (299, 1), (300, 0), (900, 0)] {
            let mut retained = filled(3);
            assert_eq!(acknowledge(&mut retained, acked), []);
            let back = copied(&mut retained);
            assert_eq!(lens(&back), (4 - left..4).collect::<Vec<_>>(), "{acked} bytes");
            assert_eq!(retained.bytes(), 0);
        }
    }

    #[test]
    fn payload_comes_back_as_it_was_when_it_was_written() {
        let mut retained = filled(40);
        acknowledge(&mut retained, 1000);
        for m in copied(&mut retained) {
            let Payload::Bytes(bytes) = m.payload else { panic!("bytes of its own") };
            assert_eq!(*bytes, (0..m.hdr.payload_len as u8).collect::<Vec<_>>()[..]);
        }
    }

    #[test]
    fn the_transport_is_asked_once_for_each_quarter_of_a_mebibyte() {
        let mem = Mem(vec![0; 1 << 16]);
        let mut retained = Retained::default();
        let mut asked = 0;
        for n in 1..=64 {
            retain(&mut retained, Instant::ZERO, n, 1 << 16, &mem);
            if retained.is_release_due() {
                asked += 1;
                // Nothing gets through.
                acknowledge(&mut retained, 0);
            }
        }
        assert_eq!(asked, 16);
    }

    #[test]
    fn memory_is_worth_keeping_while_it_is_no_more_than_between_two_looks() {
        let mut retained = filled(100);
        acknowledge(&mut retained, u64::MAX);
        assert!(retained.bytes() == 0 && retained.is_small());
        let mem = Mem(vec![0; LARGE as usize]);
        for n in 1..4 {
            retain(&mut retained, Instant::ZERO, n, LARGE - 1, &mem);
        }
        acknowledge(&mut retained, u64::MAX);
        assert!(retained.bytes() == 0 && !retained.is_small());
    }

    #[test]
    fn large_put_has_ended_when_it_is_written() {
        let (mem, mut retained) = (Mem(vec![7; LARGE as usize]), Retained::default());
        assert!(retain(&mut retained, Instant::ZERO, 1, LARGE, &mem));
        assert!(!retain(&mut retained, Instant::ZERO, 2, LARGE, &mem));
    }

    #[test]
    fn large_reply_and_what_follows_it_end_when_they_are_acknowledged() {
        let mem = Mem(vec![7; LARGE as usize]);
        let mut retained = Retained::default();
        let ended = [(1, 9), (2, LARGE), (3, 9), (4, LARGE)]
            .map(|(n, len)| retain(&mut retained, Instant::ZERO, n, len, &mem));
        assert_eq!(ended, [true, false, false, false]);
        assert!(retained.bytes() > 2 * LARGE as usize);
        assert_eq!(acknowledge(&mut retained, 199), []);
        assert_eq!(acknowledge(&mut retained, 300), [msg(2), msg(3)]);
        assert!(retained.lends());
        assert_eq!(acknowledge(&mut retained, 400), [msg(4)]);
        assert_eq!((retained.bytes(), retained.lends()), (0, false));
        // Nothing of a payload was copied.
        assert!(retained.is_small());
    }

    #[test]
    fn what_was_lent_for_too_long_is_copied_and_comes_back_in_its_order() {
        let mut mem = Mem(vec![7; LARGE as usize]);
        let mut retained = Retained::default();
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        for (n, len) in [(1, 9), (2, LARGE), (3, 9), (4, LARGE)] {
            retain(&mut retained, ms(n.into()), n, len, &mem);
        }
        let mut ended = Vec::new();
        retained.call_in(ms(2) + LENT_MAX - Duration::from_nanos(1), &mem, &mut ended);
        assert_eq!(ended, []);
        retained.call_in(ms(3) + LENT_MAX, &mem, &mut ended);
        assert_eq!(ended, [msg(2), msg(3)]);
        // Their memory is somebody else's.
        mem.0.fill(8);
        let (copied, orphans) = retained.take(NiId::default(), Nid::ANY);
        assert_eq!(lens(&copied), [9, LENT_MIN, 9]);
        let is_old =
            |m: &InDoubt| matches!(&m.payload, Payload::Bytes(b) if b.iter().all(|b| *b == 7));
        assert!(copied.iter().all(is_old));
        let [orphan] = <[Orphan; 1]>::try_from(orphans).expect("one is lent");
        assert_eq!(orphan.msg, msg(4));
        let in_doubt = orphan.copied(&mem);
        assert_eq!(in_doubt.hdr, hdr(LARGE, 4));
        assert!(matches!(in_doubt.payload, Payload::Bytes(b) if *b == mem.0[..]));
        assert_eq!(retained.bytes(), 0);
    }
}

//! What is posted to one send queue, and when: chains of RDMA writes with their message behind them, in
//! their order, as many at a time as the queue has entries. An entry is free again when a *signalled*
//! request behind it has completed, so the last request of what is posted in one go is one.

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::sys::Sge;
use crate::value::WorkId;

/// The message at the end of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Bytes that go into the queue entry itself.
    Inline(Vec<u8>),
    /// So many bytes in a send buffer.
    Buffer(BufferId, u32),
}

/// A send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BufferId(pub(super) u32);

/// One RDMA write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) from: SmallVec<[Sge; 1]>,
    pub(super) addr: u64,
    pub(super) key: u32,
}

/// One work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Write(Piece),
    Send(Message),
}

/// A chain of work requests, of which the message has not been posted.
#[derive(Debug)]
struct Chain {
    work: WorkId,
    pieces: VecDeque<Piece>,
    message: Message,
}

/// What a signalled request stands for.
#[derive(Debug)]
struct Signalled {
    entries: u32,
    end: Option<(WorkId, Option<BufferId>)>,
}

/// What has come to its end: a chain, with its send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) work: WorkId,
    pub(super) buffer: Option<BufferId>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct SendQueue {
    room: u32,
    waiting: VecDeque<Chain>,
    posted: VecDeque<Signalled>,
    /// Nothing is posted any more.
    broken: bool,
}

impl Message {
    const fn buffer(&self) -> Option<BufferId> {
        match self {
            Self::Inline(_) => None,
            Self::Buffer(id, _) => Some(*id),
        }
    }
}

impl SendQueue {
    pub(super) const fn new(entries: u32) -> Self {
        Self { room: entries, waiting: VecDeque::new(), posted: VecDeque::new(), broken: false }
    }

    pub(super) const fn is_broken(&self) -> bool {
        self.broken
    }

    pub(super) fn push(&mut self, work: WorkId, pieces: VecDeque<Piece>, message: Message) {
        self.waiting.push_back(Chain { work, pieces, message });
    }

    /// The requests to be posted next, in one go, the last one signalled; none if there is no room or
    /// nothing waits.
    pub(super) fn next(&mut self) -> Vec<Request> {
        let mut batch = Vec::new();
        let Some(chain) = self.waiting.front_mut().filter(|_| self.room > 0 && !self.broken) else {
            return batch;
        };
        let writes = chain.pieces.len().min(self.room as usize);
        batch.extend(chain.pieces.drain(..writes).map(Request::Write));
        let mut end = None;
        if chain.pieces.is_empty()
            && batch.len() < self.room as usize
            && let Some(chain) = self.waiting.pop_front()
        {
            end = Some((chain.work, chain.message.buffer()));
            batch.push(Request::Send(chain.message));
        }
        // At most `room`, so it fits.
        let entries = batch.len() as u32;
        self.room -= entries;
        self.posted.push_back(Signalled { entries, end });
        batch
    }

    /// The next signalled request has completed, or has come back.
    pub(super) fn completed(&mut self, done: bool) -> Option<Ended> {
        let Signalled { entries, end } = self.posted.pop_front()?;
        self.room += entries;
        self.broken |= !done;
        end.map(|(work, buffer)| Ended { work, buffer })
    }

    /// What [`SendQueue::next`] gave last could not be posted.
    pub(super) fn refused(&mut self) -> Option<Ended> {
        self.broken = true;
        let Signalled { end, .. } = self.posted.pop_back()?;
        end.map(|(work, buffer)| Ended { work, buffer })
    }

    /// Nothing is posted any more: the chains that wait have ended.
    pub(super) fn fail(&mut self) -> Vec<Ended> {
        self.broken = true;
        let ended = |chain: Chain| Ended { work: chain.work, buffer: chain.message.buffer() };
        self.waiting.drain(..).map(ended).collect()
    }

    /// The send buffers of everything that is posted or waits.
    pub(super) fn buffers(&self) -> impl Iterator<Item = BufferId> {
        let posted = self.posted.iter().filter_map(|s| s.end.and_then(|(_, buffer)| buffer));
        posted.chain(self.waiting.iter().filter_map(|chain| chain.message.buffer()))
    }
}

/// Cuts one write into pieces that a queue entry can hold: so many places to read from, and so many
/// bytes.
pub(super) fn pieces(
    from: impl IntoIterator<Item = Sge>,
    (addr, key): (u64, u32),
    most_places: usize,
    most_bytes: u32,
) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let (mut at, mut used) = (addr, most_bytes);
    for mut sge in from {
        while sge.length > 0 {
            let full = pieces.last().is_none_or(|piece| piece.from.len() >= most_places);
            if full || used >= most_bytes {
                pieces.push(Piece { from: SmallVec::new(), addr: at, key });
                used = 0;
            }
            let length = sge.length.min(most_bytes - used);
            if let Some(piece) = pieces.last_mut() {
                piece.from.push(Sge { length, ..sge });
            }
            used += length;
            at = at.wrapping_add(length.into());
            sge.addr = sge.addr.wrapping_add(length.into());
            sge.length -= length;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: u32 = 7;

    fn sge(addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: 1 }
    }

    fn writes(count: u64) -> VecDeque<Piece> {
        let piece = |n| Piece { from: SmallVec::from_elem(sge(n, 1), 1), addr: n, key: KEY };
        (0..count).map(piece).collect()
    }

    fn inline() -> Message {
        Message::Inline(vec![1, 2, 3])
    }

    #[test]
    fn a_chain_goes_in_one_batch_where_there_is_room() {
        let mut queue = SendQueue::new(8);
        queue.push(WorkId(1), writes(2), Message::Buffer(BufferId(4), 900));
        let batch = queue.next();
        assert_eq!(batch.len(), 3);
        assert_eq!(batch[2], Request::Send(Message::Buffer(BufferId(4), 900)));
        assert!(queue.next().is_empty(), "nothing waits");
        assert_eq!(queue.buffers().collect::<Vec<_>>(), [BufferId(4)]);
        let ended = Ended { work: WorkId(1), buffer: Some(BufferId(4)) };
        assert_eq!(queue.completed(true), Some(ended));
        assert_eq!(queue.room, 8);
        assert_eq!(queue.completed(true), None, "nothing is posted");
    }

    #[test]
    fn a_chain_longer_than_the_queue_goes_in_parts_and_ends_once() {
        let mut queue = SendQueue::new(4);
        queue.push(WorkId(1), writes(9), inline());
        queue.push(WorkId(2), writes(0), inline());
        let mut ends = Vec::new();
        let mut order = Vec::new();
        for _ in 0..10 {
            let before = queue.room as usize;
            let batch = queue.next();
            assert!(batch.len() <= before);
            order.extend(batch);
            while !queue.posted.is_empty() {
                ends.extend(queue.completed(true).map(|ended| ended.work));
            }
        }
        assert_eq!(ends, [WorkId(1), WorkId(2)]);
        assert_eq!(order.len(), 11);
        let addrs = order.iter().filter_map(|r| match r {
            Request::Write(piece) => Some(piece.addr),
            Request::Send(_) => None,
        });
        assert!(addrs.eq(0..9), "in their order, before the message");
    }

    #[test]
    fn a_failure_ends_what_is_posted_and_what_waits() {
        let mut queue = SendQueue::new(2);
        queue.push(WorkId(1), writes(1), inline());
        queue.push(WorkId(2), writes(0), Message::Buffer(BufferId(3), 1));
        assert_eq!(queue.next().len(), 2);
        assert_eq!(queue.completed(false), Some(Ended { work: WorkId(1), buffer: None }));
        assert!(queue.next().is_empty(), "nothing goes to a queue that has failed");
        assert_eq!(queue.fail(), [Ended { work: WorkId(2), buffer: Some(BufferId(3)) }]);
        assert!(queue.fail().is_empty());
    }

    #[test]
    fn a_batch_that_is_refused_ends_its_chain() {
        let mut queue = SendQueue::new(8);
        queue.push(WorkId(1), writes(1), inline());
        queue.next();
        assert_eq!(queue.refused(), Some(Ended { work: WorkId(1), buffer: None }));
        assert!(queue.is_broken());
    }

    proptest! {
        #[test]
        fn pieces_cover_the_data_in_order_and_keep_the_bounds(
            lengths in proptest::collection::vec(0..5000_u32, 0..12),
            places in 1..5_usize,
            most in 1..3000_u32,
        ) {
            let from: Vec<Sge> =
                lengths.iter().enumerate().map(|(n, len)| sge(n as u64 * 10_000, *len)).collect();
            let cut = pieces(from.iter().copied(), (0x7000, KEY), places, most);
            let mut at = 0x7000_u64;
            for piece in &cut {
                prop_assert_eq!((piece.addr, piece.key), (at, KEY));
                prop_assert!((1..=places).contains(&piece.from.len()));
                let len: u64 = piece.from.iter().map(|s| u64::from(s.length)).sum();
                prop_assert!(len > 0 && len <= most.into());
                at += len;
            }
            let bytes = |sges: &mut dyn Iterator<Item = Sge>| -> Vec<u64> {
                sges.flat_map(|s| s.addr..s.addr + u64::from(s.length)).collect()
            };
            let got = bytes(&mut cut.iter().flat_map(|p| p.from.iter().copied()));
            prop_assert_eq!(got, bytes(&mut from.iter().copied()));
        }
    }
}

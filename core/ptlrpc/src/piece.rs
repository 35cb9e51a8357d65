//! Pieces of bulk data: whether their data have moved. LNet may use the memory of a piece for longer than its
//! data take: where a rail is slow a further copy of a message is under way when the first one is answered
//! (DEC-31), and the end of the copy is an UNLINK of its own.

use lnet::{Event as LnetEvent, EventKind};
use lnet_types::Errno;

/// Pieces whose data have moved, and whose memory is still in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MovedPieces(u32);

impl MovedPieces {
    /// Takes an event of a piece.
    ///
    /// # Errors
    /// Its data have not moved, and will not.
    pub(crate) fn take(&mut self, event: &LnetEvent) -> Result<(), Errno> {
        event.status?;
        match event.kind {
            EventKind::Unlink if self.0 == 0 => return Err(Errno::ETIMEDOUT),
            EventKind::Unlink => self.0 -= 1,
            EventKind::Send => {}
            EventKind::Put | EventKind::Get | EventKind::Ack | EventKind::Reply => {
                self.0 += u32::from(!event.unlinked);
            }
        }
        Ok(())
    }

    /// Whether that is so of all pieces that are open.
    pub(crate) const fn are_all(self, open: u32) -> bool {
        self.0 >= open
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::{MdId, Nid, Pid, ProcessId};
    use lnet_wire::MsgType;

    use super::*;

    fn event(kind: EventKind, unlinked: bool) -> LnetEvent {
        let process = ProcessId { nid: Nid::ANY, pid: Pid::ANY };
        LnetEvent {
            kind,
            md: MdId::default(),
            user: 0,
            target: process,
            initiator: process,
            source: process,
            sender: Nid::ANY,
            msg_type: MsgType::Put,
            portal: 0,
            match_bits: 0,
            hdr_data: 0,
            offset: 0,
            rlength: 0,
            mlength: 0,
            status: Ok(()),
            unlinked,
        }
    }

    fn ends(events: &[LnetEvent]) -> Result<(), Errno> {
        let mut moved = MovedPieces::default();
        events.iter().try_for_each(|event| moved.take(event))
    }

    #[test]
    fn end_of_a_further_copy_is_no_failure_of_data_that_have_moved() {
        let (send, cut) = (event(EventKind::Send, false), event(EventKind::Unlink, true));
        for kind in [EventKind::Ack, EventKind::Reply, EventKind::Get, EventKind::Put] {
            let last = |unlinked| event(kind, unlinked);
            assert_eq!(ends(&[send, last(true)]), Ok(()), "{kind:?}");
            assert_eq!(ends(&[send, last(false), cut]), Ok(()), "{kind:?}");
            // One piece has moved, and another one not.
            let one_of_two = [last(false), cut, cut];
            assert_eq!(ends(&one_of_two), Err(Errno::ETIMEDOUT), "{kind:?}");
        }
        assert_eq!(ends(&[send, cut]), Err(Errno::ETIMEDOUT));
        let failed = LnetEvent { status: Err(Errno::EIO), ..event(EventKind::Ack, true) };
        assert_eq!(ends(&[failed]), Err(Errno::EIO));
    }

    #[test]
    fn pieces_that_have_moved_wait_for_their_memory_alone() {
        let mut moved = MovedPieces::default();
        assert!(!moved.are_all(1));
        moved.take(&event(EventKind::Ack, false)).unwrap();
        assert!(moved.are_all(1) && !moved.are_all(2));
    }
}

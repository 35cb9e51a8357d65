//! Events and their recipients: users poll theirs, those of the node's own descriptors go to the parts that
//! posted them.

use lnet_types::{Instant, MdId, Nid};
use lnet_wire::MsgType;

use crate::portal::owner::{Internal, Owner};
use crate::{Event, EventKind, Node};

impl Node {
    /// Makes the UNLINK event of a descriptor that ends without an operation (M-43).
    pub(crate) fn report_unlinked(&mut self, now: Instant, md: MdId, owner: Owner) {
        let no_process = lnet_types::ProcessId { nid: Nid::ANY, pid: lnet_types::Pid::ANY };
        let event = || Event {
            kind: EventKind::Unlink,
            md,
            user: owner.user(),
            target: no_process,
            initiator: no_process,
            source: no_process,
            sender: Nid::ANY,
            msg_type: MsgType::Put,
            portal: 0,
            match_bits: 0,
            hdr_data: 0,
            offset: 0,
            rlength: 0,
            mlength: 0,
            status: Ok(()),
            unlinked: true,
        };
        if let Some(what) = self.outbox.report_end(owner, Ok(()), true, event) {
            let event = event();
            self.internal_event(now, what, &event, &[]);
        }
    }

    /// An event on one of the node's own descriptors.
    pub(crate) fn internal_event(
        &mut self,
        now: Instant,
        what: Internal,
        event: &Event,
        bytes: &[u8],
    ) {
        match what {
            Internal::PingTarget => {}
            Internal::PushTarget => {
                if event.kind == EventKind::Put && event.status.is_ok() {
                    self.pushed(now, event, bytes);
                }
            }
            Internal::DiscoveryPing(peer) => self.discovery_ping_event(now, peer, event, bytes),
            Internal::Push(peer) => self.push_event(now, peer, event),
            Internal::Recover(port) => match event.kind {
                EventKind::Send if event.status.is_ok() => {}
                EventKind::Send => {
                    self.abandon(event);
                    self.recovery_answered(now, port, None);
                }
                EventKind::Reply | EventKind::Unlink => {
                    let ok = event.kind == EventKind::Reply && event.status.is_ok();
                    self.recovery_answered(now, port, ok.then_some(event.sender));
                }
                EventKind::Put | EventKind::Get | EventKind::Ack => {}
            },
            Internal::Ask { claimant, nid, seq } => {
                self.ask_event(now, claimant, (nid, seq), event, bytes);
            }
            Internal::UserPing(op) => self.user_ping_event(op, event, bytes),
        }
    }
}

//! The last step of a departure: what the driver gets.

use lnet_types::{Fault, Instant, MsgId, Nid, Pid, ProcessId};

use crate::dedup::marks::{self, Marking};
use crate::msg::{Role, Stage};
use crate::outbox::Work;
use crate::output::{Output, Transmit};
use crate::{Node, in_doubt};

impl Node {
    /// Hands a message to its driver.
    pub(crate) fn transmit(&mut self, now: Instant, id: MsgId) {
        if self.faults.has_drops()
            && let Some(fault) = self.fails_leaving(now, id)
        {
            return self.outbox.plan(Work::Finish(id, Err(fault)));
        }
        let Self { msgs, peers, portals, tunables, scrambler, .. } = self;
        let Some(msg) = msgs.get_mut(id) else { return };
        let mut hdr = msg.hdr;
        let mut marking = Marking { peers, portals, tunables, scrambler: *scrambler };
        if let Err(fault) = marking.with_mark(msg, &mut hdr.kind) {
            msg.no_resend = true;
            return self.outbox.plan(Work::Finish(id, Err(fault)));
        }
        let Some(ni) = msg.tx.as_ref().map(|tx| tx.ni) else { return };
        msg.stage = Stage::Driver;
        let retention = in_doubt::retention(portals, msg, &hdr.kind);
        let repeats = marks::next_hop_repeats(peers, msg);
        let own = self.nis.get(ni).and_then(|ni| ni.lnd_timeout);
        let Some(msg) = self.msgs.get(id) else { return };
        let Some(tx) = &msg.tx else { return };
        let lnd = self.tables().driver_time(msg, own);
        let request = msg.md.filter(|_| msg.role == Role::Request);
        let transmit = Transmit {
            msg: id,
            ni: tx.ni,
            to: ProcessId {
                nid: if tx.peer_ni.is_some() { tx.hop } else { msg.hdr.dst },
                // S-64: a gateway's LNet is always the same process.
                pid: if tx.routed { Pid::LUSTRE } else { msg.hop_pid },
            },
            peer_ni: tx.peer_ni,
            hdr,
            payload: msg.payload.clone(),
            // DEC-9: never past the message's own deadline, which one that passes through has not.
            timeout: if msg.role == Role::Forward {
                lnd
            } else {
                lnd.min(msg.deadline.saturating_since(now))
            },
            retention,
            repeats,
        };
        self.outbox.order(Output::Send(transmit));
        if let Some(md) = request {
            self.handed_over(now, md);
        }
    }

    /// The fault with which a message that is about to leave fails (F-11, F-14). Loopback has no
    /// driver in which it could.
    fn fails_leaving(&mut self, now: Instant, id: MsgId) -> Option<Fault> {
        let msg = self.msgs.get(id)?;
        msg.tx?.peer_ni?;
        let (hdr, own) = (msg.hdr, self.own_leaving(id));
        self.faults.fails_leaving(now, &hdr, own)
    }

    /// The interface that a message leaves by, where fault rules ask for it. The kernel's do not (F-3).
    pub(super) fn own_leaving(&self, id: MsgId) -> Option<Nid> {
        let tx = self.msgs.get(id)?.tx?;
        self.nis
            .get(tx.ni)
            .map(|ni| ni.nid)
            .filter(|_| self.tunables.conduct.matches_faults_by_interface)
    }
}

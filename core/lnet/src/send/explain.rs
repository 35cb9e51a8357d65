//! Selection that explains itself: the same choice by the same keys, written down (`trace.rs`). Nothing
//! in here chooses; `select.rs` and `key.rs` do, and write to their recorder if they have one.

use lnet_types::{Errno, MsgId, Nid};
use lnet_wire::PAYLOAD_MAX;

use crate::Node;
use crate::send::select::{self, Request};
use crate::send::trace::{Explanation, Freedom, Outcome, Trace};

impl Node {
    /// Which way a message of `size` bytes to `target` would go now, and why. Nothing changes.
    pub fn explain(&self, target: Nid, src: Option<Nid>, size: u64) -> Explanation {
        let mut trace = Trace::default();
        let mut discovers = false;
        let outcome = if size > PAYLOAD_MAX.into() {
            Outcome::NoPath(Errno::EMSGSIZE)
        } else if target.is_any() {
            Outcome::NoPath(Errno::EINVAL)
        } else if !self.running {
            Outcome::NoPath(Errno::ESHUTDOWN)
        } else if target.is_loopback() {
            trace.freedom = Freedom::Loopback;
            Outcome::Path(target, target)
        } else if let Some(id) = self.peers.find(target) {
            discovers = self.peers.owner(target).is_some_and(|p| !self.is_up_to_date(p));
            let request = Request {
                target: id,
                src,
                recovery: false,
                internal: false,
                response: false,
                may_move: false,
                numa_node: self.numa.home(),
                tried: &[],
                until_deadline: false,
                hint: None,
                passing: None,
                check_net: None,
            };
            self.outcome(select::path(self.tables(), &request, &mut Some(&mut trace)))
        } else {
            discovers = true;
            Outcome::DiscoverFirst
        };
        Explanation {
            at: self.now(),
            kind: None,
            target,
            src,
            size,
            retries: 0,
            failed: None,
            freedom: trace.freedom,
            discovers,
            choices: trace.choices,
            outcome,
        }
    }

    fn outcome(&self, path: Result<select::Path, Errno>) -> Outcome {
        match path {
            Err(errno) => Outcome::NoPath(errno),
            Ok(path) => {
                let own = self.nis.get(path.ni).map_or(Nid::ANY, |ni| ni.nid);
                let to = self.peers.nis.get(path.peer_ni).map_or(Nid::ANY, |n| n.nid);
                Outcome::Path(own, to)
            }
        }
    }

    /// The explanations of the last messages, oldest first, as many as the tunable `explain_last`
    /// says.
    pub fn explained(&self) -> impl ExactSizeIterator<Item = &Explanation> {
        self.explanations.last()
    }

    /// The explanations of the last resends, oldest first, at most [`crate::RESENDS_KEPT`]; whatever
    /// `explain_last` says.
    pub fn resends(&self) -> impl ExactSizeIterator<Item = &Explanation> {
        self.explanations.resends()
    }

    /// Keeps the explanation of a message for which a path was sought just now.
    pub(crate) fn keep_explanation(
        &mut self,
        id: MsgId,
        target: Nid,
        trace: Trace,
        path: Result<select::Path, Errno>,
    ) {
        let Some(msg) = self.msgs.get(id) else { return };
        let explanation = Explanation {
            at: self.now(),
            kind: Some(msg.hdr.kind.msg_type()),
            target,
            src: msg.src,
            size: msg.hdr.payload_len.into(),
            retries: msg.retries,
            failed: msg.failed,
            freedom: trace.freedom,
            discovers: false,
            choices: trace.choices,
            outcome: self.outcome(path),
        };
        self.explanations.keep(explanation, self.tunables.explain_last);
    }
}

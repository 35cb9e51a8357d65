//! A stretch while it is being recorded. Nearly all calls of a busy node are the ends of messages that
//! went well, which are kept in a few words; all others are kept as they are. Its memory is used
//! again by the next stretch but one: fresh pages would cost more than what goes into them.

use lnet_types::{Instant, MsgId};

use super::{Input, Mark, Stretch};

/// A call, in the order in which they were made.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// [`Input::TxDone`], successful.
    Sent { now: Instant, msg: MsgId },
    /// [`Input::RxDone`], successful and without bytes for the node.
    Received { now: Instant, msg: MsgId },
    /// The next one of `others`.
    Other,
}

#[derive(Debug, Default)]
pub(super) struct Live {
    /// The node before the first call.
    state: Vec<u8>,
    order: Vec<Call>,
    others: Vec<Input>,
    /// What was given after how many calls.
    marks: Vec<(u32, Mark)>,
}

impl Live {
    /// Forgets everything and begins with this state.
    pub(super) fn begin(&mut self, state: Vec<u8>) {
        self.state = state;
        self.order.clear();
        self.others.clear();
        self.marks.clear();
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.state.is_empty()
    }

    /// Calls so far.
    pub(super) fn calls(&self) -> usize {
        self.order.len()
    }

    pub(super) fn marks(&self) -> usize {
        self.marks.len()
    }

    #[inline]
    pub(super) fn push(&mut self, call: Input) {
        self.order.push(match call {
            Input::TxDone { now, msg, outcome: Ok(()) } => Call::Sent { now, msg },
            Input::RxDone { now, msg, outcome: Ok(bytes) } if bytes.is_empty() => {
                Call::Received { now, msg }
            }
            other => {
                self.others.push(other);
                Call::Other
            }
        });
    }

    #[inline]
    pub(super) fn mark(&mut self, mark: Mark) {
        self.marks.push((self.order.len() as u32, mark));
    }

    /// As it is written to a file.
    pub(super) fn stretch(&self) -> Stretch {
        let mut others = self.others.iter().cloned();
        let call = |call: &Call| match *call {
            Call::Sent { now, msg } => Some(Input::TxDone { now, msg, outcome: Ok(()) }),
            Call::Received { now, msg } => {
                Some(Input::RxDone { now, msg, outcome: Ok(Vec::new()) })
            }
            Call::Other => others.next(),
        };
        let calls = self.order.iter().filter_map(call).collect();
        Stretch { state: self.state.clone(), calls, marks: self.marks.clone() }
    }
}

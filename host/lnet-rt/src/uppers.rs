//! Protocols on a stack's node, as values (`lnet::upper`). Their events, reports and time-outs are
//! part of the turn (`stack.rs`, `shard.rs`); here is how they come and go, and how programs reach
//! them: directly where the caller drives, through `NodeHandle::call` from other threads.

use lnet::upper::{Below, Upper, UpperId};

use crate::stack::Stack;

impl Stack {
    /// Adds a protocol; `None` when the stack stops, or has had `lnet::upper::UPPERS_MAX`. It lives
    /// until [`Stack::remove_upper`], or until the stack has stopped: then it has got the last events
    /// of its descriptors, and is dropped.
    pub fn add_upper(&mut self, upper: Box<dyn Upper>) -> Option<UpperId> {
        if self.is_stopping() {
            return None;
        }
        self.unfinished = true;
        self.uppers.add(upper)
    }

    /// Runs `f` on a protocol, with what it stands on; `None` if there is none of this name and type.
    pub fn with_upper<T: Upper, R>(
        &mut self,
        id: UpperId,
        f: impl FnOnce(&mut T, &mut Below<'_>) -> R,
    ) -> Option<R> {
        let now = self.tick();
        self.unfinished = true;
        let result = self.uppers.with(id, now, &mut self.node, &mut self.mem, f);
        self.carry_outputs();
        result
    }

    /// Takes a protocol away, and its descriptors from the node. Their last events go nowhere.
    pub fn remove_upper(&mut self, id: UpperId) -> Option<Box<dyn Upper>> {
        let now = self.tick();
        self.unfinished = true;
        self.uppers.remove(id, now, &mut self.node)
    }
}

#[cfg(test)]
mod tests {
    use lnet::{Event, Report};
    use lnet_types::Instant;

    use super::*;
    use crate::NodeBuilder;

    struct Due(Option<Instant>);

    impl Upper for Due {
        fn event(&mut self, _: &Event, _: &mut Below<'_>) {}
        fn spent(&mut self, _: u64) {}

        fn report(&mut self, _: &Report, _: &mut Below<'_>) {}
        fn handle_timeout(&mut self, _: &mut Below<'_>) {
            self.0 = None;
        }
        fn poll_timeout(&self) -> Option<Instant> {
            self.0
        }
    }

    #[test]
    fn a_stack_sleeps_no_longer_than_until_the_time_out_of_an_upper() {
        let mut stack = NodeBuilder::new().seed(1).build().unwrap();
        let due = Some(Instant(1));
        assert_ne!(stack.poll_timeout(), due);
        let id = stack.add_upper(Box::new(Due(due))).unwrap();
        assert_eq!(stack.poll_timeout(), due);
        stack.turn(crate::Wait::Block);
        assert_eq!(stack.with_upper(id, |upper: &mut Due, _| upper.0), Some(None));
        assert_ne!(stack.poll_timeout(), due);
    }
}

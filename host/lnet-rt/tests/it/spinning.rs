//! What drivers are called for around a caller that spins.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use lnet::{Driver, Node, Ready, Transmit, Verdict};
use lnet_rt::{NodeBuilder, Wait};
use lnet_types::{Fault, Instant, Memory, NiId, RxId};

/// A driver without interfaces that records how it is turned.
struct Recorder(Arc<Mutex<Vec<bool>>>);

impl Driver for Recorder {
    fn turn(&mut self, _: Instant, _: &[Ready], spin: bool, _: &mut Node, _: &mut dyn Memory) {
        self.0.lock().unwrap().push(spin);
    }

    fn send(&mut self, _: Instant, _: &Transmit, _: &dyn Memory) -> Result<(), Fault> {
        Ok(())
    }

    fn resume(&mut self, _: Instant, _: RxId, _: Verdict, _: &mut Node, _: &mut dyn Memory) {}

    fn flush(&mut self, _: Instant, _: &mut Node, _: &mut dyn Memory) {}

    fn handle_timeout(&mut self, _: Instant, _: &mut Node, _: &mut dyn Memory) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn ni_stop(&mut self, _: Instant, _: NiId, _: &mut Node, _: &mut dyn Memory) {}

    fn lnd_timeout(&self, _: NiId) -> Option<Duration> {
        None
    }
}

#[test]
fn a_driver_has_one_turn_without_spinning_before_a_caller_that_spun_may_sleep() {
    let turns = Arc::new(Mutex::new(Vec::new()));
    let mut stack = NodeBuilder::new().build().unwrap();
    let recorder = Recorder(Arc::clone(&turns));
    stack.add_driver(|_, _| Ok(Box::new(recorder))).unwrap();
    for wait in [Wait::None, Wait::Spin, Wait::Spin] {
        stack.turn(wait);
    }
    assert_eq!(*turns.lock().unwrap(), [true, true]);
    for wait in [Wait::Until(Duration::from_millis(1)), Wait::None, Wait::None] {
        stack.turn(wait);
    }
    assert_eq!(*turns.lock().unwrap(), [true, true, false]);
    stack.turn(Wait::Spin);
    assert_eq!(*turns.lock().unwrap(), [true, true, false, true]);
}

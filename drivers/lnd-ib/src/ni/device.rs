//! The device of the interface: what its events mean, and the search for one that was taken away. A
//! system may take a device away without an event, and wait for its users: a port that is down is
//! looked at now and then.

use core::time::Duration;

use lnet::Link;
use lnet_types::Instant;

use super::{IbNi, Timer};
use crate::device::{DeviceEffect, DeviceEvent};
use crate::fault::CloseReason;
use crate::value::{Event, Output};

/// From one look at a device that is down, or for one that was taken away, to the next.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl IbNi {
    /// An event of the device has arrived.
    pub fn device_event(&mut self, now: Instant, event: DeviceEvent) {
        self.clock(now);
        match event.effect() {
            DeviceEffect::Down => {
                self.set_fatal(true);
                self.expect_device();
            }
            DeviceEffect::Up if self.device_gone => {}
            DeviceEffect::Up => {
                self.set_fatal(false);
                if !self.link_lost {
                    self.forget_device();
                }
            }
            DeviceEffect::Gone => {
                self.device_gone = true;
                self.set_fatal(true);
                self.close_all(CloseReason::DeviceGone);
                self.expect_device();
            }
            DeviceEffect::Close => self.close_all(CloseReason::CompletionsLost),
            DeviceEffect::Rate => {
                if let DeviceEvent::Rate(rate) = event {
                    self.set_rate(rate);
                }
            }
            DeviceEffect::Nothing => {}
        }
    }

    /// The network interface of the device has lost its link or has one again, which the node knows.
    /// A device that is being taken away may say nothing of its port any more.
    pub fn link_changed(&mut self, now: Instant, link: Link) {
        self.clock(now);
        self.link_lost = link == Link::Down;
        if self.link_lost {
            self.expect_device();
        }
    }

    /// Reports a change once (HL-lnd-015, B-40).
    fn set_fatal(&mut self, fatal: bool) {
        if self.fatal != fatal {
            self.fatal = fatal;
            self.report(Event::Link(if fatal { Link::Down } else { Link::Up }));
        }
    }

    /// A rate below the highest so far is a degraded link (HL-lnd-020).
    fn set_rate(&mut self, rate: u32) {
        self.rate = self.rate.max(rate);
        let degraded = rate < self.rate;
        if self.degraded != degraded {
            self.degraded = degraded;
            self.report(Event::Degraded(degraded));
            self.judge_all();
        }
    }

    /// The device has been opened again: connections may be made. Whether it carries anything is
    /// reported as of a new one.
    pub fn reopened(&mut self, now: Instant) {
        self.clock(now);
        if !self.device_gone {
            return;
        }
        self.device_gone = false;
        self.forget_device();
        self.rate = 0;
        if self.degraded {
            self.degraded = false;
            self.report(Event::Degraded(false));
            self.judge_all();
        }
    }

    /// Looks for the device in a while.
    fn expect_device(&mut self) {
        if self.reopen_at.is_none() && !self.stopped {
            let at = self.now + LOOK_EVERY;
            self.reopen_at = Some(at);
            self.timers.insert((at, Timer::Device));
        }
    }

    /// Looks for it no more.
    pub(super) fn forget_device(&mut self) {
        if let Some(at) = self.reopen_at.take() {
            self.timers.remove(&(at, Timer::Device));
        }
    }

    /// The time of a look has come. What is left of the device as it was is in the way of opening it.
    pub(super) fn look_for_device(&mut self) {
        self.reopen_at = None;
        if !self.fatal && !self.link_lost {
            return;
        }
        if !self.device_gone {
            self.outputs.push_back(Output::Look);
        } else if self.conns.is_empty() && self.maps.is_empty() {
            self.outputs.push_back(Output::Reopen);
        }
        self.expect_device();
    }
}

//! Completion queues: as many as the connections need entries for, all with one channel. Each
//! connection has its entries reserved, so that no queue overruns.

#![allow(unsafe_code)]

use core::ffi::c_void;
use core::ptr::null_mut;

use lnet_types::Errno;

use super::device::{Device, last_error};
use super::library::Functions;
use super::sys::{Cq, Wc};

/// Entries of one queue, if the device allows as many: devices keep one free, and round up to a power
/// of two.
const ENTRIES: u32 = 8191;
/// Completions that are taken at a time.
const BATCH: usize = 32;

struct Queue {
    cq: *mut Cq,
    entries: u32,
    reserved: u32,
    /// The next completion makes the channel readable.
    armed: bool,
}

/// All completion queues of an adapter.
pub(super) struct Completions {
    call: Functions,
    queues: Vec<Queue>,
}

/// The entries of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    queue: usize,
    entries: u32,
}

impl Completions {
    pub(super) const fn new(call: Functions) -> Self {
        Self { call, queues: Vec::new() }
    }

    /// Reserves entries, in a queue that is made if none has as many left.
    pub(super) fn reserve(&mut self, device: &Device, entries: u32) -> Result<Reserved, Errno> {
        let has_room = |queue: &Queue| queue.entries - queue.reserved >= entries;
        let queue = match self.queues.iter().position(has_room) {
            Some(queue) => queue,
            None => self.add(device, entries)?,
        };
        self.queues[queue].reserved += entries;
        Ok(Reserved { queue, entries })
    }

    /// Gives entries back.
    pub(super) fn free(&mut self, reserved: Reserved) {
        if let Some(queue) = self.queues.get_mut(reserved.queue) {
            queue.reserved = queue.reserved.saturating_sub(reserved.entries);
        }
    }

    pub(super) fn cq(&self, reserved: Reserved) -> *mut Cq {
        self.queues.get(reserved.queue).map_or(null_mut(), |queue| queue.cq)
    }

    fn add(&mut self, device: &Device, least: u32) -> Result<usize, Errno> {
        let entries = ENTRIES.max(least).min(device.bounds.completions);
        if entries < least {
            return Err(Errno::ENOMEM);
        }
        let number = self.queues.len();
        let count = i32::try_from(entries).map_err(|_| Errno::EINVAL)?;
        // SAFETY: context and channel are the device's, which outlives its completion queues. The
        // queue's own context is a number, which nothing follows as a pointer.
        let cq = unsafe {
            (self.call.ibv_create_cq)(
                device.context,
                count,
                number as *mut c_void,
                device.completions,
                0,
            )
        };
        if cq.is_null() {
            return Err(last_error());
        }
        self.queues.push(Queue { cq, entries, reserved: 0, armed: false });
        Ok(number)
    }

    /// Takes what the channel says: which queues have to be armed again.
    pub(super) fn news(&mut self, device: &Device) {
        loop {
            let (mut cq, mut number) = (null_mut(), null_mut());
            // SAFETY: the channel is the device's; both places are this function's.
            let got = unsafe {
                (self.call.ibv_get_cq_event)(device.completions, &raw mut cq, &raw mut number)
            };
            if got != 0 {
                return;
            }
            // SAFETY: a queue that has just had an event, which is acknowledged once.
            unsafe { (self.call.ibv_ack_cq_events)(cq, 1) };
            if let Some(queue) = self.queues.get_mut(number as usize) {
                queue.armed = false;
            }
        }
    }

    /// Takes completions until there are none, and leaves every queue armed if the caller is to be
    /// woken by the next one: arming is a call of the system with some devices.
    pub(super) fn take(&mut self, arm: bool, mut each: impl FnMut(&Wc)) {
        self.queues.iter_mut().for_each(|queue| queue.take(arm, &mut each));
    }
}

impl Queue {
    fn take(&mut self, arm: bool, each: &mut impl FnMut(&Wc)) {
        let mut batch = [Wc::default(); BATCH];
        loop {
            // SAFETY: the queue and its context live until `drop` of their owner; at most as many
            // completions are written as the batch has places.
            let got = unsafe {
                let context = (*self.cq).context;
                ((*context).ops.poll_cq)(self.cq, BATCH as i32, batch.as_mut_ptr())
            };
            let got = usize::try_from(got).unwrap_or(0).min(BATCH);
            batch[..got].iter().for_each(&mut *each);
            if got == BATCH {
                continue;
            }
            if self.armed || !arm {
                return;
            }
            // What completed before it was armed makes no event: another look follows.
            // SAFETY: as above.
            let failed = unsafe {
                let context = (*self.cq).context;
                ((*context).ops.req_notify_cq)(self.cq, 0)
            };
            self.armed = true;
            if failed != 0 {
                tracing::error!("completions are not announced: {}", Errno(failed));
                return;
            }
        }
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        for queue in &self.queues {
            // SAFETY: made by `add`; all its queue pairs are gone, and its events acknowledged.
            let failed = unsafe { (self.call.ibv_destroy_cq)(queue.cq) };
            if failed != 0 {
                tracing::error!("a completion queue is not destroyed: {}", Errno(failed));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use core::ffi::c_int;

    use super::super::sys::{Context, ContextOps};
    use super::*;

    thread_local! {
        /// Completions that wait, those that come while the queue is being armed, and how often that was.
        static WAITING: Cell<c_int> = const { Cell::new(0) };
        static MEANWHILE: Cell<c_int> = const { Cell::new(0) };
        static ARMED: Cell<u32> = const { Cell::new(0) };
    }

    unsafe extern "C" fn poll(_: *mut Cq, most: c_int, _: *mut Wc) -> c_int {
        let given = WAITING.get().min(most);
        WAITING.set(WAITING.get() - given);
        given
    }

    unsafe extern "C" fn arm(_: *mut Cq, _: c_int) -> c_int {
        ARMED.set(ARMED.get() + 1);
        WAITING.set(WAITING.get() + MEANWHILE.take());
        0
    }

    /// How many completions were taken, and how often the queue was armed by then.
    fn take(queue: &mut Queue, arms: bool) -> (u32, u32) {
        let mut taken = 0;
        queue.take(arms, &mut |_| taken += 1);
        (taken, ARMED.get())
    }

    #[test]
    fn a_queue_is_armed_once_for_a_caller_that_sleeps_and_never_for_one_that_spins() {
        let mut context = Context {
            device: null_mut(),
            ops: ContextOps::with(poll, arm),
            cmd_fd: -1,
            async_fd: -1,
        };
        let mut cq = Cq {
            context: &raw mut context,
            channel: null_mut(),
            cq_context: null_mut(),
            handle: 0,
            cqe: 0,
        };
        let mut queue = Queue { cq: &raw mut cq, entries: 1, reserved: 0, armed: false };
        WAITING.set(2 * BATCH as c_int + 1);
        assert_eq!(take(&mut queue, false), (2 * BATCH as u32 + 1, 0));
        assert_eq!(take(&mut queue, false), (0, 0));
        WAITING.set(1);
        MEANWHILE.set(3);
        assert_eq!(take(&mut queue, true), (4, 1), "what came while it was armed is taken too");
        assert_eq!(take(&mut queue, true), (0, 1), "it is armed still");
        queue.armed = false;
        assert_eq!(take(&mut queue, false), (0, 1));
        assert_eq!(take(&mut queue, true), (0, 2));
    }
}

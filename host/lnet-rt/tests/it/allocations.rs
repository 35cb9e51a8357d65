//! A caller-driven message costs no allocation: descriptors and buffers are made once and used again.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use lnet::{EventKind, MatchEntry, MdOptions, MdSpec, Put, Report};
use lnet_rt::{Below, Buffer, Event, Instant, NodeBuilder, Upper, Wait};
use lnet_types::{IoVec, MdId, Nid, ProcessId};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count for each thread.
struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is a plain cell of the
// thread, without destructor, and allocates nothing.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_put_to_a_posted_buffer_allocates_nothing() {
    let mut stack = NodeBuilder::new().seed(1).build().unwrap();
    let sink = stack.lend(Buffer::zeroed(8)).unwrap();
    let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
    let spec = MdSpec { options, ..MdSpec::new(stack.region(sink), 2) };
    stack.attach(5, MatchEntry::bits(7), spec).unwrap();
    let source = stack.lend(Buffer::from(b"12345678")).unwrap();
    let md = stack.bind(MdSpec::new(stack.region(source), 1)).unwrap();
    let mut exchange = |count: u32| {
        let before = ALLOCATIONS.get();
        for _ in 0..count {
            let target = ProcessId::lustre(Nid::LOOPBACK);
            let put = Put {
                md,
                ack: false,
                src: None,
                target,
                portal: 5,
                match_bits: 7,
                offset: 0,
                hdr_data: 0,
                timeout: None,
            };
            stack.put(put).unwrap();
            stack.turn(Wait::None);
            let (mut sent, mut got) = (0, 0);
            while let Some(event) = stack.poll_event() {
                match event.kind {
                    EventKind::Send => sent += 1,
                    EventKind::Put => got += 1,
                    kind => panic!("{kind:?}"),
                }
                assert_eq!(event.status, Ok(()));
            }
            assert_eq!((sent, got), (1, 1));
        }
        ALLOCATIONS.get() - before
    };
    // Queues and tables find their size first.
    exchange(100);
    assert_eq!(exchange(10_000), 0, "allocations in 10,000 messages");
}

/// Sends itself a message as often as it is to, the next when the last has come.
struct Again {
    md: MdId,
    left: u32,
}

impl Again {
    fn put(&self, below: &mut Below<'_>) {
        let target = ProcessId::lustre(Nid::LOOPBACK);
        let put = Put {
            md: self.md,
            ack: false,
            src: None,
            target,
            portal: 6,
            match_bits: 7,
            offset: 0,
            hdr_data: 0,
            timeout: None,
        };
        below.put(put).unwrap();
    }
}

impl Upper for Again {
    fn event(&mut self, event: &Event, below: &mut Below<'_>) {
        if event.kind == EventKind::Put && self.left > 0 {
            self.left -= 1;
            self.put(below);
        }
    }

    fn spent(&mut self, _: u64) {}

    fn report(&mut self, _: &Report, _: &mut Below<'_>) {}
    fn handle_timeout(&mut self, _: &mut Below<'_>) {}
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

#[test]
fn a_message_of_an_upper_allocates_nothing() {
    let mut stack = NodeBuilder::new().seed(1).build().unwrap();
    let id = stack.add_upper(Box::new(Again { md: MdId::default(), left: 0 })).unwrap();
    let mut exchange = |count: u32| {
        let before = ALLOCATIONS.get();
        stack.with_upper(id, |again: &mut Again, below| {
            again.left = count;
            if again.md == MdId::default() {
                let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
                let sink = IoVec::from([below.alloc(8).unwrap()]);
                let sink = MdSpec { options, ..MdSpec::new(sink, 1) };
                below.attach(6, MatchEntry::bits(7), sink).unwrap();
                let source = IoVec::from([below.alloc(8).unwrap()]);
                again.md = below.bind(MdSpec::new(source, 2)).unwrap();
            }
            again.put(below);
        });
        while stack.turn(Wait::None) {}
        let left = stack.with_upper(id, |again: &mut Again, _| again.left);
        assert_eq!(left, Some(0));
        ALLOCATIONS.get() - before
    };
    exchange(100);
    assert_eq!(exchange(10_000), 0, "allocations in 10,000 messages");
}

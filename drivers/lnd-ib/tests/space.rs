//! Bytes that an interface holds for its idle connections, beside what a device pins for them.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use lnd_ib::{CmCall, CmEvent, IbConfig, IbNi, NiStart, Output, RequestId, Suspicion};
use lnet_types::{Instant, NiId, Nid};
use lnet_wire::ByteOrder;
use lnet_wire::ib::{Body, ConnParams, MSG_MAX, Msg, MsgHead, Version};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, with a count beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PEERS: usize = 1000;
/// Bar of the interface: a sixteenth of the 64 MiB that a thousand connections may take in all.
const BAR: usize = 4 << 20;

fn request(src: Nid, dst: Nid) -> Vec<u8> {
    let params = ConnParams { queue_depth: 8, max_frags: 256, max_msg_size: MSG_MAX as u32 };
    let head = MsgHead {
        order: ByteOrder::Little,
        version: Version::V12,
        credits: 0,
        src,
        src_stamp: 7,
        dst,
        dst_stamp: 0,
    };
    let msg = Msg { head, body: Body::ConnReq(params) };
    let mut bytes = vec![0; msg.len()];
    msg.emit(0, &mut bytes).expect("small NIDs");
    bytes
}

#[test]
fn a_thousand_idle_connections_hold_a_sixteenth_of_64_mib_at_most() {
    let nid: Nid = "10.0.0.1@o2ib".parse().expect("a NID");
    let start = NiStart { ni: NiId::default(), nid, incarnation: 1 };
    let before = HELD.load(Ordering::Relaxed);
    let mut ib = IbNi::new(IbConfig::default(), start).expect("defaults");
    let after = core::time::Duration::from_millis(50);
    ib.set_suspicion(Some(Suspicion { after, completions: 8 }));
    let now = Instant::from_secs(1);
    for n in 0..PEERS {
        let peer: Nid = format!("10.1.{}.{}@o2ib", n / 250, n % 250 + 1).parse().expect("a NID");
        ib.connect_request(now, RequestId(n as u64), &request(peer, nid));
        let mut accepted = None;
        while let Some(output) = ib.poll_output() {
            if let Output::Cm(CmCall::Accept { conn, .. }) = output {
                accepted = Some(conn);
            }
        }
        let conn = accepted.expect("it is accepted");
        ib.cm_event(now, conn, CmEvent::Established { private: &[] });
        while ib.poll_output().is_some() {}
    }
    assert_eq!(ib.connections(None), PEERS);
    let held = HELD.load(Ordering::Relaxed) - before;
    println!("{PEERS} idle connections: {held} bytes, {} each", held / PEERS);
    assert!(held <= BAR, "{held} bytes");
}

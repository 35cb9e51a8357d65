//! New directories on a chosen metadata target: which target a visitor asks, and what for, against
//! recorded servers with two of them.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use core::future::Future;
use core::pin::pin;
use core::task::{Context, Poll, Waker};
use std::path::Path;
use std::sync::Mutex;

use lnet_types::{ByteOrder, Errno};
use lustre_client::visitor::{
    Access, DirWish, End, FileKind, Identity, Moved, VisitConfig, Visitor, Wire,
};
use lustre_wire::mds::Record;
use lustre_wire::{ConnectData, Fid, ImportKind, Opcode};
use ptlrpc::{Call, CallError, CallId, ImportConfig};
use rpc_interop::archive::Archive;

const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
/// The directory of the recorded users.
const DIR: Fid = Fid { seq: 0x2_0000_0402, oid: 0x1461, ver: 0 };

/// Recorded servers, and which of them was asked for which change.
struct Asked<'a>(&'a Archive, Mutex<Vec<(String, Vec<Vec<u8>>)>>);

impl Wire for &Asked<'_> {
    type Link = (String, ImportKind);

    fn link(&self, config: ImportConfig) -> Result<Self::Link, CallError> {
        Ok((config.target, config.kind))
    }

    fn connect(&self, _: &Self::Link) {}

    async fn call(&self, (target, kind): &Self::Link, call: Call, moved: Moved) -> End {
        if call.opcode == Opcode::MDS_REINT || call.opcode == Opcode::SEQ_QUERY {
            self.1.lock().unwrap().push((target.clone(), call.buffers.clone()));
        }
        self.0.call(kind, call, moved).await
    }

    async fn handle(&self, (_, kind): &Self::Link, call: CallId) -> Option<u64> {
        self.0.handle(kind, call).await
    }

    async fn pause(&self, _: u32) {}

    fn now(&self) -> i64 {
        self.0.now()
    }

    async fn terms(&self, (_, kind): &Self::Link) -> ConnectData {
        self.0.terms(kind).await
    }

    async fn close(&self, _: &Self::Link) {}
}

/// Runs a future that never waits.
fn run<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    for _ in 0..1000 {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
    panic!("the visit does not end");
}

fn archive() -> Archive {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/lustre-mount");
    let archive = Archive::default().with(&dir.join("fresh-mount.pcap"), u32::MAX);
    archive.with(&dir.join("namespace.pcap"), u32::MAX).named(ROOT, "f10", DIR)
}

fn begin<'a>(wire: &'a Asked<'a>) -> Visitor<&'a Asked<'a>> {
    let config = VisitConfig {
        mgs: vec!["10.78.0.2@tcp".parse().unwrap()],
        fsname: "lfs".to_owned(),
        client: "visitor".to_owned(),
        who: Identity { umask: 0o22, ..Identity::default() },
        access: Access::Change,
        seed: 7,
    };
    run(Visitor::begin(wire, config)).unwrap()
}

#[test]
fn c125_a_directory_with_a_chosen_target_is_made_there_with_a_fid_of_that_target() {
    let archive = archive();
    let wire = Asked(&archive, Mutex::default());
    let visitor = begin(&wire);
    let dir = run(visitor.find(b"/f10", false)).unwrap();
    let layout = DirWish { mdt: Some(1), ..DirWish::default() }.bytes();
    // Frame 436: made by MDT 1, in a directory of MDT 0.
    let made = run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap();
    assert_eq!(made.kind(), FileKind::Dir);
    let asked = wire.1.lock().unwrap();
    let targets: Vec<&str> = asked.iter().map(|(target, _)| target.as_str()).collect();
    assert_eq!(targets, ["lfs-MDT0001_UUID"; 2], "a sequence, a directory");
    let buffers = &asked[1].1;
    let Ok(Record::Create(record)) = Record::parse(ByteOrder::Little, &buffers[0]) else {
        panic!("a record of a new file")
    };
    assert_eq!((record.head.fid1, record.bias), (DIR, 0x20_0000));
    assert_eq!(buffers[3], layout);
}

#[test]
fn a_directory_on_a_target_that_is_not_there_is_refused_by_name() {
    let archive = archive();
    let wire = Asked(&archive, Mutex::default());
    let visitor = begin(&wire);
    let dir = run(visitor.find(b"/f10", false)).unwrap();
    let layout = DirWish { mdt: Some(7), ..DirWish::default() }.bytes();
    let e = run(visitor.make_dir(&dir, b"dd", 0o777, &layout)).unwrap_err();
    assert_eq!(e.errno(), Errno::ENXIO);
    assert!(e.to_string().starts_with("MDT 7:"), "{e}");
    let e = run(visitor.make_dir(&dir, b"dd", 0o777, b"no layout")).unwrap_err();
    assert_eq!(e.errno(), Errno::EPROTO);
    assert!(wire.1.lock().unwrap().is_empty(), "no target was asked");
}

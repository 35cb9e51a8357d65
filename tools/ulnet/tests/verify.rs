//! `ulnet lustre cp --verify` against an object target that answers reads with bytes of another place: the
//! copy fails and is named, and what differs is not left behind. Without `--verify` it stays hidden.
//! Stores on files have checksums and refuse what was damaged on disk, so the target itself has to lie.

#![allow(clippy::unwrap_used, reason = "a test that fails says so by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lnet_rt::{Nid, NodeBuilder, NodeHandle};
use lnet_types::{Errno, Instant};
use lustre_rt::store::{DESCRIPTION, DirLock, Disk, DiskConfig};
use lustre_rt::{
    ConnectData, Cx, ExportId, Kind, LockServer, MGS_UUID, Opcode, Ost, OstLimits, Outcome, Rpc,
    RpcNode, Served, ServedId, Site, StoreError, TargetSpec,
};
use lustre_target::{Beginning, CallbackFact};

const SERVER: &str = "127.36.0.1";
const CLIENT: &str = "127.36.0.2";
const MDT: &str = "lfs-MDT0000_UUID";
const OST: &str = "lfs-OST0000_UUID";

/// So many reads are answered as they ought to be; those behind are not.
#[derive(Clone, Default)]
struct Honest(Arc<AtomicUsize>);

/// An object target that reads the 64 KiB beside those that it was asked for.
struct Liar {
    ost: Ost,
    honest: Honest,
}

/// Moves the range of a read.
fn misread(served: &mut Served) {
    let begin = served.message.as_ptr() as usize;
    let at = served.msg().unwrap().buffer(3).unwrap().as_ptr() as usize - begin;
    // Its offset is the first field, with the lowest byte in front: this one counts 64 KiB.
    served.message[at + 2] ^= 1;
}

impl Kind for Liar {
    fn serve(&mut self, mut served: Served, cx: &mut Cx<'_, '_, '_>) {
        if served.opcode == Opcode::OST_READ {
            let less = |left: usize| left.checked_sub(1);
            if self.honest.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
                misread(&mut served);
            }
        }
        self.ost.serve(served, cx);
    }

    fn name(&self) -> &'static str {
        self.ost.name()
    }

    fn offer(&self) -> ConnectData {
        self.ost.offer()
    }

    fn keeps_records(&self) -> bool {
        self.ost.keeps_records()
    }

    fn begin(&mut self, beginning: Beginning, rpc: &mut Rpc<'_, '_>) {
        self.ost.begin(beginning, rpc);
    }

    fn bulk_done(
        &mut self,
        served: ServedId,
        result: Result<(), Errno>,
        cx: &mut Cx<'_, '_, '_>,
    ) -> bool {
        self.ost.bulk_done(served, result, cx)
    }

    fn stored(&mut self, token: u64, end: Result<Outcome, StoreError>, cx: &mut Cx<'_, '_, '_>) {
        self.ost.stored(token, end, cx);
    }

    fn recovered(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.ost.recovered(cx);
    }

    fn left(&mut self, export: ExportId, cx: &mut Cx<'_, '_, '_>) {
        self.ost.left(export, cx);
    }

    fn waits(&mut self, served: ServedId, export: ExportId, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.ost.waits(served, export, cx)
    }

    fn callback(&mut self, fact: &CallbackFact, cx: &mut Cx<'_, '_, '_>) -> bool {
        self.ost.callback(fact, cx)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.ost.poll_timeout()
    }

    fn handle_timeout(&mut self, cx: &mut Cx<'_, '_, '_>) {
        self.ost.handle_timeout(cx);
    }

    fn locks(&self) -> Option<&LockServer> {
        self.ost.locks()
    }
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A file system with one object target, which lies.
fn serve(dir: &Path, port: u16, honest: &Honest) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(SERVER.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    rpc.serve_targets().unwrap();
    let nid: Nid = format!("{SERVER}@tcp").parse().unwrap();
    let site = Site::on_one_node("lfs", 1, &[nid]).unwrap();
    let ost = dir.join(OST);
    fs::create_dir_all(&ost).unwrap();
    let liar = Liar { ost: Ost::new(OstLimits::default()), honest: honest.clone() };
    rpc.add_target(OST, liar, Disk::open(DiskConfig::new(ost)).unwrap()).unwrap();
    for (name, kind) in [(MGS_UUID, "mgs"), (MDT, "mdt")] {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(DESCRIPTION), site.to_string()).unwrap();
        let spec: TargetSpec = format!("{name}={kind}:{}", dir.display()).parse().unwrap();
        rpc.start_target(&spec, DirLock::take(&dir).unwrap()).unwrap();
    }
    (node, rpc)
}

#[test]
fn a_copy_that_is_read_otherwise_than_its_source_is_found_by_verify_alone() {
    let scratch = Scratch(fresh::path("verify"));
    fs::create_dir_all(&scratch.0).unwrap();
    let (port, honest) = (fresh::port(), Honest::default());
    let _servers = serve(&scratch.0, port, &honest);
    // One request reads all of it; its two halves differ.
    let mut written = vec![1; 64 << 10];
    written.resize(128 << 10, 2);
    fs::write(scratch.0.join("source"), &written).unwrap();
    let run = |reads: usize, words: &[&str]| -> (String, Option<i32>) {
        honest.0.store(reads, Ordering::SeqCst);
        let mut command = Command::new(env!("CARGO_BIN_EXE_ulnet"));
        command.arg("lustre").args(words).args(["--port", &port.to_string(), "--source", CLIENT]);
        command.env("ULNET_LUSTRE", format!("{SERVER}@tcp:/lfs")).current_dir(&scratch.0);
        let o = command.output().unwrap();
        (String::from_utf8_lossy(&o.stderr).into_owned(), o.status.code())
    };
    let says = |(err, code): (String, Option<i32>), name: &str| {
        assert_eq!(code, Some(1), "{err}");
        assert!(err.contains(&format!("{name}: the copy differs from its source")), "{err}");
    };
    let ok = |(err, code): (String, Option<i32>)| assert_eq!(code, Some(0), "{err}");

    // In: nothing is read without --verify.
    ok(run(0, &["cp", "./source", "/a"]));
    says(run(0, &["cp", "./source", "/b", "--verify"]), "./source");
    assert_eq!(run(0, &["stat", "/b"]).1, Some(1), "a file that differs is not left");
    ok(run(usize::MAX, &["cp", "./source", "/b", "--verify"]));

    // Out: what is read first is right, what is read again is not.
    ok(run(1, &["cp", "/a", "./right"]));
    assert!(fs::read(scratch.0.join("right")).unwrap() == written);
    ok(run(0, &["cp", "/a", "./wrong"]));
    assert!(fs::read(scratch.0.join("wrong")).unwrap() != written, "it stays hidden");
    says(run(1, &["cp", "/a", "./out", "--verify"]), "/a");
    assert!(!scratch.0.join("out").exists(), "a file that differs is not left");
    ok(run(usize::MAX, &["cp", "/a", "./out", "--verify"]));
    assert!(fs::read(scratch.0.join("out")).unwrap() == written);
}

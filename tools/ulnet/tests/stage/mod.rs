//! A file system whose object target does something of the test's before each request, served by a node of
//! the test itself, and commands on it.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lnet_rt::{Nid, NodeBuilder, NodeHandle};
use lnet_types::{Errno, Instant};
use lustre_rt::store::{DESCRIPTION, DirLock, Disk, DiskConfig};
use lustre_rt::{
    ConnectData, Cx, ExportId, Kind, LockServer, MGS_UUID, Ost, OstLimits, Outcome, Rpc, RpcNode,
    Served, ServedId, Site, StoreError, TargetSpec,
};
use lustre_target::{Beginning, CallbackFact};

pub(crate) const MDT: &str = "lfs-MDT0000_UUID";
pub(crate) const OST: &str = "lfs-OST0000_UUID";

/// What happens before a request.
pub(crate) type Hook = Box<dyn FnMut(&mut Served) + Send>;

struct Hooked {
    ost: Ost,
    hook: Hook,
}

impl Kind for Hooked {
    fn serve(&mut self, mut served: Served, cx: &mut Cx<'_, '_, '_>) {
        (self.hook)(&mut served);
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

/// A folder, a node, and a file system with one object target on it.
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    pub(crate) rpc: RpcNode,
    node: NodeHandle,
    port: u16,
    /// The first two numbers of addresses.
    net: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Stage {
    /// `net` are the first two numbers of its addresses, which no other test has.
    pub(crate) fn new(name: &str, net: &str, hook: Hook) -> Self {
        let (dir, port) = (fresh::path(name), fresh::port());
        let server = format!("{net}.0.1");
        let node = NodeBuilder::new().tcp(server.parse().unwrap(), port).start().unwrap();
        let rpc = RpcNode::start(&node, Default::default()).unwrap();
        rpc.serve_targets().unwrap();
        let nid: Nid = format!("{server}@tcp").parse().unwrap();
        let site = Site::on_one_node("lfs", 1, &[nid]).unwrap();
        let ost = dir.join(OST);
        fs::create_dir_all(&ost).unwrap();
        let hooked = Hooked { ost: Ost::new(OstLimits::default()), hook };
        rpc.add_target(OST, hooked, Disk::open(DiskConfig::new(ost)).unwrap()).unwrap();
        for (name, kind) in [(MGS_UUID, "mgs"), (MDT, "mdt")] {
            let dir = dir.join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(DESCRIPTION), site.to_string()).unwrap();
            let spec: TargetSpec = format!("{name}={kind}:{}", dir.display()).parse().unwrap();
            rpc.start_target(&spec, DirLock::take(&dir).unwrap()).unwrap();
        }
        Self { dir, rpc, node, port, net: net.to_owned() }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ulnet"));
        command.arg("lustre").args(words).args(["--port", &self.port.to_string()]);
        command.args(["--source", &format!("{}.0.2", self.net)]);
        command.env("ULNET_LUSTRE", format!("{}.0.1@tcp:/lfs", self.net));
        command.current_dir(&self.dir);
        command
    }

    /// What a command says on standard error, and its status.
    pub(crate) fn run(&self, words: &[&str]) -> (String, Option<i32>) {
        let o = self.command(words).output().unwrap();
        (String::from_utf8_lossy(&o.stderr).into_owned(), o.status.code())
    }

    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) {
        let (err, code) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {err}");
    }
}

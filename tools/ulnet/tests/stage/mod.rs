//! A file system whose object target does something of the test's before each request, served by a node of
//! the test itself, and commands on it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use lnet_rt::{Nid, NodeBuilder, NodeHandle};
use lustre_rt::store::{DESCRIPTION, DirLock, Disk, DiskConfig};
use lustre_rt::{MGS_UUID, Ost, OstLimits, RpcNode, Served, Site, TargetSpec};
use lustre_target::{Intercepted, Mdt};

const MDT: &str = "lfs-MDT0000_UUID";
pub(crate) const OST: &str = "lfs-OST0000_UUID";

/// A folder, a node, and a file system with one object target on it.
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    pub(crate) rpc: RpcNode,
    /// It lives as long as the file system.
    _node: NodeHandle,
    port: u16,
    /// The first two numbers of addresses.
    net: String,
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Nothing is written to the folder any more.
        let _ = self.rpc.stop_targets();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Stage {
    /// `net` are the first two numbers of its addresses, which no other test has; `hook` gets each request of
    /// the object target before it is served.
    pub(crate) fn new(
        name: &str,
        net: &str,
        hook: impl FnMut(&mut Served) + Send + 'static,
    ) -> Self {
        Self::of(name, net, 1, hook, None::<fn(&mut Served)>)
    }

    /// The same with so many metadata targets; `names` gets each request of the first of them.
    pub(crate) fn of(
        name: &str,
        net: &str,
        mdts: u32,
        mut hook: impl FnMut(&mut Served) + Send + 'static,
        names: Option<impl FnMut(&mut Served) + Send + 'static>,
    ) -> Self {
        let (dir, port) = (fresh::path(name), fresh::port());
        let server = format!("{net}.0.1");
        let node = NodeBuilder::new().tcp(server.parse().unwrap(), port).start().unwrap();
        let rpc = RpcNode::start(&node, Default::default()).unwrap();
        rpc.serve_targets().unwrap();
        let nid: Nid = format!("{server}@tcp").parse().unwrap();
        let site = Site::of_counts("lfs", (mdts, 1), &[nid]).unwrap();
        let ost = dir.join(OST);
        fs::create_dir_all(&ost).unwrap();
        let target = Intercepted::new(Ost::new(OstLimits::default()), move |_, mut served, _| {
            hook(&mut served);
            Some(served)
        });
        rpc.add_target(OST, target, Disk::open(DiskConfig::new(ost)).unwrap()).unwrap();
        let described = |name: &str| {
            let dir = dir.join(name);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(DESCRIPTION), site.to_string()).unwrap();
            dir
        };
        let mut all = vec![(MGS_UUID.to_owned(), "mgs")];
        all.extend((0..mdts).map(|index| (format!("lfs-MDT{index:04x}_UUID"), "mdt")));
        if let Some(mut names) = names {
            let mut disk = Disk::open(DiskConfig::new(described(MDT))).unwrap();
            let mdt = Mdt::load(site.clone(), &mut disk).unwrap();
            let target = Intercepted::new(mdt, move |_, mut served, _| {
                names(&mut served);
                Some(served)
            });
            rpc.add_target(MDT, target, disk).unwrap();
            all.retain(|(name, _)| name != MDT);
        }
        for (name, kind) in &all {
            let dir = described(name);
            let spec: TargetSpec = format!("{name}={kind}:{}", dir.display()).parse().unwrap();
            rpc.start_target(&spec, DirLock::take(&dir).unwrap()).unwrap();
        }
        Self { dir, rpc, _node: node, port, net: net.to_owned() }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        self.command_at(2, words)
    }

    /// A command at another address, beside others.
    pub(crate) fn command_at(&self, last: u8, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ulnet"));
        command.arg("lustre").args(words).args(["--port", &self.port.to_string()]);
        command.args(["--source", &format!("{}.0.{last}", self.net)]);
        command.env("ULNET_LUSTRE", format!("{}.0.1@tcp:/lfs", self.net));
        command.current_dir(&self.dir);
        command
    }

    /// Lets each request wait for a second before it is served, from here on.
    pub(crate) fn delay(&self) {
        let (services, _) = self.rpc.services().unwrap();
        for id in services.into_iter().map(|service| service.id) {
            let slow = move |rpc: &mut lustre_rt::Rpc<'_, '_>| {
                for (name, value) in [
                    ("nrs_policies", "delay reg"),
                    ("nrs_delay_min", "reg_delay_min:0"),
                    ("nrs_delay_max", "reg_delay_max:1"),
                    ("nrs_delay_min", "reg_delay_min:1"),
                    ("nrs_delay_pct", "reg_delay_pct:100"),
                ] {
                    rpc.set_parameter(id, name, value).unwrap();
                }
            };
            self.rpc.with(slow).unwrap();
        }
    }

    /// What a command says on standard error, and its status.
    pub(crate) fn run(&self, words: &[&str]) -> (String, Option<i32>) {
        let o = self.command(words).output().unwrap();
        (String::from_utf8_lossy(&o.stderr).into_owned(), o.status.code())
    }

    /// A command at another address that succeeds.
    #[track_caller]
    pub(crate) fn ok_at(&self, last: u8, words: &[&str]) {
        let o = self.command_at(last, words).output().unwrap();
        assert!(o.status.success(), "{words:?}: {}", String::from_utf8_lossy(&o.stderr));
    }

    #[track_caller]
    pub(crate) fn ok(&self, words: &[&str]) {
        let (err, code) = self.run(words);
        assert_eq!(code, Some(0), "{words:?}: {err}");
    }
}

//! What tests over sockets share: folders of targets, nodes, servers of one target.

use std::path::PathBuf;

use lnet_rt::{NodeBuilder, NodeHandle};
use lustre_rt::store::DirLock;
use lustre_rt::{RpcNode, TargetSpec};

/// The folder of a target, for as long as its test.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        Self(fresh::path(name))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn node(ip: &str, port: u16) -> (NodeHandle, RpcNode) {
    let node = NodeBuilder::new().tcp(ip.parse().unwrap(), port).start().unwrap();
    let rpc = RpcNode::start(&node, Default::default()).unwrap();
    (node, rpc)
}

/// A node that serves a target `NAME=KIND` from a folder.
pub(crate) fn serve(dir: &Dir, ip: &str, port: u16, target: &str) -> (NodeHandle, RpcNode) {
    let (node, rpc) = node(ip, port);
    rpc.serve_targets().unwrap();
    let spec: TargetSpec = format!("{target}:{}", dir.0.display()).parse().unwrap();
    rpc.start_target(&spec, DirLock::take(&dir.0).unwrap()).unwrap();
    (node, rpc)
}

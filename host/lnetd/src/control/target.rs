//! `target`: the targets that this node serves, on the request layer of `lustre-rt`, which is put on
//! the node when it is needed first. This file holds that layer; `export.rs` and
//! `rpc_service.rs` look at it and break it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lnet_admin::{AdminError, Reply, TargetSnapshot};
use lnet_rt::OpError;
use lnet_types::Errno;
use lustre_rt::store::OpenError;
use lustre_rt::{RpcError, RpcNode, Setting, SettingError, TargetSpec, Tunables};

use super::{Control, NOT_CONFIGURED, off, stopped};
use crate::rpc_views as views;

/// How long requests under way may take when their target is taken out of service.
const GRACE: Duration = Duration::from_secs(5);

/// The request layer of the node.
#[derive(Debug)]
pub(crate) struct RpcLayer {
    pub(crate) node: RpcNode,
    /// Held while a target is started or taken out: that takes time.
    changing: Mutex<()>,
    targets: Mutex<BTreeMap<String, TargetSpec>>,
}

impl RpcLayer {
    fn start(handle: &lnet_rt::NodeHandle, tunables: Tunables) -> Result<Self, RpcError> {
        let node = RpcNode::start(handle, tunables)?;
        Ok(Self { node, changing: Mutex::new(()), targets: Mutex::new(BTreeMap::new()) })
    }

    /// The targets by name. Every change is made in one step: a panic elsewhere leaves them whole.
    fn targets(&self) -> MutexGuard<'_, BTreeMap<String, TargetSpec>> {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, spec: TargetSpec) -> Result<(), AdminError> {
        let _changing = self.change();
        if let Some(there) = self.targets().get(&spec.name) {
            let why = format!("target '{}': {} serves it already", spec.name, there.dir.display());
            return Err(AdminError::errno(Errno::EEXIST).because(why));
        }
        let lock = spec.lock().map_err(|e| open_error(&spec, &e))?;
        self.node.start_target(&spec, lock).map_err(|e| rpc_error(&spec.name, &e))?;
        tracing::info!("{}: serving {}", spec.name, spec.dir.display());
        self.targets().insert(spec.name.clone(), spec);
        Ok(())
    }

    fn del(&self, name: &str, grace: Duration) -> Result<(), AdminError> {
        let _changing = self.change();
        if !self.targets().contains_key(name) {
            return Err(no_target(name));
        }
        self.node.remove_target(name, grace).map_err(|e| stopped(&e))?;
        self.targets().remove(name);
        tracing::info!("{name}: out of service");
        Ok(())
    }

    /// The names of the targets that are served.
    pub(crate) fn names(&self) -> Vec<String> {
        self.targets().keys().cloned().collect()
    }

    /// Takes all targets out of service; what was applied is committed then.
    pub(crate) fn stop(&self, grace: Duration) {
        for name in self.names() {
            if let Err(e) = self.del(&name, grace) {
                tracing::warn!("{name}: {e}");
            }
        }
    }

    fn show(&self) -> Result<Vec<TargetSnapshot>, OpError> {
        let seen = self.node.inspect(|ptlrpc, now| ptlrpc.target_views(now))?;
        let mut all = Vec::new();
        for spec in self.targets().values() {
            let failure = self.node.target_failure(&spec.name)?;
            let view = seen.iter().find(|view| view.uuid == spec.name);
            all.push(views::target(spec, view, failure));
        }
        Ok(all)
    }
}

/// The kinds of the targets of this node.
#[derive(Debug, Default)]
pub(crate) struct TargetKinds(BTreeMap<String, &'static str>);

impl TargetKinds {
    /// The kind of a target; `target` for one that a program serves.
    pub(crate) fn of(&self, uuid: &str) -> String {
        self.0.get(uuid).copied().unwrap_or("target").to_owned()
    }
}

impl Control {
    /// The kinds of the targets of this node.
    pub(crate) fn target_kinds(&self) -> TargetKinds {
        let rpc = self.rpc().ok().flatten();
        let kinds = rpc.iter().flat_map(|rpc| {
            let kind = |(name, spec): (&String, &TargetSpec)| (name.clone(), spec.kind.name());
            rpc.targets().iter().map(kind).collect::<Vec<_>>()
        });
        TargetKinds(kinds.collect())
    }

    /// The request layer, which is started if there is none.
    pub(super) fn rpc_or_start(&self) -> Result<Arc<RpcLayer>, AdminError> {
        let mut state = self.state();
        let tunables = state.rpc.clone();
        let node = state.node.as_mut().ok_or_else(|| off(Errno::ENETDOWN))?;
        if let Some(rpc) = &node.rpc {
            return Ok(Arc::clone(rpc));
        }
        let rpc = RpcLayer::start(&node.handle, tunables);
        let rpc = Arc::new(rpc.map_err(|e| rpc_error("request layer", &e))?);
        node.rpc = Some(Arc::clone(&rpc));
        Ok(rpc)
    }

    /// The request layer, if there is one.
    pub(super) fn rpc(&self) -> Result<Option<Arc<RpcLayer>>, AdminError> {
        let state = self.state();
        state.node.as_ref().map(|node| node.rpc.clone()).ok_or_else(|| off(Errno::ENETDOWN))
    }

    /// What `look` sees of the request layer; `none` without one.
    pub(crate) fn look<R>(
        &self,
        none: R,
        look: impl FnOnce(&RpcNode) -> Result<R, OpError>,
    ) -> Result<R, AdminError> {
        match self.rpc()? {
            Some(rpc) => look(&rpc.node).map_err(|e| stopped(&e)),
            None => Ok(none),
        }
    }

    /// The tunables of the request layer.
    pub(crate) fn rpc_tunables(&self) -> Tunables {
        self.state().rpc.clone()
    }

    /// Sets a tunable of the request layer, and of the layer that runs.
    pub(crate) fn set_rpc_tunable(&self, row: &Setting, value: u32) -> Result<(), AdminError> {
        let mut state = self.state();
        let refused = |e: SettingError| AdminError::errno(e.errno()).because(e);
        let next = state.rpc.with(row, value).map_err(refused)?;
        if let Some(rpc) = state.node.as_ref().and_then(|node| node.rpc.as_ref()) {
            rpc.node.set_tunables(next.clone()).map_err(|e| stopped(&e))?;
        }
        state.rpc = next;
        Ok(())
    }

    pub(super) fn target_add(&self, target: &str) -> Result<Reply, AdminError> {
        let invalid = |why: String| AdminError::errno(Errno::EINVAL).because(why);
        let spec: TargetSpec = target.parse().map_err(|e| invalid(format!("{e}")))?;
        if spec.kind.has_dir() && spec.dir.is_relative() {
            let dir = spec.dir.display();
            return Err(invalid(format!("directory '{dir}': expected an absolute path")));
        }
        self.rpc_or_start()?.add(spec).map(|()| Reply::Done)
    }

    pub(super) fn target_del(&self, name: &str) -> Result<Reply, AdminError> {
        match self.rpc()? {
            Some(rpc) => rpc.del(name, GRACE).map(|()| Reply::Done),
            None => Err(no_target(name)),
        }
    }

    pub(super) fn target_show(&self) -> Result<Reply, AdminError> {
        self.target_snapshots().map(Reply::Targets)
    }

    /// The targets of this node, by name.
    pub(crate) fn target_snapshots(&self) -> Result<Vec<TargetSnapshot>, AdminError> {
        match self.rpc()? {
            Some(rpc) => rpc.show().map_err(|e| stopped(&e)),
            None => Ok(Vec::new()),
        }
    }
}

fn no_target(name: &str) -> AdminError {
    let name = name.escape_debug();
    AdminError::errno(Errno::ENOENT).because(format_args!("target '{name}': not served here"))
}

fn open_error(spec: &TargetSpec, e: &OpenError) -> AdminError {
    let errno = match e {
        OpenError::Locked { .. } => Errno::EBUSY,
        _ => Errno::EIO,
    };
    AdminError::errno(errno).because(format_args!("target '{}': {e}", spec.name))
}

fn rpc_error(what: &str, e: &RpcError) -> AdminError {
    let errno = match e {
        RpcError::Node(OpError::Stopped) => {
            return AdminError::errno(Errno::ESHUTDOWN).because(NOT_CONFIGURED);
        }
        RpcError::Node(e) => e.errno(),
        RpcError::Start { errno, .. } => *errno,
        RpcError::Full(_) => Errno::ENOSPC,
        _ => Errno::EIO,
    };
    AdminError::errno(errno).because(format_args!("{what}: {e}"))
}

//! The locks of this node's targets, to be looked at and to be broken.

use lnet_rt::{Instant, OpError};
use lustre_target::{Kind, lock::wire};
use lustre_wire::ldlm::ResourceName;
use ptlrpc::Rpc;

pub use ldlm::Cookie;
pub use ldlm::server::{LockLine, LockServer, LockStats};
pub use ldlm::space::SpaceView;
pub use lustre_wire::ldlm::{LockDesc, LockKind, LockMode, Policy};

use crate::node::RpcNode;

/// Locks that a lock waits for are named up to so many.
pub const BLOCKERS_SHOWN: usize = 8;

/// Which locks are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockFilter {
    /// All.
    All,
    /// Those that wait, and those whose clients are called back.
    Contended,
    /// Those on this name.
    Named(String),
}

/// A lock of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// Uuid of the target.
    pub target: String,
    /// The name that is locked, if it was announced.
    pub name: Option<String>,
    /// The lock.
    pub lock: LockLine,
    /// The locks that it waits for, at most [`BLOCKERS_SHOWN`].
    pub waits_for: Vec<LockLine>,
}

/// The locks of a target, counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRow {
    /// Uuid of the target.
    pub target: String,
    /// What there is.
    pub space: SpaceView,
    /// What has happened.
    pub stats: LockStats,
    /// What a lock is worth to clients' caches, and how many there should be (L-59).
    pub volume: (u64, u32),
}

/// The locks of one target that pass the filter.
fn rows<'a>(
    target: &'a str,
    kind: &'a dyn Kind,
    filter: &'a LockFilter,
    rpc: &'a Rpc<'_, '_>,
) -> impl Iterator<Item = LockRow> + 'a {
    let locks = kind.locks();
    let resources = locks.map_or_else(Vec::new, |locks| match filter {
        LockFilter::Named(name) => wire::resource_of(name).into_iter().collect(),
        LockFilter::All | LockFilter::Contended => locks.space().resources().collect(),
    });
    let on = move |resource: ResourceName| {
        let lines = locks.map_or_else(Vec::new, |locks| locks.locks_on(&resource, rpc));
        lines.into_iter().map(move |line| (resource, line))
    };
    let passes = |line: &LockLine| match filter {
        LockFilter::Contended => line.waits || line.called_back,
        LockFilter::All | LockFilter::Named(_) => true,
    };
    resources.into_iter().flat_map(on).filter(move |(_, line)| passes(line)).map(
        move |(resource, lock)| {
            let blockers = locks.filter(|_| lock.waits);
            LockRow {
                target: target.to_owned(),
                name: kind.resource_name(&resource).map(str::to_owned),
                waits_for: blockers
                    .map_or_else(Vec::new, |l| l.blockers(lock.lock, BLOCKERS_SHOWN, rpc)),
                lock,
            }
        },
    )
}

impl RpcNode {
    /// Locks of all targets: at most `max` behind the first `from`, whether there are more, and the
    /// time.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn locks(
        &self,
        filter: LockFilter,
        from: usize,
        max: usize,
    ) -> Result<(Vec<LockRow>, bool, Instant), OpError> {
        self.run(move |host, below| {
            let now = below.now();
            let rpc = host.ptlrpc.rpc(below);
            let all =
                host.targets.lockers().flat_map(|(uuid, kind)| rows(uuid, kind, &filter, &rpc));
            let mut rows: Vec<_> = all.skip(from).take(max.saturating_add(1)).collect();
            let more = rows.len() > max;
            rows.truncate(max);
            (rows, more, now)
        })
    }

    /// The namespaces of all targets that have locks.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn namespaces(&self) -> Result<Vec<NamespaceRow>, OpError> {
        self.run(|host, _| {
            let row = |(uuid, kind): (&str, &dyn Kind)| {
                let locks = kind.locks()?;
                Some(NamespaceRow {
                    target: uuid.to_owned(),
                    space: locks.space().view(),
                    stats: locks.stats(),
                    volume: locks.space().slv(),
                })
            };
            host.targets.lockers().filter_map(row).collect()
        })
    }

    /// Breaks a lock of any target: its client is evicted, with all that it has of the target. `false`:
    /// there is no such lock.
    ///
    /// # Errors
    /// The node has stopped.
    pub fn break_lock(&self, lock: Cookie) -> Result<bool, OpError> {
        self.run(move |host, below| {
            let mut rpc = host.ptlrpc.rpc(below);
            let find = |(_, kind): (&str, &dyn Kind)| kind.locks()?.lock(lock, &rpc);
            let found = host.targets.lockers().find_map(find);
            if let Some(line) = &found {
                rpc.evict(line.export);
            }
            found.is_some()
        })
    }
}

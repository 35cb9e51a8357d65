//! Snapshots to the trees that are printed: key order and levels of lnetctl.md 4.

pub(crate) mod fault;
pub(crate) mod format;
pub(crate) mod global;
pub(crate) mod lock;
pub(crate) mod net;
pub(crate) mod peer;
pub(crate) mod route;
pub(crate) mod routing;
pub(crate) mod rpc;
pub(crate) mod stats;
pub(crate) mod timers;
mod traffic;
pub(crate) mod udsp;

use lnet_config::Tree;

/// The level from which on is shown what kernel nodes do not know. Below it, output is theirs to the
/// byte.
pub(crate) const OURS: i64 = 5;

/// Keys and values in the making.
pub(crate) type Rows = Vec<(&'static str, Tree)>;

/// A map of numbers.
pub(crate) fn numbers<T: ToString, const N: usize>(rows: [(&'static str, T); N]) -> Tree {
    Tree::map(rows.map(|(key, value)| (key, Tree::plain(value))))
}

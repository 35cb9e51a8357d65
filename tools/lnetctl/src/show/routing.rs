//! `routing show` (S-routing-1, S-routing-3).

use lnet_admin::{PoolSnapshot, RoutingSnapshot, RoutingState};
use lnet_config::{BUFFER_KEYS, Tree};

use super::numbers;

/// The document of a router: pools, state, and the numbers asked for. Once routing is off there are no
/// pools, and the state stands alone.
pub(crate) fn tree(routing: &RoutingSnapshot) -> Tree {
    let state = Tree::map([("enable", Tree::plain(routing.state as u8))]);
    if routing.state == RoutingState::Disabled {
        return Tree::map([("routing", Tree::List(vec![state]))]);
    }
    let pool = |p: &PoolSnapshot| {
        numbers([
            ("npages", i64::from(p.npages)),
            ("nbuffers", p.nbuffers.into()),
            ("credits", p.credits.into()),
            ("mincredits", p.mincredits.into()),
        ])
    };
    let names = BUFFER_KEYS.iter().map(|(name, _)| *name);
    let pools = names.zip(&routing.pools).map(|(name, p)| (name, pool(p)));
    let items = vec![Tree::map([("cpt[0]", Tree::map(pools))]), state];
    Tree::map([("routing", Tree::List(items)), ("buffers", wanted(routing))])
}

/// The document of a router in the form of backups.
pub(crate) fn backup(routing: &RoutingSnapshot) -> Tree {
    let enable = Tree::map([("enable", Tree::plain(1))]);
    Tree::map([("routing", enable), ("buffers", wanted(routing))])
}

/// The numbers of buffers alone.
pub(crate) fn buffers(routing: &RoutingSnapshot) -> Tree {
    Tree::map([("buffers", wanted(routing))])
}

fn wanted(routing: &RoutingSnapshot) -> Tree {
    let names = BUFFER_KEYS.iter().map(|(name, _)| *name);
    Tree::map(names.zip(&routing.wanted).map(|(name, n)| (name, Tree::plain(n))))
}

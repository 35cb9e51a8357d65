//! `stats show` (S-stats-1).

use lnet_admin::StatsSnapshot;
use lnet_config::Tree;

/// The document.
pub(crate) fn tree(stats: &StatsSnapshot) -> Tree {
    let rows = stats.rows().into_iter().map(|(key, value)| (key, Tree::plain(value)));
    Tree::map([("statistics", Tree::map(rows))])
}

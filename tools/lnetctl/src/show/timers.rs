//! `debug timers`: the node's timer table.

use lnet_admin::TimerSnapshot;
use lnet_config::Tree;

/// The timers in the order in which they are due, and how many more there are.
pub(crate) fn tree(timers: &[TimerSnapshot], total: u64) -> Tree {
    let rows = timers.iter().map(|timer| {
        let mut row = vec![("type", Tree::plain(&timer.kind))];
        row.extend(timer.nid.map(|nid| ("nid", Tree::plain(nid))));
        row.extend(timer.message.as_ref().map(|message| ("message", Tree::plain(message))));
        row.push(("due_in_ms", Tree::plain(timer.due_in_ms)));
        Tree::map(row)
    });
    let mut tree = vec![("timers", Tree::List(rows.collect()))];
    let left_out = total.saturating_sub(timers.len() as u64);
    if left_out > 0 {
        tree.push(("left_out", Tree::plain(left_out)));
    }
    Tree::map(tree)
}

//! `fault show` (S-fault-1).

use lnet_admin::{FaultAction, FaultSnapshot};
use lnet_config::Tree;

use super::Rows;

/// The document of these rules; `None` without rules.
pub(crate) fn tree(rules: &[FaultSnapshot]) -> Option<Tree> {
    let items: Vec<Tree> = rules.iter().map(item).collect();
    (!items.is_empty()).then(|| Tree::map([("fault", Tree::List(items))]))
}

fn item(fault: &FaultSnapshot) -> Tree {
    let rule = &fault.rule;
    let name = match rule.action {
        FaultAction::Drop { .. } => "drop",
        FaultAction::Delay { .. } => "delay",
    };
    let mut rows: Rows = vec![
        ("rule_type", Tree::plain(name)),
        ("fa_src", Tree::plain(rule.src)),
        ("fa_dst", Tree::plain(rule.dst)),
        ("fa_ptl_mask", Tree::plain(rule.portals)),
        ("fa_msg_mask", Tree::plain(rule.kinds)),
    ];
    rows.extend(match rule.action {
        FaultAction::Drop { .. } => vec![
            ("da_rate", Tree::plain(rule.rate)),
            ("da_interval", Tree::plain(rule.interval_s)),
            ("ds_dropped", Tree::plain(fault.acted)),
        ],
        FaultAction::Delay { latency_s } => vec![
            ("la_rate", Tree::plain(rule.rate)),
            ("la_interval", Tree::plain(rule.interval_s)),
            ("la_latency", Tree::plain(latency_s)),
            ("ls_delayed", Tree::plain(fault.acted)),
        ],
    });
    rows.extend([
        ("fs_count", Tree::plain(fault.matched)),
        ("fs_put", Tree::plain(fault.kinds.put)),
        ("fs_ack", Tree::plain(fault.kinds.ack)),
        ("fs_get", Tree::plain(fault.kinds.get)),
        ("fs_reply", Tree::plain(fault.kinds.reply)),
    ]);
    // Ours, where there is something to tell; the original does not show what was asked for.
    rows.extend(rule.local.map(|nid| ("local_nid", Tree::plain(nid))));
    rows.extend(rule.times.map(|n| ("times", Tree::plain(n))));
    if let FaultAction::Drop { random, all, errors } = rule.action {
        for (key, given) in [("random", random), ("drop_all", all)] {
            rows.extend(given.then_some((key, Tree::plain(1))));
        }
        if errors != 0 {
            rows.push(("health_error", Tree::plain(format_args!("{errors:#x}"))));
        }
    }
    Tree::map(rows)
}

//! `lock show`, `lock dump`, `namespace show`: locks of this node's targets. Times are in seconds.

use lnet_admin::{LockSnapshot, NamespaceSnapshot};
use lnet_config::Tree;

use super::Rows;
use super::rpc::{document, seconds};

pub(crate) fn locks(locks: &[LockSnapshot]) -> Option<Tree> {
    document("lock", locks, |lock| {
        let mut rows: Rows =
            vec![("target", Tree::plain(&lock.target)), ("resource", Tree::plain(&lock.resource))];
        rows.extend(line(lock));
        if !lock.waits_for.is_empty() {
            let all = lock.waits_for.iter().map(|lock| Tree::map(line(lock))).collect();
            rows.push(("waits_for", Tree::List(all)));
        }
        Tree::map(rows)
    })
}

fn line(lock: &LockSnapshot) -> Rows {
    let mut rows: Rows = vec![
        ("lock", Tree::plain(format!("{:#x}", lock.lock))),
        ("kind", Tree::plain(&lock.kind)),
        ("mode", Tree::plain(&lock.mode)),
    ];
    rows.extend(lock.part.as_ref().map(|part| ("part", Tree::plain(part))));
    rows.extend([
        ("state", Tree::plain(&lock.state)),
        ("since", seconds(lock.since_ms_ago)),
        ("client", Tree::plain(&lock.client)),
    ]);
    rows.extend(lock.nid.map(|nid| ("nid", Tree::plain(nid))));
    rows.extend(lock.fence.map(|fence| ("fence", Tree::plain(fence))));
    rows.extend(lock.evicted_in_ms.map(|ms| ("evicted_in", seconds(ms))));
    rows
}

pub(crate) fn namespaces(all: &[NamespaceSnapshot]) -> Option<Tree> {
    document("namespace", all, |space| {
        let counters = space.counters.iter().map(|(name, n)| (name.as_str(), Tree::plain(n)));
        Tree::map([
            ("target", Tree::plain(&space.target)),
            ("resources", Tree::plain(space.resources)),
            ("clients", Tree::plain(space.clients)),
            ("locks", Tree::plain(space.locks)),
            ("waiting", Tree::plain(space.waiting)),
            ("called_back", Tree::plain(space.called_back)),
            ("slv", Tree::plain(space.slv)),
            ("limit", Tree::plain(space.limit)),
            ("counters", Tree::map(counters)),
        ])
    })
}

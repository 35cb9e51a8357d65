//! `lock show`, `lock dump`, `explain lock`, `namespace show`: locks of this node's targets. Times are in
//! seconds.

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

/// A lock and its client in words: `EX 0 to end of client c-1 at 10.0.0.7@tcp`.
fn whose(lock: &LockSnapshot) -> String {
    let part = lock.part.as_ref().map_or_else(String::new, |part| format!(" {part}"));
    let at = lock.nid.map_or_else(String::new, |nid| format!(" at {nid}"));
    format!("{}{part} of client {}{at}", lock.mode, lock.client)
}

/// Who waits for the locks on a name, behind which locks, and until when: a line for each lock that waits, and
/// one for each that it waits for; without such locks, who has the name.
pub(crate) fn explanation(locks: &[LockSnapshot]) -> String {
    let secs = |ms: u64| ms / 1000;
    let mut text = String::new();
    for lock in locks.iter().filter(|lock| !lock.waits_for.is_empty()) {
        let waited = secs(lock.since_ms_ago);
        text += &format!("{}: {} waits for {waited} s, behind:\n", lock.target, whose(lock));
        for other in &lock.waits_for {
            let until = match other.evicted_in_ms {
                Some(ms) => {
                    format!("called back, given back or its client evicted within {} s", secs(ms))
                }
                None if other.state == "waiting" => "waits itself".to_owned(),
                None => format!("{}; its client has no time limit", other.state),
            };
            text += &format!("  {}: {until}\n", whose(other));
        }
    }
    if text.is_empty() {
        for lock in locks {
            let since = secs(lock.since_ms_ago);
            text += &format!(
                "{}: {} {} for {since} s; no lock waits for it\n",
                lock.target,
                whose(lock),
                lock.state
            );
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(client: &str, state: &str) -> LockSnapshot {
        LockSnapshot {
            target: "locks".to_owned(),
            resource: "jobs/42".to_owned(),
            lock: 7,
            kind: "EXTENT".to_owned(),
            mode: "EX".to_owned(),
            part: Some("0 to end".to_owned()),
            state: state.to_owned(),
            since_ms_ago: 12_900,
            client: client.to_owned(),
            nid: None,
            fence: None,
            evicted_in_ms: None,
            waits_for: Vec::new(),
        }
    }

    #[test]
    fn explanation_says_who_waits_behind_which_locks_and_until_when() {
        let nid = Some("10.0.0.7@tcp".parse().unwrap());
        let held = LockSnapshot { nid, ..lock("a", "granted") };
        assert_eq!(
            explanation(std::slice::from_ref(&held)),
            "locks: EX 0 to end of client a at 10.0.0.7@tcp granted for 12 s; no lock waits for it\n"
        );
        let called =
            LockSnapshot { state: "called back".to_owned(), evicted_in_ms: Some(88_400), ..held };
        let second = lock("b", "waiting");
        let third =
            LockSnapshot { waits_for: vec![called.clone(), second], ..lock("c", "waiting") };
        assert_eq!(
            explanation(&[called, third]),
            "locks: EX 0 to end of client c waits for 12 s, behind:\n  \
             EX 0 to end of client a at 10.0.0.7@tcp: called back, given back or its client evicted within \
             88 s\n  \
             EX 0 to end of client b: waits itself\n"
        );
    }
}

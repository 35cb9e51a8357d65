//! `peer show` and `peer list` (S-peer-1 to S-peer-4, C-peer-7).

use lnet_admin::{PeerNiDetail, PeerNiSnapshot, PeerNiState, PeerSnapshot};
use lnet_config::Tree;

use super::traffic::{by_kind, statistics, sums, udsp, usage};
use super::{OURS, Rows, numbers};

/// The document of these peers at a level of verbosity; `None` without peers.
pub(crate) fn tree(peers: &[PeerSnapshot], level: i64) -> Option<Tree> {
    let peer = |peer: &PeerSnapshot| {
        let mut rows: Rows = vec![
            ("primary nid", Tree::plain(peer.primary)),
            ("Multi-Rail", Tree::Bool(peer.multi_rail)),
        ];
        if level >= 3 {
            rows.push(("peer state", Tree::plain(peer.state)));
        }
        if let (Some(sum), OURS..) = (&peer.sum, level) {
            rows.push(("sum", sums(sum)));
        }
        rows.push(("peer ni", Tree::List(peer.nis.iter().map(|n| ni(n, level)).collect())));
        Tree::map(rows)
    };
    document("peer", peers.iter().map(peer).collect())
}

fn document(key: &str, items: Vec<Tree>) -> Option<Tree> {
    (!items.is_empty()).then(|| Tree::map([(key, Tree::List(items))]))
}

fn ni(ni: &PeerNiSnapshot, level: i64) -> Tree {
    let state = match ni.state {
        PeerNiState::NotWatched => "NA",
        PeerNiState::Up => "up",
        PeerNiState::Down => "down",
    };
    let mut rows: Rows = vec![("nid", Tree::plain(ni.nid))];
    let detail = ni.detail.as_ref().filter(|_| level >= 1);
    if let (Some(detail), 4..) = (detail, level) {
        rows.push(("udsp info", udsp(&detail.udsp)));
    }
    rows.push(("state", Tree::plain(state)));
    if let Some(detail) = detail {
        details(&mut rows, detail, level);
    }
    Tree::map(rows)
}

fn details(rows: &mut Rows, detail: &PeerNiDetail, level: i64) {
    let c = &detail.credits;
    rows.extend([
        ("max_ni_tx_credits", Tree::plain(c.tx_max)),
        ("available_tx_credits", Tree::plain(c.tx_available)),
        ("min_tx_credits", Tree::plain(c.tx_min)),
        ("tx_q_num_of_buf", Tree::plain(c.tx_queue_bytes)),
        ("available_rtr_credits", Tree::plain(c.rtr_available)),
        ("min_rtr_credits", Tree::plain(c.rtr_min)),
        ("refcount", Tree::plain(detail.refcount)),
        ("statistics", statistics(&detail.traffic)),
    ]);
    if level < 2 {
        return;
    }
    if level >= OURS {
        let mut ours: Rows = vec![("reached directly", Tree::plain(u8::from(detail.local)))];
        ours.extend(usage(&detail.usage, detail.bytes));
        rows.push(("ulnet", Tree::map(ours)));
    }
    rows.extend(by_kind(&detail.traffic));
    let h = &detail.health;
    rows.push((
        "health stats",
        numbers([
            ("health value", i64::from(h.value)),
            ("dropped", h.dropped.into()),
            ("timeout", h.timeout.into()),
            ("error", h.error.into()),
            ("network timeout", h.network_timeout.into()),
            ("ping_count", h.ping_count.into()),
            ("next_ping", i64::try_from(h.next_ping_s).unwrap_or(i64::MAX)),
        ]),
    ));
}

/// The document of these peers in the form of backups (S-peer-4).
pub(crate) fn backup(peers: &[PeerSnapshot]) -> Option<Tree> {
    document("peer", peers.iter().map(|peer| peer.block().tree()).collect())
}

/// Primary NIDs alone.
pub(crate) fn list(peers: &[PeerSnapshot]) -> Option<Tree> {
    let item = |peer: &PeerSnapshot| Tree::map([("nid", Tree::plain(peer.primary))]);
    document("peer list", peers.iter().map(item).collect())
}

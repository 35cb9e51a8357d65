//! `net show` (S-net-1 to S-net-9).

use lnet_admin::{
    LndSnapshot, NetSnapshot, NiDetail, NiSnapshot, RdmaPortSnapshot, RefusedSnapshot,
};
use lnet_config::{NetBlock, O2IB_FIXED, Tree, cpts_text};
use lnet_types::Net;

use super::traffic::{by_kind, statistics, sums, udsp, usage};
use super::{OURS, Rows, numbers};

/// Most CPTs that are printed.
const CPTS_SHOWN: usize = 128;

/// The document of these nets at a level of verbosity.
pub(crate) fn tree(nets: &[NetSnapshot], level: i64) -> Tree {
    document(nets, level, level >= OURS)
}

/// The same for an export, which also says who may connect.
pub(crate) fn export(nets: &[NetSnapshot], level: i64) -> Tree {
    document(nets, level, true)
}

fn document(nets: &[NetSnapshot], level: i64, with_doors: bool) -> Tree {
    let net = |net: &NetSnapshot| {
        let nis = net.nis.iter().map(|n| ni(n, level)).collect();
        let mut rows: Rows = vec![("net type", Tree::plain(net.net))];
        if let (Some(sum), OURS..) = (&net.sum, level) {
            rows.push(("sum", sums(sum)));
        }
        if with_doors {
            rows.extend(doors(net));
        }
        if level >= OURS {
            rows.extend(refused(net));
        }
        rows.push(("local NI(s)", Tree::List(nis)));
        Tree::map(rows)
    };
    Tree::map([("net", Tree::List(nets.iter().map(net).collect()))])
}

/// Who may connect, if anything is said of it.
fn doors(net: &NetSnapshot) -> Option<(&'static str, Tree)> {
    let patterns: Vec<Tree> = net.accept_from.iter().map(Tree::plain).collect();
    (!patterns.is_empty()).then_some(("accept from", Tree::List(patterns)))
}

/// Who was turned away.
fn refused(net: &NetSnapshot) -> Option<(&'static str, Tree)> {
    let line = |r: &RefusedSnapshot| {
        let mut line: Rows = vec![("address", Tree::plain(r.addr))];
        line.extend(r.nid.map(|nid| ("nid", Tree::plain(nid))));
        line.push(("reason", Tree::plain(&r.why)));
        line.push(("count", Tree::plain(r.count)));
        line.push(("seconds ago", Tree::plain(r.ago_s)));
        Tree::map(line)
    };
    let lines: Vec<Tree> = net.refused.iter().map(line).collect();
    (!lines.is_empty()).then_some(("refused", Tree::List(lines)))
}

fn ni(ni: &NiSnapshot, level: i64) -> Tree {
    let mut rows: Rows = vec![
        ("nid", Tree::plain(ni.nid)),
        ("status", Tree::plain(if ni.up { "up" } else { "down" })),
    ];
    if let Some(interface) = &ni.interface {
        rows.push(("interfaces", Tree::map([("0", Tree::plain(interface))])));
    }
    if let (Some(detail), 1..) = (&ni.detail, level) {
        details(&mut rows, detail, level);
    }
    Tree::map(rows)
}

fn details(rows: &mut Rows, detail: &NiDetail, level: i64) {
    rows.push(("statistics", statistics(&detail.traffic)));
    if level >= 4 {
        rows.push(("udsp info", udsp(&detail.udsp)));
    }
    if level >= OURS {
        let m = &detail.more;
        let mut ours: Rows = vec![
            ("state", Tree::plain(&m.state)),
            ("max_tx_credits", Tree::plain(m.tx_max)),
            ("available_tx_credits", Tree::plain(m.tx_available)),
            ("min_tx_credits", Tree::plain(m.tx_min)),
            ("network timeouts", Tree::plain(m.network_timeouts)),
        ];
        ours.extend(usage(&m.usage, m.bytes));
        if let Some(LndSnapshot::O2ib { port, .. }) = &detail.lnd {
            ours.push(("rdma", rdma_port(port)));
        }
        rows.push(("ulnet", Tree::map(ours)));
    }
    if level >= 2 {
        rows.extend(by_kind(&detail.traffic));
        let h = &detail.health;
        rows.push((
            "health stats",
            numbers([
                ("fatal_error", i64::from(h.fatal_error)),
                ("health value", h.value.into()),
                ("interrupts", h.interrupts.into()),
                ("dropped", h.dropped.into()),
                ("aborted", h.aborted.into()),
                ("no route", h.no_route.into()),
                ("timeouts", h.timeouts.into()),
                ("error", h.error.into()),
                ("ping_count", h.ping_count.into()),
                ("next_ping", i64::try_from(h.next_ping_s).unwrap_or(i64::MAX)),
            ]),
        ));
    }
    let t = &detail.tunables;
    rows.push((
        "tunables",
        numbers([
            ("peer_timeout", t.peer_timeout_s),
            ("peer_credits", t.peer_credits),
            ("peer_buffer_credits", t.peer_buffer_credits),
            ("credits", t.credits),
        ]),
    ));
    if let Some(lnd) = &detail.lnd {
        rows.push(("lnd tunables", lnd_tunables(lnd)));
    }
    rows.push(("dev cpt", Tree::plain(detail.dev_cpt)));
    rows.push(("CPT", Tree::Quoted(cpts_text(first(&detail.cpts)))));
}

/// The device of an RDMA interface, and the memory that is pinned there.
pub(crate) fn rdma_port(port: &RdmaPortSnapshot) -> Tree {
    let big = |n: u64| Tree::plain(n);
    let mut rows = vec![
        ("active", Tree::plain(port.active)),
        ("rate_mbps", Tree::plain(port.rate_mbps)),
        ("degraded", Tree::plain(port.degraded)),
        ("link_layer", Tree::plain(if port.ethernet { "Ethernet" } else { "InfiniBand" })),
        ("mtu", Tree::plain(port.mtu)),
    ];
    rows.extend(port.gid.map(|gid| ("gid", Tree::Quoted(gid.to_string()))));
    rows.extend((port.roce > 0).then(|| ("roce_version", Tree::plain(port.roce))));
    rows.extend(port.keepalive_s.map(|seconds| ("keepalive", Tree::plain(seconds))));
    rows.extend([
        ("pkey", Tree::plain(format_args!("{:#06x}", port.pkey))),
        ("connections", Tree::plain(port.connections)),
        ("pinned_bytes", big(port.pinned)),
        ("pinned_max", big(port.pinned_max)),
        ("registrations", big(port.registered)),
        ("registrations_found", big(port.found)),
    ]);
    rows.extend(port.locked_limit.map(|limit| ("locked_limit", big(limit))));
    Tree::map(rows)
}

/// Tunables of a driver (S-net-5).
fn lnd_tunables(lnd: &LndSnapshot) -> Tree {
    match *lnd {
        LndSnapshot::Sock { conns_per_peer, timeout_s, tos } => numbers([
            ("conns_per_peer", i64::from(conns_per_peer)),
            ("timeout", timeout_s.into()),
            ("tos", tos.into()),
        ]),
        LndSnapshot::O2ib {
            peercredits_hiw,
            concurrent_sends,
            conns_per_peer,
            timeout_s,
            tos,
            ..
        } => {
            let number = |n: i64| Tree::plain(n);
            let mut rows = vec![
                ("peercredits_hiw", number(peercredits_hiw.into())),
                ("concurrent_sends", number(concurrent_sends.into())),
            ];
            rows.extend(O2IB_FIXED.iter().map(|(key, value)| (*key, Tree::plain(value))));
            rows.push(("conns_per_peer", number(conns_per_peer.into())));
            rows.push(("timeout", number(timeout_s.into())));
            rows.push(("tos", number(tos.into())));
            Tree::map(rows)
        }
    }
}

fn first(cpts: &[u32]) -> &[u32] {
    cpts.get(..CPTS_SHOWN).unwrap_or(cpts)
}

/// The block with no more CPTs than are printed.
pub(crate) fn abridged(mut block: NetBlock) -> NetBlock {
    block.nis.iter_mut().flat_map(|ni| &mut ni.cpts).for_each(|cpts| cpts.truncate(CPTS_SHOWN));
    block
}

/// The document of these nets in the form of backups, without loopback (S-net-8); `None` if nothing
/// is left.
pub(crate) fn backup(nets: &[NetSnapshot]) -> Option<Tree> {
    let nets: Vec<Tree> =
        nets.iter().filter(|n| n.net != Net::LO).map(|net| abridged(net.block()).tree()).collect();
    (!nets.is_empty()).then(|| Tree::map([("net", Tree::List(nets))]))
}

#[cfg(test)]
mod tests {
    use lnet_config::Style;

    use super::*;

    /// DEC-26; MR-dbg-035; the recorded levels are shown as recorded.
    #[test]
    fn values_of_ulnet_alone_are_shown_from_level_5_on() {
        let mut detail = NiDetail::default();
        detail.more.state = "DEGRADED".to_owned();
        detail.more.tx_min = -3;
        detail.more.usage.heat_milli = 1500;
        let ni = NiSnapshot {
            nid: "10.0.0.1@tcp".parse().unwrap(),
            up: true,
            interface: None,
            detail: Some(Box::new(detail)),
        };
        let refused = RefusedSnapshot {
            addr: "10.0.0.66".parse().unwrap(),
            nid: Some("10.0.0.7@tcp".parse().unwrap()),
            why: "nid_not_accepted".to_owned(),
            count: 12,
            ago_s: 3,
        };
        let nets = [NetSnapshot {
            net: Net::TCP,
            nis: vec![ni],
            sum: Some(Box::default()),
            accept_from: vec!["10.0.0.[1-3]@tcp".to_owned()],
            refused: vec![refused],
        }];
        let text = |level| tree(&nets, level).render(Style::Library);
        for level in 0..=4 {
            let text = text(level);
            for ours in ["ulnet", "sum", "accept from", "refused"] {
                assert!(!text.contains(ours), "{ours} at level {level}");
            }
        }
        let text = text(5);
        for shown in [
            "sum:",
            "state: DEGRADED",
            "min_tx_credits: -3",
            "heat: 1.500",
            "p99_nsec: 0",
            "10.0.0.[1-3]@tcp",
            "address: 10.0.0.66",
            "reason: nid_not_accepted",
            "count: 12",
        ] {
            assert!(text.contains(shown), "{shown} in\n{text}");
        }
    }
}

//! What local NIs and peer NIs have in common: counters, latencies and policies.

use lnet_admin::{KindCounts, Traffic, UdspInfo};
use lnet_config::Tree;

use super::numbers;

/// `statistics` (S-net-4).
pub(super) fn statistics(traffic: &Traffic) -> Tree {
    let (egress, rtt, ack) = (&traffic.put_egress, &traffic.get_rtt, &traffic.put_ack);
    numbers([
        ("send_count", u64::from(traffic.sent.sum())),
        ("recv_count", traffic.received.sum().into()),
        ("drop_count", traffic.dropped.sum().into()),
        ("put_egress_samples", egress.samples.into()),
        ("put_egress_min_nsec", egress.min_nsec),
        ("put_egress_max_nsec", egress.max_nsec),
        ("put_egress_avg_nsec", egress.avg_nsec),
        ("get_rtt_samples", rtt.samples.into()),
        ("get_rtt_min_nsec", rtt.min_nsec),
        ("get_rtt_max_nsec", rtt.max_nsec),
        ("get_rtt_avg_nsec", rtt.avg_nsec),
        ("put_ack_samples", ack.samples.into()),
        ("put_ack_min_nsec", ack.min_nsec),
        ("put_ack_max_nsec", ack.max_nsec),
        ("put_ack_avg_nsec", ack.avg_nsec),
    ])
}

/// `sent_stats`, `received_stats`, `dropped_stats`.
pub(super) fn by_kind(traffic: &Traffic) -> [(&'static str, Tree); 3] {
    let kinds = |counts: &KindCounts| {
        numbers([
            ("put", counts.put),
            ("get", counts.get),
            ("reply", counts.reply),
            ("ack", counts.ack),
            ("hello", counts.hello),
        ])
    };
    [
        ("sent_stats", kinds(&traffic.sent)),
        ("received_stats", kinds(&traffic.received)),
        ("dropped_stats", kinds(&traffic.dropped)),
    ]
}

/// `udsp info`.
pub(super) fn udsp(info: &UdspInfo) -> Tree {
    let priority = |p: Option<u32>| p.map_or(-1, i64::from);
    numbers([
        ("net priority", priority(info.net_priority)),
        ("nid priority", priority(info.nid_priority)),
    ])
}

//! What local NIs and peer NIs have in common: counters, latencies and policies.

use lnet_admin::{KindCounts, TimesSnapshot, Traffic, UdspInfo, UsageSnapshot};
use lnet_config::Tree;

use super::{Rows, numbers};

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

/// The counters of several interfaces together.
pub(super) fn sums(traffic: &Traffic) -> Tree {
    let mut rows: Rows = vec![("statistics", statistics(traffic))];
    rows.extend(by_kind(traffic));
    Tree::map(rows)
}

/// What kernel nodes do not know: shown from level 5 on (DEC-26).
pub(super) fn usage(usage: &UsageSnapshot, bytes: (u64, u64)) -> Rows {
    let times = |t: &TimesSnapshot| {
        numbers([
            ("samples", t.samples),
            ("min_nsec", t.min_nsec),
            ("avg_nsec", t.avg_nsec),
            ("p50_nsec", t.p50_nsec),
            ("p90_nsec", t.p90_nsec),
            ("p99_nsec", t.p99_nsec),
            ("max_nsec", t.max_nsec),
        ])
    };
    let (whole, rest) = (usage.heat_milli / 1000, usage.heat_milli % 1000);
    vec![
        ("down_count", Tree::plain(usage.downs)),
        ("up_count", Tree::plain(usage.ups)),
        ("flapping", Tree::plain(u8::from(usage.flapping))),
        ("sent_bytes", Tree::plain(bytes.0)),
        ("received_bytes", Tree::plain(bytes.1)),
        ("heat", Tree::plain(format_args!("{whole}.{rest:03}"))),
        (
            "rates",
            numbers([
                ("seconds", usage.rate_seconds),
                ("sent_per_sec", usage.sent_per_s),
                ("received_per_sec", usage.received_per_s),
                ("sent_bytes_per_sec", usage.sent_bytes_per_s),
                ("received_bytes_per_sec", usage.received_bytes_per_s),
            ]),
        ),
        ("time to send", times(&usage.send)),
        ("time to complete", times(&usage.complete)),
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

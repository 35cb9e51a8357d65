//! What was measured, as a table for people or as JSON for programs.

use core::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::options::{Common, Size, Test};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) test: Test,
    /// `lnet` or `bare`.
    pub(super) over: &'static str,
    /// Bytes of payload per operation.
    pub(super) size: u32,
    /// Operations under way at a time, per thread.
    pub(super) window: u32,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    pub(super) per_second: f64,
    pub(super) mib_per_second: f64,
    /// Processor time per operation, nanoseconds: this side and the server's.
    pub(super) cpu_ns: (f64, f64),
    /// Bytes on the wire per operation that this side sent.
    pub(super) wire_bytes: f64,
    /// One way, nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_ns: Option<Latency>,
}

/// Distribution of one-way latency in nanoseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// What a run of operations came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran {
    pub(super) operations: u64,
    pub(super) elapsed: Duration,
    /// Nanoseconds of this process and the server's.
    pub(super) cpu: (u64, u64),
    pub(super) wire_bytes: u64,
}

impl Row {
    pub(super) fn new(test: Test, over: &'static str, size: u32, window: u32, ran: &Ran) -> Self {
        let seconds = ran.elapsed.as_secs_f64().max(1e-9);
        let n = ran.operations.max(1) as f64;
        Self {
            test,
            over,
            size,
            window,
            operations: ran.operations,
            seconds,
            per_second: ran.operations as f64 / seconds,
            mib_per_second: ran.operations as f64 * f64::from(size) / seconds / f64::from(1 << 20),
            cpu_ns: (ran.cpu.0 as f64 / n, ran.cpu.1 as f64 / n),
            wire_bytes: ran.wire_bytes as f64 / n,
            latency_ns: None,
        }
    }

    /// With latency: half of each round trip in `round_trips`, nanoseconds.
    pub(super) fn with_latency(mut self, round_trips: &Histogram<u64>) -> Self {
        let half = |v: u64| v as f64 / 2.0;
        self.latency_ns = Some(Latency {
            mean: round_trips.mean() / 2.0,
            p50: half(round_trips.value_at_quantile(0.5)),
            p99: half(round_trips.value_at_quantile(0.99)),
            max: half(round_trips.max()),
        });
        self
    }

    /// The figure by which rounds are compared: latency, or operations per second.
    pub(super) fn figure(&self) -> f64 {
        self.latency_ns.map_or(self.per_second, |l| l.p50)
    }
}

/// Round trips up to ten seconds, three digits.
pub(super) fn histogram() -> anyhow::Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 10_000_000_000, 3)
        .map_err(|e| anyhow::anyhow!("histogram: {e:?}"))
}

/// Everything that is printed.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    /// `inline` or `threads`.
    pub(super) driven: &'static str,
    pub(super) rails: usize,
    pub(super) threads: u8,
    pub(super) conns_per_peer: u8,
    pub(super) peer_credits: u32,
    pub(super) credits: u32,
    pub(super) rounds: u8,
    pub(super) rows: &'a [Row],
    /// LNet against the bare socket: latency divided by latency, rate by rate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) ratios: Vec<Ratio>,
}

/// One comparison.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ratio {
    pub(super) test: Test,
    pub(super) size: u32,
    pub(super) ratio: f64,
    /// Processor time per byte, both sides, against that of the bare socket.
    pub(super) cpu: f64,
}

impl<'a> Report<'a> {
    pub(super) fn new(common: &Common, rails: usize, rounds: u8, rows: &'a [Row]) -> Self {
        Self {
            driven: if common.inline { "inline" } else { "threads" },
            rails,
            threads: common.threads,
            conns_per_peer: common.conns,
            peer_credits: common.peer_credits,
            credits: common.credits,
            rounds,
            rows,
            ratios: Vec::new(),
        }
    }

    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!(
            "{}, {} rail(s), {} thread(s), conns_per_peer {}, peer_credits {}, credits {}, {} round(s)",
            self.driven,
            self.rails,
            self.threads,
            self.conns_per_peer,
            self.peer_credits,
            self.credits,
            self.rounds
        );
        println!(
            "{:8} {:5} {:>5} {:>6} {:>11} {:>10} {:>9} {:>8} {:>8} {:>9} {:>15}",
            "test",
            "over",
            "size",
            "window",
            "operations",
            "1000/s",
            "MiB/s",
            "p50 µs",
            "p99 µs",
            "max µs",
            "cpu µs/op"
        );
        for r in self.rows {
            let us = |f: fn(&Latency) -> f64| {
                r.latency_ns.map_or_else(String::new, |l| format!("{:.2}", f(&l) / 1000.0))
            };
            println!(
                "{:8} {:5} {:>5} {:>6} {:>11} {:>10.1} {:>9.1} {:>8} {:>8} {:>9} {:>15}",
                r.test.name(),
                r.over,
                Size(r.size).to_string(),
                r.window,
                r.operations,
                r.per_second / 1000.0,
                r.mib_per_second,
                us(|l| l.p50),
                us(|l| l.p99),
                us(|l| l.max),
                format!("{:.2} + {:.2}", r.cpu_ns.0 / 1000.0, r.cpu_ns.1 / 1000.0),
            );
        }
        for r in &self.ratios {
            println!(
                "{} of {} bytes: {:.3} × bare socket, cpu per byte {:.2} ×",
                r.test.name(),
                Size(r.size),
                r.ratio,
                r.cpu
            );
        }
        Ok(())
    }
}

/// For each test and size over each transport the row that lies in the middle.
pub(super) fn medians(mut rows: Vec<Row>) -> Vec<Row> {
    let mut out = Vec::new();
    while let Some(first) = rows.first() {
        let (test, over, size) = (first.test, first.over, first.size);
        let same = |r: &Row| r.test == test && r.over == over && r.size == size;
        let (mut these, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(same);
        rows = rest;
        these.sort_by(|a, b| a.figure().total_cmp(&b.figure()));
        out.extend(these.get(these.len() / 2).cloned());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_several_rounds_counts() {
        let row = |size, over, operations| {
            let ran =
                Ran { operations, elapsed: Duration::from_secs(1), cpu: (0, 0), wire_bytes: 0 };
            Row::new(Test::Put, over, size, 1, &ran)
        };
        let rows = vec![
            row(8, "lnet", 5),
            row(9, "lnet", 7),
            row(8, "bare", 2),
            row(8, "lnet", 100),
            row(8, "lnet", 6),
        ];
        let found: Vec<_> =
            medians(rows).into_iter().map(|r| (r.size, r.over, r.operations)).collect();
        assert_eq!(found, [(8, "lnet", 6), (9, "lnet", 7), (8, "bare", 2)]);
    }

    #[test]
    fn latency_is_half_of_a_round_trip() {
        let mut h = histogram().unwrap();
        h.record(20_000).unwrap();
        let ran =
            Ran { operations: 1, elapsed: Duration::from_secs(1), cpu: (0, 0), wire_bytes: 0 };
        let row = Row::new(Test::Latency, "lnet", 8, 1, &ran).with_latency(&h);
        assert!((row.latency_ns.unwrap().mean - 10_000.0).abs() < 10.0);
    }
}

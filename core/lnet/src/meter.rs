//! Measures of use, per interface of ours and of peers: heat, rates, times. Integers only, so that
//! the same calls give the same numbers everywhere.
//!
//! An interface has a [`Meter`] from its first message on; until then it costs a pointer. What the
//! node says for itself (pings, pushes) is counted like everything else, but not measured.

use core::time::Duration;

use lnet_types::Instant;

/// The time in which heat halves.
pub const HEAT_HALF_LIFE: Duration = Duration::from_secs(60);
/// Whole seconds that rates are taken over.
const RATE_SECONDS: u64 = 10;
/// One use in the fixed-point sums of [`Decay`].
const ONE: u64 = 1 << 10;
/// Steps per half-life.
const STEPS: usize = 64;

/// 2^(-i/64) with 32 binary places, for i = 0 … 63.
const FACTORS: [u64; STEPS] = {
    let mut table = [1 << 32; STEPS];
    let mut i = 1;
    while i < STEPS {
        table[i] = (table[i - 1] * 4_248_701_965) >> 32;
        i += 1;
    }
    table
};

/// A sum of uses that halves with every half-life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Decay {
    at: Instant,
    sum: u64,
}

/// Nanoseconds of one step.
#[inline]
const fn step_of(half_life: Duration) -> u64 {
    let step = half_life.as_nanos() as u64 / STEPS as u64;
    if step == 0 { 1 } else { step }
}

impl Decay {
    /// The sum as it is at `now`. Decays in steps of 1/64 half-life, each exactly as much whether it
    /// is looked at in between or not.
    fn at(self, now: Instant, half_life: Duration) -> Self {
        let step = step_of(half_life);
        let since = now.as_nanos().saturating_sub(self.at.as_nanos());
        if self.sum == 0 {
            return Self { at: now, sum: 0 };
        }
        if since < step {
            return self;
        }
        let steps = since / step;
        let (halves, rest) = (steps / STEPS as u64, (steps % STEPS as u64) as usize);
        let part = (u128::from(self.sum) * u128::from(FACTORS[rest])) >> 32;
        let sum = if halves < 64 { (part as u64) >> halves } else { 0 };
        Self { at: Instant(self.at.as_nanos() + steps * step), sum }
    }

    /// One use more, and no more than `most` in all.
    #[inline]
    pub(crate) fn add(&mut self, now: Instant, half_life: Duration, most: u64) {
        // With a constant half-life, nearly always a comparison and an addition.
        if self.sum == 0 || now.as_nanos() >= self.at.as_nanos().saturating_add(step_of(half_life))
        {
            *self = self.at(now, half_life);
        }
        self.sum = self.sum.saturating_add(ONE).min(most.saturating_mul(ONE));
    }

    /// Whether nothing was ever added.
    pub(crate) const fn is_empty(&self) -> bool {
        self.sum == 0
    }

    /// The sum in thousandths of a use.
    pub(crate) fn milli(self, now: Instant, half_life: Duration) -> u64 {
        let sum = u128::from(self.at(now, half_life).sum) * 1000 / u128::from(ONE);
        u64::try_from(sum).unwrap_or(u64::MAX)
    }
}

/// Messages and bytes of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct Slot {
    sent: u32,
    received: u32,
    sent_bytes: u64,
    received_bytes: u64,
}

const SLOTS: usize = RATE_SECONDS as usize + 1;

/// A ring of seconds: the one that runs, and those before it that rates are taken over.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Ring {
    /// The second of the first message, and of the last.
    first: u64,
    last: u64,
    /// When the last one is over, and its place: what each message asks for. Found anew where the ring was
    /// read from a recording.
    #[serde(skip)]
    over: Instant,
    #[serde(skip)]
    place: usize,
    slots: [Slot; SLOTS],
}

impl Ring {
    #[inline]
    fn slot(&mut self, now: Instant) -> &mut Slot {
        if now >= self.over {
            self.advance(now.as_secs());
        }
        &mut self.slots[self.place]
    }

    #[cold]
    fn advance(&mut self, second: u64) {
        for i in 1..=second.saturating_sub(self.last).min(SLOTS as u64) {
            self.slots[((self.last + i) % SLOTS as u64) as usize] = Slot::default();
        }
        self.last = second.max(self.last);
        self.over = Instant::from_secs(self.last + 1);
        self.place = (self.last % SLOTS as u64) as usize;
    }

    fn rates(&self, now: Instant) -> Rates {
        let second = now.as_secs();
        // The first second was not a whole one.
        let from = second.saturating_sub(RATE_SECONDS).max(self.first + 1);
        let mut rates = Rates { over_s: second.saturating_sub(from), ..Rates::default() };
        // What has not been reused holds the seconds up to the last.
        for s in from..second.min(self.last + 1) {
            let slot = &self.slots[(s % SLOTS as u64) as usize];
            rates.sent += u64::from(slot.sent);
            rates.received += u64::from(slot.received);
            rates.sent_bytes += slot.sent_bytes;
            rates.received_bytes += slot.received_bytes;
        }
        rates
    }
}

/// Traffic of the last whole seconds, ten at most (MR-dbg-105).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rates {
    /// How many seconds; 0: there is no whole one yet.
    pub over_s: u64,
    /// Messages sent in them.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Payload bytes sent.
    pub sent_bytes: u64,
    /// Payload bytes received.
    pub received_bytes: u64,
}

impl Rates {
    /// One of the sums per second, rounded to the nearest; 0 without a whole second.
    pub const fn per_second(&self, sum: u64) -> u64 {
        match self.over_s {
            0 => 0,
            s => (sum + s / 2) / s,
        }
    }
}

/// Times below 2^this nanoseconds (a microsecond) share a bucket, …
const SHORTEST: u32 = 10;
/// … and times from this power of 2 on (half an hour).
const LONGEST: u32 = 41;
/// Buckets of equal width per power of 2: a percentile is off by an eighth at most.
const PARTS: u32 = 4;
const BUCKETS: usize = ((LONGEST - SHORTEST) * PARTS) as usize;

/// Times in buckets whose width grows with them.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct Histogram {
    samples: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    #[serde(with = "buckets")]
    buckets: [u32; BUCKETS],
}

/// Serde supports arrays of up to 32.
mod buckets {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::{Serialize, Serializer};

    use super::BUCKETS;

    pub(super) fn serialize<S: Serializer>(b: &[u32; BUCKETS], to: S) -> Result<S::Ok, S::Error> {
        b.as_slice().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u32; BUCKETS], D::Error> {
        let wrong = |_| D::Error::custom("another number of buckets");
        Vec::deserialize(from)?.try_into().map_err(wrong)
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { samples: 0, sum_ns: 0, min_ns: 0, max_ns: 0, buckets: [0; BUCKETS] }
    }
}

/// The bucket of a time.
const fn bucket(ns: u64) -> usize {
    let power = ns.checked_ilog2();
    match power {
        Some(p) if p >= LONGEST => BUCKETS - 1,
        Some(p) if p >= SHORTEST => {
            let part = (ns >> (p - PARTS.ilog2())) as u32 % PARTS;
            ((p - SHORTEST) * PARTS + part) as usize
        }
        _ => 0,
    }
}

/// Where a bucket begins, nanoseconds.
const fn floor(bucket: usize) -> u64 {
    let (power, part) = (bucket as u32 / PARTS + SHORTEST, bucket as u64 % PARTS as u64);
    (PARTS as u64 + part) << (power - PARTS.ilog2())
}

impl Histogram {
    #[inline]
    fn add(&mut self, ns: u64) {
        self.min_ns = if self.samples == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.samples += 1;
        let count = &mut self.buckets[bucket(ns)];
        *count = count.saturating_add(1);
    }

    /// The time that `percent` of the samples did not exceed.
    fn percentile(&self, percent: u64) -> Duration {
        let all: u64 = self.buckets.iter().map(|n| u64::from(*n)).sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut before = 0;
        for (i, &n) in self.buckets.iter().enumerate() {
            let n = u64::from(n);
            if n > 0 && before + n >= rank {
                // Spread evenly inside the bucket.
                let (low, high) = (floor(i), floor(i + 1));
                let inside = u128::from(high - low) * u128::from(rank - before) / u128::from(n);
                let ns = low + inside as u64;
                return Duration::from_nanos(ns.clamp(self.min_ns, self.max_ns));
            }
            before += n;
        }
        Duration::ZERO
    }

    fn times(&self) -> Times {
        Times {
            samples: self.samples,
            min: Duration::from_nanos(self.min_ns),
            avg: Duration::from_nanos(self.sum_ns.checked_div(self.samples).unwrap_or(0)),
            p50: self.percentile(50),
            p90: self.percentile(90),
            p99: self.percentile(99),
            max: Duration::from_nanos(self.max_ns),
        }
    }
}

/// How long something takes. Percentiles are off by an eighth at most, the others are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Times {
    /// How many were measured; all 0 without any.
    pub samples: u64,
    /// The shortest.
    pub min: Duration,
    /// The average.
    pub avg: Duration,
    /// Half of them took no longer.
    pub p50: Duration,
    /// 90 % of them took no longer.
    pub p90: Duration,
    /// 99 % of them took no longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

/// What is measured at one interface.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Meter {
    heat: Decay,
    ring: Ring,
    send: Histogram,
    complete: Histogram,
}

impl Meter {
    #[cold]
    fn begin(now: Instant) -> Box<Self> {
        let second = now.as_secs();
        let ring = Ring { first: second, last: second, ..Ring::default() };
        Box::new(Self { ring, ..Self::default() })
    }
}

/// An interface's meter, once it has one.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct MeterSlot(Option<Box<Meter>>);

impl MeterSlot {
    #[inline]
    fn get(&mut self, now: Instant) -> &mut Meter {
        self.0.get_or_insert_with(|| Meter::begin(now))
    }

    /// A message went out; from the choice of its path on it took so many nanoseconds.
    pub(crate) fn sent(&mut self, now: Instant, bytes: u64, took: u64) {
        let meter = self.get(now);
        meter.heat.add(now, HEAT_HALF_LIFE, u64::MAX);
        meter.send.add(took);
        let slot = meter.ring.slot(now);
        // In a second they do not come to an end.
        slot.sent = slot.sent.wrapping_add(1);
        slot.sent_bytes = slot.sent_bytes.wrapping_add(bytes);
    }

    /// A message came in.
    pub(crate) fn received(&mut self, now: Instant, bytes: u64) {
        let meter = self.get(now);
        meter.heat.add(now, HEAT_HALF_LIFE, u64::MAX);
        let slot = meter.ring.slot(now);
        slot.received = slot.received.wrapping_add(1);
        slot.received_bytes = slot.received_bytes.wrapping_add(bytes);
    }

    /// An operation whose response came this way has taken so many nanoseconds.
    pub(crate) fn completed(&mut self, now: Instant, took: u64) {
        self.get(now).complete.add(took);
    }

    /// Forgets the times; what is current stays (T-50).
    pub(crate) fn reset(&mut self) {
        if let Some(meter) = &mut self.0 {
            (meter.send, meter.complete) = (Histogram::default(), Histogram::default());
        }
    }

    /// What it shows.
    pub(crate) fn view(&self, now: Instant) -> Usage {
        self.0.as_ref().map_or_else(Usage::default, |meter| Usage {
            heat_milli: meter.heat.milli(now, HEAT_HALF_LIFE),
            rates: meter.ring.rates(now),
            send: meter.send.times(),
            complete: meter.complete.times(),
        })
    }
}

/// How an interface is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Heat: thousandths of a message sent or received, halving every [`HEAT_HALF_LIFE`]
    /// (MR-dbg-070, MR-dbg-075).
    pub heat_milli: u64,
    /// Traffic of the last seconds.
    pub rates: Rates,
    /// From the choice of a path to a message with the transport (HL-stt-030).
    pub send: Times,
    /// From the call of a PUT or GET to its ACK or REPLY (HL-stt-035).
    pub complete: Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_decaying_sum_halves_with_every_half_life_looked_at_or_not() {
        let half = Duration::from_secs(8);
        let start = Instant::from_secs(100);
        let mut heat = Decay::default();
        for _ in 0..1000 {
            heat.add(start, half, u64::MAX);
        }
        assert_eq!(heat.milli(start, half), 1_000_000);
        assert_eq!(heat.milli(start + half, half), 500_000);
        assert_eq!(heat.milli(start + half * 10, half), 976);
        assert_eq!(heat.milli(start + half * 100, half), 0);
        // √½
        let at_half = heat.milli(start + half / 2, half);
        assert!((707_000..=707_200).contains(&at_half), "{at_half}");
        // In a thousand small looks, the same but for what rounding takes.
        let mut often = heat;
        for i in 1..=1000 {
            often = often.at(start + half / 1000 * i, half);
        }
        let (often, once) = (often.milli(start + half, half), heat.milli(start + half, half));
        assert!(once - often < 100, "{often} {once}");
    }

    #[test]
    fn a_decaying_sum_stops_at_its_most() {
        let (half, start) = (Duration::from_secs(1), Instant::from_secs(1));
        let mut sum = Decay::default();
        assert!(sum.is_empty());
        for _ in 0..100 {
            sum.add(start, half, 4);
        }
        assert_eq!(sum.milli(start, half), 4000);
    }

    #[test]
    fn every_time_lies_in_the_bucket_that_begins_at_or_below_it() {
        let mut ns = 1u64 << SHORTEST;
        while ns < 1 << LONGEST {
            let b = bucket(ns);
            assert!(floor(b) <= ns && ns < floor(b + 1), "{ns} in {b}");
            ns += ns / 7 + 1;
        }
        assert_eq!((bucket(0), bucket(1023), bucket(u64::MAX)), (0, 0, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_off_by_an_eighth_at_most() {
        let mut h = Histogram::default();
        for i in 1..=1000 {
            h.add(i * 10_000);
        }
        let t = h.times();
        assert_eq!((t.samples, t.min.as_micros(), t.max.as_micros()), (1000, 10, 10_000));
        assert_eq!(t.avg.as_micros(), 5005);
        for (got, exact) in [(t.p50, 5000), (t.p90, 9000), (t.p99, 9900)] {
            let got = got.as_micros() as i64;
            assert!((got - exact).abs() * 8 <= exact, "{got} for {exact}");
        }
    }

    #[test]
    fn rates_are_those_of_the_last_ten_whole_seconds() {
        let mut meter = MeterSlot::default();
        let start = Instant(5_300_000_000);
        // Every 10 ms a message of 1000 bytes, for 30 seconds.
        for i in 0..3000u32 {
            meter.sent(start + MS * (10 * i), 1000, 1_000_000);
        }
        let rates = meter.view(start + MS * 30_000).rates;
        assert_eq!((rates.over_s, rates.sent, rates.sent_bytes), (10, 1000, 1_000_000));
        assert_eq!(rates.per_second(rates.sent), 100);
        // Half of the window later half of it is silent; after the whole, all.
        let later = |s: u32| meter.view(start + MS * (30_000 + s * 1000)).rates;
        assert_eq!((later(5).sent, later(11).sent, later(1000).sent), (530, 0, 0));
    }

    #[test]
    fn young_rates_are_taken_over_the_seconds_that_there_are() {
        let mut meter = MeterSlot::default();
        let start = Instant(5_900_000_000);
        for i in 0..350u32 {
            meter.received(start + MS * (10 * i), 10);
        }
        let rates = meter.view(Instant(9_400_000_000)).rates;
        assert_eq!((rates.over_s, rates.received), (3, 300));
        assert_eq!(rates.per_second(rates.received_bytes), 1000);
    }

    #[test]
    fn a_meter_is_small_and_none_costs_a_pointer() {
        assert!(size_of::<Meter>() <= 1600, "{}", size_of::<Meter>());
        assert_eq!(size_of::<MeterSlot>(), size_of::<usize>());
    }
}

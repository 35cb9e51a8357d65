//! Numbers with units, without rounding: `700ms`, `4KiB`, `10Gbit/s`, `2.5%`.

use core::fmt;
use core::time::Duration;

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(pub u32);

impl Share {
    /// All.
    pub const ALL: Self = Self(1_000_000);
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// `part` of `whole`, rounded down; nothing of nothing.
    pub fn of(part: u64, whole: u64) -> Self {
        let millionths = u128::from(part.min(whole)) * 1_000_000 / u128::from(whole.max(1));
        Self(millionths as u32)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        let digits = format!("{rest:04}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

/// A text as scenarios have it: in quotes, on one line.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A unit and how many of the smallest it is.
type Unit = (&'static str, u64);

const TIMES: &[Unit] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const SIZES: &[Unit] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
];

/// Bytes per second; bits are counted in eighths first.
const RATES: &[Unit] = &[
    ("bit/s", 1),
    ("kbit/s", 1_000),
    ("Mbit/s", 1_000_000),
    ("Gbit/s", 1_000_000_000),
    ("Tbit/s", 1_000_000_000_000),
    ("B/s", 8),
    ("kB/s", 8_000),
    ("KiB/s", 8 << 10),
    ("MB/s", 8_000_000),
    ("MiB/s", 8 << 20),
    ("GB/s", 8_000_000_000),
    ("GiB/s", 8 << 30),
];

const SHARES: &[Unit] = &[("%", 10_000)];

pub(crate) const DURATION_EXPECTED: &str =
    "a time of 0 or more with its unit (ns, us, ms, s, min, h), like \"700ms\"";
pub(crate) const SIZE_EXPECTED: &str = "a size like \"4KiB\", or a number of bytes";
pub(crate) const RATE_EXPECTED: &str = "a rate above 0 like \"10Gbit/s\" or \"500MiB/s\"";
pub(crate) const SHARE_EXPECTED: &str = "a share from \"0%\" to \"100%\"";

pub(crate) fn duration(text: &str) -> Option<Duration> {
    quantity(text, TIMES).map(Duration::from_nanos)
}

pub(crate) fn size(text: &str) -> Option<u64> {
    quantity(text, SIZES)
}

pub(crate) fn rate(text: &str) -> Option<u64> {
    quantity(text, RATES).map(|bits| bits / 8).filter(|&bytes| bytes > 0)
}

pub(crate) fn share(text: &str) -> Option<Share> {
    let millionths = quantity(text, SHARES)?;
    (millionths <= u64::from(Share::ALL.0)).then_some(Share(millionths as u32))
}

/// A decimal number and a unit, in the smallest unit. What is finer than that is refused.
fn quantity(text: &str, units: &[Unit]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit.trim_start())?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && fraction.is_empty()) || fraction.len() > 12 {
        return None;
    }
    let mut total = u128::from(whole.parse::<u64>().ok()?) * u128::from(*scale);
    if !fraction.is_empty() {
        let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(*scale);
        let of = 10u128.pow(fraction.len() as u32);
        if parts % of != 0 {
            return None;
        }
        total += parts / of;
    }
    u64::try_from(total).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_are_exact() {
        assert_eq!(duration("700ms"), Some(Duration::from_millis(700)));
        assert_eq!(duration("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("0s"), Some(Duration::ZERO));
        assert_eq!(size("4KiB"), Some(4096));
        assert_eq!(rate("10Gbit/s"), Some(1_250_000_000));
        assert_eq!(rate("1B/s"), Some(1));
        assert_eq!(share("0.01%"), Some(Share(100)));
        assert_eq!(share("100%"), Some(Share::ALL));
    }

    #[test]
    fn quantities_without_unit_number_or_end_are_refused() {
        for text in ["", "5", "s", "-1s", "5 parsecs", "1.s", ".5s", "1.0000000001s", "1e3s"] {
            assert_eq!(duration(text), None, "{text}");
        }
        assert_eq!(duration("99999999999999999999s"), None);
        assert_eq!(duration("18446744073709551615h"), None);
        assert_eq!(share("100.1%"), None);
        assert_eq!(rate("1bit/s"), None, "less than a byte per second");
    }

    #[test]
    fn shares_print_as_they_are_written() {
        for text in ["0%", "1%", "2.5%", "100%", "0.0001%"] {
            assert_eq!(share(text).unwrap().to_string(), text);
        }
        assert_eq!(Share::of(1, 3), Share(333_333));
        assert_eq!(Share::of(0, 0), Share::NONE);
    }
}

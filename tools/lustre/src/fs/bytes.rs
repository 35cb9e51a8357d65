//! Numbers of bytes on command lines.

use std::fmt;
use std::str::FromStr;

/// A number of digits alone. A sign before them would say another number to a user of the tools of these names.
pub(super) fn number<T: FromStr>(digits: &str) -> Option<T> {
    digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A number of bytes on a command line: with `K`, `M`, `G` or `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text.get(digits.len()..).unwrap_or_default() {
            "" | "B" => 0,
            "K" | "k" | "KiB" => 10,
            "M" | "m" | "MiB" => 20,
            "G" | "g" | "GiB" => 30,
            "T" | "t" | "TiB" => 40,
            "P" | "p" | "PiB" => 50,
            "E" | "e" | "EiB" => 60,
            unit => return Err(format!("unit '{unit}': expected K, M, G, T, P or E")),
        };
        let wrong = || format!("'{text}': expected a number of bytes, such as 64K");
        let number: u64 = number(digits).ok_or_else(wrong)?;
        let bytes = number.checked_mul(1 << shift);
        bytes.map(Self).ok_or_else(|| format!("'{text}': limit 2^64 bytes"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_have_units() {
        for (text, bytes) in
            [("0", 0), ("64K", 65_536), ("4MiB", 4 << 20), ("1g", 1 << 30), ("2P", 2 << 50)]
        {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "K", "1Q", "-1", "+4K", "+0", "4+", "99999999T", "16E"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }
}

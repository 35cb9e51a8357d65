//! Bracket lists of numbers, `[1,5-7/2,*]` (wire.md 1.5): one number, or several expressions in
//! brackets.

use core::fmt;

use smallvec::SmallVec;
use thiserror::Error;

/// The numbers `low, low + stride, low + 2 stride, …` not above `high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NumberRange {
    low: u32,
    high: u32,
    stride: u32,
}

/// The numbers of one or several ranges, as they were written.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NumberSet {
    /// At least one.
    ranges: SmallVec<[NumberRange; 1]>,
}

/// Why a text is not a set of numbers.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNumbersError {
    /// A bracket without its other half, or text beside a bracket list.
    #[error("incomplete bracket list")]
    Bracket,
    /// Not a number, or too large.
    #[error("'{value}', expected a number 0 to {max}, '*' or a list such as [1,5-7/2]")]
    Number {
        /// What stands in its place.
        value: String,
        /// The largest number allowed.
        max: u32,
    },
    /// Low above high.
    #[error("'{value}': the range begins above its end")]
    Order {
        /// The expression.
        value: String,
    },
    /// A stride of zero, or none at all.
    #[error("'{value}': the stride must be a number of at least 1")]
    Stride {
        /// The expression.
        value: String,
    },
}

impl NumberRange {
    /// The range from `low` to `high` in steps of `stride`; `None` if that makes no range.
    pub const fn new(low: u32, high: u32, stride: u32) -> Option<Self> {
        if low > high || stride == 0 {
            return None;
        }
        // A stride means nothing where there is but one number.
        Some(Self { low, high, stride: if low == high { 1 } else { stride } })
    }

    /// Whether `n` is one of the numbers.
    pub const fn contains(self, n: u32) -> bool {
        self.low <= n && n <= self.high && (n - self.low).is_multiple_of(self.stride)
    }

    /// The numbers, ascending.
    pub fn values(self) -> impl Iterator<Item = u32> + Clone {
        (self.low..=self.high).step_by(self.stride as usize)
    }

    /// `n`, `a-b`, `a-b/s` or `*`, of numbers up to `max`.
    fn parse(s: &str, max: u32) -> Result<Self, ParseNumbersError> {
        if s == "*" {
            return Ok(Self { low: 0, high: max, stride: 1 });
        }
        let number = |text: &str| {
            parse_number(text)
                .filter(|n| *n <= max)
                .ok_or_else(|| ParseNumbersError::Number { value: text.to_owned(), max })
        };
        let value = || s.to_owned();
        let Some((low, rest)) = s.split_once('-') else {
            let n = number(s)?;
            return Ok(Self { low: n, high: n, stride: 1 });
        };
        let (high, stride) = match rest.split_once('/') {
            None => (rest, 1),
            Some((high, stride)) => match parse_number(stride.trim()) {
                None | Some(0) => return Err(ParseNumbersError::Stride { value: value() }),
                Some(stride) => (high, stride),
            },
        };
        Self::new(number(low.trim())?, number(high.trim())?, stride)
            .ok_or_else(|| ParseNumbersError::Order { value: value() })
    }
}

impl NumberSet {
    /// A number up to `max`, `*`, or a bracket list of them.
    ///
    /// # Errors
    /// [`ParseNumbersError`].
    pub fn parse(s: &str, max: u32) -> Result<Self, ParseNumbersError> {
        let Some(inside) = s.strip_prefix('[') else {
            if s.contains(['[', ']']) {
                return Err(ParseNumbersError::Bracket);
            }
            // Ranges need brackets.
            if s.contains('-') {
                return Err(ParseNumbersError::Number { value: s.to_owned(), max });
            }
            return Ok(Self { ranges: SmallVec::from_buf([NumberRange::parse(s, max)?]) });
        };
        let Some(inside) = inside.strip_suffix(']').filter(|s| !s.contains(['[', ']'])) else {
            return Err(ParseNumbersError::Bracket);
        };
        let ranges = inside.split(',').map(|expr| NumberRange::parse(expr.trim(), max));
        Ok(Self { ranges: ranges.collect::<Result<_, _>>()? })
    }

    /// The ranges, as they were written.
    pub fn ranges(&self) -> &[NumberRange] {
        &self.ranges
    }

    /// Whether `n` is one of the numbers.
    pub fn contains(&self, n: u32) -> bool {
        self.ranges.iter().any(|range| range.contains(n))
    }

    /// The numbers, each once, range by range and ascending within each.
    pub fn values(&self) -> impl Iterator<Item = u32> + Clone {
        self.ranges.iter().enumerate().flat_map(|(i, range)| {
            let before = &self.ranges[..i];
            range.values().filter(|n| !before.iter().any(|range| range.contains(*n)))
        })
    }
}

/// Decimal, `0x` hexadecimal, or octal with a leading zero.
pub(crate) fn parse_number(s: &str) -> Option<u32> {
    let (digits, radix) = match s.as_bytes() {
        [b'0', b'x' | b'X', ..] => (s.get(2..)?, 16),
        [b'0', _, ..] => (s.get(1..)?, 8),
        _ => (s, 10),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { u32::from_str_radix(digits, radix).ok() } else { None }
}

impl fmt::Display for NumberRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { low, high, .. } if low == high => write!(f, "{low}"),
            Self { low, high, stride: 1 } => write!(f, "{low}-{high}"),
            Self { low, high, stride } => write!(f, "{low}-{high}/{stride}"),
        }
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ranges.as_slice() {
            [one] if one.low == one.high => one.fmt(f),
            ranges => {
                let mut between = "[";
                for range in ranges {
                    write!(f, "{between}{range}")?;
                    between = ",";
                }
                f.write_str("]")
            }
        }
    }
}

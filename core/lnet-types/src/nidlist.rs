//! Lists of NIDs: ranges, bracket lists and masks (wire.md 1.5), as used in selection rules and
//! ip2nets. Parsing is total and linear in the text; nothing here expands a list without a limit.
//!
//! `numbers.rs` has the bracket lists, which other grammars share.

mod numbers;

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use thiserror::Error;

use crate::{Net, NetType, Nid, ParseNetError};

pub(crate) use numbers::parse_number;
pub use numbers::{NumberRange, NumberSet, ParseNumbersError};

/// One range of NIDs on one network. Displays in canonical form.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NidRange {
    net: Net,
    addrs: Addrs,
}

/// The addresses of a range.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
enum Addrs {
    /// `*`, of any length.
    All,
    /// Four octets of an IPv4-style network.
    Octets([NumberSet; 4]),
    /// A number of an integer-style network.
    Numbers(NumberSet),
    /// An IPv4 mask; the host bits of the address are kept for printing.
    Mask4(Ipv4Addr, u8),
    /// An IPv6 mask, likewise.
    Mask6(Ipv6Addr, u8),
}

/// A list of ranges; those on the same network stand together, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NidList {
    ranges: Vec<NidRange>,
}

/// Why a text is not a list of NIDs. Every variant names the range that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNidListError {
    /// Nothing but blanks.
    #[error("empty NID list: expected ranges such as 10.0.0.[1-5]@tcp, separated by blanks")]
    Empty,
    /// No `@`.
    #[error("NID range '{range}': no '@', expected ADDRESSES@NETWORK")]
    NoNet {
        /// The range.
        range: String,
    },
    /// The part behind `@`.
    #[error("NID range '{range}': {source}")]
    Net {
        /// The range.
        range: String,
        /// What is wrong with its network.
        source: ParseNetError,
    },
    /// A `[` without its `]` or the other way round.
    #[error("NID range '{range}': incomplete bracket list, expected […]")]
    Bracket {
        /// The range.
        range: String,
    },
    /// One of the numbers.
    #[error("NID range '{range}': {source}")]
    Numbers {
        /// The range.
        range: String,
        /// What is wrong with it.
        source: ParseNumbersError,
    },
    /// Not four octets.
    #[error("NID range '{range}': {octets} octets, expected 4 or '*'")]
    Octets {
        /// The range.
        range: String,
        /// How many there are.
        octets: usize,
    },
    /// Not an IP address in a mask.
    #[error("NID range '{range}': '{value}' is no IP address, expected ADDRESS/PREFIX")]
    MaskAddress {
        /// The range.
        range: String,
        /// What stands in its place.
        value: String,
    },
    /// Not a prefix length, or one that does not fit the address.
    #[error("NID range '{range}': prefix length '{value}', expected 1 to {max}")]
    MaskPrefix {
        /// The range.
        range: String,
        /// What stands in its place.
        value: String,
        /// The longest prefix of such an address.
        max: u8,
    },
    /// A mask on a network that has none.
    #[error("NID range '{range}': masks are for tcp and o2ib networks")]
    MaskNet {
        /// The range.
        range: String,
    },
}

/// A list names more NIDs than its user allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the list names more than {limit} NIDs")]
pub struct TooMany {
    /// What is allowed.
    pub limit: usize,
}

impl NidRange {
    /// Every NID of `net`.
    pub const fn all(net: Net) -> Self {
        Self { net, addrs: Addrs::All }
    }

    /// The network.
    pub const fn net(&self) -> Net {
        self.net
    }

    /// Whether the range is every NID of its network.
    pub const fn is_all(&self) -> bool {
        matches!(self.addrs, Addrs::All)
    }

    /// Whether the range contains `nid`. Octets and numbers look at the first four bytes of an
    /// address, also where it has sixteen; masks look at addresses of their own length alone.
    pub fn contains(&self, nid: Nid) -> bool {
        if nid.is_any() || nid.net() != self.net {
            return false;
        }
        match (&self.addrs, nid.ip()) {
            (Addrs::All, _) => true,
            (Addrs::Octets(sets), _) => {
                let octets = nid.addr().to_be_bytes();
                sets.iter().zip(octets).all(|(set, octet)| set.contains(octet.into()))
            }
            (Addrs::Numbers(set), _) => set.contains(nid.addr()),
            (Addrs::Mask4(addr, len), Some(IpAddr::V4(ip))) => {
                (u32::from(*addr) ^ u32::from(ip)) & mask4(*len) == 0
            }
            (Addrs::Mask6(addr, len), Some(IpAddr::V6(ip))) => {
                (u128::from(*addr) ^ u128::from(ip)) & mask6(*len) == 0
            }
            (Addrs::Mask4(..) | Addrs::Mask6(..), _) => false,
        }
    }

    /// Calls `each` with every NID of the range, in ascending order from left to right, until it
    /// fails. `None` if the range has no end worth counting to.
    fn try_for_each<E>(&self, mut each: impl FnMut(Nid) -> Result<(), E>) -> Option<Result<(), E>> {
        let net = self.net;
        Some(match &self.addrs {
            Addrs::All => return None,
            Addrs::Octets([a, b, c, d]) => a.values().try_for_each(|a| {
                b.values().try_for_each(|b| {
                    c.values().try_for_each(|c| {
                        d.values()
                            .try_for_each(|d| each(Nid::new(net, a << 24 | b << 16 | c << 8 | d)))
                    })
                })
            }),
            Addrs::Numbers(set) => set.values().try_for_each(|n| each(Nid::new(net, n))),
            Addrs::Mask4(addr, len) => {
                let first = u32::from(*addr) & mask4(*len);
                (first..=first | !mask4(*len)).try_for_each(|ip| each(Nid::new(net, ip)))
            }
            Addrs::Mask6(addr, len) => {
                let first = u128::from(*addr) & mask6(*len);
                (first..=first | !mask6(*len))
                    .try_for_each(|ip| each(Nid::from_ip(net, Ipv6Addr::from(ip).into())))
            }
        })
    }
}

/// The network bits of a prefix of 1 to 32 bits.
const fn mask4(len: u8) -> u32 {
    u32::MAX.unbounded_shl(32 - len as u32)
}

/// The network bits of a prefix of 1 to 128 bits.
const fn mask6(len: u8) -> u128 {
    u128::MAX.unbounded_shl(128 - len as u32)
}

impl NidList {
    /// Whether any range of the list contains `nid`.
    pub fn contains(&self, nid: Nid) -> bool {
        self.ranges.iter().any(|range| range.contains(nid))
    }

    /// The ranges, those on one network together.
    pub fn ranges(&self) -> &[NidRange] {
        &self.ranges
    }

    /// Adds a range. Nothing is added to a network of which the list already has every NID, and
    /// every NID of a network takes the place of its ranges.
    pub fn push(&mut self, range: NidRange) {
        let same = |r: &NidRange| r.net == range.net;
        let Some(last) = self.ranges.iter().rposition(same) else {
            self.ranges.push(range);
            return;
        };
        if self.ranges.iter().any(|r| *r == range || same(r) && r.is_all()) {
            return;
        }
        if range.is_all() {
            let first = self.ranges.iter().position(same).unwrap_or(last);
            self.ranges.drain(first + 1..=last);
            self.ranges[first] = range;
        } else {
            self.ranges.insert(last + 1, range);
        }
    }

    /// The NIDs of the list, each once, in the order of the ranges and within a range in ascending
    /// order from left to right.
    ///
    /// The work is bounded by `limit` and the length of the text that made the list.
    ///
    /// # Errors
    /// More than `limit` NIDs, or all of a network.
    pub fn expand(&self, limit: usize) -> Result<Vec<Nid>, TooMany> {
        let mut nids = Vec::new();
        for (i, range) in self.ranges.iter().enumerate() {
            let before = &self.ranges[..i];
            let done = range.try_for_each(|nid| {
                if before.iter().any(|range| range.contains(nid)) {
                    return Ok(());
                }
                if nids.len() == limit {
                    return Err(TooMany { limit });
                }
                nids.push(nid);
                Ok(())
            });
            done.unwrap_or(Err(TooMany { limit }))?;
        }
        Ok(nids)
    }
}

impl Extend<NidRange> for NidList {
    fn extend<I: IntoIterator<Item = NidRange>>(&mut self, ranges: I) {
        ranges.into_iter().for_each(|range| self.push(range));
    }
}

impl FromStr for NidList {
    type Err = ParseNidListError;

    fn from_str(s: &str) -> Result<Self, ParseNidListError> {
        let mut list = Self::default();
        // Blanks separate ranges, except within brackets.
        let mut inside = false;
        let words = s.split(|c: char| {
            match c {
                '[' => inside = true,
                ']' => inside = false,
                _ => {}
            }
            c.is_ascii_whitespace() && !inside
        });
        for word in words.filter(|word| !word.is_empty()) {
            list.push(word.parse()?);
        }
        if list.ranges.is_empty() { Err(ParseNidListError::Empty) } else { Ok(list) }
    }
}

impl FromStr for NidRange {
    type Err = ParseNidListError;

    fn from_str(s: &str) -> Result<Self, ParseNidListError> {
        let range = || s.to_owned();
        let Some((addrs, net)) = s.rsplit_once('@') else {
            return Err(ParseNidListError::NoNet { range: range() });
        };
        let net =
            parse_net(net).map_err(|source| ParseNidListError::Net { range: range(), source })?;
        let is_mask = addrs.contains(':') || addrs.rfind('/') > addrs.rfind(']');
        let addrs = if addrs == "*" {
            Addrs::All
        } else if is_mask {
            if !matches!(net.kind, NetType::TCP | NetType::O2IB) {
                return Err(ParseNidListError::MaskNet { range: range() });
            }
            parse_mask(s, addrs)?
        } else if net.kind.has_ip_addresses() {
            Addrs::Octets(parse_octets(s, addrs)?)
        } else {
            Addrs::Numbers(parse_numbers(s, addrs, u32::MAX)?)
        };
        Ok(Self { net, addrs })
    }
}

/// A network whose number may also be hexadecimal or, with a leading zero, octal.
fn parse_net(s: &str) -> Result<Net, ParseNetError> {
    let (kind, number) = NetType::split_name(s)?;
    if number.is_empty() {
        return Ok(Net::new(kind, 0));
    }
    let Some(num) = parse_number(number).and_then(|n| u16::try_from(n).ok()) else {
        return Err(ParseNetError::BadNumber(s.to_owned()));
    };
    if kind == NetType::LO {
        return Err(ParseNetError::Loopback(s.to_owned()));
    }
    Ok(Net::new(kind, num))
}

/// Splits at the dots that are not within brackets.
fn parse_octets(range: &str, addrs: &str) -> Result<[NumberSet; 4], ParseNidListError> {
    let mut inside = false;
    let mut parts = addrs.split(|c: char| {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            _ => {}
        }
        c == '.' && !inside
    });
    let four = [parts.next(), parts.next(), parts.next(), parts.next()];
    if let ([Some(a), Some(b), Some(c), Some(d)], None) = (four, parts.next()) {
        let octet = |part| parse_numbers(range, part, 255);
        return Ok([octet(a)?, octet(b)?, octet(c)?, octet(d)?]);
    }
    if inside {
        return Err(ParseNidListError::Bracket { range: range.to_owned() });
    }
    let octets = if addrs.is_empty() { 0 } else { addrs.split('.').count() };
    Err(ParseNidListError::Octets { range: range.to_owned(), octets })
}

fn parse_numbers(range: &str, s: &str, max: u32) -> Result<NumberSet, ParseNidListError> {
    NumberSet::parse(s, max).map_err(|source| match source {
        ParseNumbersError::Bracket => ParseNidListError::Bracket { range: range.to_owned() },
        source => ParseNidListError::Numbers { range: range.to_owned(), source },
    })
}

fn parse_mask(range: &str, s: &str) -> Result<Addrs, ParseNidListError> {
    let (addr, len) = match s.rsplit_once('/') {
        Some((addr, len)) => (addr, Some(len)),
        None => (s, None),
    };
    let Ok(addr) = addr.parse::<IpAddr>() else {
        let value = addr.to_owned();
        return Err(ParseNidListError::MaskAddress { range: range.to_owned(), value });
    };
    let max = if addr.is_ipv4() { 32 } else { 128 };
    let len = match len.map(|len| (len, parse_number(len))) {
        None => max,
        Some((_, Some(len))) if (1..=u32::from(max)).contains(&len) => len as u8,
        Some((len, _)) => {
            let value = len.to_owned();
            return Err(ParseNidListError::MaskPrefix { range: range.to_owned(), value, max });
        }
    };
    Ok(match addr {
        IpAddr::V4(addr) => Addrs::Mask4(addr, len),
        IpAddr::V6(addr) => Addrs::Mask6(addr, len),
    })
}

impl fmt::Display for NidRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.addrs {
            Addrs::All => f.write_str("*")?,
            Addrs::Octets([a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}")?,
            Addrs::Numbers(set) => set.fmt(f)?,
            Addrs::Mask4(addr, 32) => addr.fmt(f)?,
            Addrs::Mask4(addr, len) => write!(f, "{addr}/{len}")?,
            Addrs::Mask6(addr, 128) => addr.fmt(f)?,
            Addrs::Mask6(addr, len) => write!(f, "{addr}/{len}")?,
        }
        write!(f, "@{}", self.net)
    }
}

impl fmt::Display for NidList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for range in &self.ranges {
            write!(f, "{between}{range}")?;
            between = " ";
        }
        Ok(())
    }
}

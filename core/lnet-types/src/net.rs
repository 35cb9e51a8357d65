//! Networks: a fabric type and a number, `tcp`, `o2ib3`.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// The fabric of a network. Unknown numbers are kept: they arrive from the wire.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct NetType(pub u8);

impl NetType {
    /// TCP/IP, driver socklnd.
    pub const TCP: Self = Self(2);
    /// InfiniBand and RoCE, driver o2iblnd.
    pub const O2IB: Self = Self(5);
    /// The port of the RDMA connection manager, in its TCP port space, that nodes of such a network are
    /// connected to at (wire.md 7.1).
    pub const O2IB_SERVICE: u16 = 987;
    /// The node itself.
    pub const LO: Self = Self(9);
    /// Cray Gemini/Aries.
    pub const GNI: Self = Self(13);
    /// Cray Gemini over IP.
    pub const GIP: Self = Self(14);
    /// Portals 4.
    pub const PTLF: Self = Self(15);
    /// libfabric, driver kfilnd.
    pub const KFI: Self = Self(16);
    /// Amazon EFA.
    pub const EFA: Self = Self(18);
    /// Bull BXI v3.
    pub const BXI3F: Self = Self(19);
    /// The wildcard.
    pub const ANY: Self = Self(0xff);

    /// Types that have a name today (wire.md 1.3). Names of removed types are not parsed.
    pub const NAMED: [(Self, &'static str); 9] = [
        (Self::TCP, "tcp"),
        (Self::O2IB, "o2ib"),
        (Self::LO, "lo"),
        (Self::GNI, "gni"),
        (Self::GIP, "gip"),
        (Self::PTLF, "ptlf"),
        (Self::KFI, "kfi"),
        (Self::EFA, "efa"),
        (Self::BXI3F, "bxi3f"),
    ];

    /// The name, where it has one.
    pub fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(t, _)| *t == self).map(|(_, n)| *n)
    }

    /// Splits the text of a network into its fabric and the rest, its number.
    pub(crate) fn split_name(s: &str) -> Result<(Self, &str), ParseNetError> {
        // Longest name first, so that `o2ib3` and `bxi3f` keep their digits.
        Self::NAMED
            .iter()
            .filter_map(|(kind, name)| s.strip_prefix(name).map(|rest| (*kind, rest)))
            .min_by_key(|(_, rest)| rest.len())
            .ok_or_else(|| ParseNetError::UnknownType(s.to_owned()))
    }

    /// The names of all types.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().map(|(_, name)| *name)
    }

    /// Whether addresses are written as IP addresses rather than integers.
    pub const fn has_ip_addresses(self) -> bool {
        matches!(self, Self::TCP | Self::O2IB | Self::GIP | Self::EFA)
    }
}

impl fmt::Debug for NetType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "NetType({})", self.0),
        }
    }
}

/// A network: type and number.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Net {
    /// Which fabric.
    pub kind: NetType,
    /// Which one of that fabric.
    pub num: u16,
}

impl Net {
    /// The network of the loopback interface.
    pub const LO: Self = Self::new(NetType::LO, 0);
    /// The wildcard.
    pub const ANY: Self = Self::new(NetType::ANY, 0xffff);
    /// What a NID without `@net` means.
    pub const TCP: Self = Self::new(NetType::TCP, 0);

    /// The network `num` of fabric `kind`.
    pub const fn new(kind: NetType, num: u16) -> Self {
        Self { kind, num }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind.name() {
            Some(name) if self.num == 0 => f.write_str(name),
            Some(name) => write!(f, "{name}{}", self.num),
            None => write!(f, "<{}:{}>", self.kind.0, self.num),
        }
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNetError {
    /// No such fabric.
    #[error(
        "unknown network type in '{0}': expected tcp, o2ib, gni, kfi, … and a number 0 to 65535"
    )]
    UnknownType(String),
    /// The number does not parse or is too large.
    #[error("bad network number in '{0}': expected a decimal number 0 to 65535")]
    BadNumber(String),
    /// The loopback network is one.
    #[error("bad network '{0}': lo has no number")]
    Loopback(String),
}

impl FromStr for Net {
    type Err = ParseNetError;

    fn from_str(s: &str) -> Result<Self, ParseNetError> {
        let (kind, rest) = NetType::split_name(s)?;
        if rest.is_empty() {
            return Ok(Self::new(kind, 0));
        }
        if !rest.bytes().all(|b| b.is_ascii_digit()) {
            return Err(ParseNetError::UnknownType(s.to_owned()));
        }
        if kind == NetType::LO {
            return Err(ParseNetError::Loopback(s.to_owned()));
        }
        rest.parse()
            .map(|num| Self::new(kind, num))
            .map_err(|_| ParseNetError::BadNumber(s.to_owned()))
    }
}

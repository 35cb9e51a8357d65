//! NIDs: the address of one interface on one network, short (4-byte address) or large (16 bytes).
//!
//! A `Nid` is held in its 20-byte wire form (wire.md 1.2), which is also its order. Lists and
//! ranges of NIDs are in `nidlist.rs`.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use thiserror::Error;

use crate::{Net, NetType, ParseNetError};

/// The address of one interface. 20 bytes, `Copy`; equality and order compare the bytes, which is
/// what decides connection races.
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
#[repr(transparent)]
#[derive(serde::Serialize, serde::Deserialize)]
pub struct Nid([u8; 20]);

impl Nid {
    /// The bytes as three words, which compare and hash without a call or a loop: it happens several
    /// times on the way of every message.
    #[inline]
    const fn words(&self) -> (u64, u64, u32) {
        let b = &self.0;
        (
            u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            u64::from_ne_bytes([b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]]),
            u32::from_ne_bytes([b[16], b[17], b[18], b[19]]),
        )
    }
}

impl PartialEq for Nid {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.words() == other.words()
    }
}

impl Hash for Nid {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (a, b, c) = self.words();
        state.write_u64(a);
        // A short NID is in its first word, all others have zeros or ones behind it.
        if self.is_large() {
            state.write_u64(b);
            state.write_u64(c.into());
        }
    }
}

impl Nid {
    /// Bytes of a NID in NID20 form.
    pub const WIRE_LEN: usize = 20;
    /// The wildcard.
    pub const ANY: Self = Self([0xff; 20]);
    /// `0@lo`, the node itself.
    pub const LOOPBACK: Self = Self::new(Net::LO, 0);
    /// The 8-byte form of the wildcard.
    pub const NID4_ANY: u64 = u64::MAX;

    /// The NID with the 4-byte address `addr` on `net`. On a network of the wildcard type it is the
    /// wildcard, whatever the rest.
    pub const fn new(net: Net, addr: u32) -> Self {
        if net.kind.0 == NetType::ANY.0 {
            return Self::ANY;
        }
        let mut b = [0; 20];
        let (n, a) = (net.num.to_be_bytes(), addr.to_be_bytes());
        (b[1], b[2], b[3]) = (net.kind.0, n[0], n[1]);
        (b[4], b[5], b[6], b[7]) = (a[0], a[1], a[2], a[3]);
        Self(b)
    }

    /// The NID of an interface with IP address `ip` on `net`: short for IPv4, large for IPv6.
    pub fn from_ip(net: Net, ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(v4) => Self::new(net, v4.into()),
            IpAddr::V6(v6) => {
                let mut nid = Self::new(net, 0);
                if !nid.is_any() {
                    nid.0[0] = 12;
                    nid.0[4..].copy_from_slice(&v6.octets());
                }
                nid
            }
        }
    }

    /// From the 8-byte number `type << 48 | num << 32 | addr`. Bits 63…56 are ignored, as receivers
    /// do, except in the wildcard.
    pub const fn from_nid4(n: u64) -> Self {
        Self::new(Net::new(NetType((n >> 48) as u8), (n >> 32) as u16), n as u32)
    }

    /// As the 8-byte number; `None` for a large NID, which has no such form.
    pub fn to_nid4(self) -> Option<u64> {
        if self.is_any() {
            return Some(Self::NID4_ANY);
        }
        if self.is_large() {
            return None;
        }
        let net = self.net();
        Some(u64::from(net.kind.0) << 48 | u64::from(net.num) << 32 | u64::from(self.addr()))
    }

    /// From the NID20 wire form. Any wildcard becomes the canonical one.
    pub fn from_wire(b: [u8; 20]) -> Result<Self, NidError> {
        if b[1] == 0xff {
            return Ok(Self::ANY);
        }
        match b[0] {
            0 if b[8..].iter().all(|&x| x == 0) => Ok(Self(b)),
            0 => Err(NidError::Padding),
            12 => Ok(Self(b)),
            size => Err(NidError::Size(size)),
        }
    }

    /// The NID20 wire form.
    pub const fn as_wire(&self) -> &[u8; 20] {
        &self.0
    }

    /// The network. [`Net::ANY`] for the wildcard.
    pub const fn net(self) -> Net {
        Net::new(NetType(self.0[1]), u16::from_be_bytes([self.0[2], self.0[3]]))
    }

    /// The first four address bytes as a number: the whole address of a short NID.
    pub const fn addr(self) -> u32 {
        u32::from_be_bytes([self.0[4], self.0[5], self.0[6], self.0[7]])
    }

    /// The IP address, on networks that have them.
    pub fn ip(self) -> Option<IpAddr> {
        if self.is_any() || !self.net().kind.has_ip_addresses() {
            return None;
        }
        if self.is_large() {
            let mut o = [0; 16];
            o.copy_from_slice(&self.0[4..]);
            Some(IpAddr::V6(Ipv6Addr::from(o)))
        } else {
            Some(IpAddr::V4(Ipv4Addr::from(self.addr())))
        }
    }

    /// Whether this is the wildcard.
    pub const fn is_any(self) -> bool {
        self.0[1] == 0xff
    }

    /// Whether this is `0@lo`.
    pub fn is_loopback(self) -> bool {
        self == Self::LOOPBACK
    }

    /// Whether the address has 16 bytes, so that only the long forms of messages can carry it.
    pub const fn is_large(self) -> bool {
        self.0[0] != 0 && self.0[1] != 0xff
    }
}

impl fmt::Display for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("<?>");
        }
        let net = self.net();
        if net.kind.name().is_none() {
            return write!(f, "{:x}@<{}:{}>", self.addr(), net.kind.0, net.num);
        }
        match self.ip() {
            Some(ip) => write!(f, "{ip}@{net}"),
            None => write!(f, "{}@{net}", self.addr()),
        }
    }
}

impl fmt::Debug for Nid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why 20 bytes are not a NID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NidError {
    /// Neither a 4-byte nor a 16-byte address.
    #[error("NID size byte {0}: expected 0 or 12")]
    Size(u8),
    /// A 4-byte address followed by bytes that are not zero.
    #[error("NID with a 4-byte address has non-zero bytes behind it")]
    Padding,
}

/// Why a text is not a NID.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseNidError {
    /// The part behind `@`.
    #[error("NID '{nid}': {source}")]
    Net {
        /// The text.
        nid: String,
        /// What is wrong with its network.
        source: ParseNetError,
    },
    /// The part before `@`.
    #[error("NID '{nid}': bad address, expected {expected}")]
    Address {
        /// The text.
        nid: String,
        /// What an address of that network looks like.
        expected: &'static str,
    },
}

impl FromStr for Nid {
    type Err = ParseNidError;

    fn from_str(s: &str) -> Result<Self, ParseNidError> {
        if s == "<?>" {
            return Ok(Self::ANY);
        }
        let (addr, net) = match s.rsplit_once('@') {
            None => (s, Net::TCP),
            Some((addr, net)) => {
                let net = net
                    .parse()
                    .map_err(|source| ParseNidError::Net { nid: s.to_owned(), source })?;
                (addr, net)
            }
        };
        if net == Net::LO {
            return Ok(Self::LOOPBACK);
        }
        let bad = |expected| ParseNidError::Address { nid: s.to_owned(), expected };
        if net.kind.has_ip_addresses() {
            if let Ok(v4) = addr.parse::<Ipv4Addr>() {
                return Ok(Self::from_ip(net, v4.into()));
            }
            // Only tcp, o2ib and efa have large addresses (wire.md 1.3).
            match addr.parse::<Ipv6Addr>() {
                _ if net.kind == NetType::GIP => Err(bad("an IPv4 address such as 10.0.0.1")),
                Ok(v6) => Ok(Self::from_ip(net, v6.into())),
                Err(_) => Err(bad("an IP address such as 10.0.0.1 or fd00::1")),
            }
        } else {
            let n = match addr.strip_prefix("0x").or_else(|| addr.strip_prefix("0X")) {
                Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
                None if !addr.starts_with('+') => addr.parse().ok(),
                _ => None,
            };
            n.map(|n| Self::new(net, n)).ok_or_else(|| bad("a number up to 4294967295"))
        }
    }
}

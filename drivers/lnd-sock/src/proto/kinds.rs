//! Types of connections: which one a message takes, and which one is opened next (wire.md 3.5, 3.7,
//! 3.8; K-12 to K-14).

use core::fmt;

use lnet_wire::sock::{ConnType, FrameHdr, Version};

/// What we call a connection. The other end calls it by the [inverse](Self::inverse).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Everything, in versions 1 and 2 only.
    Any,
    /// Messages below the bulk threshold.
    Control,
    /// We receive bulk on it.
    BulkIn,
    /// We send bulk on it.
    BulkOut,
}

impl Kind {
    /// From a HELLO; `None` for what is no type of a connection.
    pub const fn of_wire(kind: ConnType) -> Option<Self> {
        match kind {
            ConnType::ANY => Some(Self::Any),
            ConnType::CONTROL => Some(Self::Control),
            ConnType::BULK_IN => Some(Self::BulkIn),
            ConnType::BULK_OUT => Some(Self::BulkOut),
            _ => None,
        }
    }

    /// As a HELLO carries it.
    pub const fn to_wire(self) -> ConnType {
        match self {
            Self::Any => ConnType::ANY,
            Self::Control => ConnType::CONTROL,
            Self::BulkIn => ConnType::BULK_IN,
            Self::BulkOut => ConnType::BULK_OUT,
        }
    }

    /// What the other end calls it.
    pub const fn inverse(self) -> Self {
        match self {
            Self::Any | Self::Control => self,
            Self::BulkIn => Self::BulkOut,
            Self::BulkOut => Self::BulkIn,
        }
    }

    /// The letter of `lctl conn_list`.
    pub const fn letter(self) -> char {
        match self {
            Self::Any => 'A',
            Self::Control => 'C',
            Self::BulkIn => 'I',
            Self::BulkOut => 'O',
        }
    }

    /// How many connections of this type a pair of peers may have, where `n` bulk connections are
    /// allowed each way.
    pub(crate) const fn limit(self, n: u8) -> usize {
        match self {
            Self::Control => 1,
            Self::Any | Self::BulkIn | Self::BulkOut => n as usize,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.to_wire(), f)
    }
}

/// What is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// A message below the bulk threshold.
    Small,
    /// A message at or above it.
    Bulk,
    /// A NOOP: acknowledgement or keepalive.
    Noop,
}

impl Load {
    /// The load of a message with `payload` bytes, sent in `version`, for a bulk threshold of
    /// `min_bulk` bytes.
    #[inline]
    pub(crate) fn of(version: Version, payload: u64, min_bulk: u32) -> Self {
        if frame_len(version) as u64 + payload < u64::from(min_bulk) {
            Self::Small
        } else {
            Self::Bulk
        }
    }

    /// How well a connection of this kind suits: 0 is best, `None` is never.
    ///
    /// The kernel puts NOOPs of versions 3 and 4 on BULK_IN or nowhere, and drops the peer when
    /// there is none. Peers take them on any connection (wire.md 3.10), so we use what there is.
    #[inline]
    pub(crate) const fn rank(self, version: Version, kind: Kind) -> Option<u8> {
        use Kind::{Any, BulkIn, BulkOut, Control};
        match version {
            Version::V1 | Version::V2 => match (self, kind) {
                (Self::Small | Self::Noop, Any | Control) => Some(0),
                (Self::Small | Self::Noop, BulkIn | BulkOut) => Some(1),
                (Self::Bulk, Any | BulkOut) => Some(0),
                (Self::Bulk, Control | BulkIn) => Some(1),
            },
            Version::V3 | Version::V4 => match (self, kind) {
                (Self::Small, Control) | (Self::Bulk, BulkOut) | (Self::Noop, BulkIn) => Some(0),
                (Self::Small, BulkOut) | (Self::Bulk | Self::Noop, Control) => Some(1),
                (Self::Noop, BulkOut) => Some(2),
                (Self::Noop, Any) => Some(3),
                (Self::Small | Self::Bulk, Any | BulkIn) => None,
            },
        }
    }
}

/// Bytes of frame and LNet header in `version`.
pub(crate) const fn frame_len(version: Version) -> usize {
    let frame = if version.has_frames() { FrameHdr::LEN } else { 0 };
    frame + version.hdr_form().len()
}

/// How many connections of each kind there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// CONTROL.
    pub(crate) control: u16,
    /// BULK_IN.
    pub(crate) bulk_in: u16,
    /// BULK_OUT.
    pub(crate) bulk_out: u16,
}

impl Counts {
    pub(crate) const fn add(&mut self, kind: Kind) {
        match kind {
            Kind::Any => {}
            Kind::Control => self.control += 1,
            Kind::BulkIn => self.bulk_in += 1,
            Kind::BulkOut => self.bulk_out += 1,
        }
    }

    /// The next one to open when `n` of each bulk type are wanted: CONTROL, then BULK_IN and
    /// BULK_OUT by turns (K-13).
    pub(crate) const fn wanted(&self, n: u8) -> Option<Kind> {
        let n = n as u16;
        if self.control == 0 {
            Some(Kind::Control)
        } else if self.bulk_in < n && (self.bulk_in <= self.bulk_out || self.bulk_out >= n) {
            Some(Kind::BulkIn)
        } else if self.bulk_out < n {
            Some(Kind::BulkOut)
        } else {
            None
        }
    }

    /// Whether there is one of each, so that the pair can work (K-26).
    pub(crate) const fn complete(&self) -> bool {
        self.control > 0 && self.bulk_in > 0 && self.bulk_out > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_open_in_the_order_of_kernel_nodes() {
        let mut counts = Counts::default();
        let mut order = Vec::new();
        while let Some(kind) = counts.wanted(2) {
            order.push(kind.letter());
            counts.add(kind);
        }
        // As in the capture of two nodes with conns_per_peer 2.
        assert_eq!(order, ['C', 'I', 'O', 'I', 'O']);
        assert!(counts.complete());
    }

    #[test]
    fn a_connection_that_the_peer_has_opened_is_not_opened_again() {
        let counts = Counts { control: 1, bulk_in: 0, bulk_out: 1 };
        assert_eq!(counts.wanted(1), Some(Kind::BulkIn));
        let counts = Counts { control: 1, bulk_in: 1, bulk_out: 2 };
        assert_eq!(counts.wanted(2), Some(Kind::BulkIn));
        let counts = Counts { control: 1, bulk_in: 2, bulk_out: 0 };
        assert_eq!(counts.wanted(2), Some(Kind::BulkOut));
    }

    #[test]
    fn the_choice_of_a_connection_is_the_table_of_the_protocol() {
        use Kind::{Any, BulkIn, BulkOut, Control};
        use Load::{Bulk, Noop, Small};
        let rank = |version, load: Load| {
            [Any, Control, BulkIn, BulkOut].map(|kind| load.rank(version, kind))
        };
        for version in [Version::V1, Version::V2] {
            assert_eq!(rank(version, Small), [Some(0), Some(0), Some(1), Some(1)]);
            assert_eq!(rank(version, Noop), [Some(0), Some(0), Some(1), Some(1)]);
            assert_eq!(rank(version, Bulk), [Some(0), Some(1), Some(1), Some(0)]);
        }
        for version in [Version::V3, Version::V4] {
            assert_eq!(rank(version, Small), [None, Some(0), None, Some(1)]);
            assert_eq!(rank(version, Bulk), [None, Some(1), None, Some(0)]);
            assert_eq!(rank(version, Noop), [Some(3), Some(1), Some(0), Some(2)]);
        }
    }

    #[test]
    fn the_bulk_threshold_counts_headers() {
        let edge = [(Version::V1, 952), (Version::V2, 928), (Version::V3, 928), (Version::V4, 904)];
        for (version, payload) in edge {
            assert_eq!(Load::of(version, payload - 1, 1024), Load::Small, "{version}");
            assert_eq!(Load::of(version, payload, 1024), Load::Bulk, "{version}");
        }
    }

    #[test]
    fn the_inverse_of_a_connection_type_is_that_of_the_wire() {
        for kind in [Kind::Any, Kind::Control, Kind::BulkIn, Kind::BulkOut] {
            assert_eq!(Some(kind.inverse().to_wire()), kind.to_wire().inverse());
            assert_eq!(Kind::of_wire(kind.to_wire()), Some(kind));
        }
        assert_eq!(Kind::of_wire(ConnType::NONE), None);
        assert_eq!(Kind::of_wire(ConnType(9)), None);
    }
}

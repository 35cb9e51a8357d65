//! Counters: plain numbers in their owners, copied out whole.

use core::fmt;

use lnet_types::{Instant, NiId, Nid, ProcessId};
use lnet_wire::WireError;
use lnet_wire::sock::Version;

use core::net::{IpAddr, SocketAddr};

use crate::proto::kinds::Kind;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a connection, or an attempt at one, was refused or closed by us. One counter each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* $name,)*
        }

        impl Refusal {
            /// All of them, in the order of [`Stats::refused`].
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The name of its counter.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

refusals! {
    /// Accept mode `secure`, and the source port was above 1023.
    InsecurePort = "insecure_port",
    /// Its address is not on the list of those that may connect.
    AddressNotAccepted = "address_not_accepted",
    /// Its NID is not on the list of those that may connect.
    NidNotAccepted = "nid_not_accepted",
    /// Its address has made us hold as much memory as one may.
    TooMuchMemory = "too_much_memory",
    /// Too many connections in handshake, altogether or from that address.
    TooManyPending = "too_many_pending",
    /// Too many connections from that address.
    TooManyConnections = "too_many_connections",
    /// The request has a wrong magic.
    RequestMagic = "request_magic",
    /// The request has an unknown version, or was the generic magic: answered.
    RequestVersion = "request_version",
    /// The request's NID field is no NID.
    RequestMalformed = "request_malformed",
    /// The request names a NID that is not this interface's.
    RequestNid = "request_nid",
    /// Request or HELLO did not arrive in time.
    HandshakeTimeout = "handshake_timeout",
    /// The other side closed during the handshake.
    HandshakeEof = "handshake_eof",
    /// The stream broke during the handshake.
    HandshakeError = "handshake_error",
    /// The HELLO has a wrong magic.
    HelloMagic = "hello_magic",
    /// The HELLO has an unknown version: answered, when we are the passive side.
    HelloVersion = "hello_version",
    /// A field of the HELLO is impossible.
    HelloMalformed = "hello_malformed",
    /// The HELLO is from the wildcard.
    HelloAnyNid = "hello_any_nid",
    /// The HELLO is from another NID or process than we wanted to reach.
    HelloOtherPeer = "hello_other_peer",
    /// The HELLO has a connection type that there is not, or not the inverse of ours.
    HelloType = "hello_type",
    /// Where a HELLO was due, an acceptor spoke of its version.
    HelloFromAcceptor = "hello_from_acceptor",
    /// Both connected at once, and the other side's connection loses (K-22).
    Race = "race",
    /// As many connections of that type as there may be (K-23).
    Duplicate = "duplicate",
    /// Another incarnation or version than the existing connections (K-25).
    Stale = "stale",
    /// The interface is cut, for a test.
    Blocked = "blocked",
    /// A frame type that there is not.
    FrameType = "frame_type",
    /// A NOOP's cookies contradict each other.
    FrameCookies = "frame_cookies",
    /// An acknowledgement of something that was never sent.
    UnknownCookie = "unknown_cookie",
    /// The LNet header is malformed.
    Header = "header",
    /// A checksum is wrong.
    Checksum = "checksum",
    /// The node found the message wrong.
    Misbehaved = "misbehaved",
    /// The peer asks for acknowledgements faster than it takes them.
    TooManyAcks = "too_many_acks",
}

impl Refusal {
    /// Whether a peer with this refusal was turned away for good, which an administrator may need
    /// to see. The others are the protocol's daily business, or end a connection accepted before.
    pub(crate) const fn turns_away(self) -> bool {
        match self {
            Self::InsecurePort
            | Self::AddressNotAccepted
            | Self::NidNotAccepted
            | Self::TooMuchMemory
            | Self::TooManyPending
            | Self::TooManyConnections
            | Self::RequestMagic
            | Self::RequestVersion
            | Self::RequestMalformed
            | Self::RequestNid
            | Self::HandshakeTimeout
            | Self::HelloMagic
            | Self::HelloVersion
            | Self::HelloMalformed
            | Self::HelloAnyNid
            | Self::HelloType => true,
            Self::HandshakeEof
            | Self::HandshakeError
            | Self::HelloOtherPeer
            | Self::HelloFromAcceptor
            | Self::Race
            | Self::Duplicate
            | Self::Stale
            | Self::Blocked
            | Self::FrameType
            | Self::FrameCookies
            | Self::UnknownCookie
            | Self::Header
            | Self::Checksum
            | Self::Misbehaved
            | Self::TooManyAcks => false,
        }
    }

    /// The counter of a request that `why` made unreadable.
    pub(crate) const fn of_request(why: &WireError) -> Self {
        match why {
            // The generic magic is one of another protocol version: it gets the same answer.
            WireError::Magic { .. } => Self::RequestMagic,
            WireError::Version { .. } => Self::RequestVersion,
            _ => Self::RequestMalformed,
        }
    }

    /// The counter of a HELLO that `why` made unreadable.
    pub(crate) const fn of_hello(why: &WireError) -> Self {
        match why {
            WireError::Magic { .. } => Self::HelloMagic,
            WireError::Version { .. } => Self::HelloVersion,
            _ => Self::HelloMalformed,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counters of the whole driver.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Stats {
            /// Refusals and protocol errors, indexed as [`Refusal::ALL`]; see [`Stats::refused`].
            refused: [u64; Refusal::ALL.len()],
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl Stats {
            /// Name of each counter but the refusals, and what it counts.
            pub const HELP: &'static [(&'static str, &'static str)] =
                &[$((stringify!($name), concat!($($doc),*)),)*];

            pub(crate) const fn new() -> Self {
                Self { refused: [0; Refusal::ALL.len()], $($name: 0,)* }
            }

            /// Name and value of each counter but the refusals.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }
    };
}

counters! {
    /// Connections that became usable, ours and theirs.
    connected,
    /// Connections that were usable and ended.
    closed,
    /// Connections that were usable and ended with an error.
    closed_with_error,
    /// Connection attempts that we began.
    dialed,
    /// Attempts of ours that failed, so that we backed off.
    dial_failures,
    /// Attempts begun anew because there was no answer at all.
    dial_unanswered,
    /// Attempts that the peer refused as race or duplicate, so that we tried again.
    dial_retries,
    /// Attempts begun again with another protocol version.
    version_changes,
    /// Times that a peer was found to have restarted.
    new_incarnations,
    /// Connections closed because what we sent was not acknowledged in time.
    send_timeouts,
    /// Connections closed because a message stopped arriving.
    recv_timeouts,
    /// Messages given to `send` and accepted.
    msgs_queued,
    /// Messages handed to the transport whole.
    msgs_sent,
    /// Messages that failed after `send`.
    msgs_failed,
    /// Messages given back to the node before a byte of them was written.
    msgs_recalled,
    /// Bursts of keepalives sent for doubted rails to prove what they carry.
    proof_bursts,
    /// Messages handed back to the node in doubt: written, and not acknowledged by the transport.
    msgs_in_doubt,
    /// Times that a rail fell silent (DEC-31).
    rails_doubted,
    /// Headers received.
    msgs_received,
    /// Messages whose payload was read away, by the node's wish.
    msgs_dropped,
    /// Messages that had to wait for a buffer.
    msgs_deferred,
    /// Keepalives sent.
    keepalives_sent,
    /// Keepalives received.
    keepalives_received,
    /// Zero-copy acknowledgements asked of us.
    acks_requested,
    /// Zero-copy acknowledgements given, in whatever way.
    acks_sent,
    /// Zero-copy acknowledgements given on the back of a message.
    acks_piggybacked,
    /// Calls of write.
    writes,
    /// Calls of read.
    reads,
}

impl Stats {
    /// How often we refused or closed for this reason.
    pub const fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// All refusals with their counts.
    pub fn refusals(&self) -> impl Iterator<Item = (Refusal, u64)> + '_ {
        Refusal::ALL.iter().map(|&why| (why, self.refused(why)))
    }

    pub(crate) const fn refuse(&mut self, why: Refusal) {
        self.refused[why as usize] += 1;
    }
}

/// Traffic, in messages and bytes as they are on the wire (frame and LNet headers included).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes handed to the transport.
    pub bytes_out: u64,
    /// Bytes received.
    pub bytes_in: u64,
    /// Messages handed to the transport whole.
    pub msgs_out: u64,
    /// Headers received.
    pub msgs_in: u64,
}

/// One line about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The local interface.
    pub ni: NiId,
    /// The peer.
    pub id: ProcessId,
    /// Where it is connected to.
    pub addr: SocketAddr,
    /// Usable connections.
    pub connections: usize,
    /// Messages that wait for a connection.
    pub waiting: usize,
    /// Its traffic since the record was made; a record goes when it has been idle and unconnected.
    pub traffic: Traffic,
}

/// A peer that was turned away on the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The interface that the connection came to; of several on one address the first, until the
    /// peer has said which it means.
    pub ni: NiId,
    /// Where it came from.
    pub addr: IpAddr,
    /// The NID that it last called itself by, if it came that far.
    pub nid: Option<Nid>,
    /// Why it was turned away.
    pub why: Refusal,
    /// How often.
    pub count: u64,
    /// When last.
    pub last: Instant,
}

/// One line about a usable connection, as `lctl conn_list` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// The local interface.
    pub ni: NiId,
    /// The peer.
    pub peer: ProcessId,
    /// What we call the connection.
    pub kind: Kind,
    /// Protocol version.
    pub version: Version,
    /// Our end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Sizes of the socket's send and receive buffers, bytes.
    pub buffers: (u32, u32),
    /// Whether small segments may wait for others.
    pub nagle: bool,
    /// Bytes queued and not yet handed to the transport.
    pub queued: u64,
    /// Traffic of this connection.
    pub traffic: Traffic,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_own_counter_and_name() {
        let mut stats = Stats::new();
        for &why in Refusal::ALL {
            stats.refuse(why);
        }
        assert!(stats.refusals().all(|(_, n)| n == 1));
        let mut names: Vec<_> = Refusal::ALL.iter().map(|r| r.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Refusal::ALL.len());
    }
}

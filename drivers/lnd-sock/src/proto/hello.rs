//! Judgements on a HELLO: who may connect to us, and whether we reached the intended peer
//! (wire.md 3.3 to 3.6, K-22 to K-26). Pure: what is known goes in, a decision comes out.

use core::net::{IpAddr, SocketAddr};

use lnet_types::{Errno, Nid, Pid, ProcessId};
use lnet_wire::ByteOrder;
use lnet_wire::sock::{ConnType, Hello, Version};
use smallvec::SmallVec;

use super::kinds::Kind;
use crate::stats::Refusal;

/// The version that is proposed on a connection to `addr` when nothing else is known.
pub(crate) fn first_version(addr: &IpAddr) -> Version {
    match addr {
        IpAddr::V4(_) => Version::V3,
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Version::V3,
        IpAddr::V6(_) => Version::V4,
    }
}

/// Our side of a connection, as HELLOs say it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) nid: Nid,
    pub(crate) incarnation: u64,
}

impl Own {
    /// The HELLO that opens a connection.
    pub(crate) fn opening(&self, version: Version, to: Nid, kind: Kind) -> Hello {
        Hello {
            order: ByteOrder::Little,
            version,
            src: self.nid,
            dst: to,
            src_pid: Pid::LUSTRE,
            dst_pid: Pid(0),
            src_incarnation: self.incarnation,
            dst_incarnation: 0,
            conn_type: kind.to_wire(),
            ips: SmallVec::new(),
        }
    }

    /// The HELLO that answers `theirs`, in its version: what came in the destination fields goes
    /// back, but for the NID, which is that of the peer.
    pub(crate) fn answer(&self, theirs: &Hello, conn_type: ConnType) -> Hello {
        Hello {
            order: ByteOrder::Little,
            version: theirs.version,
            src: self.nid,
            dst: theirs.src,
            src_pid: Pid::LUSTRE,
            dst_pid: theirs.dst_pid,
            src_incarnation: self.incarnation,
            dst_incarnation: theirs.dst_incarnation,
            conn_type,
            ips: SmallVec::new(),
        }
    }

    /// The HELLO for a peer of an unknown version, which carries ours.
    pub(crate) fn other_version(&self, remote: &SocketAddr) -> Hello {
        Hello {
            order: ByteOrder::Little,
            version: first_version(&remote.ip()),
            src: self.nid,
            dst: self.nid,
            src_pid: Pid::LUSTRE,
            dst_pid: Pid(0),
            src_incarnation: self.incarnation,
            dst_incarnation: 0,
            conn_type: ConnType::NONE,
            ips: SmallVec::new(),
        }
    }
}

/// The passive side's record of the peer that a HELLO names.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    /// We are connecting to it ourselves, to the address that it comes from.
    pub(crate) connecting: bool,
    /// Version and incarnation of its existing connections, if there are any.
    pub(crate) session: Option<(Version, u64)>,
    /// Connections of the same type between the same two addresses.
    pub(crate) same_kind: usize,
    /// How many of them there may be.
    pub(crate) limit: usize,
    /// Both addresses are equal: it is on this host, and duplicates are its own affair.
    pub(crate) same_address: bool,
}

/// What the passive side does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// Answers with the inverse type and uses the connection.
    Accept,
    /// Answers with type NONE and closes.
    Refuse(Refusal),
    /// The same, and closes all existing connections to the peer, without error.
    RefuseStale,
}

/// What type the passive side calls the connection that `hello` opens.
///
/// # Errors
/// The connection is to be closed without an answer.
pub(crate) fn passive_kind(hello: &Hello) -> Result<Kind, Refusal> {
    if hello.src.is_any() {
        return Err(Refusal::HelloAnyNid);
    }
    Kind::of_wire(hello.conn_type).map(Kind::inverse).ok_or(Refusal::HelloType)
}

/// Judges a HELLO on the passive side, in the order of wire.md 3.6. `peer` is the peer's identity,
/// `hello` what it says about versions and incarnation.
pub(crate) fn judge_passive(own: Nid, peer: Nid, hello: &Hello, known: &Known) -> Judged {
    if known.connecting && peer < own {
        return Judged::Refuse(Refusal::Race);
    }
    if known.session.is_some_and(|s| s != (hello.version, hello.src_incarnation)) {
        return Judged::RefuseStale;
    }
    if !known.same_address && known.same_kind >= known.limit {
        return Judged::Refuse(Refusal::Duplicate);
    }
    Judged::Accept
}

/// What the initiator concludes from the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reached {
    /// The connection is up, in this version.
    Up(Version),
    /// Not this time: race lost, or enough connections. Again after the shortest delay.
    RetryLater,
    /// The peer has this version. Again at once.
    RetryIn(Version),
    /// The peer has restarted: its existing connections are to be closed. Again at once.
    RetryFresh,
    /// The attempt has failed.
    Failed(Errno, Refusal),
}

/// Judges the HELLO that answers ours.
pub(crate) fn judge_active(
    wanted: ProcessId,
    kind: Kind,
    proposed: Version,
    session: Option<(Version, u64)>,
    hello: &Hello,
) -> Reached {
    if hello.src != wanted.nid || hello.src_pid != wanted.pid {
        return Reached::Failed(Errno::EPROTO, Refusal::HelloOtherPeer);
    }
    if hello.conn_type == ConnType::NONE {
        return if hello.version == proposed {
            Reached::RetryLater
        } else {
            Reached::RetryIn(hello.version)
        };
    }
    if Kind::of_wire(hello.conn_type) != Some(kind.inverse()) {
        return Reached::Failed(Errno::EPROTO, Refusal::HelloType);
    }
    match session {
        Some(s) if s != (hello.version, hello.src_incarnation) => Reached::RetryFresh,
        _ => Reached::Up(hello.version),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nid(last: u32) -> Nid {
        Nid::new(lnet_types::Net::TCP, 0x0a00_0000 | last)
    }

    const OWN: Own = Own { nid: Nid::LOOPBACK, incarnation: 77 };

    fn hello(from: u32, kind: ConnType) -> Hello {
        let own = Own { nid: nid(from), incarnation: 1 };
        Hello { conn_type: kind, ..own.opening(Version::V3, nid(9), Kind::Control) }
    }

    #[test]
    fn the_passive_side_decides_in_the_order_of_the_protocol() {
        let free = Known { limit: 1, ..Known::default() };
        let same = Some((Version::V3, 1));
        let table = [
            ("nothing known", free, Judged::Accept),
            ("connecting", Known { connecting: true, ..free }, Judged::Refuse(Refusal::Race)),
            ("same session", Known { session: same, ..free }, Judged::Accept),
            (
                "other incarnation",
                Known { session: Some((Version::V3, 2)), same_kind: 1, ..free },
                Judged::RefuseStale,
            ),
            (
                "other version",
                Known { session: Some((Version::V2, 1)), ..free },
                Judged::RefuseStale,
            ),
            (
                "enough",
                Known { session: same, same_kind: 1, ..free },
                Judged::Refuse(Refusal::Duplicate),
            ),
            (
                "enough, same host",
                Known { session: same, same_kind: 9, same_address: true, ..free },
                Judged::Accept,
            ),
            (
                "race before incarnation",
                Known { connecting: true, session: Some((Version::V3, 2)), ..free },
                Judged::Refuse(Refusal::Race),
            ),
        ];
        let hello = hello(1, ConnType::CONTROL);
        for (what, known, want) in table {
            assert_eq!(judge_passive(nid(2), nid(1), &hello, &known), want, "{what}");
        }
        // The higher NID's connection survives a race.
        let racing = Known { connecting: true, ..free };
        assert_eq!(judge_passive(nid(1), nid(2), &hello, &racing), Judged::Accept);
    }

    #[test]
    fn types_that_are_none_close_the_connection() {
        assert_eq!(passive_kind(&hello(1, ConnType::BULK_IN)), Ok(Kind::BulkOut));
        assert_eq!(passive_kind(&hello(1, ConnType::ANY)), Ok(Kind::Any));
        assert_eq!(passive_kind(&hello(1, ConnType::NONE)), Err(Refusal::HelloType));
        assert_eq!(passive_kind(&hello(1, ConnType(9))), Err(Refusal::HelloType));
        let any = Hello { src: Nid::ANY, ..hello(1, ConnType::CONTROL) };
        assert_eq!(passive_kind(&any), Err(Refusal::HelloAnyNid));
        // Captured: a HELLO from 0@lo, and one for another NID, are accepted.
        assert!(passive_kind(&Hello { src: Nid::LOOPBACK, ..any }).is_ok());
    }

    #[test]
    fn the_initiator_concludes_as_the_protocol_says() {
        let wanted = ProcessId::lustre(nid(2));
        let answer = |conn_type| Hello { conn_type, ..hello(2, ConnType::CONTROL) };
        let in_version = |version, conn_type| Hello { version, ..answer(conn_type) };
        let judge = |session, hello: &Hello| {
            judge_active(wanted, Kind::BulkIn, Version::V3, session, hello)
        };
        let failed = |why| Reached::Failed(Errno::EPROTO, why);
        let table = [
            (None, answer(ConnType::BULK_OUT), Reached::Up(Version::V3)),
            (None, answer(ConnType::BULK_IN), failed(Refusal::HelloType)),
            (None, answer(ConnType(7)), failed(Refusal::HelloType)),
            (None, answer(ConnType::NONE), Reached::RetryLater),
            (None, in_version(Version::V2, ConnType::NONE), Reached::RetryIn(Version::V2)),
            (None, in_version(Version::V2, ConnType::BULK_OUT), Reached::Up(Version::V2)),
            (Some((Version::V3, 1)), answer(ConnType::BULK_OUT), Reached::Up(Version::V3)),
            (Some((Version::V3, 5)), answer(ConnType::BULK_OUT), Reached::RetryFresh),
            (Some((Version::V2, 1)), answer(ConnType::BULK_OUT), Reached::RetryFresh),
        ];
        for (session, hello, want) in table {
            assert_eq!(judge(session, &hello), want, "{hello}");
        }
        let other = Hello { src: nid(3), ..answer(ConnType::NONE) };
        assert_eq!(judge(None, &other), failed(Refusal::HelloOtherPeer));
        let other = Hello { src_pid: Pid(1), ..answer(ConnType::BULK_OUT) };
        assert_eq!(judge(None, &other), failed(Refusal::HelloOtherPeer));
    }

    #[test]
    fn answers_return_what_came_and_name_the_peer() {
        let theirs = Hello {
            dst: nid(99),
            dst_pid: Pid(5),
            dst_incarnation: 6,
            ..hello(1, ConnType::BULK_IN)
        };
        let ours = OWN.answer(&theirs, ConnType::BULK_OUT);
        assert_eq!((ours.src, ours.dst), (OWN.nid, nid(1)));
        assert_eq!((ours.dst_pid, ours.dst_incarnation), (Pid(5), 6));
        assert_eq!((ours.src_pid, ours.src_incarnation), (Pid::LUSTRE, 77));
        // Captured: an unknown version is answered with our own NID in both places.
        let ours = OWN.other_version(&"10.0.0.1:1023".parse().expect("an address"));
        assert_eq!((ours.src, ours.dst, ours.conn_type), (OWN.nid, OWN.nid, ConnType::NONE));
        assert_eq!(ours.version, Version::V3);
    }

    #[test]
    fn the_first_proposal_follows_the_address_family() {
        let version = |ip: &str| first_version(&ip.parse().expect("an address"));
        assert_eq!(version("10.0.0.1"), Version::V3);
        assert_eq!(version("::ffff:10.0.0.1"), Version::V3);
        assert_eq!(version("fd00::1"), Version::V4);
    }
}

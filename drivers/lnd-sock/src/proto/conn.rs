//! The phases of a connection, from TCP connect to the end, and how much to read in each.
//!
//! ```text
//!  active    Connecting ─► AwaitHello ──────────────────╮
//!                                                       ├─► Up
//!  passive   AwaitRequest ─► AwaitPeerHello ────────────╯
//!                 ╰───────────────┴─► Draining (a refusal is being written) ─► closed
//! ```
//!
//! During the handshake exactly the bytes of the next step are read, as the kernel does: what a
//! refused peer sent beyond them stays unread, so that it sees a reset where a kernel node gives one.
//! What a HELLO means is judged in `hello.rs`; frames of a connection that is up are `frame.rs`.

use lnet_types::Errno;
use lnet_wire::acceptor::{self, Request};
use lnet_wire::sock::{Hello, Version};
use lnet_wire::{Need, WireError};

use crate::stats::Refusal;

/// Bytes of one handshake message as far as they have come.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

/// A message of the handshake.
pub(crate) trait Greeting: Sized {
    fn need(prefix: &[u8]) -> Result<Need, WireError>;
    fn parse(bytes: &[u8]) -> Result<(Self, usize), WireError>;
}

impl Greeting for Request {
    fn need(prefix: &[u8]) -> Result<Need, WireError> {
        Self::need(prefix)
    }
    fn parse(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        Self::parse(bytes)
    }
}

impl Greeting for Hello {
    fn need(prefix: &[u8]) -> Result<Need, WireError> {
        Self::need(prefix)
    }
    fn parse(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        Self::parse(bytes)
    }
}

/// What became of the bytes of a handshake.
#[derive(Debug)]
pub(crate) enum Fed<M> {
    /// The message is not complete: read this many bytes next.
    Read(usize),
    /// Here it is.
    Got(M),
}

impl Inbox {
    /// Takes `bytes`, which are no more than were asked for, and tells what is next.
    ///
    /// # Errors
    /// What makes the message unreadable, as soon as its bytes are there.
    pub(crate) fn fed<M: Greeting>(&mut self, bytes: &[u8]) -> Result<Fed<M>, WireError> {
        self.0.extend_from_slice(bytes);
        match M::need(&self.0)? {
            Need::Exactly(n) if self.0.len() >= n => M::parse(&self.0).map(|(m, _)| Fed::Got(m)),
            need => Ok(Fed::Read(need.bytes().saturating_sub(self.0.len()).max(1))),
        }
    }
}

/// Bytes of a handshake that are to be written.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, sent: 0 }
    }

    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.sent..).unwrap_or_default()
    }

    pub(crate) fn wrote(&mut self, n: usize) {
        self.sent += n;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }
}

/// The bytes with which an initiator opens: request and HELLO in one piece.
///
/// # Errors
/// A NID that the version can't carry.
pub(crate) fn opening(request: &Request, hello: &Hello) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; Request::LEN_MAX + Hello::LEN_MAX];
    let n = request.emit(&mut bytes)?;
    let m = hello.emit(bytes.get_mut(n..).unwrap_or_default())?;
    bytes.truncate(n + m);
    Ok(bytes)
}

/// The bytes of one HELLO.
///
/// # Errors
/// A NID that the version can't carry.
pub(crate) fn hello_bytes(hello: &Hello) -> Result<Vec<u8>, WireError> {
    let mut bytes = vec![0; Hello::LEN_MAX];
    let n = hello.emit(&mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Where a connection stands in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// TCP connect under way.
    Connecting,
    /// We opened and wait for the answer.
    AwaitHello,
    /// Accepted; the request is due.
    AwaitRequest,
    /// The HELLO is due.
    AwaitPeerHello,
    /// A refusal is being written.
    Draining,
}

/// How a handshake was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The other side closed.
    Eof,
    /// The stream failed.
    Error(Errno),
    /// Time is up.
    Deadline,
    /// The message can't be read.
    Unreadable(WireError),
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutStep {
    /// Close without a word; counts as this refusal, or as nothing.
    Close(Option<Refusal>),
    /// Write the acceptor's 16 bytes, then close.
    AnswerRequest(Refusal),
    /// Write a HELLO of our own version, then close.
    AnswerHello(Refusal),
    /// The attempt has failed.
    Fail(Errno, Option<Refusal>),
}

/// The transition for a handshake cut short (wire.md 2.4, 3.4).
pub(crate) fn cut_short(stage: Stage, cut: Cut) -> CutStep {
    match (stage, cut) {
        // An initiator sees only the close: kernel nodes take it for a reset.
        (Stage::Connecting | Stage::AwaitHello, Cut::Eof) => CutStep::Fail(Errno::ECONNRESET, None),
        (Stage::Connecting | Stage::AwaitHello, Cut::Error(errno)) => CutStep::Fail(errno, None),
        (Stage::Connecting | Stage::AwaitHello, Cut::Deadline) => {
            CutStep::Fail(Errno::ETIMEDOUT, None)
        }
        (Stage::Connecting | Stage::AwaitHello, Cut::Unreadable(why)) => {
            let is_acceptor = matches!(why, WireError::Magic { magic, .. }
                if acceptor::is_answer(&magic.to_le_bytes()));
            let refusal =
                if is_acceptor { Refusal::HelloFromAcceptor } else { Refusal::of_hello(&why) };
            CutStep::Fail(Errno::EPROTO, Some(refusal))
        }
        (Stage::AwaitRequest, Cut::Unreadable(why)) => {
            let refusal = Refusal::of_request(&why);
            if acceptor::wants_answer(&why) {
                CutStep::AnswerRequest(refusal)
            } else {
                CutStep::Close(Some(refusal))
            }
        }
        (Stage::AwaitPeerHello, Cut::Unreadable(why)) => {
            let refusal = Refusal::of_hello(&why);
            match why {
                WireError::Version { .. } => CutStep::AnswerHello(refusal),
                _ => CutStep::Close(Some(refusal)),
            }
        }
        (Stage::AwaitRequest | Stage::AwaitPeerHello, Cut::Eof) => {
            CutStep::Close(Some(Refusal::HandshakeEof))
        }
        (Stage::AwaitRequest | Stage::AwaitPeerHello, Cut::Error(_)) => {
            CutStep::Close(Some(Refusal::HandshakeError))
        }
        (Stage::AwaitRequest | Stage::AwaitPeerHello, Cut::Deadline) => {
            CutStep::Close(Some(Refusal::HandshakeTimeout))
        }
        // The refusal has been counted; whether the peer reads it is its own affair.
        (Stage::Draining, Cut::Eof | Cut::Error(_) | Cut::Deadline | Cut::Unreadable(_)) => {
            CutStep::Close(None)
        }
    }
}

/// Whether a HELLO in `version` can name `nids`.
pub(crate) fn can_name(version: Version, nids: &[lnet_types::Nid]) -> bool {
    version == Version::V4 || !nids.iter().any(|nid| nid.is_large())
}

#[cfg(test)]
mod tests {
    use lnet_types::{Net, Nid};

    use super::*;
    use crate::proto::hello::Own;
    use crate::proto::kinds::Kind;

    #[test]
    fn a_connection_cut_at_any_stage_ends_as_the_table_says() {
        let magic = |magic| WireError::Magic { what: "x", magic };
        let version = WireError::Version { what: "x", version: 99 };
        let value = WireError::Value { what: "x", field: "y", value: 1 };
        let generic = magic(acceptor::GENERIC_MAGIC);
        let acceptor = magic(acceptor::MAGIC);
        let junk = magic(0xdead_beef);
        let e = Errno::ECONNREFUSED;
        let close = |r| CutStep::Close(Some(r));
        let fail = |r| CutStep::Fail(Errno::EPROTO, Some(r));
        use Cut::{Deadline, Eof, Error, Unreadable};
        use Stage::{AwaitHello, AwaitPeerHello, AwaitRequest, Connecting, Draining};
        let table = [
            (Connecting, Eof, CutStep::Fail(Errno::ECONNRESET, None)),
            (Connecting, Error(e), CutStep::Fail(e, None)),
            (Connecting, Deadline, CutStep::Fail(Errno::ETIMEDOUT, None)),
            (AwaitHello, Eof, CutStep::Fail(Errno::ECONNRESET, None)),
            (AwaitHello, Error(e), CutStep::Fail(e, None)),
            (AwaitHello, Deadline, CutStep::Fail(Errno::ETIMEDOUT, None)),
            (AwaitHello, Unreadable(junk), fail(Refusal::HelloMagic)),
            (AwaitHello, Unreadable(version), fail(Refusal::HelloVersion)),
            (AwaitHello, Unreadable(value), fail(Refusal::HelloMalformed)),
            (AwaitHello, Unreadable(acceptor), fail(Refusal::HelloFromAcceptor)),
            (AwaitRequest, Eof, close(Refusal::HandshakeEof)),
            (AwaitRequest, Error(e), close(Refusal::HandshakeError)),
            (AwaitRequest, Deadline, close(Refusal::HandshakeTimeout)),
            (AwaitRequest, Unreadable(junk), close(Refusal::RequestMagic)),
            (AwaitRequest, Unreadable(generic), CutStep::AnswerRequest(Refusal::RequestMagic)),
            (AwaitRequest, Unreadable(version), CutStep::AnswerRequest(Refusal::RequestVersion)),
            (AwaitRequest, Unreadable(value), close(Refusal::RequestMalformed)),
            (AwaitPeerHello, Eof, close(Refusal::HandshakeEof)),
            (AwaitPeerHello, Error(e), close(Refusal::HandshakeError)),
            (AwaitPeerHello, Deadline, close(Refusal::HandshakeTimeout)),
            (AwaitPeerHello, Unreadable(junk), close(Refusal::HelloMagic)),
            (AwaitPeerHello, Unreadable(version), CutStep::AnswerHello(Refusal::HelloVersion)),
            (AwaitPeerHello, Unreadable(value), close(Refusal::HelloMalformed)),
            (Draining, Eof, CutStep::Close(None)),
            (Draining, Error(e), CutStep::Close(None)),
            (Draining, Deadline, CutStep::Close(None)),
        ];
        for (stage, cut, want) in table {
            assert_eq!(cut_short(stage, cut), want, "{stage:?} {cut:?}");
        }
    }

    #[test]
    fn the_opening_is_read_back_one_byte_at_a_time_without_reading_too_far() {
        let to = Nid::new(Net::TCP, 0x0a00_0002);
        let own = Own { nid: Nid::new(Net::TCP, 0x0a00_0001), incarnation: 5 };
        let hello = own.opening(Version::V3, to, Kind::BulkIn);
        let bytes = opening(&Request::to(to), &hello).expect("short NIDs");
        let mut rest = bytes.iter();
        let mut inbox = Inbox::default();
        let request = loop {
            let Some(byte) = rest.next() else { panic!("the request never ended") };
            match inbox.fed::<Request>(&[*byte]).expect("a good request") {
                Fed::Got(request) => break request,
                Fed::Read(n) => assert!(n <= rest.len(), "asks for {n} bytes too many"),
            }
        };
        assert_eq!(request.nid, to);
        let mut inbox = Inbox::default();
        let got = loop {
            let Some(byte) = rest.next() else { panic!("the HELLO never ended") };
            match inbox.fed::<Hello>(&[*byte]).expect("a good HELLO") {
                Fed::Got(hello) => break hello,
                Fed::Read(n) => assert!(n <= rest.len(), "asks for {n} bytes too many"),
            }
        };
        assert_eq!(got, hello);
        assert_eq!(rest.len(), 0);
    }

    #[test]
    fn a_version_of_short_nids_cannot_name_large_ones() {
        let large = Nid::from_ip(Net::TCP, "fd00::1".parse().expect("an address"));
        assert!(can_name(Version::V4, &[large]));
        assert!(!can_name(Version::V3, &[Nid::LOOPBACK, large]));
        assert!(can_name(Version::V3, &[Nid::LOOPBACK]));
        assert!(
            opening(
                &Request::to(large),
                &Own { nid: large, incarnation: 1 }.opening(Version::V3, large, Kind::Control)
            )
            .is_err()
        );
    }
}

//! What a node gave, for comparison: how many things, and sums over what identifies them. Nothing here
//! is cryptographic; a difference is never aimed at it.

use core::fmt;

use lnet_types::Span;
use slotmap::Key;

use crate::{Event, Notice, Output, Report, Sink, Verdict};

/// What was given between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Given {
    /// So many outputs and events; and the sum over them, a verdict before them, and all that was
    /// given earlier in the stretch.
    Usual { outputs: u8, events: u8, sum: u32 },
    /// What is rarely given.
    One(Mark),
}

/// Something that is rarely given, with a sum over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Mark {
    pub(super) kind: MarkKind,
    pub(super) sum: u32,
}

/// What a node gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MarkKind {
    /// Something for a driver to do.
    Output,
    /// An event for a user.
    Event,
    /// The end of a ping or discovery.
    Report,
    /// A line for the log.
    Notice,
}

impl MarkKind {
    /// The kind with this number.
    pub(super) const fn of(number: u64) -> Self {
        match number {
            0 => Self::Output,
            1 => Self::Event,
            2 => Self::Report,
            _ => Self::Notice,
        }
    }
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Output => "output",
            Self::Event => "event",
            Self::Report => "report",
            Self::Notice => "notice",
        })
    }
}

impl Mark {
    pub(super) fn of_report(report: &Report) -> Self {
        Self { kind: MarkKind::Report, sum: text(report) as u32 }
    }

    pub(super) fn of_notice(notice: &Notice) -> Self {
        Self { kind: MarkKind::Notice, sum: text(notice) as u32 }
    }
}

/// Spreads a difference over the upper bits.
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Sums over everything usual that was given in a stretch. Outputs and events have one each, since
/// the order in which the two are polled is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    outputs: u64,
    events: u64,
}

impl Sums {
    /// So many bits a sum has.
    pub(super) const BITS: u32 = 20;

    /// The upper bits of a product depend on all others.
    #[inline]
    const fn add(sum: &mut u64, word: u64) {
        *sum = (sum.rotate_left(7) ^ word).wrapping_mul(MIX);
    }

    /// One for all.
    #[inline]
    pub(super) const fn all(&self) -> u32 {
        (self.outputs.wrapping_add(self.events) >> (u64::BITS - Self::BITS)) as u32
    }

    #[inline]
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        Self::add(&mut self.outputs, word(verdict));
    }

    #[inline]
    pub(super) fn output(&mut self, output: &Output) {
        let word = match output {
            Output::Send(t) => {
                let place = t.msg.data().as_ffi() ^ u64::from(t.to.pid.0);
                let size = u64::from(t.hdr.payload_len) << 32 | u64::from(t.timeout.subsec_nanos());
                place.wrapping_mul(MIX)
                    ^ size.wrapping_add(t.ni.data().as_ffi())
                    ^ t.timeout.as_secs()
            }
            Output::Resume { ni, rx, verdict } => {
                self.verdict(verdict);
                ni.data().as_ffi().wrapping_mul(MIX) ^ rx.0
            }
            other => text(other),
        };
        Self::add(&mut self.outputs, word);
    }

    #[inline]
    pub(super) fn event(&mut self, event: &Event) {
        let what = u64::from(event.mlength) << 32
            | u64::from(event.status.is_err()) << 8
            | event.kind as u64;
        let word = event.md.data().as_ffi().wrapping_add(event.offset).wrapping_mul(MIX);
        Self::add(&mut self.events, (word ^ event.match_bits).wrapping_add(what));
    }
}

#[inline]
fn word(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Deliver { msg, sink } => {
            let places = match sink {
                Sink::Spans(iov) => match iov.as_slice() {
                    [one] => place(0, one),
                    spans => many(spans),
                },
                Sink::Bytes(most) => u64::from(*most),
            };
            msg.data().as_ffi().wrapping_mul(MIX) ^ places
        }
        Verdict::Defer => 1,
        Verdict::Drop(why) => 2 + *why as u64,
        Verdict::Close(why) => text(why),
    }
}

/// A place in memory, put into a sum of those before.
#[inline]
fn place(sum: u64, span: &Span) -> u64 {
    let what = u64::from(span.region.0) << 32 | u64::from(span.len);
    (sum ^ what).wrapping_add(span.offset.rotate_left(20))
}

#[cold]
#[inline(never)]
fn many(spans: &[Span]) -> u64 {
    spans.iter().fold(spans.len() as u64, |sum, span| place(sum.rotate_left(7), span))
}

/// A sum over something that is rare enough to be printed for it.
#[cold]
#[inline(never)]
fn text(of: &impl fmt::Debug) -> u64 {
    let mut sum = 0xcbf2_9ce4_8422_2325;
    for b in format!("{of:?}").bytes() {
        sum = (sum ^ u64::from(b)).wrapping_mul(0x100_0000_01b3);
    }
    sum
}

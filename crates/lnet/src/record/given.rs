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

/// Sums over everything usual that was given in a stretch. Outputs and events have one each, since
/// nobody says in which order the two are asked for.
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
    const fn add(sum: &mut u64, [a, b, c, d]: [u64; 4]) {
        let all = a ^ b.rotate_left(41) ^ c.rotate_left(23) ^ d.rotate_left(11);
        *sum = (sum.rotate_left(7) ^ all).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// One for all.
    #[inline]
    pub(super) const fn all(&self) -> u32 {
        (self.outputs.wrapping_add(self.events) >> (u64::BITS - Self::BITS)) as u32
    }

    #[inline]
    pub(super) fn verdict(&mut self, verdict: &Verdict) {
        Self::add(&mut self.outputs, words(verdict));
    }

    #[inline]
    pub(super) fn output(&mut self, output: &Output) {
        let words = match output {
            Output::Send(t) => {
                let place = u64::from(t.to.pid.0) ^ u64::from(t.hdr.payload_len) << 32;
                let timeout = t.timeout.as_secs() << 30 | u64::from(t.timeout.subsec_nanos());
                [t.msg.data().as_ffi(), t.ni.data().as_ffi(), place, timeout]
            }
            Output::Resume { ni, rx, verdict } => {
                self.verdict(verdict);
                [ni.data().as_ffi(), rx.0, 0, 1]
            }
            other => [text(other), 0, 0, 2],
        };
        Self::add(&mut self.outputs, words);
    }

    #[inline]
    pub(super) fn event(&mut self, event: &Event) {
        let what = event.kind as u64 | u64::from(event.status.is_ok()) << 8;
        let place = event.offset ^ u64::from(event.mlength) << 32;
        Self::add(&mut self.events, [event.md.data().as_ffi(), what, place, event.match_bits]);
    }
}

#[inline]
fn words(verdict: &Verdict) -> [u64; 4] {
    match verdict {
        Verdict::Deliver { msg, sink } => {
            let places = match sink {
                Sink::Spans(iov) => match iov.as_slice() {
                    [one] => place(0, one),
                    spans => many(spans),
                },
                Sink::Bytes(most) => u64::from(*most),
            };
            [1, msg.data().as_ffi(), places, 0]
        }
        Verdict::Defer => [2, 0, 0, 0],
        Verdict::Drop(why) => [3, *why as u64, 0, 0],
        Verdict::Close(why) => [4, text(why), 0, 0],
    }
}

/// A place in memory, put into a sum of those before.
#[inline]
fn place(sum: u64, span: &Span) -> u64 {
    let what = u64::from(span.region.0) << 32 | u64::from(span.len);
    sum ^ what ^ span.offset.rotate_left(20)
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

//! The flight recorder: the last calls of a node, and its state before them, so that what it did can
//! be done again elsewhere, call by call. Off unless it is asked for; then a call costs one more
//! copy of its arguments. It holds no clock and writes no file: a shell takes a [`Recording`] out.
//!
//! ```text
//!   state ── calls ──► state ── calls ──► state now        two stretches, of `limit` calls each
//! ```
//!
//! Where a stretch ends, the node is written down and *goes on from what was written*: so nothing
//! that a written state can't hold (the order of free places in a table, say) can make the
//! replay take another way. `input.rs` lists the calls, `replay.rs` makes them again, `file.rs` is
//! the recording as bytes.

mod file;
mod input;
mod live;
mod replay;
mod words;

use core::fmt;

use lnet_types::{MdId, MsgId, NiId, RxId, Span};
use slotmap::Key;

pub use file::RecordingError;
pub(crate) use input::Remembering;
pub use input::{Given, Input};
use live::Live;
pub use replay::{Difference, Replayed};

use crate::{Event, Node, Notice, Output, Report, Sink, Verdict};

/// What a node gave, for comparison: which queue it came from, and a sum over what identifies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Mark {
    /// What it was.
    pub kind: MarkKind,
    /// Sum of its parts.
    pub sum: u32,
}

/// What a node gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum MarkKind {
    /// What a driver was told about a header.
    Verdict,
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
    const fn of(number: u32) -> Self {
        match number {
            0 => Self::Verdict,
            1 => Self::Output,
            2 => Self::Event,
            3 => Self::Report,
            _ => Self::Notice,
        }
    }
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verdict => "verdict",
            Self::Output => "output",
            Self::Event => "event",
            Self::Report => "report",
            Self::Notice => "notice",
        })
    }
}

impl Mark {
    /// So many bits a sum has: with the kind it fits a word of the log.
    const SUM_BITS: u32 = 28;

    /// Far from cryptographic; a difference is never aimed at it.
    #[inline]
    const fn new(kind: MarkKind, [a, b, c, d]: [u64; 4]) -> Self {
        let all = a ^ b.rotate_left(41) ^ c.rotate_left(23) ^ d.rotate_left(11);
        // The upper bits of a product depend on all others.
        let sum = all.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - Self::SUM_BITS);
        Self { kind, sum: sum as u32 }
    }

    #[inline]
    pub(crate) fn of_verdict(verdict: &Verdict) -> Self {
        let words = match verdict {
            Verdict::Deliver { msg, sink } => {
                let (spans, bytes) = match sink {
                    Sink::Spans(iov) => (iov.as_slice(), 0),
                    Sink::Bytes(most) => (&[][..], u64::from(*most)),
                };
                let spans = match spans {
                    [one] => place(1, one),
                    spans => spans.iter().fold(spans.len() as u64, place),
                };
                [1, msg.data().as_ffi(), spans, bytes]
            }
            Verdict::Defer => [2, 0, 0, 0],
            Verdict::Drop(why) => [3, *why as u64, 0, 0],
            Verdict::Close(why) => [4, text(why), 0, 0],
        };
        Self::new(MarkKind::Verdict, words)
    }

    #[inline]
    fn of_output(output: &Output) -> Self {
        let words = match output {
            Output::Send(t) => {
                let (msg, ni): (MsgId, NiId) = (t.msg, t.ni);
                let place = u64::from(t.to.pid.0) ^ u64::from(t.hdr.payload_len) << 32;
                [msg.data().as_ffi(), ni.data().as_ffi(), place, t.timeout.as_nanos() as u64]
            }
            Output::Resume { ni, rx, verdict } => {
                return Self::of_resume(*ni, *rx, verdict);
            }
            other => [text(other), 0, 0, 2],
        };
        Self::new(MarkKind::Output, words)
    }

    /// Apart, since it is rare and long.
    #[cold]
    #[inline(never)]
    fn of_resume(ni: NiId, rx: RxId, verdict: &Verdict) -> Self {
        let words = [ni.data().as_ffi(), rx.0, Self::of_verdict(verdict).sum.into(), 1];
        Self::new(MarkKind::Output, words)
    }

    #[inline]
    fn of_event(event: &Event) -> Self {
        let md: MdId = event.md;
        let what = event.kind as u64 | u64::from(event.status.is_ok()) << 8;
        let place = event.offset ^ u64::from(event.mlength) << 32;
        Self::new(MarkKind::Event, [md.data().as_ffi(), what, place, event.match_bits])
    }

    #[cold]
    fn of_report(report: &Report) -> Self {
        Self::new(MarkKind::Report, [text(report), 0, 0, 0])
    }

    #[cold]
    fn of_notice(notice: &Notice) -> Self {
        Self::new(MarkKind::Notice, [text(notice), 0, 0, 0])
    }
}

/// A place in memory, put into a sum of those before.
fn place(sum: u64, span: &Span) -> u64 {
    let at = span.offset.rotate_left(32) ^ u64::from(span.len);
    sum.rotate_left(7) ^ u64::from(span.region.0).rotate_left(17) ^ at
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

/// A state, the calls that followed, and what they gave.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Stretch {
    /// The node before the first call, as `postcard` writes it.
    state: Vec<u8>,
    calls: Vec<Input>,
    /// What was given after how many calls.
    marks: Vec<(u32, Mark)>,
}

/// The last calls of a node, taken out of it with [`Node::recording`].
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Recording {
    stretches: Vec<Stretch>,
    /// The node after the last call.
    end: Vec<u8>,
}

impl Recording {
    /// How many calls it holds.
    pub fn calls(&self) -> usize {
        self.stretches.iter().map(|s| s.calls.len()).sum()
    }
}

/// What records, inside of the node that it records.
pub(crate) struct Recorder {
    limit: usize,
    older: Live,
    now: Live,
}

impl Recorder {
    #[inline]
    fn is_full(&self) -> bool {
        self.now.calls() >= self.limit || self.now.words() >= self.limit * WORDS_PER_CALL
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} of {} calls)", self.now.calls(), self.limit)
    }
}

/// Memory of a stretch, in words for each call: most take four, with what is given for them; but every
/// message of a long queue may leave in one call, and each may come by another way.
const WORDS_PER_CALL: usize = 48;

impl Node {
    /// Begins to keep at least the last `calls` calls, and twice as many at most; 0 ends it. The
    /// memory for them is bounded by that number.
    pub fn record(&mut self, calls: usize) {
        self.recorder = None;
        if calls > 0 {
            let (older, now) = (Live::new(), Live::new());
            let recorder = Recorder { limit: calls, older, now };
            self.recorder = Some(Box::new(recorder));
            self.begin_stretch();
        }
    }

    /// The last calls, if they are being kept.
    pub fn recording(&self) -> Option<Recording> {
        let recorder = self.recorder.as_ref()?;
        let both = [&recorder.older, &recorder.now];
        let stretches = both.into_iter().filter(|l| l.has_begun()).map(Live::stretch).collect();
        Some(Recording { stretches, end: self.written()? })
    }

    /// Notes a call that is about to be made.
    #[inline]
    pub(crate) fn note(&mut self, call: impl FnOnce() -> Input) {
        self.note_usual(|live| live.push(call()));
    }

    /// Notes one of the calls that a busy node makes all the time.
    #[inline]
    pub(crate) fn note_usual(&mut self, note: impl FnOnce(&mut Live)) {
        self.begin_call();
        self.note_made(note);
    }

    /// Makes room for the note of a call that is about to be made.
    #[inline]
    pub(crate) fn begin_call(&mut self) {
        if self.recorder.as_deref().is_some_and(Recorder::is_full) {
            self.begin_stretch();
        }
    }

    /// Notes a call behind [`Self::begin_call`], when what it gave is known.
    #[inline]
    pub(crate) fn note_made(&mut self, note: impl FnOnce(&mut Live)) {
        if let Some(recorder) = &mut self.recorder {
            note(&mut recorder.now);
        }
    }

    /// Notes what the node has given.
    #[inline]
    fn mark(&mut self, mark: impl FnOnce() -> Mark) {
        if let Some(recorder) = &mut self.recorder {
            recorder.now.mark(mark());
        }
    }

    #[inline]
    pub(crate) fn mark_output(&mut self, output: Option<&Output>) {
        if let Some(output) = output {
            self.mark(|| Mark::of_output(output));
        }
    }

    #[inline]
    pub(crate) fn mark_event(&mut self, event: Option<&Event>) {
        if let Some(event) = event {
            self.mark(|| Mark::of_event(event));
        }
    }

    #[inline]
    pub(crate) fn mark_report(&mut self, report: Option<&Report>) {
        if let Some(report) = report {
            self.mark(|| Mark::of_report(report));
        }
    }

    #[inline]
    pub(crate) fn mark_notice(&mut self, notice: Option<&Notice>) {
        if let Some(notice) = notice {
            self.mark(|| Mark::of_notice(notice));
        }
    }

    /// The node as bytes. What it records about itself is no part of it.
    fn written(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self)
            .inspect_err(|e| tracing::error!("the state of the node can't be written: {e}"))
            .ok()
    }

    /// Writes the node down and goes on from that.
    #[cold]
    fn begin_stretch(&mut self) {
        let Some(mut recorder) = self.recorder.take() else { return };
        let Some(state) = self.written() else { return };
        match postcard::from_bytes::<Self>(&state) {
            Ok(same) => *self = same,
            Err(e) => return tracing::error!("a written state can't be read, recording ends: {e}"),
        }
        // The last stretch but one gives its memory.
        recorder.older.begin(state);
        let Recorder { older, now, .. } = &mut *recorder;
        core::mem::swap(older, now);
        self.recorder = Some(recorder);
    }
}

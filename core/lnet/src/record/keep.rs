//! Keeping the record: what the node does with its recorder, and where stretches end.

use super::given::Mark;
use super::live::Live;
use super::{Recorder, Recording};
use crate::record::Input;
use crate::{Event, Node, Notice, Output, Report};

impl Node {
    /// Begins to keep at least the last `calls` calls; 0 ends it. The memory for them is bounded by that
    /// number. Most calls of a busy node take a twentieth of what they might, so of these twenty to
    /// forty times as many are kept; of others four to eight times as many at most.
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

    /// Notes one of the calls that a busy node makes all the time; or one that has been made, whose
    /// arguments were not known before.
    #[inline]
    pub(crate) fn note_usual(&mut self, note: impl FnOnce(&mut Live)) {
        if let Some(recorder) = &mut self.recorder {
            note(&mut recorder.now);
        }
    }

    /// Whether a stretch is full.
    #[inline]
    pub(crate) fn is_page_full(&self) -> bool {
        self.recorder.as_deref().is_some_and(|recorder| recorder.now.is_full())
    }

    /// Ends a stretch that is full. Called where outputs are asked for, and not with each call: a
    /// caller polls for outputs sooner or later.
    #[inline]
    pub(crate) fn turn_page(&mut self) {
        if self.is_page_full() {
            self.begin_stretch();
        }
    }

    /// Notes outputs that were given.
    #[inline]
    pub(crate) fn gave_outputs<'a>(&mut self, outputs: impl IntoIterator<Item = &'a Output>) {
        if let Some(recorder) = &mut self.recorder {
            outputs.into_iter().for_each(|output| recorder.now.output(output));
        }
    }

    /// Notes events that were given.
    #[inline]
    pub(crate) fn gave_events<'a>(&mut self, events: impl IntoIterator<Item = &'a Event>) {
        if let Some(recorder) = &mut self.recorder {
            events.into_iter().for_each(|event| recorder.now.event(event));
        }
    }

    #[inline]
    pub(crate) fn gave_report(&mut self, report: Option<&Report>) {
        if let (Some(recorder), Some(report)) = (&mut self.recorder, report) {
            recorder.now.one(Mark::of_report(report));
        }
    }

    #[inline]
    pub(crate) fn gave_notice(&mut self, notice: Option<&Notice>) {
        if let (Some(recorder), Some(notice)) = (&mut self.recorder, notice) {
            recorder.now.one(Mark::of_notice(notice));
        }
    }

    /// The node as bytes. What it records about itself is no part of it.
    pub(super) fn written(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self)
            .inspect_err(|e| tracing::error!("the state of the node can't be written: {e}"))
            .ok()
    }

    /// A copy, on which changes can be tried: what it puts out goes nowhere. Nothing, where the state can't
    /// be written down.
    pub fn trial_copy(&self) -> Option<Self> {
        let same = postcard::from_bytes(&self.written()?);
        same.inspect_err(|e| tracing::error!("a written state can't be read: {e}")).ok()
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
        let Recorder { limit, older, now } = &mut *recorder;
        older.begin(state, *limit);
        core::mem::swap(older, now);
        self.recorder = Some(recorder);
    }
}

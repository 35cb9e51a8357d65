//! Where the payload of one arriving message goes: into spans of registered memory, into a bounded
//! buffer for the node, or nowhere. Whatever the sink does not take is read and thrown away.

use lnet::Sink;
use lnet_types::{IoVec, Memory, MsgId, Span};

/// A message whose payload is arriving.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// The node's name for it; `None` if no receiver waits for it.
    pub(crate) msg: Option<MsgId>,
    /// The cookie to be acknowledged when the payload has been read, 0 for none.
    pub(crate) cookie: u64,
    place: Place,
    /// Whether no byte has been thrown away.
    kept: bool,
}

#[derive(Debug)]
enum Place {
    /// Span by span; `at` is the current one and `filled` how much of it is.
    Spans {
        spans: IoVec,
        at: usize,
        filled: u32,
    },
    /// At most `max` bytes.
    Bytes {
        bytes: Vec<u8>,
        max: usize,
    },
    Nowhere,
}

impl Inbound {
    #[inline]
    pub(crate) fn to_sink(msg: MsgId, sink: Sink, cookie: u64) -> Self {
        let place = match sink {
            Sink::Spans(spans) => Place::Spans { spans, at: 0, filled: 0 },
            Sink::Bytes(max) => Place::Bytes { bytes: Vec::new(), max: max as usize },
        };
        Self { msg: Some(msg), cookie, place, kept: true }
    }

    pub(crate) const fn to_nowhere(cookie: u64) -> Self {
        Self { msg: None, cookie, place: Place::Nowhere, kept: false }
    }

    /// Whether all payload so far went into the sink.
    pub(crate) const fn kept(&self) -> bool {
        self.kept
    }

    /// The bytes collected for the node.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.place {
            Place::Bytes { bytes, .. } => bytes,
            Place::Spans { .. } | Place::Nowhere => &[],
        }
    }

    /// The piece of memory that the next of `left` bytes go to, and whether the message ends in
    /// it. `None` where they don't go to memory.
    pub(crate) fn target(&self, left: u32) -> Option<(Span, bool)> {
        let Place::Spans { spans, at, filled } = &self.place else { return None };
        let span = spans.get(*at)?;
        let len = (span.len - filled).min(left);
        let offset = span.offset + u64::from(*filled);
        (len > 0).then_some((Span { region: span.region, len, offset }, len == left))
    }

    /// Notes that `n` bytes of the last [`target`](Self::target) were filled.
    pub(crate) fn filled(&mut self, n: u32) {
        if let Place::Spans { spans, at, filled } = &mut self.place {
            *filled += n;
            // Spans of no length are passed over as well.
            while spans.get(*at).is_some_and(|s| *filled >= s.len) {
                *filled = 0;
                *at += 1;
            }
        }
    }

    /// Puts `payload` where it belongs.
    pub(crate) fn take(&mut self, mut payload: &[u8], mem: &mut dyn Memory) {
        while !payload.is_empty() {
            if let Place::Bytes { bytes, max } = &mut self.place {
                let fits = payload.len().min(max.saturating_sub(bytes.len()));
                let (now, rest) = payload.split_at(fits);
                bytes.extend_from_slice(now);
                self.kept &= rest.is_empty();
                return;
            }
            self.filled(0);
            let Some((span, _)) = self.target(u32::try_from(payload.len()).unwrap_or(u32::MAX))
            else {
                self.kept = false;
                return;
            };
            let (now, rest) = payload.split_at(span.len as usize);
            mem.bytes_mut(span).copy_from_slice(now);
            self.filled(span.len);
            payload = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use lnet_types::RegionId;
    use slotmap::KeyData;

    use super::*;

    struct Mem(Vec<u8>);

    impl Memory for Mem {
        fn bytes(&self, s: Span) -> &[u8] {
            &self.0[s.offset as usize..][..s.len as usize]
        }
        fn bytes_mut(&mut self, s: Span) -> &mut [u8] {
            &mut self.0[s.offset as usize..][..s.len as usize]
        }
    }

    fn span(offset: u64, len: u32) -> Span {
        Span { region: RegionId(0), len, offset }
    }

    fn msg() -> MsgId {
        MsgId::from(KeyData::from_ffi(1 << 32 | 1))
    }

    #[test]
    fn payload_fills_spans_in_order_and_the_rest_is_thrown_away() {
        let spans: IoVec = [span(10, 3), span(0, 0), span(0, 2)].into_iter().collect();
        for cut in 0..=6 {
            let mut mem = Mem(vec![0; 16]);
            let mut inbound = Inbound::to_sink(msg(), Sink::Spans(spans.clone()), 0);
            inbound.take(&b"abcdef"[..cut], &mut mem);
            inbound.take(&b"abcdef"[cut..], &mut mem);
            assert_eq!(&mem.0[10..14], b"abc\0", "cut at {cut}");
            assert_eq!(&mem.0[..3], b"de\0");
            assert!(!inbound.kept(), "one byte did not fit");
        }
    }

    #[test]
    fn targets_name_the_memory_that_is_due() {
        let spans: IoVec = [span(10, 3), span(0, 2)].into_iter().collect();
        let mut inbound = Inbound::to_sink(msg(), Sink::Spans(spans), 0);
        assert_eq!(inbound.target(5), Some((span(10, 3), false)));
        inbound.filled(1);
        assert_eq!(inbound.target(4), Some((span(11, 2), false)));
        inbound.filled(2);
        assert_eq!(inbound.target(2), Some((span(0, 2), true)));
        assert_eq!(inbound.target(1), Some((span(0, 1), true)));
        inbound.filled(2);
        assert_eq!(inbound.target(7), None);
        assert!(inbound.kept());
    }

    #[test]
    fn bytes_for_the_node_are_bounded() {
        let mut mem = Mem(Vec::new());
        let mut inbound = Inbound::to_sink(msg(), Sink::Bytes(4), 0);
        inbound.take(b"abc", &mut mem);
        assert!(inbound.kept());
        inbound.take(b"def", &mut mem);
        assert_eq!(inbound.bytes(), b"abcd");
        assert!(!inbound.kept());
    }
}

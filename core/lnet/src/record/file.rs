//! A recording as bytes: a header that says what wrote it, the recording, and a checksum. It holds
//! the state of a node field by field, so only the version that wrote it can read it; any other
//! one says so.

use super::Recording;

const MAGIC: &[u8; 8] = b"ULNETREC";
/// Goes up when a state or a call of a node changes between two releases of the same version.
const FORMAT: u16 = 23;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why bytes are not a recording that can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// Something else altogether.
    #[error("not a recording of a ulnet node")]
    Foreign,
    /// Written by another version.
    #[error(
        "recorded by ulnet {theirs}; this is ulnet {}, which replays its own recordings only",
        ours()
    )]
    Version {
        /// What wrote it: version and format.
        theirs: String,
    },
    /// Cut short, or changed since it was written.
    #[error("the recording is damaged")]
    Damaged,
}

/// This version, as it is printed.
fn ours() -> String {
    format!("{VERSION} (format {FORMAT})")
}

impl Recording {
    /// As bytes, for a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(FORMAT.to_le_bytes());
        out.push(VERSION.len() as u8);
        out.extend(VERSION.as_bytes());
        // Writing to memory fails for types that serde can't know the length of; here are none.
        let out = postcard::to_extend(self, out).unwrap_or_default();
        let sum = sum(&out);
        let mut out = out;
        out.extend(sum.to_le_bytes());
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`RecordingError`]; never misreads what another version has written.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordingError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(RecordingError::Foreign)?;
        let (format, rest) = rest.split_first_chunk().ok_or(RecordingError::Damaged)?;
        let (len, rest) = rest.split_first().ok_or(RecordingError::Damaged)?;
        let (version, rest) =
            rest.split_at_checked(usize::from(*len)).ok_or(RecordingError::Damaged)?;
        let format = u16::from_le_bytes(*format);
        if format != FORMAT || version != VERSION.as_bytes() {
            let theirs = format!("{} (format {format})", String::from_utf8_lossy(version));
            return Err(RecordingError::Version { theirs });
        }
        let (body, end) = rest.split_last_chunk().ok_or(RecordingError::Damaged)?;
        let summed = bytes.get(..bytes.len() - end.len()).unwrap_or_default();
        if sum(summed) != u64::from_le_bytes(*end) {
            return Err(RecordingError::Damaged);
        }
        postcard::from_bytes(body).map_err(|_| RecordingError::Damaged)
    }
}

/// FNV-1a: finds damage, not forgery.
fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, b| (sum ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use lnet_types::Instant;

    use super::super::given::Given;
    use super::*;
    use crate::{Difference, Input, Node, NodeConfig, Profile, Tunables};

    fn recording() -> Recording {
        let tunables = Tunables::new(Profile::Default);
        let config = NodeConfig { seed: 7, interface_cookie: 11, ping_seq: 0, tunables };
        let mut node = Node::new(config, Instant::ZERO);
        node.record(2);
        for n in 0..28 {
            node.handle_timeout(Instant(n * 1_000_000_000));
            assert!(node.poll_output().is_none());
        }
        node.recording().expect("it records")
    }

    #[test]
    fn a_recording_comes_back_from_its_bytes_and_replays() {
        let recording = recording();
        assert_eq!(recording.calls(), 12);
        let back = Recording::from_bytes(&recording.to_bytes()).unwrap();
        let replayed = back.replay().unwrap();
        assert_eq!(replayed.calls, recording.calls());
    }

    #[test]
    fn a_recording_of_another_version_is_refused_by_name() {
        let good = recording().to_bytes();
        assert_eq!(Recording::from_bytes(b"hello").unwrap_err(), RecordingError::Foreign);
        for cut in MAGIC.len()..good.len() {
            let err = Recording::from_bytes(&good[..cut]).unwrap_err();
            assert_eq!(err, RecordingError::Damaged, "cut at {cut}");
        }
        let mut other = good.clone();
        other[MAGIC.len()] += 1;
        let err = Recording::from_bytes(&other).unwrap_err();
        assert!(err.to_string().contains(&format!("format {}", FORMAT + 1)), "{err}");
        let mut flipped = good;
        let middle = flipped.len() / 2;
        flipped[middle] ^= 4;
        assert_eq!(Recording::from_bytes(&flipped).unwrap_err(), RecordingError::Damaged);
    }

    #[test]
    fn a_changed_recording_differs_at_a_named_call() {
        let mut later = recording();
        let last = later.stretches.last_mut().and_then(|s| s.calls.last_mut()).unwrap();
        *last = Input::HandleTimeout { now: Instant(99_000_000_000) };
        let err = later.replay().unwrap_err();
        assert!(matches!(err, Difference::State { .. }), "{err}");

        let with = |change: fn(&mut u8, &mut u32)| {
            let mut other = recording();
            let given = other.stretches.last_mut().and_then(|s| s.given.get_mut(3));
            let Some((3, Given::Usual { outputs, sum, .. })) = given else {
                panic!("{given:?}");
            };
            change(outputs, sum);
            other.replay().unwrap_err().to_string()
        };
        let calls = recording().calls() - recording().stretches.last().unwrap().calls.len();
        let at = format!("call {} (HandleTimeout): ", calls + 3);
        let other = with(|_, sum| *sum += 1);
        assert_eq!(other, at.clone() + "what it gave was not what was recorded; this time: []");
        let more = with(|outputs, _| *outputs += 1);
        assert_eq!(more, at + "output 1 was not what was recorded: there is none");
    }
}

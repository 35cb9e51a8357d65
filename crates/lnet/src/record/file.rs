//! A recording as bytes: a header that says what wrote it, the recording, and a checksum. It holds
//! the state of a node field by field, so only the version that wrote it can read it; any other
//! one says so.

use super::Recording;

const MAGIC: &[u8; 8] = b"ULNETREC";
/// Goes up when a state or a call of a node changes between two releases of the same version.
const FORMAT: u16 = 1;
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

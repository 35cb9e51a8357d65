//! What the two nodes of the demo say to each other, in LNet messages alone.
//!
//! | portal | operation | meaning |
//! |---|---|---|
//! | 40 | PUT with ACK | `Begin`: size and chunk size of the file to come, once |
//! | 41 | PUT with ACK | a chunk of the file; `hdr_data` is its number |
//! | 42 | PUT with ACK | `End`: all chunks were acknowledged; the SHA-256 follows |
//! | 43 | GET | the receiver's state: its error if any, and which chunks it has |
//!
//! A chunk whose ACK did not come may or may not have arrived. The sender asks (43) before it
//! repeats one, so that nothing arrives twice.

/// Portal of `Begin`.
pub(crate) const BEGIN: u32 = 40;
/// Portal of chunks.
pub(crate) const CHUNK: u32 = 41;
/// Portal of `End`.
pub(crate) const END: u32 = 42;
/// Portal of the receiver's state.
pub(crate) const STATE: u32 = 43;
/// Match bits of all of them.
pub(crate) const BITS: u64 = 0x0064_656d_6f00;

/// Largest chunk: what one message carries.
pub(crate) const CHUNK_MAX: u32 = 1 << 20;
/// A file is cut into at least this many chunks if it has the bytes, so that both rails get some.
const CHUNKS_WANTED: u64 = 256;

/// Bytes of the receiver's state before the bitmap: length of the error, then its text.
pub(crate) const STATE_HEAD: usize = 256;

/// The size of the chunks that a file of `size` bytes is cut into.
pub(crate) fn chunk_size(size: u64) -> u32 {
    (size / CHUNKS_WANTED).clamp(16, u64::from(CHUNK_MAX)) as u32
}

/// `Begin`, as bytes.
pub(crate) fn begin(size: u64, chunk: u32) -> Vec<u8> {
    let mut out = size.to_le_bytes().to_vec();
    out.extend_from_slice(&chunk.to_le_bytes());
    out
}

/// `Begin`, from bytes.
pub(crate) fn parse_begin(bytes: &[u8]) -> Option<(u64, u32)> {
    let (size, rest) = bytes.split_first_chunk::<8>()?;
    let (chunk, _) = rest.split_first_chunk::<4>()?;
    let (size, chunk) = (u64::from_le_bytes(*size), u32::from_le_bytes(*chunk));
    (1..=CHUNK_MAX).contains(&chunk).then_some((size, chunk))
}

/// The head of the receiver's state, with an error or none.
pub(crate) fn state_head(error: &str) -> Vec<u8> {
    let mut text = error.as_bytes();
    if text.len() > STATE_HEAD - 2 {
        text = &text[..STATE_HEAD - 2];
    }
    let mut out = (text.len() as u16).to_le_bytes().to_vec();
    out.extend_from_slice(text);
    out.resize(STATE_HEAD, 0);
    out
}

/// The receiver's error, from the head of its state.
pub(crate) fn state_error(state: &[u8]) -> Option<String> {
    let (len, rest) = state.split_first_chunk::<2>()?;
    let text = rest.get(..usize::from(u16::from_le_bytes(*len)))?;
    (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
}

//! Bytes of the control socket: a `u32` length, little-endian, then that many bytes of JSON. The
//! decoders are total: any bytes give a value or an error, and hold no more than one frame.
//!
//! The version is looked at before anything else in a message, so a client of another version gets
//! an error about the version and not about a field.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{AdminError, ProtocolError, Reply, Request};

/// The protocol's version. It changes whenever a message changes its meaning.
pub const VERSION: u32 = 1;
/// The longest request, bytes of JSON: the largest import is far below.
pub const REQUEST_MAX: u32 = 1 << 20;
/// The longest reply, bytes of JSON: a page of peers that ends with the largest one possible, or
/// 4096 NIs, at about 1.5 KiB each.
pub const REPLY_MAX: u32 = 16 << 20;

const LENGTH_BYTES: usize = 4;

/// Cuts a stream of bytes into frames.
#[derive(Debug)]
pub struct FrameDecoder {
    buf: Vec<u8>,
    max: u32,
}

impl FrameDecoder {
    /// A decoder of frames of at most `max` bytes: [`REQUEST_MAX`] at a server, [`REPLY_MAX`] at a
    /// client.
    pub const fn new(max: u32) -> Self {
        Self { buf: Vec::new(), max }
    }

    /// Takes bytes as they come. Call [`Self::next_frame`] until it has none before pushing more:
    /// what is held stays below one frame and one push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
    }

    /// The next complete frame, without its length.
    ///
    /// # Errors
    /// A frame longer than allowed was announced; the stream cannot be followed any further.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let Some((length, rest)) = self.buf.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*length);
        if len > self.max {
            return Err(ProtocolError::TooLong { len: u64::from(len), max: self.max });
        }
        // At most `max`, which fits on every machine this is built for.
        let len = len as usize;
        if rest.len() < len {
            return Ok(None);
        }
        let frame = rest[..len].to_vec();
        self.buf.drain(..LENGTH_BYTES + len);
        Ok(Some(frame))
    }

    /// Whether the stream stopped inside a frame.
    pub const fn is_partial(&self) -> bool {
        !self.buf.is_empty()
    }
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u32,
    #[serde(default)]
    id: u64,
}

#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    id: u64,
    body: T,
}

/// A request as a frame.
///
/// # Errors
/// It is longer than [`REQUEST_MAX`].
pub fn encode_request(id: u64, request: &Request) -> Result<Vec<u8>, ProtocolError> {
    encode(id, request, REQUEST_MAX)
}

/// A reply as a frame. One that is too long becomes the error that says so.
pub fn encode_reply(id: u64, reply: &Result<Reply, AdminError>) -> Vec<u8> {
    encode(id, reply, REPLY_MAX).unwrap_or_else(|error| {
        let refusal: Result<Reply, _> =
            Err(AdminError::errno(error.errno()).because(format_args!("reply: {error}")));
        // It has a few dozen bytes.
        encode(id, &refusal, REPLY_MAX).unwrap_or_default()
    })
}

/// The number of a request and the request, from a frame. The number comes with an error too where
/// it could be read (else 0), so that a server can answer.
///
/// # Errors
/// Another version, or not a request.
pub fn decode_request(frame: &[u8]) -> Result<(u64, Request), (u64, ProtocolError)> {
    decode(frame)
}

/// The number of the request and the answer, from a frame.
///
/// # Errors
/// Another version, or not a reply.
pub fn decode_reply(frame: &[u8]) -> Result<(u64, Result<Reply, AdminError>), ProtocolError> {
    decode(frame).map_err(|(_, error)| error)
}

fn encode<T: Serialize>(id: u64, body: &T, max: u32) -> Result<Vec<u8>, ProtocolError> {
    let mut frame = vec![0; LENGTH_BYTES];
    serde_json::to_writer(&mut frame, &Envelope { version: VERSION, id, body })
        .map_err(|e| ProtocolError::Malformed(e.to_string()))?;
    let len = (frame.len() - LENGTH_BYTES) as u64;
    match u32::try_from(len) {
        Ok(length) if length <= max => {
            frame[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
            Ok(frame)
        }
        _ => Err(ProtocolError::TooLong { len, max }),
    }
}

fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<(u64, T), (u64, ProtocolError)> {
    let malformed = |e: serde_json::Error| ProtocolError::Malformed(e.to_string());
    // What is of our version is read once; the head alone only to say what is wrong.
    let all = match serde_json::from_slice::<Envelope<T>>(frame) {
        Ok(all) if all.version == VERSION => return Ok((all.id, all.body)),
        all => all,
    };
    let head: VersionOnly = serde_json::from_slice(frame).map_err(|e| (0, malformed(e)))?;
    if head.version != VERSION {
        let error = ProtocolError::Version { theirs: head.version, ours: VERSION };
        return Err((head.id, error));
    }
    let all = all.map_err(|e| (head.id, malformed(e)))?;
    Ok((all.id, all.body))
}

#[cfg(test)]
#[path = "frame/tests.rs"]
mod tests;

//! The flight recorder's way out: a recording is taken once and fetched in parts, because it may be
//! longer than a reply.

use std::sync::{Mutex, PoisonError};

use lnet_admin::{AdminError, RecordingPart, Reply};
use lnet_rt::NodeHandle;
use lnet_types::Errno;

/// Bytes of one part: as digits, half of the longest reply.
const PART: usize = lnet_admin::REPLY_MAX as usize / 4;

/// The recording that is being fetched, at most one.
#[derive(Debug, Default)]
pub(crate) struct Recordings(Mutex<Last>);

#[derive(Debug, Default)]
struct Last {
    number: u64,
    calls: u64,
    bytes: Vec<u8>,
}

impl Recordings {
    /// One part; part 0 takes a recording from `node`.
    pub(crate) fn part(
        &self,
        node: &NodeHandle,
        part: u32,
        number: u64,
    ) -> Result<Reply, AdminError> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if part == 0 {
            let taken = node.call(|stack, _| stack.node().recording()).blocking();
            let taken = taken.map_err(|e| AdminError::errno(Errno::ENETDOWN).because(e))?;
            let recording = taken.ok_or_else(|| {
                AdminError::errno(Errno::ENODATA)
                    .because("this daemon keeps no recording: start it with --record N")
            })?;
            last.number += 1;
            last.calls = recording.calls() as u64;
            last.bytes = recording.to_bytes();
        } else if number != last.number || last.bytes.is_empty() {
            return Err(AdminError::errno(Errno::ESTALE)
                .because(format_args!("recording {number} is not there any more")));
        }
        let parts = last.bytes.len().div_ceil(PART) as u32;
        let bytes = last.bytes.chunks(PART).nth(part as usize).ok_or_else(|| {
            AdminError::errno(Errno::EINVAL)
                .because(format_args!("part {part} of a recording of {parts} parts"))
        })?;
        let reply =
            RecordingPart { number: last.number, parts, calls: last.calls, bytes: bytes.to_vec() };
        if part + 1 == parts {
            last.bytes = Vec::new();
        }
        Ok(Reply::Recording(reply))
    }
}

//! The flight recorder: the last calls of a node, and its state before them, so that what it did can
//! be done again elsewhere, call by call. Off unless it is asked for; then a call costs one more
//! copy of its arguments. It holds no clock and writes no file: a shell takes a [`Recording`] out.
//!
//! ```text
//!   state ── calls ──► state ── calls ──► state now        two stretches, of the same memory each
//! ```
//!
//! Where a stretch ends, the node is written down and *goes on from what was written*: so nothing
//! that a written state can't hold (the order of free places in a table, say) can make the
//! replay take another way. `input.rs` lists the calls, `given.rs` sums up what they gave, `replay.rs`
//! makes them again, `file.rs` is the recording as bytes.

mod apply;
mod file;
mod given;
mod input;
mod keep;
mod live;
mod replay;
mod words;

use core::fmt;

use given::{Given, Mark};
use live::Live;

pub use file::RecordingError;
pub use given::MarkKind;
pub(crate) use input::Remembering;
pub use input::{Input, Lent};
pub use replay::{Difference, Replayed};

/// A state, the calls that followed, and what they gave.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
struct Stretch {
    /// The node before the first call, as `postcard` writes it.
    state: Vec<u8>,
    calls: Vec<Input>,
    /// What was given after how many calls.
    given: Vec<(u32, Given)>,
}

/// The last calls of a node, taken out of it with [`crate::Node::recording`].
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

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} words, {} calls at least)", self.now.words(), self.limit)
    }
}

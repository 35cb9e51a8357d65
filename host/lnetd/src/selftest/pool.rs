//! Memory for selftest. What is sent as pattern is the same for all, and so is what is thrown away:
//! one region each. Messages, and data that are to be checked, have pieces of their own, which are
//! used again and again.

use std::collections::BTreeMap;

use lnet_rt::{Buffer, Errno, OpFailed, RegionId, Span, Stack};
use lnet_selftest::{Data, Sink, Wanted, damage, fill, poison};
use lnet_wire::selftest::BRW_MAX;

/// The smallest piece: a message fits.
const PIECE_MIN: u32 = 256;
/// First and last bytes that are poisoned in a sink whose edges are looked at.
const EDGE: usize = 8;

/// Some registered bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) span: Span,
    /// Whether its bytes are looked at.
    pub(super) wanted: bool,
    /// The length of its region, if it is its own and comes back.
    class: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Pool {
    pattern: RegionId,
    damaged: RegionId,
    trash: RegionId,
    free: BTreeMap<u32, Vec<RegionId>>,
}

fn pattern(damaged: bool) -> Buffer {
    let mut bytes = vec![0; BRW_MAX as usize];
    fill(&mut bytes);
    if damaged {
        damage(&mut bytes);
    }
    bytes.into()
}

impl Pool {
    pub(super) fn new(stack: &mut Stack) -> Result<Self, OpFailed> {
        Ok(Self {
            pattern: stack.lend(pattern(false))?,
            damaged: stack.lend(pattern(true))?,
            trash: stack.lend(Buffer::zeroed(BRW_MAX as usize))?,
            free: BTreeMap::new(),
        })
    }

    /// Bytes to be sent.
    pub(super) fn source(&mut self, stack: &mut Stack, data: &Data) -> Result<Piece, Errno> {
        match data {
            Data::Bytes(bytes) => {
                let piece = self.piece(stack, bytes.len() as u32)?;
                stack.bytes_mut(piece.span).copy_from_slice(bytes);
                Ok(piece)
            }
            Data::Pattern { len, damaged } => {
                let region = if *damaged { self.damaged } else { self.pattern };
                Ok(shared(region, *len))
            }
        }
    }

    /// Room for bytes that arrive.
    pub(super) fn sink(&mut self, stack: &mut Stack, sink: &Sink) -> Result<Piece, Errno> {
        if sink.wanted == Wanted::Nothing {
            return Ok(shared(self.trash, sink.len));
        }
        let piece = self.piece(stack, sink.len)?;
        let bytes = stack.bytes_mut(piece.span);
        if sink.wanted == Wanted::All {
            poison(bytes);
        } else {
            let len = bytes.len();
            poison(&mut bytes[..EDGE.min(len)]);
            poison(&mut bytes[len.saturating_sub(EDGE)..]);
        }
        Ok(piece)
    }

    fn piece(&mut self, stack: &mut Stack, len: u32) -> Result<Piece, Errno> {
        let class = len.max(PIECE_MIN).next_power_of_two();
        let region = match self.free.get_mut(&class).and_then(Vec::pop) {
            Some(region) => region,
            None => {
                stack.lend(Buffer::zeroed(class as usize)).map_err(|failed| failed.error.errno())?
            }
        };
        Ok(Piece { span: Span { region, len, offset: 0 }, wanted: true, class: Some(class) })
    }

    /// Takes an unused piece back (its last event may be under way).
    pub(super) fn give(&mut self, piece: Piece) {
        if let Some(class) = piece.class {
            self.free.entry(class).or_default().push(piece.span.region);
        }
    }

    /// Gives unused memory back to the system.
    pub(super) fn shrink(&mut self, stack: &mut Stack) {
        for (_, regions) in core::mem::take(&mut self.free) {
            for region in regions {
                // No descriptor is left on it: they came back with their last events.
                drop(stack.take_back(region));
            }
        }
    }
}

const fn shared(region: RegionId, len: u32) -> Piece {
    Piece { span: Span { region, len, offset: 0 }, wanted: false, class: None }
}

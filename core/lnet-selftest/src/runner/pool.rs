//! Memory of a runner. What is sent as pattern is the same for all, and so is what is thrown away: one
//! region each, from the first test on. Messages, and data that are to be checked, have blocks of
//! their own.

use lnet::upper::Below;
use lnet_types::{Errno, RegionId, Span};
use lnet_wire::selftest::BRW_MAX;

use crate::{Data, Sink, Wanted, damage, fill, poison};

/// First and last bytes that are poisoned in a sink whose edges are looked at.
const EDGE: usize = 8;

/// Some registered bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) span: Span,
    /// Whether they are its own: such bytes are looked at, and the block comes back.
    pub(super) own: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    pattern: Option<RegionId>,
    damaged: Option<RegionId>,
    trash: Option<RegionId>,
}

impl Pool {
    /// Bytes to be sent.
    pub(super) fn source(&mut self, data: &Data, below: &mut Below<'_>) -> Result<Piece, Errno> {
        match data {
            Data::Bytes(bytes) => {
                let len = u32::try_from(bytes.len()).map_err(|_| Errno::EMSGSIZE)?;
                let piece = block(len, below)?;
                below.bytes_mut(piece.span).copy_from_slice(bytes);
                Ok(piece)
            }
            Data::Pattern { len, damaged: false } => shared(&mut self.pattern, *len, below, fill),
            Data::Pattern { len, damaged: true } => {
                shared(&mut self.damaged, *len, below, |bytes| {
                    fill(bytes);
                    damage(bytes);
                })
            }
        }
    }

    /// Room for bytes that arrive.
    pub(super) fn sink(&mut self, sink: Sink, below: &mut Below<'_>) -> Result<Piece, Errno> {
        if sink.wanted == Wanted::Nothing {
            return shared(&mut self.trash, sink.len, below, |_| ());
        }
        let piece = block(sink.len, below)?;
        let bytes = below.bytes_mut(piece.span);
        if sink.wanted == Wanted::All {
            poison(bytes);
        } else {
            let len = bytes.len();
            poison(&mut bytes[..EDGE.min(len)]);
            poison(&mut bytes[len.saturating_sub(EDGE)..]);
        }
        Ok(piece)
    }
}

/// Takes a piece back that no descriptor stands on.
pub(super) fn give(piece: Piece, below: &mut Below<'_>) {
    if piece.own {
        below.free(piece.span);
    }
}

fn block(len: u32, below: &mut Below<'_>) -> Result<Piece, Errno> {
    let span = below.alloc(len).ok_or(Errno::ENOMEM)?;
    Ok(Piece { span, own: true })
}

/// The first bytes of a region that is made, as `init` says, when it is wanted first.
fn shared(
    place: &mut Option<RegionId>,
    len: u32,
    below: &mut Below<'_>,
    init: impl FnOnce(&mut [u8]),
) -> Result<Piece, Errno> {
    let region = match *place {
        Some(region) => region,
        None => {
            let region = below.register(BRW_MAX)?;
            init(below.bytes_mut(Span { region, len: BRW_MAX, offset: 0 }));
            *place.insert(region)
        }
    };
    Ok(Piece { span: Span { region, len, offset: 0 }, own: false })
}

//! Credits of one connection (wire.md 7.5): what this side may send, and what it owes the peer for
//! receive buffers that are posted again.

use lnet_wire::ib::{Type, Version};
use thiserror::Error;

/// The high-water mark of version 0x11.
const HIGHWATER_V11: u16 = 7;

/// The credits of one side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credits {
    version: Version,
    depth: u16,
    highwater: u16,
    /// Messages that may be sent.
    held: u16,
    /// Requests that may be sent: the answer of each has its receive buffer.
    reserved: u16,
    /// Buffers posted again of which the peer does not know yet.
    owed: u16,
}

/// A peer gives back more than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("credits {total}: at most {depth} expected")]
pub struct Excess {
    /// What this side would hold.
    pub total: u16,
    /// The queue depth.
    pub depth: u16,
}

impl Credits {
    /// Those of a new connection of this depth. A `highwater` of 0 is half of the depth.
    pub fn new(version: Version, depth: u16, highwater: u16) -> Self {
        let wanted = match version {
            Version::V11 => HIGHWATER_V11,
            Version::V12 if highwater == 0 => depth / 2,
            Version::V12 => highwater,
        };
        let highwater = wanted.min(depth.saturating_sub(1)).max(1);
        Self { version, depth, highwater, held: depth, reserved: depth, owed: 0 }
    }

    /// Messages that may be sent.
    pub const fn held(&self) -> u16 {
        self.held
    }

    /// Requests that may be sent.
    pub const fn reserved(&self) -> u16 {
        self.reserved
    }

    /// Buffers posted again of which the peer does not know.
    pub const fn owed(&self) -> u16 {
        self.owed
    }

    /// The queue depth.
    pub const fn depth(&self) -> u16 {
        self.depth
    }

    /// Takes a reserved credit for a request, if there is one.
    pub fn reserve(&mut self) -> bool {
        let left = self.reserved.checked_sub(1);
        self.reserved = left.unwrap_or(0);
        left.is_some()
    }

    /// The answer to a request has come, and its buffer is posted again.
    pub fn unreserve(&mut self) {
        self.reserved = (self.reserved + 1).min(self.depth);
    }

    /// Whether a message of `kind` may go now. In version 0x11 the last credit is kept for a NOOP, so
    /// that both sides can always return what they owe.
    pub const fn allows(&self, kind: Type) -> bool {
        let needed = match (kind.takes_credit(self.version), self.version, kind) {
            (false, _, _) => 0,
            (true, Version::V12, _) | (true, Version::V11, Type::Noop) => 1,
            (true, Version::V11, _) => 2,
        };
        self.held >= needed
    }

    /// A message of `kind` goes: takes its credit, and gives the number of credits that it returns.
    pub fn spend(&mut self, kind: Type) -> u8 {
        if kind.takes_credit(self.version) {
            self.held = self.held.saturating_sub(1);
        }
        let given = u8::try_from(self.owed).unwrap_or(u8::MAX);
        self.owed -= u16::from(given);
        given
    }

    /// A message has brought credits back.
    ///
    /// # Errors
    /// More than were given away: the peer breaks the protocol.
    pub fn returned(&mut self, credits: u8) -> Result<(), Excess> {
        let total = self.held + u16::from(credits);
        if total > self.depth {
            return Err(Excess { total, depth: self.depth });
        }
        self.held = total;
        Ok(())
    }

    /// The buffer of a message that took a credit is posted again.
    pub const fn owe(&mut self) {
        self.owed += 1;
    }

    /// Whether so much is owed that a NOOP of its own returns it if nothing else goes.
    pub const fn is_due(&self) -> bool {
        self.owed >= self.highwater
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_half_of_the_depth_and_below_it() {
        let marks = [
            (Version::V12, 8, 0, 4),
            (Version::V12, 8, 7, 7),
            (Version::V12, 8, 200, 7),
            (Version::V12, 255, 0, 127),
            (Version::V12, 1, 0, 1),
            (Version::V11, 8, 0, 7),
            (Version::V11, 4, 2, 3),
        ];
        for (version, depth, highwater, mark) in marks {
            let mut credits = Credits::new(version, depth, highwater);
            for owed in 0..mark {
                assert_eq!((credits.owed(), credits.is_due()), (owed, false), "{version} {depth}");
                credits.owe();
            }
            assert!(credits.is_due(), "{version} {depth} {highwater}");
            assert_eq!(u16::from(credits.spend(Type::PutAck)), mark);
            assert!(!credits.is_due());
        }
    }

    #[test]
    fn the_last_credit_is_a_noop_s_in_the_old_version_alone() {
        for (version, sent, noop_after) in [(Version::V12, 8, true), (Version::V11, 7, true)] {
            let mut credits = Credits::new(version, 8, 0);
            let mut count = 0;
            while credits.allows(Type::Immediate) {
                credits.spend(Type::Immediate);
                count += 1;
            }
            assert_eq!(count, sent, "{version}");
            assert_eq!(credits.allows(Type::Noop), noop_after, "{version}");
            assert!(!credits.allows(Type::PutReq) && !credits.allows(Type::GetReq), "{version}");
            assert!(credits.allows(Type::PutDone) && credits.allows(Type::PutNak), "{version}");
            credits.spend(Type::Noop);
            assert_eq!(credits.allows(Type::Noop), version == Version::V12);
        }
    }

    #[test]
    fn more_credits_than_the_depth_are_an_error() {
        let mut credits = Credits::new(Version::V12, 8, 0);
        assert_eq!(credits.returned(0), Ok(()));
        assert_eq!(credits.returned(1), Err(Excess { total: 9, depth: 8 }));
        credits.spend(Type::Immediate);
        assert_eq!(credits.returned(255), Err(Excess { total: 262, depth: 8 }));
        assert_eq!((credits.returned(1), credits.held()), (Ok(()), 8));
    }

    #[test]
    fn a_request_needs_the_buffer_of_its_answer() {
        let mut credits = Credits::new(Version::V12, 8, 0);
        assert_eq!((0..9).filter(|_| credits.reserve()).count(), 8);
        credits.unreserve();
        assert!(credits.reserve() && !credits.reserve());
    }
}

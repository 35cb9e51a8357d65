//! Metadata targets of directories whose default layout leaves them open (C-125, C-155): in turn, as many
//! levels deep as the default says, and beyond that by the room that they have. A visit has no clock: it
//! asks for that room again after a number of directories.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;

use lustre_wire::ost::{Statfs, StatfsState};
use lustre_wire::striping::DirDefault;

use super::join::join;
use super::{IN_FLIGHT, Visitor, Wire, mdc};

/// After so many directories targets are asked for their room again.
const ASK_AGAIN: u64 = 64;
/// Bytes that a directory takes at least.
const DIR_BYTES: u64 = 4096;
/// Beyond it a depth of turns means none (C-155).
const DEPTH_MAX: u8 = 250;

/// What a visit knows of the room on metadata targets.
#[derive(Debug, Default)]
pub(super) struct Balance {
    /// Where its turns begin: not all visits begin at the first target.
    seed: u64,
    /// Directories that it has placed.
    placed: AtomicU64,
    /// How many more directories each target has room for, when it was asked last.
    room: BTreeMap<u32, AtomicU64>,
}

impl Balance {
    pub(super) fn new(seed: u64, mdts: impl Iterator<Item = u32>) -> Self {
        let room = mdts.map(|index| (index, AtomicU64::new(0))).collect();
        Self { seed, placed: AtomicU64::new(0), room }
    }
}

/// How many more directories a target has room for.
fn room_of(space: &Statfs) -> u64 {
    let full =
        StatfsState::READONLY | StatfsState::NOCREATE | StatfsState::ENOSPC | StatfsState::ENOINO;
    if space.state.intersects(full) {
        return 0;
    }
    let bytes = space.bavail.saturating_mul(space.bsize.into());
    space.ffree.min(bytes / DIR_BYTES)
}

/// Whether directories of this default are placed in turn, so many levels below the directory that has it.
fn in_turn(default: &DirDefault, levels: Option<u16>) -> bool {
    let deep = levels.is_some_and(|levels| levels < default.inherit_rr.into());
    deep && default.inherit_rr <= DEPTH_MAX
}

/// The target of a directory, by the room that each has: the next one, or by shares if they differ by more
/// than an eighth. `None`: no target has any.
fn choose(room: &[(u32, u64)], turn: u64, in_turn: bool) -> Option<u32> {
    let open: Vec<(u32, u64)> = room.iter().copied().filter(|(_, room)| *room > 0).collect();
    let least = open.iter().map(|(_, room)| *room).min()?;
    let most = open.iter().map(|(_, room)| *room).max()?;
    if in_turn || least >= most - most / 8 {
        let at = usize::try_from(turn % open.len() as u64).ok()?;
        return open.get(at).map(|(index, _)| *index);
    }
    // Multiples of the golden section are spread evenly, without chance.
    let total: u128 = open.iter().map(|(_, room)| u128::from(*room)).sum();
    let mut at = (u128::from(turn.wrapping_mul(0x9E37_79B9_7F4A_7C15)) * total) >> 64;
    for (index, room) in &open {
        match at.checked_sub((*room).into()) {
            Some(rest) => at = rest,
            None => return Some(*index),
        }
    }
    None
}

impl<W: Wire> Visitor<W> {
    /// The target of a directory, so many levels below the one with this default, which leaves it open.
    /// `None`: it stays with its parent.
    pub(super) async fn balanced(&self, default: &DirDefault, levels: Option<u16>) -> Option<u32> {
        // One that is spread over targets is its server's to place.
        if !matches!(default.stripe_count, 0 | 1) {
            return None;
        }
        let placed = self.balance.placed.fetch_add(1, Ordering::Relaxed);
        if placed.is_multiple_of(ASK_AGAIN) {
            self.measure().await;
        }
        let room = self.balance.room.iter();
        let room: Vec<_> = room.map(|(index, r)| (*index, r.load(Ordering::Relaxed))).collect();
        choose(&room, self.balance.seed.wrapping_add(placed), in_turn(default, levels))
    }

    /// Asks each target for its room. One without an answer has none.
    async fn measure(&self) {
        let all: Vec<_> = self.mdts.keys().map(|index| self.measure_one(*index)).collect();
        join(all, IN_FLIGHT).await;
    }

    async fn measure_one(&self, index: u32) {
        let Some(remote) = self.mdts.get(&index) else { return };
        let answer = remote.ask(&self.wire, mdc::statfs()).await.ok();
        let space: Option<Statfs> = answer.and_then(|answer| answer.get(1));
        if let Some(room) = self.balance.room.get(&index) {
            room.store(space.as_ref().map_or(0, room_of), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a hundred directories each target gets.
    fn shares(room: &[(u32, u64)], turns: bool) -> Vec<(u32, usize)> {
        let all: Vec<u32> = (7..107).filter_map(|turn| choose(room, turn, turns)).collect();
        let of = |index: u32| all.iter().filter(|chosen| **chosen == index).count();
        room.iter().map(|(index, _)| (*index, of(*index))).collect()
    }

    #[test]
    fn c125_targets_with_about_the_same_room_get_directories_in_turn() {
        assert_eq!(shares(&[(0, 1000), (2, 900)], false), [(0, 50), (2, 50)]);
        assert_eq!(
            [7, 8, 9].map(|turn| choose(&[(0, 5), (2, 5)], turn, false)),
            [2, 0, 2].map(Some)
        );
    }

    #[test]
    fn c125_targets_with_different_room_get_directories_by_their_shares() {
        let by_share = shares(&[(0, 100), (1, 300), (2, 600)], false);
        for ((_, count), share) in by_share.iter().zip([10, 30, 60]) {
            assert!(count.abs_diff(share) <= 2, "{by_share:?}");
        }
        assert_eq!(shares(&[(0, 100), (1, 300)], true), [(0, 50), (1, 50)], "in turn all the same");
    }

    #[test]
    fn c125_a_target_without_room_gets_no_directory() {
        assert_eq!(shares(&[(0, 0), (1, 300)], true), [(0, 0), (1, 100)]);
        assert_eq!(choose(&[(0, 0)], 1, false), None);
        assert_eq!(choose(&[(0, u64::MAX), (1, 1)], u64::MAX, false), Some(0));
    }

    #[test]
    fn room_of_a_target_is_the_number_of_directories_that_it_takes() {
        let space = Statfs { bavail: 1000, bsize: 4096, ffree: 500, ..Statfs::default() };
        assert_eq!(room_of(&space), 500);
        assert_eq!(room_of(&Statfs { bavail: 100, ..space }), 100);
        assert_eq!(room_of(&Statfs { bavail: u64::MAX, ..space }), 500);
        assert_eq!(room_of(&Statfs { state: StatfsState::READONLY, ..space }), 0);
    }

    #[test]
    fn c155_turns_end_as_deep_as_the_default_says() {
        for (inherit_rr, levels, turns) in [
            (0, Some(0), false),
            (1, Some(0), true),
            (1, Some(1), false),
            (3, Some(2), true),
            (3, Some(3), false),
            (3, None, false),
            (250, Some(249), true),
            (255, Some(0), false),
        ] {
            let default = DirDefault { inherit_rr, ..DirDefault::default() };
            assert_eq!(in_turn(&default, levels), turns, "{inherit_rr} {levels:?}");
        }
    }
}

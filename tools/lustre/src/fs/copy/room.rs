//! Room for the data of files that are copied beside each other: each waits until there is enough for its own, so
//! that many small ones are under way at a time and few large ones.

use core::cell::Cell;

use super::waiting::Waiting;

/// Room in bytes.
pub(super) struct Room {
    all: u64,
    free: Cell<u64>,
    waiting: Waiting,
}

/// Room that one file has; free again when it is dropped.
pub(super) struct Taken<'a> {
    room: &'a Room,
    bytes: u64,
}

impl Room {
    pub(super) fn new(all: u64) -> Self {
        Self { all, free: Cell::new(all), waiting: Waiting::default() }
    }

    /// Waits for so many bytes, or for all of it where there will never be as many.
    pub(super) async fn take(&self, bytes: u64) -> Taken<'_> {
        let bytes = bytes.min(self.all);
        let rest = self.waiting.until(|| self.free.get().checked_sub(bytes)).await;
        self.free.set(rest);
        Taken { room: self, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let Room { free, waiting, .. } = self.room;
        free.set(free.get().saturating_add(self.bytes));
        waiting.look();
    }
}

#[cfg(test)]
mod tests {
    use lnet_rt::block_on;
    use lustre_rt::visitor::join;

    use super::super::waiting::pause;
    use super::*;

    /// The most files of this size that have room at a time.
    fn most(sizes: &[u64]) -> usize {
        let (room, now, most) = (Room::new(100), Cell::new(0), Cell::new(0));
        let one = |bytes: u64| {
            let (room, now, most) = (&room, &now, &most);
            async move {
                let _taken = room.take(bytes).await;
                now.set(now.get() + 1);
                most.set(now.get().max(most.get()));
                pause(2).await;
                now.set(now.get() - 1);
            }
        };
        block_on(join(sizes.iter().copied().map(one), 20));
        assert_eq!(room.free.get(), 100);
        most.get()
    }

    #[test]
    fn as_many_files_are_under_way_as_there_is_room_for() {
        assert_eq!(most(&[1; 50]), 20);
        assert_eq!(most(&[30; 50]), 3);
        assert_eq!(most(&[51; 5]), 1);
        // One that is larger than all of it has all of it.
        assert_eq!(most(&[1000; 3]), 1);
        assert_eq!(most(&[1000, 0, 100]), 2);
    }
}

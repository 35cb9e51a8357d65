//! Where the bytes of a file lie that is spread over objects in turn (RAID0, C-177): arithmetic alone.
//!
//! ```text
//!  file     │ stripe 0 │ stripe 1 │ stripe 2 │ stripe 3 │ …
//!  object     0          1          0          1              of 2 objects
//!  there      0          0          size       size
//! ```

use core::ops::Range;

/// Most objects of one file.
pub const OBJECTS_MAX: u32 = 2000;
/// Stripes are multiples of so many bytes (C-169).
pub const STRIPE_UNIT: u64 = 64 << 10;

/// Why there is no such layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Raid0Error {
    /// The size of a stripe.
    #[error("stripe of {0} bytes: expected a multiple of 64 KiB, and less than 4 GiB")]
    Stripe(u64),
    /// The number of objects.
    #[error("{0} objects: expected 1 to {OBJECTS_MAX}")]
    Objects(u32),
}

/// How a file is spread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raid0 {
    stripe: u64,
    objects: u32,
    #[cfg(feature = "sabotage")]
    broken: bool,
}

/// A part of a file that lies in one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which object.
    pub object: u32,
    /// First byte in the object.
    pub offset: u64,
    /// First byte in the file.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

impl Raid0 {
    /// Stripes of so many bytes, on so many objects.
    ///
    /// # Errors
    /// [`Raid0Error`].
    pub const fn new(stripe: u64, objects: u32) -> Result<Self, Raid0Error> {
        if stripe == 0 || !stripe.is_multiple_of(STRIPE_UNIT) || stripe > u32::MAX as u64 {
            return Err(Raid0Error::Stripe(stripe));
        }
        if objects == 0 || objects > OBJECTS_MAX {
            return Err(Raid0Error::Objects(objects));
        }
        Ok(Self {
            stripe,
            objects,
            #[cfg(feature = "sabotage")]
            broken: false,
        })
    }

    /// [`Sabotage::StripeBorder`](crate::Sabotage::StripeBorder).
    #[cfg(feature = "sabotage")]
    pub const fn sabotage(&mut self) {
        self.broken = true;
    }

    /// Number of objects.
    pub const fn objects(&self) -> u32 {
        self.objects
    }

    /// Bytes of a stripe.
    pub const fn stripe(&self) -> u64 {
        self.stripe
    }

    /// The object that has a byte of the file, and where in it (C-177).
    pub const fn place(&self, at: u64) -> (u32, u64) {
        let (stripe, within) = (at / self.stripe, at % self.stripe);
        let (round, object) = (stripe / self.objects as u64, stripe % self.objects as u64);
        #[cfg(feature = "sabotage")]
        if self.broken && round > 0 {
            return (object as u32, round * self.stripe + within - 1);
        }
        // Less than the number of objects.
        (object as u32, round * self.stripe + within)
    }

    /// The byte of the file that an object has there (C-178); `None` behind the end of all files.
    pub const fn origin(&self, object: u32, offset: u64) -> Option<u64> {
        let (round, within) = (offset / self.stripe, offset % self.stripe);
        let Some(first) = round.checked_mul(self.objects as u64) else { return None };
        let Some(stripe) = first.checked_add(object as u64) else { return None };
        match stripe.checked_mul(self.stripe) {
            Some(start) => start.checked_add(within),
            None => None,
        }
    }

    /// A range of the file, stripe by stripe.
    pub fn parts(self, range: Range<u64>) -> impl Iterator<Item = Part> {
        let mut at = range.start;
        core::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let (object, offset) = self.place(at);
            let len = (self.stripe - at % self.stripe).min(range.end - at);
            let part = Part { object, offset, at, len };
            at += len;
            Some(part)
        })
    }

    /// Where an object ends if the file ends at `size` and has no holes (C-180).
    pub const fn object_end(&self, object: u32, size: u64) -> u64 {
        let (last, end) = self.place(size);
        if object == last {
            return end;
        }
        // Whole stripes, one more before the object that the end is in.
        let start = end - end % self.stripe;
        if object < last { start + self.stripe } else { start }
    }

    /// Where the file ends of which this object, that ends there, has the last byte; 0 for one without
    /// bytes and one that the file has not (C-179). What lies behind the largest offset is there.
    pub fn file_end_by(&self, object: u32, end: u64) -> u64 {
        match end.checked_sub(1).filter(|_| object < self.objects) {
            Some(last) => self.origin(object, last).unwrap_or(u64::MAX).saturating_add(1),
            None => 0,
        }
    }

    /// Where the file ends whose objects, in their order, end there (C-179).
    pub fn file_end(&self, ends: impl IntoIterator<Item = u64>) -> u64 {
        let end = |(object, end)| self.file_end_by(object, end);
        (0..self.objects).zip(ends).map(end).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn c177_stripes_take_objects_in_turn() {
        let raid = Raid0::new(MIB, 3).unwrap();
        assert_eq!(raid.place(0), (0, 0));
        assert_eq!(raid.place(MIB - 1), (0, MIB - 1));
        assert_eq!(raid.place(MIB), (1, 0));
        assert_eq!(raid.place(3 * MIB + 7), (0, MIB + 7));
        let parts: Vec<Part> = raid.parts(MIB - 2..2 * MIB + 1).collect();
        let part = |object, offset, at, len| Part { object, offset, at, len };
        assert_eq!(
            parts,
            [part(0, MIB - 2, MIB - 2, 2), part(1, 0, MIB, MIB), part(2, 0, 2 * MIB, 1)]
        );
        assert_eq!(raid.parts(5..5).count(), 0);
        assert_eq!(
            [0, 1, 2].map(|object| raid.object_end(object, 4 * MIB + 5)),
            [2 * MIB, MIB + 5, MIB]
        );
        assert_eq!(raid.file_end([2 * MIB, MIB + 5, MIB]), 4 * MIB + 5);
        assert_eq!(raid.file_end([0, 0, 0]), 0);
        assert_eq!(raid.file_end_by(3, 1), 0, "there are three");
        assert_eq!(raid.file_end([u64::MAX, 0, 0]), u64::MAX);
        assert_eq!(raid.file_end([0, 1, 0]), MIB + 1, "a hole in front");
    }

    #[test]
    fn c169_layout_that_no_server_takes_is_refused() {
        for stripe in [0, 1, 65_535, 4 << 30] {
            assert_eq!(Raid0::new(stripe, 1), Err(Raid0Error::Stripe(stripe)));
        }
        for objects in [0, OBJECTS_MAX + 1] {
            assert_eq!(Raid0::new(MIB, objects), Err(Raid0Error::Objects(objects)));
        }
        let widest = Raid0::new((4 << 30) - STRIPE_UNIT, OBJECTS_MAX).unwrap();
        assert_eq!(widest.origin(0, u64::MAX), None);
        let (object, offset) = widest.place(u64::MAX);
        assert_eq!(widest.origin(object, offset), Some(u64::MAX));
    }

    proptest! {
        /// Around each border: the byte before it, it, the byte behind it.
        #[test]
        fn bytes_are_found_again_both_ways_around_each_border(
            units in 1..64u64, objects in 1..40u32, border in 0..10_000u64, beside in 0..3u64,
        ) {
            let stripe = units * STRIPE_UNIT;
            let raid = Raid0::new(stripe, objects).unwrap();
            let at = (border * stripe + beside).saturating_sub(1);
            let (object, offset) = raid.place(at);
            prop_assert!(object < objects);
            prop_assert_eq!(raid.origin(object, offset), Some(at));
            prop_assert_eq!(raid.file_end_by(object, offset + 1), at + 1);
            // The other way: a byte of an object is one of the file, and that is this one.
            let other = border as u32 % objects;
            let origin = raid.origin(other, at).unwrap();
            prop_assert_eq!(raid.place(origin), (other, at));
        }

        #[test]
        fn parts_follow_each_other_and_stay_in_their_stripes(
            units in 1..4u64, objects in 1..8u32, start in 0..40u64, beside in 0..3u64, len in 0..3_000_000u64,
        ) {
            let stripe = units * STRIPE_UNIT;
            let raid = Raid0::new(stripe, objects).unwrap();
            let start = (start * stripe + beside).saturating_sub(1);
            let mut at = start;
            for part in raid.parts(start..start + len) {
                prop_assert_eq!(part.at, at);
                prop_assert_eq!(raid.place(at), (part.object, part.offset));
                prop_assert!(part.len > 0 && part.offset % stripe + part.len <= stripe);
                at += part.len;
            }
            prop_assert_eq!(at, start + len);
        }

        #[test]
        fn file_without_holes_ends_where_its_objects_end(
            units in 1..4u64, objects in 1..8u32, border in 0..100u64, beside in 0..3u64,
        ) {
            let stripe = units * STRIPE_UNIT;
            let raid = Raid0::new(stripe, objects).unwrap();
            let size = (border * stripe + beside).saturating_sub(1);
            let ends: Vec<u64> = (0..objects).map(|object| raid.object_end(object, size)).collect();
            prop_assert_eq!(ends.iter().sum::<u64>(), size);
            prop_assert_eq!(raid.file_end(ends), size);
        }
    }
}

//! The descriptors of uppers whose last event has not come: whose each is, what it stands on, and the word
//! that its upper has for it. The node has the name of its place here, so that an event finds it without a
//! search.

use lnet_types::{IoVec, MdId, Span};

/// Marks user words of descriptors that belong to an upper. Hosts give no other descriptor a user
/// word that has it.
pub const MARK: u64 = 1 << 61;

/// The name of an upper among those of its node. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpperId(pub(super) u8);

/// Where the turn of a place stands in its name, behind its number.
const TURN_SHIFT: u32 = 32;
/// Turns of a place: as many as fit below [`MARK`]. What is gone at once may have events that wait to be
/// polled; nothing waits for so many turns.
const TURNS: u64 = (MARK >> TURN_SHIFT) - 1;

/// A descriptor.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) owner: UpperId,
    pub(super) md: MdId,
    pub(super) user: u64,
    pub(super) iov: IoVec,
    /// It stands on blocks of `Below::alloc`, which go with it.
    pub(super) blocks: bool,
}

#[derive(Debug)]
struct Place {
    turn: u64,
    descriptor: Option<Descriptor>,
}

/// The word of the node for a descriptor of an upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name(u64);

impl Name {
    /// The name in a user word, if it is one.
    pub(super) const fn of(word: u64) -> Option<Self> {
        if word & MARK == 0 { None } else { Some(Self(word)) }
    }

    pub(super) const fn word(self) -> u64 {
        self.0
    }

    const fn place(self) -> usize {
        self.0 as u32 as usize
    }

    const fn turn(self) -> u64 {
        self.0 >> TURN_SHIFT & TURNS
    }
}

#[derive(Debug, Default)]
pub(super) struct Held {
    places: Vec<Place>,
    free: Vec<u32>,
}

impl Held {
    /// The name of the next descriptor that is entered.
    pub(super) fn next(&mut self) -> Name {
        let number = self.free.last().copied().unwrap_or_else(|| {
            // A node has at most 2^24 descriptors.
            let number = self.places.len() as u32;
            self.places.push(Place { turn: 0, descriptor: None });
            self.free.push(number);
            number
        });
        let turn = self.places.get(number as usize).map_or(0, |place| place.turn);
        Name(MARK | (turn & TURNS) << TURN_SHIFT | u64::from(number))
    }

    /// Enters a descriptor under [`Held::next`].
    pub(super) fn enter(&mut self, descriptor: Descriptor) {
        let place = self.free.pop().and_then(|number| self.places.get_mut(number as usize));
        if let Some(place) = place {
            place.descriptor = Some(descriptor);
        }
    }

    /// The descriptor of this name, unless it is gone.
    pub(super) fn get(&self, name: Name) -> Option<&Descriptor> {
        let place = self.places.get(name.place()).filter(|place| place.turn & TURNS == name.turn());
        place?.descriptor.as_ref()
    }

    /// A descriptor is gone; `free` gets the blocks that go with it.
    pub(super) fn end(&mut self, name: Name, free: impl FnMut(Span)) {
        let number = name.place();
        let place = self.places.get_mut(number).filter(|p| p.turn & TURNS == name.turn());
        if let Some(place) = place
            && let Some(descriptor) = &place.descriptor
        {
            if descriptor.blocks {
                descriptor.iov.iter().copied().for_each(free);
            }
            place.descriptor = None;
            place.turn += 1;
            self.free.push(number as u32);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The descriptors of the uppers that are meant, in the order of their names in the node.
    pub(super) fn of(&self, whose: impl Fn(UpperId) -> bool) -> Vec<MdId> {
        let all = self.places.iter().filter_map(|place| place.descriptor.as_ref());
        let mut mds: Vec<MdId> = all.filter(|d| whose(d.owner)).map(|d| d.md).collect();
        mds.sort_unstable();
        mds
    }
}

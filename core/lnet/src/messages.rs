//! The table of messages, and how many of them only wait. A message is made where it begins (`send/`,
//! `recv.rs`) and freed in one place, `discard` in `send/credits.rs`.
//!
//! A message is written where it stands and never moved: it is far too large for that. The place of one
//! that is freed stays as it is until the next message is written over it ([`Messages::begin`]).

mod copies;
mod resting;
mod written;

use core::fmt;

use lnet_types::{Instant, MsgId};
use lnet_wire::Hdr;
use slotmap::{Key, KeyData};

use crate::msg::{Msg, Role};
use copies::Copies;
use resting::Resting;

/// A place for a message, one after the other.
struct Place {
    msg: Msg,
    /// Odd while a message is here. Its name has this number, too, so that no later one answers to it.
    version: u32,
    /// The next free place, while this one is.
    next_free: u32,
}

/// All messages of a node.
#[derive(Default)]
pub(crate) struct Messages {
    /// The place with number n is at n - 1: a name has no number 0.
    places: Vec<Place>,
    /// The free place to be taken next; 0 if none is free.
    free: u32,
    /// How many places are taken.
    len: usize,
    /// Those that only wait for their answer.
    answering: usize,
    /// Those with drivers that another copy has replaced.
    pub(crate) copies: Copies,
    /// Those that rest.
    pub(crate) resting: Resting,
    /// Walks over the whole table.
    #[cfg(test)]
    pub(crate) walks: core::cell::Cell<u64>,
}

/// The number of a place in a name, and its version.
#[inline]
fn parts(id: MsgId) -> (u32, u32) {
    let word = id.data().as_ffi();
    (word as u32, (word >> 32) as u32)
}

fn name(number: u32, version: u32) -> MsgId {
    KeyData::from_ffi(u64::from(version) << 32 | u64::from(number)).into()
}

impl Messages {
    #[inline]
    pub(crate) fn get(&self, id: MsgId) -> Option<&Msg> {
        let (number, version) = parts(id);
        let place = self.places.get((number as usize).wrapping_sub(1))?;
        (place.version == version).then_some(&place.msg)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: MsgId) -> Option<&mut Msg> {
        let (number, version) = parts(id);
        let place = self.places.get_mut((number as usize).wrapping_sub(1))?;
        (place.version == version).then_some(&mut place.msg)
    }

    /// A new message, as [`Msg::new`] makes it.
    #[inline]
    pub(crate) fn begin(&mut self, role: Role, hdr: &Hdr, born: Instant) -> (MsgId, &mut Msg) {
        let number = if self.free == 0 { self.grow(hdr) } else { self.free };
        self.len += 1;
        let place = &mut self.places[number as usize - 1];
        self.free = place.next_free;
        place.version |= 1;
        place.msg.begin(role, hdr, born);
        (name(number, place.version), &mut place.msg)
    }

    /// A message that was made elsewhere.
    pub(crate) fn insert(&mut self, msg: Msg) -> MsgId {
        let (id, place) = self.begin(msg.role, &msg.hdr, msg.born);
        *place = msg;
        id
    }

    /// One more place, which is free.
    #[cold]
    fn grow(&mut self, hdr: &Hdr) -> u32 {
        let msg = Msg::new(Role::Remnant, *hdr, Instant::ZERO);
        self.places.push(Place { msg, version: 0, next_free: 0 });
        // Far fewer messages are allowed at a time.
        self.places.len() as u32
    }

    /// Frees the place of a message.
    #[inline]
    pub(crate) fn remove(&mut self, id: MsgId) {
        let (number, version) = parts(id);
        let place = self.places.get_mut((number as usize).wrapping_sub(1));
        if let Some(place) = place.filter(|place| place.version == version) {
            place.version = version.wrapping_add(1);
            place.next_free = self.free;
            place.msg.end();
            self.free = number;
            self.len -= 1;
        }
    }

    pub(crate) fn contains_key(&self, id: MsgId) -> bool {
        self.get(id).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MsgId, &Msg)> {
        #[cfg(test)]
        self.walks.set(self.walks.get() + 1);
        self.places.iter().zip(1..).filter_map(|(place, number)| {
            let Place { msg, version, .. } = place;
            (version % 2 == 1).then(|| (name(number, *version), msg))
        })
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = MsgId> {
        self.iter().map(|(id, _)| id)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.places.capacity()
    }

    /// Messages in hand: all but those that only wait for their answer.
    #[inline]
    pub(crate) fn in_hand(&self) -> usize {
        self.len.saturating_sub(self.answering)
    }

    /// One message more that only waits for its answer.
    pub(crate) fn begin_answering(&mut self) {
        self.answering += 1;
    }

    /// One less.
    pub(crate) fn end_answering(&mut self) {
        self.answering -= 1;
    }

    /// How many messages only wait for their answer.
    #[inline]
    pub(crate) const fn answering(&self) -> usize {
        self.answering
    }
}

/// The messages that there are: what is left in free places says nothing.
impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter())
            .entry(&"answering", &self.answering)
            .entry(&"copies", &self.copies)
            .finish()
    }
}

#[cfg(test)]
impl Messages {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Msg> {
        self.iter().map(|(_, msg)| msg)
    }
}

#[cfg(test)]
impl core::ops::Index<MsgId> for Messages {
    type Output = Msg;

    fn index(&self, id: MsgId) -> &Msg {
        self.get(id).expect("a message")
    }
}

#[cfg(test)]
impl core::ops::IndexMut<MsgId> for Messages {
    fn index_mut(&mut self, id: MsgId) -> &mut Msg {
        self.get_mut(id).expect("a message")
    }
}

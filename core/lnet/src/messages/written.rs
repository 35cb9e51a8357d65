//! The table of messages as it is written down: all places in their order, with what is in them.

use lnet_types::{Instant, Nid, Pid};
use lnet_wire::{Handle, Hdr, Kind};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::copies::Copies;
use super::resting::Resting;
use super::{Messages, Place};
use crate::msg::{Msg, Role, Stage};

/// One place; the first has number 0 and is never taken.
type Written<M> = (Option<M>, u32);

impl Serialize for Messages {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut places: Vec<Written<&Msg>> = vec![(None, 0)];
        for Place { msg, version, .. } in &self.places {
            places.push(((version % 2 == 1).then_some(msg), *version));
        }
        (places, self.answering, self.copies.len()).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        type All = (Vec<Written<Msg>>, usize, usize);
        let (places, answering, remnants): All = Deserialize::deserialize(from)?;
        let mut all = Self { answering, ..Self::default() };
        for (number, (msg, version)) in (0u32..).zip(places) {
            let taken = version % 2 == 1;
            if taken != msg.is_some() || (number == 0 && version != 0) {
                return Err(D::Error::custom("place of a message: version and content disagree"));
            }
            if number == 0 {
                continue;
            }
            let next_free = if taken { 0 } else { core::mem::replace(&mut all.free, number) };
            all.len += usize::from(taken);
            let msg = msg.unwrap_or_else(|| Msg::new(Role::Remnant, NOTHING, Instant::ZERO));
            all.places.push(Place { msg, version, next_free });
        }
        all.copies = Copies::among(&all);
        if all.copies.len() != remnants {
            return Err(D::Error::custom("messages: remnants and their number disagree"));
        }
        let mut resting = Resting::default();
        for (id, msg) in all.iter().filter(|(_, msg)| matches!(msg.stage, Stage::Resting(_))) {
            resting.insert(msg.hdr.dst, id);
        }
        all.resting = resting;
        Ok(all)
    }
}

/// What a free place is filled with.
const NOTHING: Hdr = Hdr {
    dst: Nid::ANY,
    src: Nid::ANY,
    dst_pid: Pid::ANY,
    src_pid: Pid::ANY,
    payload_len: 0,
    kind: Kind::Reply { dst: Handle::NONE, pad: [0; 24] },
};

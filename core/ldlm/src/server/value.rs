//! What comes with locks: the value block of a reply or completion (L-18, L-22.13).

use lnet_types::ByteOrder;
use lustre_wire::Layout;
use lustre_wire::ldlm::{LockDesc, Lvb};

use super::LockServer;
use crate::lookup::Lookup;
use crate::space::Value;
use crate::{Cookie, Mode};

/// What a target sends along with its locks.
#[derive(Clone, Debug)]
pub enum Values {
    /// The attributes of objects.
    Objects,
    /// Fencing numbers: each grant of EX or PW has one, above all that were given out before. In the
    /// value block the number stands in the place of the size.
    Fences(Fences),
}

/// The fencing numbers of a target.
#[derive(Clone, Debug)]
pub struct Fences {
    last: u64,
    /// Of the locks that have one, and of some that are gone.
    of: Lookup<Cookie, u64>,
}

/// Bits that count the grants of one start. The bits above are the number of the start.
const COUNT_BITS: u32 = 40;
/// Numbers of locks that are gone are dropped when there are so many more than locks.
const SLACK: usize = 1024;

impl Values {
    /// Fencing numbers of a target that was started so often, this time included. No two starts have
    /// the same number, and it is stored before the target begins; so the numbers grow from start to
    /// start, and a grant needs no record of its own: a million grants a second fill one start in
    /// twelve days.
    pub fn fences(starts: u32) -> Self {
        Self::Fences(Fences { last: u64::from(starts) << COUNT_BITS, of: Lookup::default() })
    }

    pub(super) const fn are_objects(&self) -> bool {
        matches!(self, Self::Objects)
    }

    /// The fencing number of a lock; 0 if it has none.
    pub fn fence(&self, lock: Cookie) -> u64 {
        match self {
            Self::Objects => 0,
            Self::Fences(fences) => fences.of.get(&lock).copied().unwrap_or_default(),
        }
    }

    /// The value block of a lock as its client gets it.
    pub(super) fn bytes(
        &mut self,
        lock: Cookie,
        desc: &LockDesc,
        granted: bool,
        held: Option<&Value>,
        short: bool,
    ) -> Vec<u8> {
        match self {
            Self::Objects => match held {
                Some(Value::Object(lvb)) => lvb_bytes(lvb, short),
                Some(Value::Bytes(bytes)) => bytes.to_vec(),
                None => Vec::new(),
            },
            Self::Fences(fences) => {
                let writes = matches!(Mode::of(desc.granted), Some(Mode::Ex | Mode::Pw));
                if !(granted && writes) {
                    return Vec::new();
                }
                let last = &mut fences.last;
                let size = *fences.of.get_or_insert_with(lock, || {
                    *last += 1;
                    *last
                });
                lvb_bytes(&Lvb { size, ..Lvb::default() }, false)
            }
        }
    }
}

/// The attributes as they are sent: without the nanoseconds to clients that don't expect them (L-18).
pub(super) fn lvb_bytes(lvb: &Lvb, short: bool) -> Vec<u8> {
    let mut bytes = lvb.to_bytes(ByteOrder::Little);
    if short {
        bytes.truncate(Lvb::LEN_SHORT);
    }
    bytes
}

impl LockServer {
    /// Forgets numbers of locks that are gone.
    pub(super) fn tidy_values(&mut self) {
        let Values::Fences(fences) = &mut self.values else { return };
        if fences.of.len() > 2 * self.space.view().locks + SLACK {
            fences.of.retain(|lock| self.space.lock(*lock).is_some());
        }
    }
}

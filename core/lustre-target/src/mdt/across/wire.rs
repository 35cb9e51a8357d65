//! What our metadata targets say to each other, as bytes. It is no protocol of Lustre, and its opcode is of no
//! kind that Lustre has; a kernel target refuses it. Any bytes are a message or none.
//!
//! ```text
//! request  version u32, sender u32, what u32, number u64, lowest u64, then
//!          settle   numbers u64 …
//!          prepare  owner u32, user 5 × u32, kind u32, directory 12, file 12, time i64, name …
//! reply    error u32, mode u32, group u32, length u32, layout …, access control list …
//! ```

use lnet_types::Errno;
use lustre_wire::{Buffers, Opcode, Portal};
use ptlrpc::{Call, Reply, Served};

use crate::mdt::access::Who;
use crate::mdt::inode::{Id, take};
use crate::mdt::open::Parent;
use crate::mdt::request::check_name;

/// The opcode of all of it.
pub(in crate::mdt) const OPCODE: Opcode = Opcode(20_736);
/// First word of a message.
const VERSION: u32 = 2;
/// Most changes of one target that are under way at others.
pub(in crate::mdt) const OPEN_MAX: usize = 32;
/// Bytes of the longest answer: a layout, and a list of 32 entries.
const REPLY_MAX: u32 = 16 << 10;

/// A change of a name, for a file that is on the target that asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mdt) struct NameChange {
    pub(in crate::mdt) what: What,
    /// The directory, on the target that is asked.
    pub(in crate::mdt) dir: Id,
    pub(in crate::mdt) name: Vec<u8>,
    /// The file, which is a directory.
    pub(in crate::mdt) file: Id,
    pub(in crate::mdt) time: i64,
}

/// What becomes of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mdt) enum What {
    Add,
    Remove,
}

/// What one target asks of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mdt) enum Order {
    /// Of the changes up to the number of the message only these are under way, and none is to be prepared any
    /// more.
    Settle(Vec<u64>),
    /// May the name be changed? It is held for that if so. With the owner of the file, and the user.
    Prepare(NameChange, u32, Who),
    /// The change is made.
    Apply,
    /// The change is dropped.
    Drop,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::mdt) struct Message {
    /// Index of the target that asks.
    pub(in crate::mdt) from: u32,
    /// Of the change, or the last one.
    pub(in crate::mdt) number: u64,
    /// No change below is under way at the target that is asked.
    pub(in crate::mdt) lowest: u64,
    pub(in crate::mdt) order: Order,
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes).map(u32::from_le_bytes)
}

fn long(bytes: &mut &[u8]) -> Option<u64> {
    take(bytes).map(u64::from_le_bytes)
}

fn id(bytes: &mut &[u8]) -> Option<Id> {
    let (id, rest) = Id::of_key(bytes)?;
    *bytes = rest;
    Some(id)
}

impl NameChange {
    /// As a message and a record have it, the name without a length at the end.
    pub(in crate::mdt) fn to_bytes(&self) -> Vec<u8> {
        let what: u32 = match self.what {
            What::Add => 1,
            What::Remove => 2,
        };
        let mut out = what.to_le_bytes().to_vec();
        out.extend(self.dir.key());
        out.extend(self.file.key());
        out.extend(self.time.to_le_bytes());
        out.extend(&self.name);
        out
    }

    pub(in crate::mdt) fn read(mut bytes: &[u8]) -> Option<Self> {
        let b = &mut bytes;
        let what = match word(b)? {
            1 => What::Add,
            2 => What::Remove,
            _ => return None,
        };
        let (dir, file) = (id(b)?, id(b)?);
        let time = long(b)?.cast_signed();
        check_name(b).ok()?;
        Some(Self { what, dir, name: b.to_vec(), file, time })
    }
}

impl Message {
    pub(in crate::mdt) fn to_bytes(&self) -> Vec<u8> {
        let what: u32 = match &self.order {
            Order::Settle(_) => 1,
            Order::Prepare(..) => 2,
            Order::Apply => 3,
            Order::Drop => 4,
        };
        let mut out: Vec<u8> =
            [VERSION, self.from, what].into_iter().flat_map(u32::to_le_bytes).collect();
        out.extend([self.number, self.lowest].into_iter().flat_map(u64::to_le_bytes));
        match &self.order {
            Order::Settle(open) => out.extend(open.iter().flat_map(|number| number.to_le_bytes())),
            Order::Prepare(change, owner, who) => {
                out.extend(owner.to_le_bytes());
                out.extend(who.words().into_iter().flat_map(u32::to_le_bytes));
                out.extend(change.to_bytes());
            }
            Order::Apply | Order::Drop => {}
        }
        out
    }

    pub(in crate::mdt) fn read(mut bytes: &[u8]) -> Option<Self> {
        let b = &mut bytes;
        if word(b)? != VERSION {
            return None;
        }
        let (from, what, number, lowest) = (word(b)?, word(b)?, long(b)?, long(b)?);
        let order = match what {
            1 => {
                let (numbers, rest) = b.as_chunks::<8>();
                if !rest.is_empty() || numbers.len() > OPEN_MAX {
                    return None;
                }
                Order::Settle(numbers.iter().copied().map(u64::from_le_bytes).collect())
            }
            2 => {
                let owner = word(b)?;
                let who = Who::of_words([word(b)?, word(b)?, word(b)?, word(b)?, word(b)?]);
                Order::Prepare(NameChange::read(b)?, owner, who)
            }
            3 if b.is_empty() => Order::Apply,
            4 if b.is_empty() => Order::Drop,
            _ => return None,
        };
        Some(Self { from, number, lowest, order })
    }

    pub(in crate::mdt) fn call(&self) -> Call {
        let mut call =
            Call::new(OPCODE, Buffers::from([self.to_bytes()])).answered_by(&[REPLY_MAX]);
        call.portals = Some((Portal::OUT, Portal::OSC_REPLY));
        call.modifies = false;
        call
    }

    /// The message of a request.
    ///
    /// # Errors
    /// `EPROTO`.
    pub(in crate::mdt) fn of(served: &Served) -> Result<Self, Errno> {
        let msg = served.msg().map_err(|_| Errno::EPROTO)?;
        msg.buffer(1).and_then(Self::read).ok_or(Errno::EPROTO)
    }
}

/// What the target that was asked has decided: a refusal, or what a new file gets from its directory.
pub(in crate::mdt) type Decision = Result<Parent, Errno>;

/// Whether a change that is refused so is asked for again: its name is held for another one.
pub(in crate::mdt) const fn is_asked_again(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN)
}

pub(in crate::mdt) fn decision_bytes(decision: &Decision) -> Vec<u8> {
    let (errno, none) = (decision.as_ref().err().map_or(0, |errno| errno.0), Parent::default());
    let Parent { mode, gid, layout, default_acl } = decision.as_ref().unwrap_or(&none);
    // Layouts are far below 4 GiB.
    let words = [errno.cast_unsigned(), *mode, *gid, layout.len() as u32];
    let mut out: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    out.extend(layout);
    out.extend(default_acl.iter().flatten());
    out
}

fn read_decision(mut bytes: &[u8]) -> Option<Decision> {
    let b = &mut bytes;
    let errno = i32::try_from(word(b)?).ok()?;
    if errno != 0 {
        return Some(Err(Errno(errno)));
    }
    let (mode, gid, len) = (word(b)?, word(b)?, word(b)?);
    let (layout, acl) = b.split_at_checked(len as usize)?;
    let default_acl = (!acl.is_empty()).then(|| acl.to_vec());
    Some(Ok(Parent { mode, gid, layout: layout.to_vec(), default_acl }))
}

/// The decision in a reply.
///
/// # Errors
/// `EPROTO`.
pub(in crate::mdt) fn decision(reply: &Reply) -> Decision {
    let msg = reply.msg().map_err(|_| Errno::EPROTO)?;
    msg.buffer(1).and_then(read_decision).unwrap_or(Err(Errno::EPROTO))
}

/// What our metadata targets say to each other, and store of it, read and written again. For tests with any
/// bytes: no program needs it.
#[derive(Clone, Copy, Debug)]
pub enum AcrossWire {
    /// A message.
    Message,
    /// A change of a name, as a message and a record have it.
    Change,
    /// What the reply has.
    Decision,
}

impl AcrossWire {
    /// The operation of these messages.
    pub const OPCODE: Opcode = OPCODE;

    /// Bytes that were read, written again; `None`: they are nothing of it.
    pub fn rewritten(self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Message => Message::read(bytes).map(|message| message.to_bytes()),
            Self::Change => NameChange::read(bytes).map(|change| change.to_bytes()),
            Self::Decision => read_decision(bytes).map(|decision| decision_bytes(&decision)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn change() -> impl Strategy<Value = NameChange> {
        (any::<bool>(), any::<[(u64, u32); 2]>(), any::<i64>(), "[a-z.]{1,255}").prop_map(
            |(adds, ids, time, name)| {
                let [dir, file] = ids.map(|(seq, oid)| Id { seq, oid });
                let what = if adds { What::Add } else { What::Remove };
                NameChange { what, dir, name: name.into_bytes(), file, time }
            },
        )
    }

    fn order() -> impl Strategy<Value = Order> {
        prop_oneof![
            proptest::collection::vec(any::<u64>(), 0..=OPEN_MAX).prop_map(Order::Settle),
            (change(), any::<u32>(), any::<[u32; 5]>())
                .prop_map(|(change, owner, who)| Order::Prepare(change, owner, Who::of_words(who))),
            Just(Order::Apply),
            Just(Order::Drop),
        ]
    }

    proptest! {
        #[test]
        fn message_is_read_as_it_was_written(from: u32, numbers: [u64; 2], order in order()) {
            let [number, lowest] = numbers;
            let message = Message { from, number, lowest, order };
            prop_assert_eq!(Message::read(&message.to_bytes()), Some(message));
        }

        #[test]
        fn any_bytes_are_a_message_or_none(bytes: Vec<u8>, what in 0..6u32) {
            let head = [VERSION, 0, what].into_iter().flat_map(u32::to_le_bytes);
            for bytes in [bytes.clone(), head.chain(bytes).collect()] {
                if let Some(message) = Message::read(&bytes) {
                    prop_assert_eq!(message.to_bytes(), bytes.clone());
                }
                if let Some(change) = NameChange::read(&bytes) {
                    prop_assert_eq!(change.to_bytes(), bytes.clone());
                }
                let _ = read_decision(&bytes);
            }
        }

        #[test]
        fn decision_is_read_as_it_was_written(
            mode: u32,
            gid: u32,
            layout: Vec<u8>,
            acl: Vec<u8>,
            errno in 0..200i32,
        ) {
            let default_acl = (!acl.is_empty()).then_some(acl);
            let parent = Parent { mode, gid, layout, default_acl };
            let decision = if errno == 0 { Ok(parent) } else { Err(Errno(errno)) };
            prop_assert_eq!(read_decision(&decision_bytes(&decision)), Some(decision));
        }
    }

    #[test]
    fn settling_names_no_more_changes_than_there_may_be() {
        let settle =
            |count| Message { from: 1, number: 7, lowest: 3, order: Order::Settle(vec![3; count]) };
        assert_eq!(Message::read(&settle(OPEN_MAX).to_bytes()), Some(settle(OPEN_MAX)));
        assert_eq!(Message::read(&settle(OPEN_MAX + 1).to_bytes()), None);
    }
}

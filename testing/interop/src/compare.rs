//! Two messages of one place in a conversation, field by field: what the kernel sent and what our
//! node sent. Values that a sender chooses freely need not be equal, but have to be used as the
//! kernel used its own: that is kept as a one-to-one map from captured values to ours, which also
//! turns the other side's captured answers into answers to what our node really sent.

use std::collections::{BTreeMap, BTreeSet};

use crate::layout::{Class, Item, Pool};

/// The freely chosen values seen so far. One for each case.
#[derive(Debug, Default)]
pub struct Values {
    ours: BTreeMap<(Pool, u64), u64>,
    captured: BTreeMap<(Pool, u64), u64>,
    withheld: BTreeSet<u64>,
}

impl Values {
    /// Differences between the message the kernel sent and the one our node sent in its place.
    pub fn compare(&mut self, kernel: &Item, ours: &Item) -> Vec<String> {
        if kernel.kind != ours.kind {
            return vec![format!("expected {}, got {}", kernel.describe(), ours.describe())];
        }
        let mut differences = Vec::new();
        for (want, got) in kernel.fields().iter().zip(ours.fields()) {
            let (a, b) = (&kernel.bytes[want.range.clone()], &ours.bytes[got.range.clone()]);
            let free = match want.class {
                Class::Own(pool) if !pool.is_reserved(kernel.value(want)) => Some(pool),
                _ => None,
            };
            if free == Some(Pool::Cookie) && Pool::Cookie.is_reserved(ours.value(&got)) {
                // Our node asks for no acknowledgement here, so it must not get one either.
                self.withheld.insert(kernel.value(want));
            }
            let same = match free {
                Some(pool) => self.pair(pool, kernel.value(want), ours.value(&got)),
                None => a == b,
            };
            if !same {
                let place = format!("{} {}", kernel.kind, want.name);
                differences.push(format!("{place}: expected {}, got {}", hex(a), hex(b)));
            }
        }
        if kernel.bytes.len() != ours.bytes.len() {
            let (a, b) = (kernel.bytes.len(), ours.bytes.len());
            differences.push(format!("{}: expected {a} bytes, got {b}", kernel.kind));
        }
        differences
    }

    /// Notes a message that our node is not asked to send: what answers its zero-copy cookie is not
    /// to be sent either.
    pub fn leave_out(&mut self, kernel: &Item) {
        for field in kernel.fields() {
            if field.class == Class::Own(Pool::Cookie) {
                self.withheld.insert(kernel.value(&field));
            }
        }
    }

    /// The bytes to send in place of a captured message to our node: what the capture copied from
    /// the kernel node becomes what our node chose. `None` if it answers
    /// something that our node was not asked to send.
    pub fn translate(&self, captured: &Item) -> Option<Vec<u8>> {
        let mut bytes = captured.bytes.clone();
        for field in captured.fields() {
            let Class::Echo(pool) = field.class else { continue };
            let value = captured.value(&field);
            if pool.is_reserved(value) {
                continue;
            }
            match self.ours.get(&(pool, value)) {
                Some(ours) => bytes[field.range].copy_from_slice(&ours.to_le_bytes()),
                None if pool == Pool::Cookie && self.withheld.contains(&value) => return None,
                None => {}
            }
        }
        Some(bytes)
    }

    /// Whether `ours` may stand for `captured`: both new, or paired with each other already.
    fn pair(&mut self, pool: Pool, captured: u64, ours: u64) -> bool {
        if pool.is_reserved(ours) {
            return false;
        }
        let known = self.ours.get(&(pool, captured)).copied();
        let back = self.captured.get(&(pool, ours)).copied();
        match (known, back) {
            (None, None) => {
                self.ours.insert((pool, captured), ours);
                self.captured.insert((pool, ours), captured);
                true
            }
            (known, back) => known == Some(ours) && back == Some(captured),
        }
    }
}

/// Up to 40 bytes in hexadecimal; numbers that people know better, little-endian.
fn hex(bytes: &[u8]) -> String {
    match bytes.len() {
        2 | 4 | 8 => {
            let value = bytes.iter().rev().fold(0_u64, |sum, b| sum << 8 | u64::from(*b));
            format!("{value:#x}")
        }
        len => {
            let shown: String = bytes.iter().take(40).map(|b| format!("{b:02x}")).collect();
            if len > 40 { format!("{shown}… ({len} bytes)") } else { shown }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{End, Splitter};

    fn hello(incarnation: u64, src_pid: u32) -> Item {
        let mut bytes = vec![0; 56];
        bytes[..8].copy_from_slice(&[0x63, 0x69, 0x72, 0x45, 3, 0, 0, 0]);
        bytes[24..28].copy_from_slice(&src_pid.to_le_bytes());
        bytes[32..40].copy_from_slice(&incarnation.to_le_bytes());
        Splitter::new(End::Server).push(&bytes).remove(0)
    }

    #[test]
    fn a_free_value_may_differ_but_not_change() {
        let mut values = Values::default();
        assert_eq!(values.compare(&hello(7, 1), &hello(8, 1)), [""; 0]);
        assert_eq!(values.compare(&hello(7, 1), &hello(8, 1)), [""; 0]);
        assert_eq!(values.compare(&hello(7, 1), &hello(9, 1)).len(), 1, "another incarnation");
        assert_eq!(values.compare(&hello(6, 1), &hello(8, 1)).len(), 1, "one of another NI");
        assert_eq!(values.compare(&hello(5, 1), &hello(0, 1)).len(), 1, "none at all");
    }

    #[test]
    fn any_other_value_has_to_be_equal() {
        let differences = Values::default().compare(&hello(7, 12345), &hello(7, 1));
        assert_eq!(differences, ["HELLO v3 src_pid: expected 0x3039, got 0x1"]);
    }

    #[test]
    fn an_answer_names_what_our_node_chose() {
        let mut values = Values::default();
        let get = |object: u64| {
            let mut bytes = vec![0; 96];
            (bytes[0], bytes[48]) = (0xc1, 2);
            bytes[64..72].copy_from_slice(&object.to_le_bytes());
            let mut splitter = Splitter::new(End::Server);
            splitter.push(&hello(1, 1).bytes);
            splitter.push(&bytes).remove(0)
        };
        assert_eq!(values.compare(&get(0x11), &get(0x99)), [""; 0]);
        let mut reply = get(0x11);
        reply.bytes[48] = 3;
        let mut splitter = Splitter::new(End::Client);
        let mut request = vec![0; 16];
        request[..8].copy_from_slice(&[0x00, 0x71, 0xce, 0xac, 1, 0, 0, 0]);
        splitter.push(&request);
        splitter.push(&hello(2, 1).bytes);
        let reply = splitter.push(&reply.bytes).remove(0);
        assert_eq!(values.translate(&reply).unwrap()[64..72], 0x99_u64.to_le_bytes());
    }
}
